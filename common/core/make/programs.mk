# programs.mk: what each program is made of, and how a source becomes an object.
#
#   build/03_online_softmax    the sources of the stage's directory and of its rooms (fast/,
#                              gpu/, variants/, portable/, ...), and everything in common/core/
#
# A new file in a room needs no line here.  A .c file gives one object.  A .cu file gives
# NAME.cpu.o, the kernel executed on the CPU, and with CUDA also NAME.cuda.o, its twin.
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: FORCE
FORCE:

# Rooms that are no part of a stage's or of every program.  A room may have rooms.
APART := %/mpi/ common/core/ranks/ %/multi_gpu/ %/on_ramp/ %/exercises/ %/exercises/solutions/ %/exercises/skeletons/
rooms_of = $(filter-out $(APART),$(wildcard $(1)/*/ $(1)/*/*/))
sources_of = $(wildcard $(1)/*$(2) $(patsubst %,%*$(2),$(call rooms_of,$(1))))

# common/core/gpu/gpu_none.c stands in for the GPU in programs without GPU code.
COMMON_C := $(filter-out common/core/gpu/gpu_none.c,$(call sources_of,common/core,.c)) \
            $(if $(CUDA),,common/core/gpu/gpu_none.c)
COMMON_O := $(COMMON_C:%.c=$(BUILD)/obj/%.o) \
            $(patsubst %.cc,$(BUILD)/obj/%.o,$(call sources_of,common/core,.cc)) \
            $(if $(CUDA),$(patsubst %.cu,$(BUILD)/obj/%.cuda.o,$(wildcard common/core/gpu/*.cu)))

# The lesson, stage.c, is no object of its own: variants.c beside it includes it.
LESSONS := $(wildcard $(STAGES:%=%/stage.c))

# errors.c is a program of its own: make eight_bits.
sources = $(filter-out $(LESSONS) %/errors.c,$(call sources_of,$(1),$(2)))
# The objects with a program's main.
MAINS := $(foreach m,stage variants,%/$(m).o %/$(m).cpu.o)
twins_of = $(foreach f,$(filter-out %/variants.cu,$(call sources,$(1),.cu)),\
             $(if $(call has_twin,$(f)),$(BUILD)/obj/$(f:.cu=.cuda.o)))
objects_of = $(patsubst %.c,$(BUILD)/obj/%.o,$(call sources,$(1),.c)) \
             $(patsubst %.cu,$(BUILD)/obj/%.cpu.o,$(call sources,$(1),.cu)) \
             $(call twins_of,$(1))
PROGRAMS := $(STAGES:%=$(BUILD)/%)

# --- What is made is remade when its configuration changes.  Three files hold those of the
#     last time.  `make` and then `make cuda` compiles only what is nvcc's.
#       build/config         the C and C++ compilers and their flags
#       build/config.cuda    nvcc, its flags and architectures
#       build/config.link    whether programs get GPU code
#     (Before version 4.2 make cannot read the files, and compares later.) ---
CONFIG := $(CC) $(CXX) $(CFLAGS_ALL) $(CXXFLAGS_ALL)
CONFIG_CUDA := $(NVCC) $(CUDA_ARCH) $(NVFLAGS) $(PORTABLE_NVFLAGS)
CONFIG_LINK := cuda=$(CUDA) $(if $(CUDA),$(CUDA_ARCH)) nccl=$(NCCL)

# $(call configuration,file,variable)
define configuration
$(2)_NOW := $$(subst ",,$$(strip $$($(2))))
ifneq ($$($(2)_NOW),$$(file < $(1)))
$(1): FORCE
endif
$(1):
	@mkdir -p $$(@D)
	@printf '%s\n' $$(call quoted,$$($(2)_NOW)) | cmp -s - $$@ || \
	    printf '%s\n' $$(call quoted,$$($(2)_NOW)) > $$@
endef
$(eval $(call configuration,$(BUILD)/config,CONFIG))
$(eval $(call configuration,$(BUILD)/config.cuda,CONFIG_CUDA))
$(eval $(call configuration,$(BUILD)/config.link,CONFIG_LINK))

# --- Objects. ---
$(BUILD)/obj/%.o: %.c $(BUILD)/config
	$(call says,cc   )
	$(Q)$(CC) $(CFLAGS_ALL) $(INSTRUCTIONS) $(PROVENANCE) $(INCLUDE) -c $< -o $@

$(BUILD)/obj/%.o: %.cc $(BUILD)/config
	$(call says,c++  )
	$(Q)$(CXX) $(CXXFLAGS_ALL) $(INCLUDE) -c $< -o $@

# On the CPU a kernel spends its time in barriers and wgmma: -O1 saves most of its compilation, and
# under address sanitizer, where -O1 takes three times as long, -O0 does.
$(BUILD)/obj/%.cpu.o: %.cu $(BUILD)/config
	$(call says,c++  )
	$(Q)$(CXX) -x c++ $(CXXFLAGS_ALL:-O3=-O1) $(if $(findstring =address,$(CXXFLAGS)),-O0) \
	    -Wno-unknown-pragmas $(INCLUDE) -c $< -o $@

# ptxas_check.sh makes spilled registers and a serialized wgmma errors in Hopper kernels.
is_hopper = $(if $(filter $<,$(HOPPER_CU)),$(1),$(2))
$(BUILD)/obj/%.cuda.o: %.cu $(BUILD)/config.cuda
	$(call says,nvcc )
	$(Q)$(call is_hopper,sh common/core/make/ptxas_check.sh) \
	    $(NVCC) $(NVFLAGS) $(call is_hopper,,$(PORTABLE_NVFLAGS)) \
	    $(call gencode,$(call is_hopper,90a,$(CUDA_ARCH))) \
	    -MMD -MP $(PROVENANCE) $(INCLUDE) -c $< -o $@

# Files with instructions beyond ARCH_FLAGS, where the compiler knows them: the program asks the
# processor before it calls them.
knows = $(shell $(CC) $(1) -E -x c /dev/null >/dev/null 2>&1 && echo $(1))
AVX512 := -mavx2 -mfma -mavx512f -mavx512dq -mavx512bw -mavx512vl
%/fast/dot_bf16.o: INSTRUCTIONS = $(call knows,$(AVX512) -mavx512bf16)
%/fast/amx.o: INSTRUCTIONS = $(call knows,$(AVX512) -mamx-tile -mamx-bf16)

# The compiler and its flags are columns of the CSV.  This object is part of every program with
# a GPU's code or its stand-in: remade, it has them all linked again.
NVCC_VERSION = $(shell $(NVCC) --version | sed -n 's/.*, V//p')
$(BUILD)/obj/common/core/measurement/csv.o: $(BUILD)/config.link
$(BUILD)/obj/common/core/measurement/csv.o: \
    PROVENANCE = '-DCOMPILER_FLAGS="$(strip $(FAST))"' \
                 '-DCUDA_COMPILER="$(if $(CUDA),nvcc $(NVCC_VERSION) $(CUDA_ARCH))"'

# Each object depends on the headers that it included.
-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)

# --- Programs. ---
link = $(Q)$(CXX) $(FAST) $(CXXFLAGS) $(filter %.o %.a,$^) $(LIBS) -o $@
define program
$(BUILD)/$(1): $(call objects_of,$(1)) $(COMMON_O)
	$$(call says,link ,$$@)
	$$(link)
endef
$(foreach s,$(STAGES),$(eval $(call program,$(s))))
