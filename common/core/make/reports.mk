# reports.mk: figures and tables from CSV files (common/products/reports).
#
#   RESULTS    the folder of CSV files; build/results unless given
#   PLOTS      where the figures go: build/plots, or beside CSV files of another folder
PLOTS = $(if $(filter $(BUILD)/results,$(RESULTS)),$(BUILD)/plots,$(RESULTS))

.PHONY: map plot tables tables-check
plot: $(addprefix $(BUILD)/,$(STAGES))
	$(Q)$(PYTHON) common/products/reports/plot.py --results $(RESULTS) --out $(PLOTS) \
	    arc staircase timeline roofline_cpu roofline_gpu eight_bits

# The attention map of tests/fixture: which word attends to which (HEAD=0 to 11).
HEAD ?= 9
map: $(BUILD)/03_online_softmax
	$(Q)$(PYTHON) common/products/reports/plot.py --program $< --out $(BUILD)/plots \
	    --head $(call quoted,$(HEAD))

tables tables-check: $(addprefix $(BUILD)/,$(STAGES))
	$(Q)$(PYTHON) common/products/reports/tables.py --results notes/results \
	    $(if $(filter %-check,$@),--check)
