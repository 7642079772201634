# library.mk: the C library, from the stages' own files, and its installation.
#
#   $(BUILD)/libfive_steps.so, $(BUILD)/libfive_steps.a   export five_steps_* and nothing else
#
# CPU files are compiled once more, as position-independent code; nvcc's objects are that.

LIBRARY := $(BUILD)/libfive_steps
FIVE_STEPS_VERSION := $(shell sed -n 's/.*FIVE_STEPS_VERSION "\(.*\)".*/\1/p' common/products/library/five_steps.h)
# What `--version` of a program says is the library's version.
$(BUILD)/obj/common/core/program/cli.o: PROVENANCE = '-DVERSION="$(FIVE_STEPS_VERSION)"'
LIBRARY_SONAME := libfive_steps.so.$(firstword $(subst ., ,$(FIVE_STEPS_VERSION)))
LIBRARY_C := $(addprefix common/products/library/,five_steps.c describe.c request.c) \
             $(addprefix common/core/problem/,arrays.c call.c choice.c heads.c host_memory.c operation.c dtype.c quantise.c) \
             $(addprefix 04_monoid_tiled_cpu/fast/,microkernel.c softmax.c tiled.c gradient_tiled.c \
                 bf16.c dot_bf16.c amx.c) \
             $(if $(CUDA),,common/products/library/backend_none.c)
LIBRARY_O := $(LIBRARY_C:%.c=$(BUILD)/obj/pic/%.o)
LIBRARY_CUDA_O := $(if $(CUDA),$(BUILD)/obj/common/products/library/backend_gpu.cuda.o \
                    $(BUILD)/obj/common/products/library/eight_bits_gpu.cuda.o \
                    $(call twins_of,05_flash_cuda) $(call twins_of,03_online_softmax))
LIBRARY_NAMES := -Wl,--version-script=common/products/library/five_steps.map
LIBRARY_LINK := $(if $(CUDA),$(CXX),$(CC))

$(BUILD)/obj/pic/%.o: %.c $(BUILD)/config
	$(call says,cc   ,$< (position-independent))
	$(Q)$(CC) $(CFLAGS_ALL) $(INSTRUCTIONS) -fPIC -fexceptions -ffunction-sections $(INCLUDE) -c $< -o $@

# The tests have the GPU's code executed on the CPU.
LIBRARY_TEST_O := $(addprefix $(BUILD)/obj/common/products/library/,five_steps.o describe.o request.o \
                              backend_gpu.cpu.o eight_bits_gpu.cpu.o)
$(LIBRARY_TEST_O): private CFLAGS += -fexceptions

$(BUILD)/obj/common/products/library/backend_gpu.cuda.o: private PROVENANCE = \
    '-DCUDA_COMPILER="nvcc $(NVCC_VERSION) $(CUDA_ARCH)"'

$(LIBRARY).so: $(LIBRARY_O) $(LIBRARY_CUDA_O) common/products/library/five_steps.map $(BUILD)/config.link
	$(call says,link ,$@)
	$(Q)$(LIBRARY_LINK) -shared -Wl,-soname,$(LIBRARY_SONAME) \
	    $(LIBRARY_NAMES) -Wl,-z,defs -Wl,--gc-sections -Wl,-rpath,'$$ORIGIN' \
	    $(FAST) $(CFLAGS) $(filter %.o,$^) $(LIBS) -o $@

# All objects as one, in which every other name is local: what the archive's user calls
# `merge` stays the user's.
$(LIBRARY).a: $(LIBRARY_O) $(LIBRARY_CUDA_O) $(BUILD)/config.link
	$(call says,ar   ,$@)
	$(Q)rm -f $@ && $(LD) -r $(filter %.o,$^) -o $(BUILD)/obj/five_steps.o
	$(Q)objcopy -w --keep-global-symbol='five_steps_*' $(BUILD)/obj/five_steps.o
	$(Q)$(AR) rcs $@ $(BUILD)/obj/five_steps.o

library: $(LIBRARY).so $(LIBRARY).a $(BUILD)/five_steps_tensors.abi3.so

# The part of the Python package that is in C, where Python's headers are: it serves every
# Python from 3.10 that has a GIL.
PACKAGE_PYTHON ?= python3
$(BUILD)/five_steps_tensors.abi3.so: common/products/library/python/tensors.c common/products/library/five_steps.h \
                                     $(BUILD)/config
	$(Q)headers=$$($(PACKAGE_PYTHON) -c 'import sys, sysconfig as s; print(s.get_path("include") if \
	    sys.version_info >= (3, 10) and not s.get_config_var("Py_GIL_DISABLED") else "no such Python")'); \
	if [ -e "$$headers/Python.h" ]; then \
	    echo "  cc    $<"; $(CC) -O2 $(WARN) $(CFLAGS) -shared -fPIC -I"$$headers" $< -o $@; \
	else echo "  no Python.h in '$$headers': small calls from Python will take longer"; fi

# --- make install PREFIX=/usr/local [DESTDIR=/tmp/package]. ---
LIBRARY_PRIVATE = -lm -lgomp -lpthread \
    $(if $(CUDA),-lstdc++ -ldl -lrt -L$(CUDA_HOME)/lib64 -lcudart_static)
# What is installed serves every processor: x86-64-v2 (since 2009), and v3 (AVX2) and v4 (AVX-512) where the
# loader looks for such by itself (glibc-hwcaps, glibc 2.33).  The GPU's code is compiled once.  Who gives
# ARCH_FLAGS installs one library for those processors.
LEVELS := $(if $(filter file,$(origin ARCH_FLAGS)),$(if $(filter x86_64,$(shell uname -m 2>/dev/null)),2 3 4))
BASE := $(BUILD)/x86-64-v2
.PHONY: library levels install uninstall
levels:
	$(Q)set -e; for level in $(LEVELS); do \
	    $(MAKE) --no-print-directory library BUILD=$(BUILD)/x86-64-v$$level \
	        ARCH_FLAGS=-march=x86-64-v$$level CUDA=$(or $(CUDA),0) \
	        $$([ $$level = 2 ] || echo 'LIBRARY_CUDA_O=$(LIBRARY_CUDA_O:$(BUILD)/%=$(BASE)/%)'); \
	done

install: $(if $(LEVELS),levels,library)
	$(Q)PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh common/products/library/install.sh \
	    $(if $(LEVELS),$(BASE),$(BUILD)) "$(strip $(LIBRARY_PRIVATE))" \
	    $(if $(LEVELS),$(BUILD)/x86-64-v3 $(BUILD)/x86-64-v4)

uninstall:
	$(Q)PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh common/products/library/install.sh --remove
