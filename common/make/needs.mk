# needs.mk: what must hold before anything is done: tools, folders, a request with a meaning.
#
# needs_VERB lists what the verb needs from the machine; require.sh knows how to find and how
# to install each.  What is not listed here needs a compiler.  preflight.sh looks at folders.
# A program that only some part needs is no need: that part is skipped, with a line.
needs_all := compiler git pandas
needs_stage := $(if $(GIVEN),compiler)
needs_diff :=
needs_bench := compiler git
needs_exercise := $(if $(GIVEN)$(EX),compiler) python3
needs_grade := compiler python3
needs_check := $(needs_grade)
needs_project := $(needs_grade)
needs_grade-projects := $(needs_grade)
needs_projects-check := $(needs_grade)
needs_course := python3
needs_board := python3
needs_exercises-built := $(needs_grade)
needs_map := compiler pandas
needs_book := python3 venv wasm git
needs_book-test := compiler $(needs_book) browser
needs_mpi := compiler git mpi
needs_plot := compiler pandas
needs_tables := pandas
needs_tables-check := pandas
needs_test := compiler git criterion pytest
needs_test-long := $(needs_test)
needs_tests-built := $(needs_test)
needs_sanitize := $(needs_test)
needs_gallery := compiler git patch criterion pandas
needs_uninstall :=
needs_help :=
needs_clean :=

FILE ?= stage.c
OUT ?= $(BUILD)/grades
# What is a path or a name may hold any character: a dollar sign is none of make's.
override SUBMISSIONS := $(value SUBMISSIONS)
$(if $(SUBMISSIONS),,$(if $(filter grade,$(MAKECMDGOALS)),\
    $(call refuse,make grade needs SUBMISSIONS=dir: one folder for each student)))

# The interpreter with matplotlib, which require.sh found; or any.
PYTHON = $$(cat $(BUILD)/python)
PYTHON_IF_ANY = $$(cat $(BUILD)/python 2>/dev/null || echo python3)

GOALS := $(filter-out $(NUMBERS),$(or $(MAKECMDGOALS),all))
NEEDS := $(foreach g,$(GOALS),\
             $(if $(filter undefined,$(origin needs_$(g))),compiler,$(needs_$(g))))
# `make -n` installs nothing and makes no folder.
DRY_RUN := $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS))))
settings = $(foreach v,BUILD RESULTS FILE RUNG EX SUBMISSIONS OUT CC CXX NO_INSTALL DRY_RUN,\
               $(v)=$(call quoted,$($(v))))
ifneq ($(REFUSAL),)
REFUSED := $(shell printf '%s\n' $(call quoted,$(REFUSAL)) >&2; echo refused)
else
REFUSED := $(shell $(settings) sh common/make/preflight.sh "$(NEEDS)" "$(STAGES)" \
               $(if $(GOALS),$(call quoted,$(VERB))) $(call quoted,$(GIVEN)) >&2 || echo refused)
endif

# How make ends with status 2 and no words of its own.  Make first brings its makefiles up
# to date, and is silent about an optional one that cannot be made.  The rule below fails,
# for two targets at once: an optional makefile, and what every goal now depends on.
ifneq ($(REFUSED),)
MAKEFLAGS += --no-keep-going
-include .refused-makefile
.refused-% .refuses-%: ; @exit 2
.PHONY: $(or $(MAKECMDGOALS),all)
$(or $(MAKECMDGOALS),all): .refuses-makefile
endif
