# numbers.mk: verbs followed by stage numbers.
#
#   make stage 3 4     VERB is stage, GIVEN is 3 4
#
# Make reads this line as three goals.  The number 3 is a phony target that depends on
# stage-3, and stage-3 on stage-03_online_softmax, for which stages.mk has a recipe.
# What cannot be meant (no such stage, a number without a verb) becomes a REFUSAL here,
# before anything is built; needs.mk prints it.
NUMBERS := $(foreach s,$(STAGES),$(patsubst 0%,%,$(firstword $(subst _, ,$(s)))))
VERB := $(firstword $(MAKECMDGOALS))
GIVEN := $(filter-out $(VERB),$(MAKECMDGOALS))

# $(call refuse,text): the first text counts.
refuse = $(if $(REFUSAL),,$(eval REFUSAL := $$(1)))
REFUSAL :=
# $(call quoted,text): one word for the shell, whatever the text holds.
quoted = '$(subst ','\'',$(1))'

ifneq ($(filter $(NUMBERED),$(VERB)),)
UNKNOWN := $(firstword $(filter-out $(NUMBERS),$(GIVEN)))
$(if $(UNKNOWN),$(call refuse,no stage '$(UNKNOWN)'; valid stages: $(NUMBERS)))
else
MISPLACED := $(firstword $(filter $(NUMBERS),$(MAKECMDGOALS)))
$(if $(MISPLACED),$(call refuse,a stage number follows a verb: make stage $(MISPLACED)))
endif
NEEDS_NUMBER := trace profile $(if $(RUNG),,diff)
$(if $(GIVEN),,$(if $(filter $(NEEDS_NUMBER),$(VERB)),\
    $(call refuse,make $(VERB) needs a stage number: make $(VERB) 3)))
