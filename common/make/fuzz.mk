# fuzz.mk: the five stages in one program under address sanitizer, for tests/fuzz/fuzz_run.c.
#
#   $(BUILD)/fuzz_run   built in a tree of its own, $(BUILD)/sanitize/quick, which the quick
#                       sanitizer run of tests/sanitize.py shares: same flags, same objects

ASAN_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow
ASAN := $(BUILD)/sanitize/quick
.PHONY: fuzz-run-built
fuzz-run-built:
	$(Q)$(MAKE) --no-print-directory BUILD=$(ASAN) CFLAGS="$(ASAN_FLAGS)" \
	    CXXFLAGS="$(ASAN_FLAGS)" CUDA=0 $(ASAN)/fuzz_run

# A stage's object with its main under another name.
$(BUILD)/obj/main_%.o: $(BUILD)/obj/%/stage.o
	$(Q)objcopy --redefine-sym main=main_$* $< $@
$(BUILD)/obj/main_%.o: $(BUILD)/obj/%/stage.cpu.o
	$(Q)objcopy --redefine-sym main=main_$* $< $@

FUZZ_RUN_O := $(patsubst %.c,$(BUILD)/obj/%.o,tests/fuzz/fuzz_run.c \
                $(wildcard tests/fuzz/run_*.c))
$(BUILD)/fuzz_run: $(FUZZ_RUN_O) $(STAGES:%=$(BUILD)/obj/main_%.o) \
                   $(BUILD)/libparts.a $(COMMON_O)
	@echo "  link  $@"
	$(Q)$(CXX) $(FAST) $(CXXFLAGS) $(filter %.o,$^) $(BUILD)/libparts.a $(LIBS) -o $@
