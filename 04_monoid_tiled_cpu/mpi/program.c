/* program.c: the program 04_monoid_tiled_cpu_mpi: the verbs check, bench and run on several
 * ranks.
 *
 *     mpirun -n 4 build/04_monoid_tiled_cpu_mpi check --strategy ring
 *
 * Rank 0 prints.  Every rank takes the same path through this file; where one fails, all learn
 * of it (ranks_complain), rank 0 says which and why, and all end with the same status. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measurement/ceiling.h"
#include "measurement/csv.h"
#include "npy/npy.h"
#include "problem/host_memory.h"
#include "problem/random.h"
#include "problem/operation.h"
#include "program/complain.h"
#include "program/parse.h"
#include "shard.h"
#include "verification/cases.h"
#include "verification/compare.h"
#include "verification/standard.h"

enum { OK = 0, FAILED = 1, BAD = 2, SKIPPED = 77 };

static const char *const strategy_names[N_STRATEGIES] = {
    [TREE] = "tree", [TREE_FIXED_ORDER] = "tree-fixed", [RING] = "ring",
    [RING_UNBALANCED] = "ring-unbalanced",
};

static const char *const strategy_ideas[N_STRATEGIES] = {
    [TREE] = "keys are cut; one reduction with the monoid as MPI_Op",
    [TREE_FIXED_ORDER] = "the same, merged by rank: the same bits in every run",
    [RING] = "keys and queries are cut; keys travel; zigzag chunks balance a causal mask",
    [RING_UNBALANCED] = "the same with contiguous chunks, for comparison",
};

static const struct variant *const no_variants[] = {NULL};
static const char *const strategies[] = {"tree", "tree-fixed", "ring", "ring-unbalanced", NULL};

static const struct stage stage = {
    .number = 4,
    .name = "04_monoid_tiled_cpu_mpi",
    .idea = "the same fold on several machines: keys cut between MPI ranks",
    .variants = no_variants,
    .strategies = strategies,
};

/* What every verb needs. */
struct team {
    const struct options *opt;
    int me, ranks;
    MPI_Comm comm;
};

/* One line from rank 0 when some rank complains; the status then, else OK. */
static int agree(const struct team *t, const char *why, int status)
{
    char text[2048];
    if (!ranks_complain(why, text, sizeof text, t->comm)) return OK;
    if (t->me == 0) fprintf(stderr, "%s: %s\n", stage.name, text);
    return status;
}

/* --- check --- */

/* One case under one strategy: 1 right, 0 wrong (told), -1 not possible. */
static int check_case(const struct team *t, const struct test_case *c, enum strategy s)
{
    struct inputs *in = inputs_new(c, F32, test_case_seed(c));
    struct shard w;
    const char *why = shard_new(&w, &in->problem, s, t->comm);
    struct outputs out = outputs_new(&in->problem);
    int ok = -1;
    if (!why) {
        shard_cut(&w, s, &in->arrays);
        why = shard_attention(&w, s);
        shard_gather(&w, s, out.o.data, out.lse.data);
    }
    char text[512];
    if (ranks_complain(why, text, sizeof text, t->comm)) {
        if (t->me == 0) printf("not run  %s  %s: %s\n", strategy_names[s], c->name, text);
    } else if (t->me == 0) {
        struct standard *standard = standard_new(&in->problem, &in->arrays);
        struct verdict v = compare(standard, &out);
        char index[80];
        verdict_index(&v, index, sizeof index);
        ok = v.ok;
        if (!ok)
            printf("FAILED   %s  %s  %d ranks\n    %s%s: %s\n    got %.9g  want %.9g  error "
                   "%.3g  allowed %.3g\n", strategy_names[s], c->name, t->ranks, v.array, index,
                   v.reason, v.got, v.want, v.err, v.allowed);
        standard_free(standard);
    }
    MPI_Bcast(&ok, 1, MPI_INT, 0, t->comm);
    outputs_free(&out);
    shard_free(&w);
    inputs_free(in);
    return ok;
}

static int wanted(const struct options *opt, enum strategy s)
{
    return !opt->strategy || !strcmp(opt->strategy, strategy_names[s]);
}

