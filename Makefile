# Softmax to FlashAttention in five steps
#
#   make                 build, check, time and plot all five stages; a summary table
#   make test            all tests (Criterion)
#   make stage           list the stages;      make stage 3 [4 ...]  build and check some
#   make diff 3          what stage 3 changes in stage 2 (FILE=fast/simd.c: in another file)
#   make on_ramp         four tiny CUDA kernels, before the first GPU file of stage 1
#   make trace 3         watch m, l and o after every step (ROW=3,2,5,1)
#   make bench [3]       measure; CSV into build/results/
#   make plot, tables    figures and tables from CSV (RESULTS=notes/results: the committed ones)
#   make cuda            compile the GPU code even where there is no GPU
#   make profile 5       hardware counters of a stage's kernels into CSV, where readable
#   make test-long       every float through the vector exp, a whole class through the grader
#   make exercise 3      build and judge your solutions of a stage's exercises (EX=online_step)
#   make grade           judge a folder of submissions (SUBMISSIONS=dir OUT=dir EX="1 merge")
#   make gallery         plant every known bug and see which case catches it
#   make sanitize        the tests under sanitizers and valgrind; on a GPU compute-sanitizer
#   make fuzz            hostile files and options to `run`, the .npy parser, the command line (SECONDS=60)
#   make differential    PROBLEMS=2000 random problems a stage, from SEED=1, against the reference
#   make help, make clean
#
# Options: CUDA_ARCH="80 90a"  HEAD_DIMS="64 128 256"  NO_INSTALL=1  CC=clang  V=1
# With several jobs write `make -j8 stage 3`: `make stage -j 3` means three jobs.

STAGES := 01_naive 02_safe_softmax 03_online_softmax 04_monoid_tiled_cpu 05_flash_cuda
NUMBERS := 1 2 3 4 5
VERBS := stage diff trace bench profile exercise
BUILD := build
RESULTS ?= $(BUILD)/results
ROW ?= 3,2,5,1
HEAD_DIMS ?= 64 128

.DELETE_ON_ERROR:
.SUFFIXES:
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif
ifneq ($(V),1)
Q := @
endif

# --- A verb may be followed by stage numbers; anything else is an error before any work. ---
VERB := $(firstword $(MAKECMDGOALS))
GIVEN := $(filter-out $(VERB),$(MAKECMDGOALS))
ifneq ($(filter $(VERBS),$(VERB)),)
UNKNOWN := $(filter-out $(NUMBERS),$(GIVEN))
ifneq ($(UNKNOWN),)
$(error no stage '$(firstword $(UNKNOWN))'; valid stages: $(NUMBERS))
endif
else
MISPLACED := $(filter $(NUMBERS),$(MAKECMDGOALS))
ifneq ($(MISPLACED),)
$(error a stage number follows a verb: make stage $(firstword $(MISPLACED)))
endif
endif
directory = $(word $(1),$(STAGES))

# --- Compilers. ---
# clang's OpenMP runtime is linked by clang++ only: CC=clang-14 chooses clang++-14.
ifneq ($(and $(filter default,$(origin CXX)),$(findstring clang,$(CC))),)
CXX := $(subst clang,clang++,$(CC))
WNO := -Wno-pass-failed
endif
WARN := -Wall -Wextra $(WNO) $(WERROR)
ARCH_FLAGS ?= -march=native
FAST := -O3 $(ARCH_FLAGS) -fno-math-errno -fno-trapping-math -fopenmp -ffp-contract=off
# A file sees common/, its own room, its stage's directory, and the monoid of stage 4.
stage_of = $(firstword $(subst /, ,$(1)))
INCLUDE = -Icommon -I$(dir $<) -I$(call stage_of,$<) -I04_monoid_tiled_cpu
comma := ,
DIMS = '-DHEAD_DIMS=$(subst $(space),$(comma),$(strip $(HEAD_DIMS)))'
space := $() $()
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE $(FAST) $(WARN) -MMD -MP $(CFLAGS)
CXXFLAGS_ALL = -std=c++20 -D_GNU_SOURCE $(FAST) $(WARN) -MMD -MP $(DIMS) $(CXXFLAGS)
LIBS := -lm -lpthread -ldl

