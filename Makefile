# Softmax to FlashAttention in five steps
#
# Read and run
#   make                 build, check, time and plot all five stages; a summary table
#   make stage           list the stages
#   make stage 3         build and check stage 3 (or several: make stage 2 3)
#   make diff 3          what stage 3 changes in stage 2 (FILE=fast/simd.c: in another file)
#   make diff RUNG=tile  what a rung of stage 4 changes in the one before; stage 5: RUNG=8
#   make trace 3         watch m, l and o after every step (ROW=3,2,5,1)
#   make on_ramp         four tiny CUDA kernels, before the first GPU file of stage 1
#   make map             draw which word attends to which in a sentence (HEAD=9)
#   make exercise 3      judge your answers to a stage's exercises (EX=online_step: to one)
#   make hint 3          a hint for one: EX=online_step, each time the next
#
# Measure
#   make bench 3         time a stage (alone: all of them); CSV files in build/results/
#   make plot            figures from CSV (RESULTS=notes/results: the committed ones)
#   make tables          tables of the README files and notes; tables-check compares only
#   make profile 5       hardware counters of a stage's GPU kernels, where they can be read
#   make cuda            compile the GPU code, also without a GPU; several GPUs need NCCL
#   make mpi             stage 4 on several processes: install OpenMPI, build and check
#
# Test
#   make test            all tests (Criterion and pytest)
#   make test-long       also every float through the vector exp, and a whole class's marks
#   make sanitize        the tests under sanitizers and valgrind; on a GPU compute-sanitizer
#   make machines        the CPU code built by gcc and clang for other machines, ARM too
#   make fuzz            hostile files and options, under sanitizers (SECONDS=60)
#   make differential    PROBLEMS=2000 random problems for each stage, from SEED=1
#   make gallery         plant every known bug: which case catches it? (BUG=name QUICK=1)
#   make eight_bits      the error of attention in 8 bits, idea by idea
#
# Use it
#   make library         build/libfive_steps.so and .a: attention in your own C program
#   make install         PREFIX=/usr/local [DESTDIR=dir]; make uninstall takes it away
#
# Learn and teach
#   make book            READMEs and notes as a web site; book-test tries it in a browser
#   make exercise        list the exercises
#   make check           judge all your answers
#   make course          a repository for students, one for you (OUT=dir SEED=text UPTO=3)
#   make grade           mark a folder of submissions (SUBMISSIONS=dir OUT=dir EX="1 merge")
#
#   make help            this text
#   make clean           remove what was built: build/, or BUILD=dir
#
# Options: CC=clang  CUDA_ARCH="80 90a"  HEAD_DIMS="64 128 256"  NO_INSTALL=1  BUILD=dir
#          V=1 (show the commands)
# With several jobs write `make -j8 stage 3`: `make stage -j 3` means three jobs.

STAGES := 01_naive 02_safe_softmax 03_online_softmax 04_monoid_tiled_cpu 05_flash_cuda
BUILD := build
RESULTS ?= $(BUILD)/results
HEAD_DIMS ?= 64 128

# --- The verbs that a stage's number may follow.  `make stage 3` is the target
#     stage-03_online_softmax, which needs the program build/03_online_softmax. ---
NUMBERED := stage diff trace bench profile exercise hint

# Where the request cannot be meant, or done here, request.mk has printed a line, and make ends with status 2.
include common/core/make/compilers.mk common/core/make/request.mk
ifeq ($(REFUSED),)

.DEFAULT_GOAL := all
.PHONY: all build cuda summary help clean
include $(addprefix common/core/make/,programs.mk library.mk roof.mk exercises.mk stages.mk \
                                 reports.mk tests.mk book.mk mpi.mk nccl.mk)

all: build summary

build: $(PROGRAMS)

cuda: build $(BUILD)/libfive_steps.so

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

clean:
	@[ $(BUILD) = build ] || [ ! -e $(BUILD) ] || [ -f $(BUILD)/config ] || \
	    { echo "BUILD: '$(BUILD)' is no folder that make built in" >&2; exit 2; }
	rm -rf $(BUILD)

endif
