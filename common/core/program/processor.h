/* processor.h: the instructions that the program was built for (built_for.c), for the one file that
 * asks whether this processor has them (processor.c). */
#ifndef PROCESSOR_H
#define PROCESSOR_H

/* The sets that compilers use without being asked by the source.  X(name, macro of the compiler) */
#if defined __x86_64__
#define INSTRUCTION_SETS(X)                                                                 \
    X("sse4.2", __SSE4_2__) X("popcnt", __POPCNT__) X("avx", __AVX__) X("avx2", __AVX2__)   \
    X("fma", __FMA__) X("bmi2", __BMI2__) X("avx512f", __AVX512F__)                         \
    X("avx512bw", __AVX512BW__) X("avx512dq", __AVX512DQ__) X("avx512vl", __AVX512VL__)     \
    X("avx512vbmi", __AVX512VBMI__)
#else
#define INSTRUCTION_SETS(X)
#endif

/* Of each set, in this order, then NULL: "1" when the compiler was told that it may use it (its
 * macro is defined as 1), else the macro's name. */
extern const char *const built_for[];

#endif
