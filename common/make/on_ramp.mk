# on_ramp.mk: the on-ramp (notes/gpu_on_ramp.md): four small CUDA programs, each of one file, executed on
# the CPU, and on the GPU too where there is one.
RAMP := 01_naive/gpu/on_ramp
RAMP_FILES := $(sort $(wildcard $(RAMP)/*.cu))
RAMP_CPU := $(RAMP_FILES:$(RAMP)/%.cu=$(BUILD)/on_ramp/%)
RAMP_GPU := $(if $(CUDA),$(RAMP_CPU:=.gpu))

$(BUILD)/on_ramp/%: $(RAMP)/%.cu $(RAMP)/on_ramp.h $(KERNELS_O) $(BUILD)/config
	@mkdir -p $(@D)
	@echo "  c++   $<"
	$(Q)$(CXX) -x c++ $(filter-out -MMD -MP,$(CXXFLAGS_ALL)) -Icommon $< -x none $(KERNELS_O) $(LIBS) -o $@

$(BUILD)/on_ramp/%.gpu: $(RAMP)/%.cu $(RAMP)/on_ramp.h $(BUILD)/config.cuda
	@mkdir -p $(@D)
	@echo "  nvcc  $<"
	$(Q)$(NVCC) $(NVFLAGS) $(call gencode,$(CUDA_ARCH)) -Icommon $< -o $@

.PHONY: on_ramp
on_ramp: $(RAMP_CPU) $(RAMP_GPU)
	@for p in $^; do echo "== $$p"; $$p || exit 1; done

tests-built: $(RAMP_CPU)
