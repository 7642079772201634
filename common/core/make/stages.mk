# stages.mk: what the verbs do with the stages of their numbers (request.mk).
#
# A program ends with 77 where it cannot do its work on this machine and has said why in a
# line `skipped: ...`: for make that is no error.
skip_is_fine = || [ $$? = 77 ]
.PHONY: $(NUMBERED) $(foreach v,$(NUMBERED),$(STAGES:%=$(v)-%))

# Alone, `make stage` lists: a stage's idea is the title of its README.
stage: $(WANTED:%=stage-%)
	@$(if $(GIVEN),:,$(foreach n,$(NUMBERS),$(foreach s,$(filter 0$(n)_%,$(STAGES)),\
	    printf 'stage %s  %s  %s\n' $(n) $(s) "$$(sed -n '1s/^# [^:]*: //p' $(s)/README.md)";)))

$(STAGES:%=stage-%): stage-%: $(BUILD)/%
	@echo "== $*: check"
	$(Q)OMP_WAIT_POLICY=passive $(BUILD)/$* check $(skip_is_fine)

summary: build
	$(Q)$(PYTHON) common/products/reports/summary.py $(BUILD) $(STAGES)

# --- bench: alone, all stages. ---
bench: $(or $(WANTED:%=bench-%),$(STAGES:%=bench-%))

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
trace: $(WANTED:%=trace-%)
profile: $(WANTED:%=profile-%)

$(STAGES:%=trace-%): trace-%: $(BUILD)/%
	$(Q)$(BUILD)/$* trace --row $(call quoted,$(ROW))

diff: $(if $(RUNG),,$(WANTED:%=diff-%))
	@$(if $(RUNG),sh common/core/make/diff.sh rung $(call quoted,$(RUNG)),:)

$(STAGES:%=diff-%): diff-%:
	@sh common/core/make/diff.sh $* $(call quoted,$(FILE)) $(STAGES)

$(STAGES:%=profile-%): profile-%: $(BUILD)/%
	@mkdir -p $(RESULTS)
	$(Q){ $(PYTHON) common/products/reports/counters.py $* $(BUILD)/$* $(RESULTS) $(roof_of_$*) \
	    $(if $(filter 05_%,$*),&& $(PYTHON) common/products/reports/plot.py staircase \
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
