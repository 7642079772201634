/* bench.c: the time of one problem on several ranks, from the first that begins to the last
 * that ends. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "measurement/ceiling.h"
#include "measurement/csv.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "problem/random.h"
#include "program.h"
#include "shard.h"

static struct problem bench_problem(const struct options *o)
{
    struct problem p = {.op = OP_ATTENTION, .batch = o->batch ? o->batch : 1};
    p.heads_q = o->heads_q ? o->heads_q : o->heads_kv ? o->heads_kv : 8;
    p.heads_kv = o->heads_kv ? o->heads_kv : p.heads_q;
    p.seqlen_q = o->seqlen_q ? o->seqlen_q : o->seqlen_k ? o->seqlen_k : o->quick ? 1024 : 4096;
    p.seqlen_k = o->seqlen_k ? o->seqlen_k : p.seqlen_q;
    p.head_dim = o->head_dim ? o->head_dim : 64;
    p.head_dim_v = o->head_dim_v ? o->head_dim_v : p.head_dim;
    p.causal = o->score.causal;
    p.scale = 1 / sqrtf((float)p.head_dim);
    return p;
}

static void fill(float *x, size_t n, uint64_t seed)
{
    struct random r = {seed};
    for (size_t i = 0; i < n; i++) x[i] = random_normal(&r);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one call: from the moment that all ranks begin until the last one has ended. */
static double one_call(const struct team *t, const struct shard *w, enum strategy s,
                       const char **why)
{
    MPI_Barrier(t->comm);
    double began = MPI_Wtime(), took, longest;
    *why = shard_attention(w, s);
    took = MPI_Wtime() - began;
    MPI_Allreduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, t->comm);
    return longest;
}

static int bench_one(const struct team *t, const struct problem *p, enum strategy s,
                     double ceiling, struct csv *csv)
{
    enum { MOST = 1000 };
    static double seconds[MOST];
    struct shard w;
    memory_peak_reset();
    double base = (double)memory_peak(), peak;
    const char *why = shard_new(&w, p, s, t->comm);
    int status = agree(t, why, FAILED);
    if (status) return status;
    size_t n_q = chunks_size(&w.queries), n_k = chunks_size(&w.keys);
    size_t hq = p->batch * p->heads_q, hk = p->batch * p->heads_kv;
    fill((float *)w.q, hq * n_q * p->head_dim, 1 + (uint64_t)t->me);
    fill((float *)w.k, hk * n_k * p->head_dim, 1001 + (uint64_t)t->me);
    fill((float *)w.v, hk * n_k * p->head_dim_v, 2001 + (uint64_t)t->me);
    double first = one_call(t, &w, s, &why);
    int reps = first > 0 ? (int)(1 / first) : MOST;
    reps = reps < 3 ? 3 : reps > MOST ? MOST : reps; /* the same on every rank */
    for (int i = 0; i < reps && !why; i++) seconds[i] = one_call(t, &w, s, &why);
    double mine = (double)memory_peak() - base;
    MPI_Reduce(&mine, &peak, 1, MPI_DOUBLE, MPI_MAX, 0, t->comm);
    shard_free(&w);
    status = agree(t, why, FAILED);
    if (status || t->me) return status;
    qsort(seconds, (size_t)reps, sizeof *seconds, by_size);
    char name[64];
    snprintf(name, sizeof name, "%s-%d", strategy_names[s], t->ranks);
    struct measurement m = {
        .stage = "04_monoid_tiled_cpu", .variant = name, .p = *p, .device = ON_CPU,
        .threads = t->ranks * omp_get_max_threads(), .median_s = seconds[reps / 2],
        .min_s = seconds[0], .reps = reps, .bytes_predicted = NAN, .bytes_measured = NAN,
        .flops = problem_flops(p), .gbps = NAN, .ceiling_kind = "fma", .ceiling = ceiling,
        .peak_bytes = peak, .max_err = NAN, .allowed_err = NAN};
    m.gflops = m.flops / m.median_s / 1e9;
    m.pct_ceiling = 100 * m.gflops / ceiling;
    printf("%-18s q%zu k%zu h%zu d%zu%s  %10.3f ms  min %10.3f  %8.1f GFLOP/s  %5.1f%% of fma"
           "  %7.1f MiB a rank\n", name, p->seqlen_q, p->seqlen_k, p->heads_q, p->head_dim,
           p->causal ? " causal" : "", 1e3 * m.median_s, 1e3 * m.min_s, m.gflops,
           m.pct_ceiling, peak / (1 << 20));
    const char *wrong = csv ? csv_write(csv, &m) : NULL;
    if (wrong) fprintf(stderr, "%s: --csv: cannot write: %s\n", mpi_stage.name, wrong);
    return wrong ? FAILED : OK;
}

int bench_ranks(const struct team *t)
{
    struct problem p = bench_problem(t->opt);
    const char *why = NULL;
    if (p.heads_q % p.heads_kv) why = "--heads-q: is not a multiple of --heads-kv";
    int status = agree(t, t->me ? NULL : why, BAD);
    if (status) return status;
    struct csv *csv = t->opt->csv && t->me == 0 ? csv_open(t->opt->csv, &why) : NULL;
    status = agree(t, why, BAD);
    if (status) return status;
    MPI_Barrier(t->comm);
    double mine = ceiling_fma_gflops(0), ceiling; /* all ranks at the same time */
    MPI_Allreduce(&mine, &ceiling, 1, MPI_DOUBLE, MPI_SUM, t->comm);
    for (int s = 0; s < N_STRATEGIES && !status; s++)
        if (wanted(t->opt, (enum strategy)s))
            status = bench_one(t, &p, (enum strategy)s, ceiling, csv);
    MPI_Bcast(&status, 1, MPI_INT, 0, t->comm);
    why = csv ? csv_close(csv) : NULL;
    if (why) fprintf(stderr, "%s: --csv: %s\n", mpi_stage.name, why);
    return status;
}
