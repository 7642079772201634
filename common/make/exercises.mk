# exercises.mk: the exercises and their grader (common/grader).
#
# A repository for students has skeletons/ in place of solutions/.
#
# An exercise has three workers: the student's file, the solution, and the skeleton made
# from the solution.  A worker is the file without the harness; build/judge runs it.  The
# student's file is also linked with the harness, so that build/exercises/NAME check works.
#
#   EX             one exercise of `make exercise`; stages or exercises of `make grade`
#   SUBMISSIONS    the folder to grade, one folder for each student
#   OUT            where the marks go, or the course, or the board
#   LATE           a table "student,hours" of what came late
.PHONY: exercises-built grade check course board
EXERCISE_FILES := $(or $(wildcard 0*/exercises/solutions/*.c 0*/exercises/solutions/*.cu),\
                       $(wildcard 0*/exercises/skeletons/*.c 0*/exercises/skeletons/*.cu))
EXERCISES := $(notdir $(basename $(EXERCISE_FILES)))
EX_BUILD := $(BUILD)/exercises
# What executes kernels on the CPU, as one object: a worker, and a program of the on-ramp, need no
# more than that.
KERNELS_O := $(BUILD)/obj/common/cuda_on_cpu/executor.o
$(KERNELS_O): $(patsubst %.cc,$(BUILD)/obj/%.o,$(wildcard common/cuda_on_cpu/*.cc))
	$(Q)$(LD) -r $^ -o $@
WORKER_O := $(patsubst %,$(BUILD)/obj/common/grader/%.o,worker worker_host)
$(BUILD)/judge: $(patsubst %,$(BUILD)/obj/common/grader/%.o,judge trial speed contest place worker_process jail system_calls) \
                  $(BUILD)/obj/common/grader/$(if $(CUDA),place_gpu.cuda.o,place_gpu_none.o) $(COMMON_O)
	@echo "  link  $@"
	$(Q)$(CXX) $(FAST) $(CXXFLAGS) $^ $(LIBS) -o $@

# $(call worker,program,object,source): how a file becomes a worker.
define worker
$(2): $(3) $(BUILD)/config
	@mkdir -p $$(@D)
	@echo "  cc    $$<"
	$$(Q)$(if $(filter %.cu,$(3)),$$(CXX) -x c++ $$(CXXFLAGS_ALL),$$(CC) $$(CFLAGS_ALL)) \
	    -w -Icommon -c $$< -o $$@
$(1): $(2) $(WORKER_O) $(if $(filter %.cu,$(3)),$(KERNELS_O))
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(FAST) $$(CXXFLAGS) $$^ $$(LIBS) -o $$@
endef

# $(call exercise,name,solution,student's file): its program and its three workers.
define exercise
$(EX_BUILD)/$(1): $(patsubst %.c,$(BUILD)/obj/%.o,$(patsubst %.cu,$(BUILD)/obj/%.cpu.o,$(3))) \
                  $(if $(CUDA),$(patsubst %.cu,$(BUILD)/obj/%.cuda.o,$(filter %.cu,$(3)))) \
                  $(COMMON_O)
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(FAST) $$(CXXFLAGS) $$^ $$(LIBS) -o $$@
$(EX_BUILD)/skeleton/$(notdir $(2)): $(2) common/grader/exercises.py common/grader/forms.py
	@mkdir -p $$(@D)
	$$(Q)python3 common/grader/exercises.py skeleton $(1) > $$@
$(call worker,$(EX_BUILD)/$(1).worker,$(BUILD)/obj/exercises/$(1).o,$(3))
$(call worker,$(EX_BUILD)/solution/$(1).worker,$(BUILD)/obj/exercises/solution/$(1).o,$(2))
$(call worker,$(EX_BUILD)/skeleton/$(1).worker,$(BUILD)/obj/exercises/skeleton/$(1).o,$(strip \
    $(EX_BUILD)/skeleton/$(notdir $(2))))
endef
$(foreach f,$(EXERCISE_FILES),$(eval $(call exercise,$(notdir $(basename $(f))),$(f),$(strip \
    $(subst skeletons/,,$(subst solutions/,,$(f)))))))

exercises-built: $(BUILD)/judge $(KERNELS_O) $(foreach x,$(EXERCISES),\
                 $(EX_BUILD)/solution/$(x).worker $(EX_BUILD)/skeleton/$(x).worker)

# Alone, `make exercise` lists; EX=name picks one.
run_exercises = python3 common/grader/exercises.py run $(1) --ex $(call quoted,$(EX)) \
                --build $(BUILD) --make "$(MAKE)" $(if $(CUDA),--gpu)
exercise:
	$(if $(GIVEN),@:,@$(if $(EX),$(run_exercises),python3 common/grader/exercises.py list))

$(STAGES:%=exercise-%): exercise-%:
	$(Q)$(call run_exercises,$*)

# All exercises: what a student runs before handing in.
check:
	$(Q)$(call run_exercises,)

# The plot is drawn with the interpreter that has matplotlib, where one was found.
grade: exercises-built
	@BUILD=$(BUILD) NO_INSTALL=1 sh common/make/require.sh pandas 2>/dev/null || true
	$(Q)$(PYTHON_IF_ANY) common/grader/grade.py --submissions $(call quoted,$(SUBMISSIONS)) \
	    --out $(call quoted,$(OUT)) --ex $(call quoted,$(EX)) --build $(BUILD) \
	    --late $(call quoted,$(LATE)) --cc "$(CC) -std=c11 -D_GNU_SOURCE $(FAST)" \
	    --cxx "$(CXX) -x c++ -std=c++20 -D_GNU_SOURCE $(FAST)" --link "$(CXX) $(FAST)"

# A course: a repository for students and the instructor's folder beside it (SEED decides what
# differs from other courses); a page with the marks of a class.
COURSE_SEED = $(if $(findstring file,$(origin SEED)),,$(value SEED))# not the one of other verbs
course:
	$(Q)python3 common/grader/course.py --out $(call quoted,$(OUT)) --seed $(call quoted,$(COURSE_SEED)) \
	    $(if $(UPTO),--upto $(call quoted,$(UPTO))) \
	    $(if $(ASSISTANTS),--assistants $(call quoted,$(ASSISTANTS)))

board:
	$(Q)python3 common/grader/board.py --marks $(call quoted,$(MARKS)) \
	    --out $(call quoted,$(OUT)) $(if $(NAMES),--names)