static int check(const struct team *t)
{
    size_t n, total = 0, wrong = 0;
    const struct test_case *c = test_cases(&n);
    for (int s = 0; s < N_STRATEGIES; s++) {
        size_t passed = 0, failed = 0, skipped = 0;
        if (!wanted(t->opt, (enum strategy)s)) continue;
        for (size_t i = 0; i < n; i++) {
            if (c[i].problem.op != OP_ATTENTION || c[i].only_gpu) continue;
            if (t->opt->only_case ? strcmp(t->opt->only_case, c[i].name)
                                  : t->opt->quick && !c[i].quick)
                continue;
            int ok = check_case(t, &c[i], (enum strategy)s);
            passed += ok == 1, failed += ok == 0, skipped += ok < 0;
        }
        if (t->me == 0)
            printf("%-16s %zu passed, %zu failed, %zu skipped\n", strategy_names[s], passed,
                   failed, skipped);
        total += passed, wrong += failed;
    }
    if (t->me == 0)
        printf("%s on %d rank%s: %zu checks passed, %zu failed\n", stage.name, t->ranks,
               t->ranks == 1 ? "" : "s", total, wrong);
    return wrong ? FAILED : total ? OK : SKIPPED;
}

/* --- bench --- */

static struct problem bench_problem(const struct options *o)
{
    struct problem p = {.op = OP_ATTENTION, .batch = o->batch ? o->batch : 1};
    p.heads_q = o->heads_q ? o->heads_q : o->heads_kv ? o->heads_kv : 8;
    p.heads_kv = o->heads_kv ? o->heads_kv : p.heads_q;
    p.seqlen_q = o->seqlen_q ? o->seqlen_q : o->seqlen_k ? o->seqlen_k : o->quick ? 1024 : 4096;
    p.seqlen_k = o->seqlen_k ? o->seqlen_k : p.seqlen_q;
    p.head_dim = o->head_dim ? o->head_dim : 64;
    p.head_dim_v = o->head_dim_v ? o->head_dim_v : p.head_dim;
    p.causal = o->causal;
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
    if (wrong) fprintf(stderr, "%s: --csv: cannot write: %s\n", stage.name, wrong);
    return wrong ? FAILED : OK;
}

static int bench(const struct team *t)
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
    if (why) fprintf(stderr, "%s: --csv: %s\n", stage.name, why);
    return status;
}

/* --- run --- */

enum { Q, K, V, BIAS, N_FILES };

/* Size `from_end` places before the last of a file's shape; 1 where it has none. */
static size_t dim(const struct npy *a, size_t from_end)
{
    if (from_end == 1) return a->rows_there;
    return from_end < a->ndim ? a->shape[a->ndim - 1 - from_end] : 1;
}

/* The problem that the headers describe: NULL, or what does not fit. */
static const char *read_problem(const struct options *o, struct npy head[N_FILES],
                                struct problem *p)
{
    static char text[1024];
    const char *path[N_FILES] = {o->q, o->k, o->v, o->bias};
    const char *why = NULL;
    for (int i = 0; i < N_FILES && !why; i++)
        if (path[i]) why = npy_read_rows(path[i], 0, 0, &head[i]);
    if (why) return why;
    const struct npy *q = &head[Q], *k = &head[K], *v = &head[V];
    *p = (struct problem){.op = OP_ATTENTION, .batch = dim(q, 3), .heads_q = dim(q, 2),
                          .heads_kv = dim(k, 2), .seqlen_q = dim(q, 1), .seqlen_k = dim(k, 1),
                          .head_dim = dim(q, 0), .head_dim_v = dim(v, 0),
                          .causal = o->causal, .has_bias = o->bias != NULL};
    p->scale = o->has_scale ? o->scale : 1 / sqrtf((float)p->head_dim);
    int heads = p->heads_kv ? p->heads_q % p->heads_kv == 0 : p->heads_q == 0;
    int ok = q->ndim == k->ndim && k->ndim == v->ndim && q->ndim <= 4 && p->head_dim &&
             p->head_dim_v && dim(k, 0) == p->head_dim && dim(k, 3) == p->batch &&
             dim(v, 3) == p->batch && dim(v, 2) == p->heads_kv && dim(v, 1) == p->seqlen_k &&
             heads && (!o->bias || (head[BIAS].ndim == 2 && dim(&head[BIAS], 1) == p->seqlen_q &&
                                    dim(&head[BIAS], 0) == p->seqlen_k));
    if (ok) return NULL;
    snprintf(text, sizeof text, "shapes do not fit: --q %s has %zu rows, --k %s %zu, --v %s "
             "%zu; give [.., heads, seqlen, head_dim] alike", o->q, dim(q, 1), o->k, dim(k, 1),
             o->v, dim(v, 1));
    return text;
}

