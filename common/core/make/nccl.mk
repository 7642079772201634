# nccl.mk: stage 5 on several GPUs (05_flash_cuda/multi_gpu), where NCCL is found.
#
#   NCCL_HOME    the folder that has include/nccl.h; the CUDA toolkit or the system unless given
#   NCCL=0       leaves it out
#
# Nothing is installed.  Without NCCL `--gpus` says so and ends with 77.  Where MPI is found too,
# build/05_flash_cuda_mpi is the same with a process for each GPU.
MULTI_GPU := 05_flash_cuda/multi_gpu
NCCL_PLACES := $(NCCL_HOME) $(CUDA_HOME) $(CUDA_HOME)/targets/x86_64-linux /usr/local /usr
NCCL_H := $(firstword $(wildcard $(addsuffix /include/nccl.h,$(NCCL_PLACES))))
NCCL_SO := $(firstword $(foreach d,lib64 lib lib/x86_64-linux-gnu,\
             $(wildcard $(addsuffix /$(d)/libnccl.so.2,$(NCCL_PLACES)))))
ifeq ($(and $(CUDA),$(HOPPER_HERE),$(NCCL_H),$(NCCL_SO)),)
override NCCL := 0
ifneq ($(filter cuda,$(MAKECMDGOALS)),)
$(info several GPUs are left out: $(if $(HOPPER_HERE),NCCL was not found (NCCL_HOME=dir),\
    their kernel needs CUDA_ARCH=90a))
endif
endif

ifeq ($(NCCL),0)
MULTI_GPU_O := $(RANKS_ROOM)/none.o
else
MULTI_GPU_CU := $(filter-out %/processes.cu,$(wildcard $(MULTI_GPU)/*.cu))
MULTI_GPU_PARTS := $(MULTI_GPU_CU:%.cu=$(BUILD)/obj/%.cuda.o) $(RANKS_O)
MULTI_GPU_O := $(MULTI_GPU_PARTS) $(RANKS_ROOM)/world_one.o
NCCL_LIBS := $(NCCL_SO) -Wl,-rpath,$(dir $(NCCL_SO))
$(patsubst %.cu,$(BUILD)/obj/%.cuda.o,$(wildcard $(MULTI_GPU)/*.cu)): private NVFLAGS += -I$(dir $(NCCL_H))
$(MULTI_GPU_CU:%.cu=$(BUILD)/obj/%.cuda.o): private override CUDA_ARCH := 90a
endif

$(BUILD)/05_flash_cuda: $(MULTI_GPU_O)
$(BUILD)/05_flash_cuda: private LIBS += $(NCCL_LIBS)
$(BUILD)/roof/05_flash_cuda: $(RANKS_ROOM)/none.o

# One process for each GPU.
ifneq ($(and $(MPICC),$(filter-out 0,$(NCCL)$(NCCL_LIBS))),)
NCCL_MPI := $(BUILD)/05_flash_cuda_mpi
cuda: $(NCCL_MPI)

$(NCCL_MPI): $(BUILD)/obj/$(MULTI_GPU)/processes.cuda.o $(WORLD_MPI_O) $(MULTI_GPU_PARTS) $(COMMON_O) \
             $(filter-out $(MAINS),$(call objects_of,05_flash_cuda))
	$(call says,link ,$@)
	$(Q)$(with_cc) $(FAST) $(CFLAGS) $^ $(LIBS) $(NCCL_LIBS) -lstdc++ -o $@
endif
