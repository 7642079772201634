# cuda.mk: GPU code is compiled where nvcc and a GPU are found, or by `make cuda`.
#
#   CUDA         1 when GPU code is compiled; CUDA=0 forbids it
#   CUDA_ARCH    "80 90a": the architectures; this machine's GPU unless given
#   QUICK_CUDA   1 compiles faster what runs slower: files for several architectures at -O1
#   TIMELINE     1 lets the Hopper rungs record what each warp does when (hopper/timeline.h)
#   NVCC         the compiler; found on the PATH or in /usr/local/cuda/bin
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
gencode = $(foreach a,$(1),-gencode arch=compute_$(a),code=sm_$(a))
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
NVFLAGS = -std=c++20 -O3 -lineinfo $(if $(WERROR),-Werror all-warnings) \
          -Xcompiler -Wall$(comma)-Wextra$(comma)-fopenmp$(comma)-fPIC \
          $(subst $(comma),\$(comma),$(DIMS)) $(if $(TIMELINE),-DTIMELINE) $(CUFLAGS)
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