/* Do all ranks see the same sizes? */
static const char *same_everywhere(const struct team *t, const struct problem *p)
{
    unsigned long long mine[7] = {p->batch, p->heads_q, p->heads_kv, p->seqlen_q, p->seqlen_k,
                                  p->head_dim, p->head_dim_v}, first[7];
    memcpy(first, mine, sizeof mine);
    MPI_Bcast(first, 7, MPI_UNSIGNED_LONG_LONG, 0, t->comm);
    return memcmp(first, mine, sizeof mine) ? "its files have other shapes than those of rank 0"
                                            : NULL;
}

/* Reads the rows of both chunks, every head, as floats. */
static const char *read_chunks(const char *path, const struct chunks *c, size_t heads, size_t d,
                               float *to)
{
    size_t row = 0, n = chunks_size(c);
    for (int i = 0; i < CHUNKS; row += range_size(c->at[i++])) {
        struct npy part;
        size_t size = range_size(c->at[i]);
        if (!size) continue;
        const char *why = npy_read_rows(path, c->at[i].first, c->at[i].end, &part);
        if (why) return why;
        float *wide = part.dtype == F32 ? part.data : memory_new(part.count * sizeof *wide);
        if (!wide) return "no memory to widen float16";
        if (part.dtype != F32) npy_widen(&part, wide);
        copy_rows(to, n, row, wide, size, 0, size, heads, d);
        if (part.dtype != F32) memory_free(wide);
        npy_free(&part);
    }
    return NULL;
}

/* Fills the shard from the files; for the tree only the rank's columns of the bias stay. */
static const char *read_shard(const struct options *o, struct shard *w, enum strategy s)
{
    const struct problem *p = &w->whole;
    const char *why = read_chunks(o->q, &w->queries, p->batch * p->heads_q, p->head_dim,
                                  (float *)w->q);
    size_t hk = p->batch * p->heads_kv, all = p->seqlen_k;
    if (!why) why = read_chunks(o->k, &w->keys, hk, p->head_dim, (float *)w->k);
    if (!why) why = read_chunks(o->v, &w->keys, hk, p->head_dim_v, (float *)w->v);
    if (why || !o->bias) return why;
    if (s == RING || s == RING_UNBALANCED)
        return read_chunks(o->bias, &w->queries, 1, all, (float *)w->bias);
    size_t n = chunks_size(&w->keys);
    float *row = memory_new((all ? all : 1) * sizeof *row);
    if (!row) return "no memory for a row of the bias";
    for (size_t i = 0; i < p->seqlen_q && !why; i++) {
        struct chunks one = {{{i, i + 1}, {0, 0}}};
        why = read_chunks(o->bias, &one, 1, all, row);
        if (!why) copy_rows((float *)w->bias + i * n, n, 0, row, all, w->keys.at[FRONT].first,
                            n, 1, 1);
    }
    memory_free(row);
    return why;
}

/* Rank 0 writes o and lse: all appear, or none. */
static const char *write_answer(const struct options *o, const struct npy *q,
                                const struct problem *p, struct npy_writer *writer,
                                const float *out, const float *lse)
{
    size_t shape[NPY_MAX_DIMS];
    memcpy(shape, q->shape, sizeof shape);
    shape[q->ndim - 2] = p->seqlen_q;
    shape[q->ndim - 1] = p->head_dim_v;
    npy_writer_set(&writer[0], q->ndim, shape, out);
    if (o->lse) npy_writer_set(&writer[1], q->ndim - 1, shape, lse);
    return npy_writer_commit(writer, o->lse ? 2 : 1);
}

static const char *open_outputs(const struct options *o, struct npy_writer *writer)
{
    const char *why = npy_writer_begin(&writer[0], o->o);
    if (why || !o->lse) return why;
    why = npy_writer_begin(&writer[1], o->lse);
    if (why) npy_writer_abort(writer, 1);
    return why;
}

