# request.mk: what was asked for, and what it needs.  A request that cannot be meant, or cannot be
# done here, is refused with a line before anything is built.
#
#   make stage 3 4     VERB is stage, GIVEN is 3 4, WANTED is their directories
#
# Make reads that line as three goals.  The verb does the work, a number nothing.
NUMBERS := $(foreach s,$(STAGES),$(patsubst 0%,%,$(firstword $(subst _, ,$(s)))))
VERB := $(firstword $(MAKECMDGOALS))
GIVEN := $(filter-out $(VERB),$(MAKECMDGOALS))
WANTED := $(foreach n,$(GIVEN),$(filter 0$(n)_%,$(STAGES)))
.PHONY: $(NUMBERS)
$(NUMBERS):
	@:

# $(call quoted,text): one word for the shell, whatever the text holds.
quoted = '$(subst ','\'',$(1))'
# What a user gives as a path, a name or a list may hold a dollar sign: it is none of make's.
$(foreach v,SUBMISSIONS STUDENT OUT EX BUG RUNG FILE ROW HEAD PROBLEMS SEED SECONDS,\
    $(if $(filter command%,$(origin $(v))),$(eval override $(v) := $$(value $(v)))))
# $(call refuse,text): the first text counts.
refuse = $(if $(REFUSED),,$(shell printf '%s\n' $(call quoted,$(1)) >&2)$(eval REFUSED := 1))
REFUSED :=
ifneq ($(filter $(NUMBERED),$(VERB)),)
UNKNOWN := $(firstword $(filter-out $(NUMBERS),$(GIVEN)))
$(if $(UNKNOWN),$(call refuse,no stage '$(UNKNOWN)'; valid stages: $(NUMBERS)))
else
MISPLACED := $(firstword $(filter $(NUMBERS),$(MAKECMDGOALS)))
$(if $(MISPLACED),$(call refuse,a stage number follows a verb: make stage $(MISPLACED)))
endif
$(if $(GIVEN),,$(if $(filter trace profile $(if $(RUNG),,diff),$(VERB)),\
    $(call refuse,make $(VERB) needs a stage number: make $(VERB) 3)))
ifdef CUDA
$(if $(NVCC),,$(call refuse,make cuda needs nvcc; it is not on the PATH nor in /usr/local/cuda/bin))
endif
$(foreach v,BUILD RESULTS,$(if $(word 2,$($(v))),\
    $(call refuse,$(v): '$($(v))' holds a space$(comma) which make cannot have in a path)))

# What each goal needs from the machine, as require.sh knows it; unless listed here, a compiler.  A
# tool that only some part needs is no need: that part is skipped, with a line.
# $(call need,goals,tools)
need = $(foreach g,$(1),$(eval needs_$(g) := $(2)))
$(call need,diff uninstall help clean)
$(call need,stage,$(if $(GIVEN),compiler))
$(call need,bench,compiler git)
$(call need,all,compiler git pandas)
$(call need,profile,compiler python3)
$(call need,plot map,compiler pandas)
$(call need,tables tables-check,pandas)
$(call need,test test-long tests-built sanitize fuzz machines,compiler git criterion pytest)
$(call need,gallery,compiler git patch criterion pandas)
$(call need,exercise,$(if $(GIVEN)$(EX),compiler numpy,python3))
$(call need,grade check,compiler numpy)
$(call need,course hint,python3)
$(call need,book,python3 venv wasm git)
$(call need,book-test book-pictures,compiler git python3 venv wasm browser pytest)
$(call need,mpi,compiler git patch mpi pytest)

# The interpreter in which require.sh found what a goal imports; any, where it imports nothing.
PYTHON = $$(cat $(BUILD)/python 2>/dev/null || echo python3)

FILE ?= stage.c
OUT ?= $(BUILD)/grades
GOALS := $(filter-out $(NUMBERS),$(or $(MAKECMDGOALS),all))
NEEDS := $(foreach g,$(GOALS),$(if $(filter undefined,$(origin needs_$(g))),compiler,$(needs_$(g))))
# `make -n` installs nothing.
ifeq ($(REFUSED)$(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),)
settings = $(foreach v,BUILD CC CXX NO_INSTALL,$(v)=$(call quoted,$($(v))))
REFUSED := $(if $(NEEDS),$(shell $(settings) sh common/core/make/require.sh $(NEEDS) >&2 || echo 1))
endif

# How make ends with status 2 and no words of its own.  Make first brings its makefiles up to date,
# and is silent about an optional one that cannot be made.  Its rule fails, and every goal depends
# on it; goals with characters of make's syntax come after one that fails, and have an empty rule.
ifneq ($(REFUSED),)
MAKEFLAGS += --no-keep-going
PLAIN := $(shell printf '%s\n' $(foreach g,$(or $(MAKECMDGOALS),all),$(call quoted,$(g))) | \
             grep -x '[[:alnum:]_./-]*')
-include .refused-makefile
.refused-% .refuses-%: ; @exit 2
.PHONY: $(PLAIN)
$(PLAIN): .refuses-makefile
.DEFAULT: ; @:
endif
