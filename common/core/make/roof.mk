# roof.mk: the roof over the last rung of stage 5: the same kernel without softmax.
#
# The last rung is the file with the last number.  It is compiled once more with
# -DNO_SOFTMAX (hopper/wgmma_softmax.h), as a program of its own that `make profile 5` counts beside the stage.  The few registers that the roof spills at
# times are not those of its loop.
LAST_CU := $(lastword $(sort $(wildcard 05_flash_cuda/hopper/[0-9][0-9]_*.cu)))
LAST_O := $(LAST_CU:%.cu=$(BUILD)/obj/%.cuda.o)
ROOF_O := $(LAST_CU:%.cu=$(BUILD)/obj/roof/%.cuda.o)

$(BUILD)/obj/roof/%.cuda.o: %.cu $(BUILD)/config.cuda
	$(call says,nvcc ,$< without softmax)
	$(Q)SPILLS=allowed sh common/core/make/ptxas_check.sh $(NVCC) $(NVFLAGS) \
	    $(call gencode,90a) -DNO_SOFTMAX -MMD -MP $(INCLUDE) -c $< -o $@

ifneq ($(and $(CUDA),$(HOPPER_HERE)),)
$(BUILD)/roof/05_flash_cuda: $(ROOF_O) $(COMMON_O) \
                             $(filter-out $(LAST_O),$(call objects_of,05_flash_cuda))
	$(call says,link ,$@)
	$(link)
roof_of_05_flash_cuda := $(BUILD)/roof/05_flash_cuda
profile-05_flash_cuda: $(BUILD)/roof/05_flash_cuda
endif
