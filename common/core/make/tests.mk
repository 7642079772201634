# tests.mk: the tests, which pytest runs, those of the Criterion program too (tests/conftest.py), and the
# tools that look further.
#
#   JOBS        tests at once; more than there are cores, because tests wait for processes and browsers
#   SECONDS     of fuzzing, for each target
#   PROBLEMS    random problems for each stage, drawn from SEED
#   BUG         the planted bugs to try; all unless given
#   QUICK       1 tries each bug on the one case that is known to catch it, and records nothing
.PHONY: test test-long tests-built sanitize machines fuzz sanitized differential gallery eight_bits syntax

TEST_O = $(patsubst %,$(BUILD)/obj/%.o,$(basename $(wildcard tests/test_*.c tests/test_*.cc)))
# Nobody waits for a test's own code, but for its compiler: -O1 halves that.
$(TEST_O): private CFLAGS += -O1
$(TEST_O): private CXXFLAGS += -O1
# It includes a kernel of stage 5, whose loops nvcc alone is told to unroll.
$(BUILD)/obj/tests/test_part_tuned.o: private CXXFLAGS_ALL += -I05_flash_cuda -Wno-unknown-pragmas

# A test may include a stage's file to reach what is static in it; the library gives what
# that file lists, and nothing that the test has itself.  The twins on the GPU are linked as
# they are: a weak name takes nothing out of a library.
PARTS_O = $(filter-out $(MAINS) %.cuda.o,$(foreach s,$(STAGES),$(call objects_of,$(s))))
TWINS_O = $(foreach s,$(STAGES),$(call twins_of,$(s)))
$(BUILD)/libparts.a: $(PARTS_O)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(BUILD)/tests: LIBS += -lcriterion
$(BUILD)/tests: $(TEST_O) $(LIBRARY_TEST_O) $(TWINS_O) $(COMMON_O) $(BUILD)/libparts.a
	$(call says,link ,$@)
	$(link)

# A build under sanitizers has no second one inside.
tests-built: build library $(BUILD)/tests exercises-built \
             $(if $(findstring sanitize,$(BUILD)),,sanitized)

PYTEST = BUILD=$(BUILD) PYTHONPYCACHEPREFIX=$(abspath $(BUILD))/pycache $(PYTHON) -m pytest
test: tests-built
	$(Q)$(PYTEST) tests -rs --durations=5 \
	    $(if $(shell $(PYTHON) -c 'import xdist' 2>&1),,-n $(or $(JOBS),$(shell expr $$(nproc) + 2)))

# Every C and C++ file read for its warnings: make syntax BUILD=build/clang CC=clang WERROR=-Werror.
# nvcc alone reads what is for a GPU alone; `make book` compiles what is for a browser.
ifneq ($(filter syntax,$(MAKECMDGOALS)),)
.PHONY: $(BUILD)/five_steps_tensors.abi3.so
# The judge asks for no warnings: a solution may leave alone what it gets.
READ_ONLY = -fsyntax-only -Wno-unused-command-line-argument \
            $(if $(findstring /solutions/,$<),-Wno-unused-function -Wno-unused-parameter)
syntax: CFLAGS += $(READ_ONLY)
syntax: CXXFLAGS += $(READ_ONLY)
syntax: INCLUDE += -Icommon/products -Icommon/products/library $(STAGES:%=-I%/exercises/solutions)
syntax: $(patsubst %.c,$(BUILD)/obj/%.o,$(patsubst %.cc,$(BUILD)/obj/%.o,$(patsubst %.cu,$(BUILD)/obj/%.cpu.o,\
    $(filter-out $(LESSONS) common/products/book/wasm/% %/tensors.c 05_flash_cuda/multi_gpu/% common/core/gpu/%.cu %/peak.cu,\
        $(shell find $(STAGES) common tests -name '*.c' -o -name '*.cc' -o -name '*.cu'))))) \
    $(BUILD)/five_steps_tensors.abi3.so
endif

test-long: test
	$(Q)LONG=1 $(PYTEST) tests -m long

sanitize:
	$(Q)$(PYTEST) -v -rs tests/sanitize.py -k "$(or $(ONLY),not quick)"

machines:
	$(Q)$(PYTEST) -v -rs tests/machines.py

gallery:
	$(Q)BUILD=$(BUILD) $(PYTHON) tests/planted/gallery.py $(if $(QUICK),--quick) \
	    $(if $(filter-out $(BUILD)/results,$(RESULTS)),--results $(RESULTS)/planted) \
	    $(foreach b,$(BUG),$(call quoted,$(b)))

# What attention in 8 bits errs by, idea by idea (notes/eight_bits.md).
EIGHT_BITS = $(BUILD)/obj/04_monoid_tiled_cpu/variants
$(BUILD)/eight_bits: $(EIGHT_BITS)/errors.o $(EIGHT_BITS)/eight_bits.o $(COMMON_O)
	$(call says,link ,$@)
	$(link)
eight_bits: $(BUILD)/eight_bits
	@mkdir -p $(RESULTS)/eight_bits
	$(Q)$(BUILD)/eight_bits > $(RESULTS)/eight_bits/errors.csv
	$(Q){ git log -1 --format='commit: %h, %cs'; $(CC) --version | head -n 1; uname -m; } \
	    > $(RESULTS)/eight_bits/errors.machine.txt

# Problems drawn at random, every variant against the reference.
PROBLEMS ?= 2000
SEED ?= 1
differential: build
	$(Q)status=0; for s in $(STAGES); do echo "== $$s"; $(BUILD)/$$s check \
	    --random $(call quoted,$(PROBLEMS)) --seed $(call quoted,$(SEED)) || status=1; done; \
	    exit $$status

# The stages under address sanitizer, for tests/test_fuzz.py and tests/sanitize.py (the same flags).
ASAN_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow
ASAN := $(BUILD)/sanitize/quick
sanitized:
	$(Q)$(MAKE) --no-print-directory BUILD=$(ASAN) CFLAGS="$(ASAN_FLAGS)" \
	    CXXFLAGS="$(ASAN_FLAGS)" CUDA=0 $(STAGES:%=$(ASAN)/%)

SECONDS ?= 60
fuzz: sanitized
	$(Q)FUZZ_SECONDS=$(call quoted,$(SECONDS)) $(PYTEST) -s -rs tests/test_fuzz.py
