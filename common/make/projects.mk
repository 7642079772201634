# projects.mk: the projects, which are graded for being right and for their speed.
#
# A project in CUDA has two workers: its kernel executed on the CPU, for the cases, and where
# GPU code is compiled one that runs on the GPU, for the clock.
#
#   EX             projects; all unless given
#   SUBMISSIONS    the folder to grade, one folder for each student
#   OUT            where the marks go
#   CHECKED        a file of CSV for the lines of projects-check
.PHONY: project grade-projects projects-check
PROJECT_FILES := $(wildcard 0*/exercises/projects/*.c 0*/exercises/projects/*.cu)
$(foreach f,$(PROJECT_FILES),$(eval $(call worker,$(strip \
    $(EX_BUILD)/projects/$(notdir $(basename $(f))).worker),$(strip \
    $(BUILD)/obj/exercises/projects/$(notdir $(basename $(f))).o),$(f))))

define gpu_worker
$(EX_BUILD)/projects/$(notdir $(basename $(1))).gpu_worker: $(1:%.cu=$(BUILD)/obj/%.cuda.o) \
    $(BUILD)/obj/common/grader/worker.o $(BUILD)/obj/common/grader/worker_gpu.cuda.o $(KERNELS_O)
	@mkdir -p $$(@D)
	$$(Q)$$(CXX) $$(FAST) $$(CXXFLAGS) $$^ $$(LIBS) -o $$@
endef
$(foreach f,$(filter %.cu,$(PROJECT_FILES)) common/grader/copier.cu,$(eval $(call gpu_worker,$(f))))

project:
	$(Q)python3 common/grader/projects.py run --ex $(call quoted,$(EX)) --build $(BUILD) \
	    --make "$(MAKE)" $(if $(CUDA),--gpu)

# What grades projects in CUDA, compiled by hand-in and GPU: `make cuda` builds it anywhere.
GPU_GRADER := $(if $(CUDA),$(BUILD)/obj/common/grader/worker_gpu.cuda.o \
              $(BUILD)/obj/common/grader/place_gpu.cuda.o \
              $(patsubst %.cu,$(EX_BUILD)/projects/%.gpu_worker,\
                  copier.cu $(notdir $(filter %.cu,$(PROJECT_FILES)))))
cuda: $(GPU_GRADER)

# How hand-ins are compiled.
hand_in_compilers = --cc "$(CC) -std=c11 -D_GNU_SOURCE $(FAST)" \
    --cxx "$(CXX) -x c++ -std=c++20 -D_GNU_SOURCE $(FAST)" --link "$(CXX) $(FAST)" \
    $(if $(CUDA),--nvcc "$(NVCC) -std=c++20 -O3 $(call gencode,$(CUDA_ARCH))" --gpu-link "$(LIBS)")

grade-projects: exercises-built $(GPU_GRADER)
	$(Q)python3 common/grader/projects.py grade --submissions $(call quoted,$(SUBMISSIONS)) \
	    --out $(call quoted,$(OUT)) --ex $(call quoted,$(EX)) --build $(BUILD) --late $(call quoted,$(LATE)) \
	    $(hand_in_compilers)

# On a GPU: is the judge right about honest programs and about those that cheat?
projects-check: exercises-built $(GPU_GRADER)
	$(Q)python3 -B tests/exercises/gpu_check.py --build $(BUILD) $(hand_in_compilers) \
	    $(if $(CHECKED),--csv $(call quoted,$(CHECKED))) $(EX)