static int run(const struct team *t)
{
    const struct options *o = t->opt;
    enum strategy s = TREE;
    struct npy head[N_FILES] = {{0}};
    struct npy_writer writer[2];
    struct problem p = {0};
    struct shard w;
    while (o->strategy && strcmp(o->strategy, strategy_names[s])) s++;
    const char *why = !o->q ? "run: give --q, --k, --v and --o" : read_problem(o, head, &p);
    int status = agree(t, why, BAD);
    if (!status) status = agree(t, same_everywhere(t, &p), BAD);
    if (!status && !o->strategy) s = p.seqlen_q < 64 ? TREE : RING;
    if (!status) status = agree(t, t->me ? NULL : open_outputs(o, writer), BAD);
    if (status) return status;
    status = agree(t, shard_new(&w, &p, s, t->comm), BAD);
    if (!status) status = agree(t, read_shard(o, &w, s), BAD);
    if (!status) status = agree(t, shard_attention(&w, s), FAILED);
    size_t rows = p.batch * p.heads_q * p.seqlen_q;
    float *out = t->me || status ? NULL : memory_new(rows * p.head_dim_v * sizeof *out + 1);
    float *lse = t->me || status ? NULL : memory_new(rows * sizeof *lse + 1);
    if (!status) status = agree(t, !t->me && (!out || !lse) ? "no memory for the output" : NULL, BAD);
    if (!status) shard_gather(&w, s, out, lse);
    if (!status && !t->me)
        printf("%s: %s on %d ranks, %s\n", stage.name, strategy_names[s], t->ranks,
               strategy_ideas[s]);
    why = status || t->me ? NULL : write_answer(o, &head[Q], &p, writer, out, lse);
    if (status && !t->me) npy_writer_abort(writer, o->lse ? 2 : 1);
    if (!status) status = agree(t, why, FAILED);
    shard_free(&w);
    memory_free(out), memory_free(lse);
    for (int i = 0; i < N_FILES; i++) npy_free(&head[i]);
    return status;
}

/* --- the program --- */

static int list(const struct team *t)
{
    if (t->me) return OK;
    printf("# strategies\n");
    for (int s = 0; s < N_STRATEGIES; s++)
        printf("%-16s  cpu  f32  attention  %s\n", strategy_names[s], strategy_ideas[s]);
    return OK;
}

static int help(const struct team *t)
{
    if (t->me) return OK;
    printf("%s: %s\n\n"
           "mpirun -n R %s list\n"
           "            check [--strategy S] [--quick] [--case NAME]\n"
           "            bench [--strategy S] [--quick] [--csv FILE] [--causal] [--batch N\n"
           "                  --heads-q N --heads-kv N --seqlen-q N --seqlen-k N --head-dim N\n"
           "                  --head-dim-v N] [--threads N]\n"
           "            run --q q.npy --k k.npy --v v.npy --o o.npy [--lse l.npy]\n"
           "                [--bias b.npy] [--causal] [--scale s] [--strategy S]\n\n"
           "Strategies: tree, tree-fixed, ring, ring-unbalanced.  Exit status: 0 done or\n"
           "passed, 1 failed, 2 bad usage or input, 77 skipped.\n",
           stage.name, stage.idea, stage.name);
    return OK;
}

static const struct { struct verb verb; int (*function)(const struct team *t); } verbs[] = {
    {{"list", IN_LIST, NULL}, list},    {{"check", IN_CHECK, NULL}, check},
    {{"bench", IN_BENCH, NULL}, bench}, {{"run", IN_RUN, NULL}, run},
    {{"help", 0, NULL}, help},
};
enum { N_VERBS = sizeof verbs / sizeof verbs[0] };

/* Sets *verb to a place in verbs, and *opt.  0, or 2 after one line on stderr. */
static int parse(int argc, char **argv, int *verb, struct options *opt)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) name = "help";
    for (*verb = 0; *verb < N_VERBS; ++*verb)
        if (!strcmp(name, verbs[*verb].verb.name))
            return options_parse(argc - 2, argv + 2, &verbs[*verb].verb, &stage, opt);
    return complain(&stage, "give a verb: list, check, bench, run or help");
}

int main(int argc, char **argv)
{
    struct options opt;
    struct team t = {.opt = &opt, .comm = MPI_COMM_WORLD};
    int level, verb = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(t.comm, &t.me);
    MPI_Comm_size(t.comm, &t.ranks);
    if (t.me && !freopen("/dev/null", "w", stdout)) MPI_Abort(t.comm, 1);
    int status = t.me ? OK : parse(argc, argv, &verb, &opt); /* one complaint */
    MPI_Bcast(&status, 1, MPI_INT, 0, t.comm);
    if (!status && t.me) status = parse(argc, argv, &verb, &opt);
    if (!status) {
        if (opt.threads) omp_set_num_threads(opt.threads);
        status = verbs[verb].function(&t);
    }
    fflush(stdout);
    MPI_Finalize();
    return status;
}
