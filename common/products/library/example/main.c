/* main.c: a program that uses the installed library.
 *
 *     export PKG_CONFIG_PATH=PREFIX/lib/pkgconfig
 *     cc main.c $(pkg-config --cflags --libs five_steps) -lm -o main && ./main
 *
 * PREFIX is the directory that `make install` was given.
 *
 * Attention of 4 queries over 1000 keys, then the same over the two halves of the keys,
 * merged: the results agree up to rounding, because attention is a fold of a monoid. */
#include <five_steps.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUERIES = 4, KEYS = 1000, DIM = 64 };

/* Attention of q over n keys; 0, or the library's code after its message. */
static int attend(const float *q, const float *k, const float *v, size_t n, float *o,
                  float *lse)
{
    struct five_steps_error error;
    struct five_steps_attention_problem p;
    size_t bytes = 0;
    memset(&p, 0, sizeof p);
    p.size = sizeof p;
    p.device = FIVE_STEPS_CPU;
    p.type = FIVE_STEPS_F32;
    p.batch = p.heads_q = p.heads_kv = 1;
    p.seqlen_q = QUERIES, p.seqlen_k = n;
    p.head_dim = p.head_dim_v = DIM;
    p.q = q, p.k = k, p.v = v, p.o = o, p.lse = lse;

    int code = five_steps_attention_workspace(&p, &bytes, &error);
    void *workspace = code || !bytes ? NULL : malloc(bytes);
    if (!code) code = five_steps_attention(&p, workspace, bytes, &error);
    if (code) fprintf(stderr, "five_steps: error %d: %s\n", code, error.message);
    free(workspace);
    return code;
}

static float number(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)(*seed >> 8) / (1 << 23) - 1;
}

int main(void)
{
    static float q[QUERIES * DIM], k[KEYS * DIM], v[KEYS * DIM], o[3][QUERIES * DIM];
    static float lse[3][QUERIES];
    unsigned seed = 1;
    float worst = 0;
    for (int i = 0; i < QUERIES * DIM; i++) q[i] = number(&seed);
    for (int i = 0; i < KEYS * DIM; i++) k[i] = number(&seed), v[i] = number(&seed);

    size_t half = KEYS / 2;
    if (attend(q, k, v, KEYS, o[0], lse[0]) || attend(q, k, v, half, o[1], lse[1]) ||
        attend(q, k + half * DIM, v + half * DIM, KEYS - half, o[2], lse[2]))
        return 1;
    struct five_steps_error error;
    struct five_steps_merge_problem m;
    memset(&m, 0, sizeof m);
    m.size = sizeof m;
    m.device = FIVE_STEPS_CPU;
    m.type = FIVE_STEPS_F32;
    m.rows = QUERIES, m.head_dim_v = DIM;
    m.o1 = o[1], m.lse1 = lse[1], m.o2 = o[2], m.lse2 = lse[2];
    m.o = o[1], m.lse = lse[1];
    if (five_steps_merge(&m, &error)) return fprintf(stderr, "%s\n", error.message), 1;

    for (int i = 0; i < QUERIES * DIM; i++) {
        float difference = fabsf(o[0][i] - o[1][i]);
        if (!(difference <= worst)) worst = difference;
    }
    printf("five_steps %s (%s): o[0] = %.6f, merged parts differ by at most %.1e\n",
           five_steps_version(), five_steps_built_with(), (double)o[0][0], (double)worst);
    return !(worst < 1e-6f);
}