# --- The GPU: its code is compiled where nvcc and a GPU are found, or by `make cuda`. ---
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
GPU_CAP := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null \
             | head -n 1 | tr -d '. ')
ifneq ($(filter cuda,$(MAKECMDGOALS)),)
CUDA := 1
else ifneq ($(and $(NVCC),$(filter 7% 8% 9% 1%,$(GPU_CAP))),)
CUDA ?= 1
endif
ifeq ($(CUDA),0)
override CUDA :=
endif
ifneq ($(filter 7% 8% 9% 1%,$(GPU_CAP)),)
CUDA_ARCH ?= $(patsubst 90,90a,$(GPU_CAP))
else
CUDA_ARCH ?= 80 90a
endif
gencode = $(foreach a,$(1),-gencode arch=compute_$(a),code=sm_$(a))
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
NVFLAGS = -std=c++20 -O3 -lineinfo $(if $(WERROR),-Werror all-warnings) \
          -Xcompiler -Wall$(comma)-Wextra$(comma)-fopenmp$(comma)-fPIC $(subst $(comma),\$(comma),$(DIMS)) $(CUFLAGS)
ifdef CUDA
ifeq ($(NVCC),)
$(error make cuda needs nvcc; it was not found on the PATH or in /usr/local/cuda/bin)
endif
LIBS += -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/targets/x86_64-linux/lib -lcudart_static -lrt
endif

