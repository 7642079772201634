# stages.mk: what the verbs do with one stage; request.mk explains how a number gets here.
#
# A program ends with 77 where it cannot do its work on this machine and has said why in a
# line `skipped: ...`: for make that is no error.
skip_is_fine = || [ $$? = 77 ]
.PHONY: $(NUMBERED)

# $(call numbered,N,DIRECTORY): the targets of one number.
define numbered
.PHONY: $(1) $(foreach v,$(NUMBERED),$(v)-$(1) $(v)-$(2))
$(1): $(VERB)-$(1)
$(foreach v,$(NUMBERED),
$(v)-$(1): $(v)-$(2))
endef
$(foreach n,$(NUMBERS),$(eval $(call numbered,$(n),$(filter 0$(n)_%,$(STAGES)))))

# Alone, `make stage` lists; the ideas come from the programs' descriptors.
list = printf 'stage %s  %s  %s\n' $(1) $(2) "$$(sed -n \
    '/^\(static \)\{0,1\}\(const \)\{0,1\}struct stage/,/};/s/.*\.idea = "\(.*\)",.*/\1/p' \
    $(wildcard $(2)/variants.c* $(2)/stage.c*) | head -n 1)"
stage:
	@$(if $(GIVEN),:,$(foreach n,$(NUMBERS),$(call list,$(n),$(filter 0$(n)_%,$(STAGES)));))

$(STAGES:%=stage-%): stage-%: $(BUILD)/%
	@echo "== $*: check"
	$(Q)OMP_WAIT_POLICY=passive $(BUILD)/$* check $(skip_is_fine)

# One log for each stage; the summary reads them and the CSV files.
summary: build
	@mkdir -p $(BUILD)/results
	$(Q)sh common/core/make/all.sh $(BUILD) "$(STAGES)"
	$(Q)$(PYTHON) common/products/reports/plot.py --results $(BUILD)/results --out $(BUILD)/plots \
	    --program $(BUILD)/03_online_softmax
	$(Q)$(PYTHON) common/products/reports/summary.py $(BUILD)

# --- bench: alone, all stages. ---
bench: $(if $(GIVEN),,$(STAGES:%=bench-%))
	@:

$(STAGES:%=bench-%): bench-%: $(BUILD)/%
	@mkdir -p $(BUILD)/results
	@rm -f $(BUILD)/results/$*.csv
	$(Q)OMP_PROC_BIND=$${OMP_PROC_BIND:-true} $(BUILD)/$* bench \
	    --csv $(BUILD)/results/$*.csv $(BENCH_FLAGS) $(skip_is_fine)
	@$(if $(peers_of_$*),! command -v python3 >/dev/null || \
	    python3 $(peers_of_$*) --csv $(BUILD)/results/$*.csv $(skip_is_fine),:)

# PyTorch on the same shapes, in the same file, where it is installed.
peers_of_04_monoid_tiled_cpu = common/products/reports/peers_cpu.py
ifdef CUDA
peers_of_05_flash_cuda = common/products/reports/peers.py --library $(BUILD)/libfive_steps.so
bench-05_flash_cuda: $(BUILD)/libfive_steps.so
endif

# --- trace, diff, profile. ---
ROW ?= 3,2,5,1
trace profile:
	@:

$(STAGES:%=trace-%): trace-%: $(BUILD)/%
	$(Q)$(BUILD)/$* trace --row $(call quoted,$(ROW))

diff:
	$(if $(RUNG),@sh common/core/make/diff.sh rung $(call quoted,$(RUNG)),@:)

$(STAGES:%=diff-%): diff-%:
	$(if $(RUNG),@:,@sh common/core/make/diff.sh $* $(call quoted,$(FILE)) $(STAGES))

$(STAGES:%=profile-%): profile-%: $(BUILD)/%
	@mkdir -p $(RESULTS)
	$(Q){ $(PYTHON) common/products/reports/counters.py $* $(BUILD)/$* $(RESULTS) $(roof_of_$*) \
	    $(if $(filter 05_%,$*),&& $(PYTHON) common/products/reports/plot.py ladder \
	        --results $(RESULTS) --out $(PLOTS)); } $(skip_is_fine)

# The on-ramp (notes/gpu_on_ramp.md): four small CUDA programs, each of one file, executed on the
# CPU, and on the GPU too where there is one.
RAMP := 01_naive/gpu/on_ramp
RAMP_CPU := $(patsubst $(RAMP)/%.cu,$(BUILD)/on_ramp/%,$(sort $(wildcard $(RAMP)/*.cu)))
KERNELS_O := $(patsubst %.cc,$(BUILD)/obj/%.o,$(wildcard common/core/cuda_on_cpu/*.cc common/core/gpu/*.cc))
$(BUILD)/on_ramp/%: $(RAMP)/%.cu $(RAMP)/on_ramp.h $(KERNELS_O) $(BUILD)/config
	$(call says,c++  )
	$(Q)$(CXX) -x c++ $(filter-out -MMD -MP,$(CXXFLAGS_ALL)) -Icommon/core $< -x none $(KERNELS_O) \
	    $(LIBS) -o $@

$(BUILD)/on_ramp/%.gpu: $(RAMP)/%.cu $(RAMP)/on_ramp.h $(BUILD)/config.cuda
	$(call says,nvcc )
	$(Q)$(NVCC) $(NVFLAGS) $(call gencode,$(CUDA_ARCH)) -Icommon/core $< -o $@

.PHONY: on_ramp
on_ramp: $(RAMP_CPU) $(if $(CUDA),$(RAMP_CPU:=.gpu))
	@for p in $^; do echo "== $$p"; $$p || exit 1; done
tests-built: $(RAMP_CPU)
