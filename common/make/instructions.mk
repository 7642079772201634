# instructions.mk: files that are compiled for instructions beyond ARCH_FLAGS, wherever the compiler
# knows them.  The program asks the processor before it calls what is in them (fast/bf16.c).
AVX512 := -mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl
knows = $(shell $(CC) $(1) -E -x c /dev/null >/dev/null 2>&1 && echo $(1))
BF16 := $(BUILD)/obj/04_monoid_tiled_cpu/fast
BF16_PIC := $(BUILD)/obj/pic/04_monoid_tiled_cpu/fast
$(BF16)/dot_bf16.o $(BF16_PIC)/dot_bf16.o: INSTRUCTIONS = $(call knows,$(AVX512) -mavx512bf16)
$(BF16)/amx.o $(BF16_PIC)/amx.o: INSTRUCTIONS = $(call knows,$(AVX512) -mamx-tile -mamx-bf16)

# This file alone runs on any processor of the architecture: it asks for the instructions of the rest.
ARCHITECTURE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
$(BUILD)/obj/common/program/processor.o: INSTRUCTIONS = $(if $(filter x86_64,$(ARCHITECTURE)),\
    $(call knows,-march=x86-64),$(if $(filter aarch64,$(ARCHITECTURE)),$(call knows,-march=armv8-a)))