# --- What each program is made of. ---
ROOMS := $(filter-out common/grader/ common/library/,$(wildcard common/*/))
COMMON_C := $(filter-out common/gpu/gpu_none.c,$(wildcard $(ROOMS:%=%*.c))) \
            $(if $(CUDA),,common/gpu/gpu_none.c)
COMMON_CC := $(wildcard $(ROOMS:%=%*.cc))
COMMON_O := $(COMMON_C:%.c=$(BUILD)/obj/%.o) $(COMMON_CC:%.cc=$(BUILD)/obj/%.o) \
            $(if $(CUDA),$(BUILD)/obj/common/gpu/gpu.cuda.o)
STAGE_ROOMS := fast gpu variants portable hopper split_kv
c_of = $(wildcard $(1)/*.c $(foreach r,$(STAGE_ROOMS),$(1)/$(r)/*.c))
cu_of = $(wildcard $(1)/*.cu $(foreach r,$(STAGE_ROOMS),$(1)/$(r)/*.cu))
# A file whose first line says `arch: sm_90a` is compiled for that alone.
HOPPER_CU := $(shell for f in $(foreach s,$(STAGES),$(call cu_of,$(s))); do \
               head -n 1 $$f | grep -q 'arch: sm_90a' && echo $$f; done)
HOPPER_HERE := $(filter 90a,$(CUDA_ARCH))
has_twin = $(if $(CUDA),$(if $(filter $(1),$(HOPPER_CU)),$(HOPPER_HERE),1))
MAIN_CU := 05_flash_cuda/stage.cu
twins_of = $(foreach f,$(filter-out $(MAIN_CU),$(call cu_of,$(1))),\
             $(if $(call has_twin,$(f)),$(BUILD)/obj/$(f:.cu=.cuda.o)))
objects_of = $(patsubst %.c,$(BUILD)/obj/%.o,$(call c_of,$(1))) \
             $(patsubst %.cu,$(BUILD)/obj/%.cpu.o,$(call cu_of,$(1))) $(call twins_of,$(1))
PROGRAMS := $(foreach s,$(STAGES),$(if $(wildcard $(s)/stage.c $(s)/stage.cu),$(BUILD)/$(s)))

# The last rung of the ladder, and its file.
LAST_RUNG := $(shell sed -n 's/^RUNG.\([a-z_]*\),.*/\1/p' 05_flash_cuda/rungs.h | tail -n 1)
LAST_RUNG_CU := $(wildcard 05_flash_cuda/*/*_$(LAST_RUNG).cu)
ROOF := $(if $(CUDA),$(if $(HOPPER_HERE),$(BUILD)/roof05.so))

.PHONY: all build cuda stage diff trace bench profile plot tables tables-check test test-long \
        sanitize fuzz differential gallery help exercise exercises-built grade \
        clean summary $(NUMBERS) FORCE
.DEFAULT_GOAL := all

build: $(PROGRAMS)
cuda: build $(BUILD)/lib05.so $(ROOF)

# Everything below build/ is remade when the configuration changes.
CONFIG := $(CC) $(CXX) $(CFLAGS_ALL) $(CXXFLAGS_ALL) cuda=$(CUDA) \
          $(if $(CUDA),$(NVCC) $(CUDA_ARCH) $(NVFLAGS))
$(BUILD)/config: FORCE
	@mkdir -p $(@D)
	@echo "$(subst ",,$(CONFIG))" | cmp -s - $@ || echo "$(subst ",,$(CONFIG))" > $@

$(BUILD)/obj/%.o: %.c $(BUILD)/config
	@mkdir -p $(@D)
	@echo "  cc    $<"
	$(Q)$(CC) $(CFLAGS_ALL) $(PROVENANCE) $(INCLUDE) -c $< -o $@

$(BUILD)/obj/%.o: %.cc $(BUILD)/config
	@mkdir -p $(@D)
	@echo "  c++   $<"
	$(Q)$(CXX) $(CXXFLAGS_ALL) $(INCLUDE) -c $< -o $@

$(BUILD)/obj/%.cpu.o: %.cu $(BUILD)/config
	@mkdir -p $(@D)
	@echo "  c++   $<"
	$(Q)$(CXX) -x c++ $(CXXFLAGS_ALL) -Wno-unknown-pragmas $(if $(call has_twin,$<),-DHAVE_CUDA) $(INCLUDE) -c $< -o $@

$(BUILD)/obj/%.cuda.o: %.cu $(BUILD)/config
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	$(Q)$(if $(filter $<,$(HOPPER_CU)),sh common/make/ptxas_check.sh )$(NVCC) $(NVFLAGS) $(call gencode,$(if $(filter $<,$(HOPPER_CU)),90a,$(CUDA_ARCH))) \
	    -MMD -MP $(INCLUDE) -c $< -o $@

# The compiler and its flags are columns of the CSV.
$(BUILD)/obj/common/measurement/csv.o $(BUILD)/obj/common/library/attention_run.o: PROVENANCE = \
    '-DCOMPILER_FLAGS="$(strip $(FAST))"' '-DCUDA_COMPILER="$(if $(CUDA),nvcc $(CUDA_ARCH))"'

define program
$(BUILD)/$(1): $(call objects_of,$(1)) $(COMMON_O)
	@echo "  link  $$@"
	$(Q)$(CXX) $(FAST) $(CXXFLAGS) $$^ $(LIBS) -o $$@
endef
$(foreach s,$(STAGES),$(eval $(call program,$(s))))

# Stage 5's rungs as a shared library, so that peers.py runs them in turn with PyTorch's.
$(BUILD)/obj/common/library/%.o: CFLAGS += -fPIC
$(BUILD)/lib05.so: $(call twins_of,05_flash_cuda) \
                   $(BUILD)/obj/common/library/attention_run.o
	@echo "  link  $@"
	$(Q)$(CXX) -shared $^ $(LIBS) -o $@

# The roof over the last rung: the same kernel without softmax (hopper_softmax.h).  The few
# registers that it spills at times are not those of its loop.
$(BUILD)/obj/roof/%.cuda.o: %.cu $(BUILD)/config
	@mkdir -p $(@D)
	@echo "  nvcc  $< without softmax"
	$(Q)SPILLS=allowed sh common/make/ptxas_check.sh $(NVCC) $(NVFLAGS) \
	    $(call gencode,90a) -DNO_SOFTMAX -MMD -MP $(INCLUDE) -c $< -o $@
$(BUILD)/roof05.so: $(BUILD)/obj/roof/$(LAST_RUNG_CU:.cu=.cuda.o) \
                    $(BUILD)/obj/common/library/attention_run.o
	@echo "  link  $@"
	$(Q)$(CXX) -shared $^ $(LIBS) -o $@

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# --- The verbs. ---
$(NUMBERS): %: $(VERB)-%
define numbered
.PHONY: $(foreach v,$(VERBS),$(v)-$(1))
$(foreach v,$(VERBS),
$(v)-$(1): $(v)-$(call directory,$(1)))
endef
$(foreach n,$(NUMBERS),$(eval $(call numbered,$(n))))
.PHONY: $(foreach v,$(VERBS),$(STAGES:%=$(v)-%))

# Alone, `make stage` lists; the ideas come from the programs' descriptors.
stage:
ifeq ($(GIVEN),)
	@for s in $(STAGES); do \
	  idea=$$(sed -n '/^struct stage\|^static const struct stage\|^const struct stage/,/};/s/.*\.idea = "\(.*\)",.*/\1/p' $$s/stage.c* | head -n 1); \
	  echo "stage $${s%%_*}  $$s  $$idea" | sed 's/^stage 0/stage /'; done
else
	@:
endif

$(STAGES:%=stage-%): stage-%: $(BUILD)/%
	@echo "== $*: check"
	$(Q)OMP_WAIT_POLICY=passive $(BUILD)/$* check

$(STAGES:%=bench-%): bench-%: $(BUILD)/%
	@mkdir -p $(BUILD)/results
	@rm -f $(BUILD)/results/$*.csv
	$(Q)OMP_PROC_BIND=$${OMP_PROC_BIND:-true} $(BUILD)/$* bench --csv $(BUILD)/results/$*.csv $(BENCH_FLAGS)
	@$(if $(peers_of_$*),! command -v python3 >/dev/null || \
	    python3 $(peers_of_$*) --csv $(BUILD)/results/$*.csv || [ $$? = 77 ],:)

# PyTorch on the same shapes, in the same file, where it is installed.
peers_of_04_monoid_tiled_cpu = common/reports/peers_cpu.py
ifdef CUDA
peers_of_05_flash_cuda = common/reports/peers_gpu.py --library $(BUILD)/lib05.so
bench-05_flash_cuda: $(BUILD)/lib05.so
endif

$(STAGES:%=trace-%): trace-%: $(BUILD)/%
	$(Q)$(BUILD)/$* trace --row $(ROW)

FILE ?= stage.c
$(STAGES:%=diff-%): diff-%:
	@sh common/make/diff.sh $* $(FILE) $(STAGES)

$(STAGES:%=profile-%): profile-%: $(BUILD)/%
	@mkdir -p $(RESULTS)
	$(Q)sh common/reports/counters.sh $* $(BUILD)/$* $(RESULTS) $(roof_of_$*)
	$(if $(filter 05_%,$*),$(Q)$$(cat $(BUILD)/python 2>/dev/null || echo python3) \
	    common/reports/ladder_figures.py --results $(RESULTS) --out $(if $(filter \
	    $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS)) || [ $$? = 77 ])

# Stage 5 is profiled beside its roof: a program whose last rung has no softmax.
ifneq ($(ROOF),)
ROOF_O = $(BUILD)/obj/roof/$(LAST_RUNG_CU:.cu=.cuda.o)
$(BUILD)/roof/05_flash_cuda: $(ROOF_O) $(COMMON_O) $(filter-out \
    $(ROOF_O:$(BUILD)/obj/roof/%=$(BUILD)/obj/%),$(call objects_of,05_flash_cuda))
	@mkdir -p $(@D)
	@echo "  link  $@"
	$(Q)$(CXX) $(FAST) $(CXXFLAGS) $^ $(LIBS) -o $@
roof_of_05_flash_cuda = $(BUILD)/roof/05_flash_cuda
profile-05_flash_cuda: $(BUILD)/roof/05_flash_cuda
endif

diff trace profile:
	$(if $(GIVEN),@:,$(error $@ needs a stage number: make $@ 3))

bench: $(if $(GIVEN),,$(STAGES:%=bench-%))
	@:

# --- Exercises.  A worker is an exercise without the harness; the judge runs it (common/grader). ---
EXERCISE_FILES := $(wildcard 0*/exercises/solutions/*.c 0*/exercises/solutions/*.cu)
EXERCISES := $(notdir $(basename $(EXERCISE_FILES)))
EX_BUILD := $(BUILD)/exercises
KERNELS_O := $(BUILD)/obj/common/cuda_on_cpu/cuda_on_cpu.o
$(BUILD)/judge: $(BUILD)/obj/common/grader/judge.o $(BUILD)/obj/common/grader/jail.o $(COMMON_O)
	@echo "  link  $@"
	$(Q)$(CXX) $(FAST) $(CXXFLAGS) $^ $(LIBS) -o $@

# $(call worker,program,object,source): how a file becomes a worker.
define worker
$(2): $(3) $(BUILD)/config
	@mkdir -p $$(@D)
	@echo "  cc    $$<"
	$$(Q)$(if $(filter %.cu,$(3)),$$(CXX) -x c++ $$(CXXFLAGS_ALL),$$(CC) $$(CFLAGS_ALL)) -w -Icommon -c $$< -o $$@
$(1): $(2) $(BUILD)/obj/common/grader/worker.o $(if $(filter %.cu,$(3)),$(KERNELS_O))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(FAST) $$(CXXFLAGS) $$^ $$(LIBS) -o $$@
endef

# $(call exercise,name,solution,student's file): its program and the workers of all three.
define exercise
$(EX_BUILD)/$(1): $(patsubst %.c,$(BUILD)/obj/%.o,$(patsubst %.cu,$(BUILD)/obj/%.cpu.o,$(3))) \
                  $(if $(CUDA),$(patsubst %.cu,$(BUILD)/obj/%.cuda.o,$(filter %.cu,$(3)))) $(COMMON_O)
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(FAST) $$(CXXFLAGS) $$^ $$(LIBS) -o $$@
$(EX_BUILD)/skeleton/$(notdir $(2)): $(2) common/grader/exercises.py
	@mkdir -p $$(@D)
	$$(Q)python3 common/grader/exercises.py skeleton $(1) > $$@
$(call worker,$(EX_BUILD)/$(1).worker,$(BUILD)/obj/exercises/$(1).o,$(3))
$(call worker,$(EX_BUILD)/solution/$(1).worker,$(BUILD)/obj/exercises/solution/$(1).o,$(2))
$(call worker,$(EX_BUILD)/skeleton/$(1).worker,$(BUILD)/obj/exercises/skeleton/$(1).o,$(EX_BUILD)/skeleton/$(notdir $(2)))
endef
$(foreach f,$(EXERCISE_FILES),$(eval $(call exercise,$(notdir $(basename $(f))),$(f),$(subst solutions/,,$(f)))))

exercises-built: $(BUILD)/judge $(KERNELS_O) $(foreach x,$(EXERCISES),\
                 $(EX_BUILD)/solution/$(x).worker $(EX_BUILD)/skeleton/$(x).worker)

# Alone, `make exercise` lists; EX=name picks one.
run_exercises = python3 common/grader/exercises.py run $(1) --ex "$(EX)" --build $(BUILD) \
                --make "$(MAKE)" $(if $(CUDA),--gpu)
exercise: $(if $(EX),need-compiler)
	$(if $(GIVEN),@:,@$(if $(EX),$(run_exercises),python3 common/grader/exercises.py list))

$(STAGES:%=exercise-%): exercise-%: need-compiler
	$(Q)$(call run_exercises,$*)

# The plot is drawn with the interpreter that has matplotlib, where one was found.
OUT ?= $(BUILD)/grades
grade: $(if $(SUBMISSIONS),need-compiler exercises-built,\
         $(if $(filter grade,$(MAKECMDGOALS)),$(error make grade needs SUBMISSIONS=dir: one folder a student)))
	@BUILD=$(BUILD) NO_INSTALL=1 sh common/make/require.sh matplotlib 2>/dev/null || true
	$(Q)$$(cat $(BUILD)/python 2>/dev/null || echo python3) common/grader/grade.py \
	    --submissions "$(SUBMISSIONS)" --out "$(OUT)" --ex "$(EX)" --build $(BUILD) \
	    --cc "$(CC) -std=c11 -D_GNU_SOURCE $(FAST)" \
	    --cxx "$(CXX) -x c++ -std=c++20 -D_GNU_SOURCE $(FAST)" --link "$(CXX) $(FAST)"

include common/make/on_ramp.mk

# --- Needs: installed when missing, unless NO_INSTALL=1. ---
.PHONY: need-compiler need-python need-criterion
need-compiler:
	@BUILD=$(BUILD) NO_INSTALL=$(NO_INSTALL) sh common/make/require.sh compiler
need-python:
	@BUILD=$(BUILD) NO_INSTALL=$(NO_INSTALL) sh common/make/require.sh matplotlib
need-criterion:
	@BUILD=$(BUILD) NO_INSTALL=$(NO_INSTALL) sh common/make/require.sh criterion
PYTHON = $$(cat $(BUILD)/python)

all: need-compiler need-python
	$(Q)$(MAKE) --no-print-directory build
	$(Q)$(MAKE) --no-print-directory -j1 summary

# One log a stage; the summary reads them and the CSV files.
summary: build
	@mkdir -p $(BUILD)/results
	$(Q)sh common/make/all.sh $(BUILD) "$(STAGES)"
	$(Q)$(PYTHON) common/reports/plot.py --results $(BUILD)/results --out $(BUILD)/plots \
	    --program $(BUILD)/03_online_softmax
	$(Q)$(PYTHON) common/reports/summary.py $(BUILD)

plot: need-python $(BUILD)/03_online_softmax
	$(Q)$(PYTHON) common/reports/plot.py --results $(RESULTS) \
	    --out $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS)) \
	    --program $(BUILD)/03_online_softmax
	$(Q)$(PYTHON) common/reports/figures.py \
	    --out $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS))
	$(Q)$(PYTHON) common/reports/figures_mma.py \
	    --out $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS))
	$(Q)$(PYTHON) common/reports/pictures.py \
	    --out $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS))
	$(Q)$(PYTHON) common/reports/roofline.py --results $(RESULTS) \
	    --out $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS))
	$(Q)$(PYTHON) common/reports/ladder_figures.py --results $(RESULTS) \
	    --out $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS)) || \
	    [ $$? = 1 ]

tables tables-check: need-python
	$(Q)$(PYTHON) common/reports/tables.py --results notes/results $(if $(filter %-check,$@),--check)

# --- Tests: one program. ---
TEST_O = $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/test_*.c)) \
         $(patsubst %.cc,$(BUILD)/obj/%.o,$(wildcard tests/test_*.cc))
# A test may include a stage's file to reach what is static in it; the library gives what
# that file lists, and nothing that the test has itself.
PARTS_O = $(filter-out %/stage.o %/stage.cpu.o,$(foreach s,$(STAGES),$(call objects_of,$(s))))
$(BUILD)/libparts.a: $(PARTS_O)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/tests: $(TEST_O) $(BUILD)/libparts.a $(COMMON_O)
	@echo "  link  $@"
	$(Q)$(CXX) $(FAST) $(CXXFLAGS) $(TEST_O) $(COMMON_O) $(BUILD)/libparts.a $(LIBS) \
	    -lcriterion -o $@

include common/make/fuzz.mk

.PHONY: tests-built
tests-built: build $(BUILD)/tests exercises-built $(if $(findstring sanitize,$(BUILD)),,fuzz-run-built)

test: need-compiler need-criterion
	$(Q)$(MAKE) --no-print-directory tests-built
	$(Q)BUILD=$(BUILD) sh tests/run.sh $(BUILD)

sanitize: need-compiler need-criterion
	$(Q)sh tests/sanitize.sh $(BUILD)/sanitize

# The differential fuzzer: problems drawn at random, every variant against the reference.
PROBLEMS ?= 2000
SEED ?= 1
differential: build
	$(Q)status=0; for s in $(STAGES); do echo "== $$s"; \
	  $(BUILD)/$$s check --random $(PROBLEMS) --seed $(SEED) || status=1; done; exit $$status

SECONDS ?= 60
fuzz: fuzz-run-built
	$(Q)sh tests/fuzz/fuzz.sh $(BUILD) $(SECONDS)

gallery: need-compiler need-python need-criterion
	$(Q)$(PYTHON) tests/planted/gallery.py --build $(BUILD) \
	    $(if $(filter-out $(BUILD)/results,$(RESULTS)),--results $(RESULTS)/planted) $(BUG)

test-long: test
	$(Q)LONG=1 BUILD=$(BUILD) $(BUILD)/tests --filter '*/*_long' --timeout 3600

help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' Makefile

clean:
	rm -rf build

FORCE:
