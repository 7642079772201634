# mpi.mk: stage 4 on several processes, built where an MPI compiler is found.
#
#   make mpi    installs OpenMPI where it may, builds build/04_monoid_tiled_cpu_mpi, and tests
#               it with 1, 2, 3, 4 and 7 ranks on this machine
#               (RANKS="2 4", ONLY="suite or planted": parts of tests/test_mpi.py)
#
# mpicc compiles with the compiler in CC (OMPI_CC for OpenMPI, MPICH_CC for MPICH).
MPICC ?= $(firstword $(shell command -v mpicc 2>/dev/null))
MPI_PROGRAM := $(BUILD)/04_monoid_tiled_cpu_mpi
RANKS_ROOM := $(BUILD)/obj/common/core/ranks
RANKS_O := $(RANKS_ROOM)/shards.o $(RANKS_ROOM)/ranks_bench.o $(RANKS_ROOM)/ranks_run.o
WORLD_MPI_O := $(RANKS_ROOM)/world_mpi.o
MPI_O := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard 04_monoid_tiled_cpu/mpi/*.c))
MPI_PARTS := $(filter-out $(MAINS),$(call objects_of,04_monoid_tiled_cpu)) $(COMMON_O)
with_cc = OMPI_CC="$(CC)" MPICH_CC="$(CC)" $(MPICC)

.PHONY: mpi
ifneq ($(and $(MPICC),$(wildcard 04_monoid_tiled_cpu)),)
build: $(MPI_PROGRAM)
endif

$(MPI_O) $(WORLD_MPI_O): $(BUILD)/obj/%.o: %.c $(BUILD)/config
	$(call says,mpicc)
	$(Q)$(with_cc) $(CFLAGS_ALL) $(INCLUDE) -c $< -o $@

$(MPI_PROGRAM): $(MPI_O) $(WORLD_MPI_O) $(RANKS_O) $(MPI_PARTS)
	$(call says,link ,$@)
	$(Q)$(with_cc) $(FAST) $(CFLAGS) $^ $(LIBS) -lstdc++ -o $@

# mpicc is looked up anew after an installation.
mpi:
	$(Q)$(MAKE) --no-print-directory $(MPI_PROGRAM) $(BUILD)/04_monoid_tiled_cpu
	$(Q)RANKS=$(call quoted,$(or $(RANKS),1 2 3 4 7)) $(PYTEST) -v -rs tests/test_mpi.py \
	    $(if $(ONLY),-k $(call quoted,$(ONLY)))
