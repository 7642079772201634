/* processor.h: does this processor have the instructions that the program was built for? */
#ifndef PROCESSOR_H
#define PROCESSOR_H

/* The sets that compilers use without being asked by the source.  X(bit, name) */
#if defined __x86_64__
#define INSTRUCTION_SETS(X)                                                                 \
    X(0, "sse4.2") X(1, "popcnt") X(2, "avx") X(3, "avx2") X(4, "fma") X(5, "bmi2")         \
    X(6, "avx512f") X(7, "avx512bw") X(8, "avx512dq") X(9, "avx512vl") X(10, "avx512vbmi")
#else
#define INSTRUCTION_SETS(X)
#endif

extern const unsigned built_for; /* a bit for each set that the compiler was told it may use */

unsigned processor_has(void);

/* The first set of `needs` that is not in `has`, or NULL. */
const char *processor_lacks(unsigned needs, unsigned has);

#endif
