# exercises.mk: exercises and their grader (common/products/course).
#
#   EX             one exercise of `make exercise`; stages or exercises of `make grade`
#   SUBMISSIONS    the folder to grade, one folder for each student
#   OUT            where the marks go, or the course
#   LATE           a table "student,hours" of what came late
#   STRICT=1       do not grade where a part of the isolation is missing
#   STUDENT        an appeal: every case of this student again
#
# The judge compiles submissions itself, links them with build/child.o and build/libharness.a and runs
# them in build/jail; it measures their speed beside that of build/ceiling.
.PHONY: exercises-built check hint grade course
COURSE_CC = $(CC) -std=c11 -D_GNU_SOURCE $(FAST)
GRADER := $(BUILD)/jail $(BUILD)/ceiling $(BUILD)/child.o $(BUILD)/libharness.a
exercises-built: $(GRADER)

$(BUILD)/jail $(BUILD)/ceiling $(BUILD)/child.o: $(BUILD)/%: $(BUILD)/config common/products/course/exercise.h
	@mkdir -p $(@D)
	@echo "  cc    $@"
	$(Q)$(COURSE_CC) $(WARN) -Icommon/products $(filter %.c %.o,$^) $(AS_WHAT) -o $@.new && mv $@.new $@
$(BUILD)/jail: common/products/course/jail.c
$(BUILD)/child.o: common/products/course/child.c
$(BUILD)/child.o: AS_WHAT = -c
$(BUILD)/ceiling: common/products/course/peak.c $(BUILD)/child.o
$(BUILD)/ceiling: AS_WHAT = -static -lm -lpthread

$(BUILD)/libharness.a: $(COMMON_O)
	@echo "  ar    $@"
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

TOOLS = --build $(BUILD) --cc "$(COURSE_CC)" --nvcc "$(if $(CUDA),$(NVCC))" \
    --cxx "$(CXX) -x c++ -std=c++20 -D_GNU_SOURCE $(FAST) -Wno-unknown-pragmas"
CLASS = --submissions $(call quoted,$(SUBMISSIONS)) --out $(call quoted,$(OUT)) \
    --ex $(call quoted,$(EX)) --late $(call quoted,$(LATE)) --appeal $(call quoted,$(STUDENT)) $(if $(STRICT),--strict) $(TOOLS)

# Alone, `make exercise` lists; EX=name picks one.  `make check` is what a student runs before handing in.
run_exercises = $(Q)$(PYTHON) common/products/course/exercises.py run $(1) --ex $(call quoted,$(EX)) $(TOOLS)
exercise: $(WANTED:%=exercise-%) $(if $(GIVEN)$(EX),$(GRADER))
	$(if $(GIVEN),@:,$(if $(EX),$(run_exercises),$(Q)$(PYTHON) common/products/course/exercises.py list))

check $(STAGES:%=exercise-%): $(GRADER)
	$(call run_exercises,$(filter $(@:exercise-%=%),$(STAGES)))

hint: $(if $(GIVEN),$(WANTED:%=hint-%),hint-)
hint- $(STAGES:%=hint-%): hint-%:
	$(Q)$(PYTHON) common/products/course/exercises.py hint $* --ex $(call quoted,$(EX)) --build $(BUILD)

grade: $(GRADER)
	$(Q)$(PYTHON) common/products/course/grade.py $(CLASS)

# A course: a repository for students and the instructor's folder beside it (SEED decides what
# differs from other courses).
course:
	$(Q)$(PYTHON) common/products/course/course.py \
	    --out $(if $(findstring file,$(origin OUT)),'',$(call quoted,$(OUT))) \
	    --seed $(call quoted,$(SEED)) $(if $(UPTO),--upto $(call quoted,$(UPTO))) \
	    $(if $(ASSISTANTS),--assistants $(call quoted,$(ASSISTANTS)))
