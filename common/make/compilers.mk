# compilers.mk: the C and C++ compilers, their flags, and where a file finds its headers.
#
#   CC, CXX             any gcc or clang; several words are fine (CC="ccache gcc")
#   CFLAGS, CXXFLAGS    are added at the end
#   WERROR=-Werror      warnings are errors
#   ARCH_FLAGS          the machine's architecture; -march=native unless given

# clang's OpenMP runtime is linked by clang++ only: CC=clang-14 chooses clang++-14.
ifneq ($(and $(filter default,$(origin CXX)),$(findstring clang,$(CC))),)
CXX := $(subst clang,clang++,$(CC))
WNO := -Wno-pass-failed
endif
WARN := -Wall -Wextra $(WNO) $(WERROR)
ARCH_FLAGS ?= -march=native
FAST := -O3 $(ARCH_FLAGS) -fno-math-errno -fno-trapping-math -fopenmp -ffp-contract=off

comma := ,
space := $() $()
DIMS = '-DHEAD_DIMS=$(subst $(space),$(comma),$(strip $(HEAD_DIMS)))'
# -MMD writes each object's list of headers beside it (programs.mk reads the lists).
CFLAGS_ALL = -std=c11 -D_GNU_SOURCE $(FAST) $(WARN) -MMD -MP $(CFLAGS)
CXXFLAGS_ALL = -std=c++20 -D_GNU_SOURCE $(FAST) $(WARN) -MMD -MP $(DIMS) $(CXXFLAGS)
LIBS := -lm -lpthread -ldl

# A file sees common/, its own room, its stage's directory, and the monoid of stage 4.
stage_of = $(firstword $(subst /, ,$(1)))
INCLUDE = -Icommon -I$(dir $<) -I$(call stage_of,$<) -I04_monoid_tiled_cpu

ifneq ($(V),1)
Q := @
endif
