# compilers.mk: the compilers, their flags, and where a file finds its headers.
#
#   CC, CXX             any gcc or clang; several words are fine (CC="ccache gcc")
#   CFLAGS, CXXFLAGS    are added at the end
#   WERROR=-Werror      warnings are errors
#   ARCH_FLAGS          the machine's architecture; -march=native unless given
#   CUDA                1 when GPU code is compiled: where nvcc and a GPU are found, or by
#                       `make cuda`; CUDA=0 forbids it
#   CUDA_ARCH           "80 90a": the GPUs' architectures; this machine's unless given
#   QUICK_CUDA          1 compiles faster what runs slower: files for several architectures at -O1
#   NVCC                found on the PATH or in /usr/local/cuda/bin unless given

# clang's OpenMP runtime is linked by clang++ only: CC=clang-14 chooses clang++-14.
ifneq ($(and $(filter default,$(origin CXX)),$(findstring clang,$(CC))),)
CXX := $(subst clang,clang++,$(CC))
endif
# clang warns of loops that it does not vectorise.
WARN := -Wall -Wextra $(if $(findstring clang,$(CC)),-Wno-pass-failed) $(WERROR)
ARCH_FLAGS ?= -march=native
FAST := -O3 $(ARCH_FLAGS) -fno-math-errno -fno-trapping-math -fopenmp -ffp-contract=off

comma := ,
space := $() $()
DIMS = '-DHEAD_DIMS=$(subst $(space),$(comma),$(strip $(HEAD_DIMS)))'
# -MMD writes each object's list of headers beside it (programs.mk reads the lists).
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE $(FAST) $(WARN) -MMD -MP $(CFLAGS)
CXXFLAGS_ALL = -std=c++20 -D_GNU_SOURCE $(FAST) $(WARN) -MMD -MP $(DIMS) $(CXXFLAGS)
LIBS := -lm -lpthread -ldl

# A file sees common/core, its own room, its stage's directory, and the monoid of stage 4, which
# stage 5 includes too.  Only products and tests see common/products: the core cannot include them.
INCLUDE = -Icommon/core $(if $(filter common/products/% tests/%,$<),-Icommon/products) -I$(dir $<) -I$(firstword $(subst /, ,$<)) -I04_monoid_tiled_cpu

# Recipes begin with $(call says,word): the line that is shown, and a folder for what is made.
says = @mkdir -p $(@D); echo "  $(1) $(or $(2),$<)"
ifneq ($(V),1)
Q := @
endif

# --- CUDA. ---
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
GPU_CAP := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null \
             | head -n 1 | tr -d '. ')
GPU_HERE := $(filter 7% 8% 9% 1%,$(GPU_CAP))
ifneq ($(filter cuda,$(MAKECMDGOALS)),)
override CUDA := 1
else ifneq ($(and $(NVCC),$(GPU_HERE)),)
CUDA ?= 1
endif
ifeq ($(CUDA),0)
override CUDA :=
endif
CUDA_ARCH ?= $(or $(patsubst 90,90a,$(GPU_HERE)),80 90a)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
gencode = $(foreach a,$(1),-gencode arch=compute_$(a),code=sm_$(a))
NVFLAGS = -std=c++20 -O3 -lineinfo $(if $(WERROR),-Werror all-warnings) \
          -Xcompiler -Wall$(comma)-Wextra$(comma)-fopenmp$(comma)-fPIC \
          $(subst $(comma),\$(comma),$(DIMS)) $(CUFLAGS)
# Hopper's files stay at -O3: their registers and wgmma are checked (ptxas_check.sh).
PORTABLE_NVFLAGS = $(if $(QUICK_CUDA),-Xcicc -O1 -Xptxas -O1)
ifdef CUDA
LIBS += -L$(CUDA_HOME)/lib64 -L$(CUDA_HOME)/targets/x86_64-linux/lib -lcudart_static -lrt
endif

# A file whose first line says `arch: sm_90a` is compiled for that architecture alone.
CU := $(foreach s,$(STAGES),$(wildcard $(s)/*.cu $(s)/*/*.cu $(s)/*/*/*.cu))
HOPPER_CU := $(shell awk 'FNR == 1 && /arch: sm_90a/ { print FILENAME }' $(CU) /dev/null)
HOPPER_HERE := $(filter 90a,$(CUDA_ARCH))
# has_twin: is this .cu file also compiled for the GPU?
has_twin = $(if $(CUDA),$(if $(filter $(1),$(HOPPER_CU)),$(HOPPER_HERE),1))
