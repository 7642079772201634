/* bench.cu: the time of one problem on several GPUs, each strategy, beside the last rung on one
 * GPU in the same run.
 *
 * The time is that of the events on the GPUs: from the first work of a GPU to its last, the
 * longest of all.  One GPU and all take turns, with a pause before each call.  Inputs are drawn
 * on the GPUs, so a problem may be larger than any host. */
#include <algorithm>
#include <math.h>
#include <unistd.h>
#include <vector>

extern "C" {
#include "gpu/gpu.h"
#include "measurement/csv.h"
#include "problem/operation.h"
#include "problem/variant.h"
}
#include "part.h"
#include "verbs.h"

extern "C" const struct variant split_kv_cuda;

static struct problem bench_problem(const struct options *o)
{
    struct problem p = {};
    size_t n = o->quick ? 8192 : 65536;
    p.op = OP_ATTENTION;
    p.dtype = o->has_dtype ? o->dtype : BF16;
    p.batch = o->batch ? o->batch : 1;
    p.heads_q = o->heads_q ? o->heads_q : o->heads_kv ? o->heads_kv : 16;
    p.heads_kv = o->heads_kv ? o->heads_kv : p.heads_q;
    p.seqlen_q = o->seqlen_q ? o->seqlen_q : o->seqlen_k ? o->seqlen_k : n;
    p.seqlen_k = o->seqlen_k ? o->seqlen_k : p.seqlen_q;
    p.head_dim = o->head_dim ? o->head_dim : 128;
    p.head_dim_v = o->head_dim_v ? o->head_dim_v : p.head_dim;
    p.causal = o->score.causal;
    p.scale = 1 / sqrtf((float)p.head_dim);
    return p;
}

/* Bytes that decoding must read: its ceiling is the memory, not the tensor cores. */
static bool is_decode(const struct problem *p) { return !part_split_refuses(p); }

/* Writes and prints one line. */
static const char *report(const struct team *t, struct csv *csv, const char *name, int gpus,
                          std::vector<double> seconds, double bytes)
{
    const struct problem *p = &t->p;
    CUDA_CHECK(cudaSetDevice(t->gpu[0].device)); /* the ceilings are measured there */
    std::sort(seconds.begin(), seconds.end());
    struct measurement m = {};
    m.stage = "05_flash_cuda";
    m.variant = name;
    m.p = *p;
    m.device = ON_GPU;
    m.threads = gpus;
    m.median_s = seconds[seconds.size() / 2];
    m.min_s = seconds[0];
    m.reps = (int)seconds.size();
    m.bytes_predicted = attention_io_bytes(p);
    m.bytes_measured = m.max_err = m.allowed_err = NAN;
    m.flops = problem_flops(p);
    m.gbps = m.bytes_predicted / m.median_s / 1e9;
    m.gflops = m.flops / m.median_s / 1e9;
    m.ceiling_kind = is_decode(p) ? "read" : "gemm";
    m.ceiling = gpus * (is_decode(p) ? gpu_read_gbps() : gpu_gemm_gflops(p->dtype));
    m.pct_ceiling = 100 * (is_decode(p) ? m.gbps : m.gflops) / m.ceiling;
    m.peak_bytes = bytes;
    printf("%-18s %d GPU%s q%zu k%zu h%zu d%zu%s  %10.3f ms  min %10.3f  %8.1f TFLOP/s  %7.1f "
           "GB/s  %5.1f%% of %s  %6.1f GB a GPU\n", name, gpus, gpus > 1 ? "s" : " ",
           p->seqlen_q, p->seqlen_k, p->heads_q, p->head_dim, p->causal ? " causal" : "",
           1e3 * m.median_s, 1e3 * m.min_s, 1e-3 * m.gflops, m.gbps, m.pct_ceiling,
           m.ceiling_kind, 1e-9 * bytes);
    fflush(stdout);
    return csv ? csv_write(csv, &m) : NULL;
}

/* --- one GPU: the last rung, or split-KV for few queries --- */

struct one_gpu {
    const struct variant *v; /* NULL: the problem does not fit into its memory */
    struct problem p;
    struct arrays a;
    void *owned[6];
    double bytes;
    std::vector<double> seconds;
};

static void one_gpu_new(struct one_gpu *x, const struct problem *p)
{
    const struct variant *v = is_decode(p) ? &split_kv_cuda : &tuned_cuda;
    size_t rows = p->batch * p->heads_q * p->seqlen_q, keys = p->batch * p->heads_kv * p->seqlen_k;
    size_t n[6] = {rows * p->head_dim * 2, keys * p->head_dim * 2, keys * p->head_dim_v * 2,
                   rows * p->head_dim_v * 2, rows * 4, v->workspace(p)};
    x->p = *p;
    for (int i = 0; i < 6; i++) x->bytes += (double)n[i];
    if (x->bytes > 0.98 * (double)gpu_memory_free()) {
        printf("%-18s 1 GPU  its %.1f GB do not fit into one GPU's memory\n", v->name,
               1e-9 * x->bytes);
        return;
    }
    x->v = v;
    for (int i = 0; i < 6; i++) CUDA_CHECK(cudaMalloc(&x->owned[i], n[i] ? n[i] : 16));
    for (int i = 0; i < 3; i++) draw_normal(x->owned[i], n[i] / 2, p->dtype, 7 + (uint64_t)i);
    x->a.q = x->owned[0];
    x->a.k = x->owned[1];
    x->a.v = x->owned[2];
    x->a.o = x->owned[3];
    x->a.lse = (float *)x->owned[4];
    x->a.workspace = x->owned[5];
}

static void run_one(void *context)
{
    struct one_gpu *x = (struct one_gpu *)context;
    variant_call(x->v, &x->p, &x->a);
}

static void one_gpu_free(struct one_gpu *x)
{
    for (int i = 0; i < 6; i++)
        if (x->owned[i]) CUDA_CHECK(cudaFree(x->owned[i]));
}

/* --- several --- */

/* A pause as long as the last call, so that the power limit counts for no method more than for
 * another: GPUs that compute without a pause lower their clocks after a while. */
static void rest(double seconds)
{
    usleep((useconds_t)(1e6 * fmin(fmax(seconds, 0.005), 0.1)));
}

/* When each GPU computed and copied in the last call, in milliseconds from its begin:
 * strategy, causal, rank, step, what, begin, end. */
static void write_timeline(const struct team *t, const char *path)
{
    FILE *f = fopen(path, "a");
    if (!f) return;
    fseek(f, 0, SEEK_END);
    if (ftell(f) == 0) fprintf(f, "strategy,causal,gpus,rank,step,what,begin_ms,end_ms\n");
    for (int i = 0; i < t->world->local; i++) {
        const struct gpu *g = &t->gpu[i];
        int steps = is_tree(t->strategy) ? 1 : t->world->ranks;
        for (int s = 0; s < 2 * steps; s++) {
            bool copies = s >= steps;
            int step = s % steps;
            if (copies && (step + 1 == steps || is_tree(t->strategy))) continue;
            float begin = 0, end = 0;
            CUDA_CHECK(cudaEventElapsedTime(
                &begin, g->began, copies ? g->copy_began[step] : g->compute_began[step]));
            CUDA_CHECK(cudaEventElapsedTime(
                &end, g->began, copies ? g->arrived[step + 1] : g->computed[step]));
            fprintf(f, "%s,%d,%d,%d,%d,%s,%.4f,%.4f\n", strategy_names[t->strategy],
                    t->p.causal, t->world->ranks, g->rank, step, copies ? "copy" : "compute",
                    begin, end);
        }
    }
    fclose(f);
}

static double one_call(struct team *t)
{
    world_max(0); /* all processes are ready */
    team_attention(t);
    team_wait(t);
    return team_seconds(t);
}

/* Calls of one GPU and of all in turn, so that both find the machine in the same state. */
static std::vector<double> take_turns(struct team *t, struct one_gpu *one)
{
    std::vector<double> seconds;
    double last = one_call(t), single = 0;
    int reps = last > 0.2 ? 5 : 20; /* the same on every process: team_seconds() is */
    for (int i = -1; i < reps; i++) {
        rest(last);
        if (one->v) {
            CUDA_CHECK(cudaSetDevice(t->gpu[0].device));
            single = gpu_time(run_one, one, 0);
            rest(single);
            if (i >= 0) one->seconds.push_back(single);
        }
        last = one_call(t);
        if (i >= 0) seconds.push_back(last);
    }
    return seconds;
}

static int bench_strategy(struct team *t, const struct problem *p, enum strategy s,
                          const struct options *opt, struct one_gpu *one, struct csv *csv)
{
    const struct world *w = t->world;
    size_t bytes = shard_bytes(p, s, 0, w->ranks);
    int status = world_agree(w, shards_new(t, p, s), FAILED);
    if (!status) {
        shards_draw(t, 7);
        std::vector<double> seconds = take_turns(t, one);
        char name[64];
        snprintf(name, sizeof name, "%s-%d", strategy_names[s], w->ranks);
        const char *why = w->first ? NULL
                                   : report(t, csv, name, w->ranks, seconds, (double)bytes);
        if (opt->timeline) write_timeline(t, opt->timeline);
        status = world_agree(w, why, FAILED);
    }
    shards_free(t);
    return status;
}

/* Which strategies are worth measuring: a ring of one query has nothing to share, and the tree
 * of a long prompt would hold all of it on each GPU. */
static bool is_sensible(const struct problem *p, enum strategy s)
{
    return is_tree(s) ? p->seqlen_q <= 4096 : p->seqlen_q >= 64;
}

int bench_on_gpus(struct team *t, const struct options *opt)
{
    const struct world *w = t->world;
    struct problem p = bench_problem(opt);
    const char *why = p.heads_q % p.heads_kv ? "--heads-q: is not a multiple of --heads-kv"
                                             : variant_refuses(&tuned_cuda, &p);
    int status = world_agree(w, w->first ? NULL : why, BAD);
    if (status) return status;
    struct csv *csv = opt->csv && w->first == 0 ? csv_open(opt->csv, &why) : NULL;
    status = world_agree(w, why, BAD);
    struct one_gpu one = {};
    CUDA_CHECK(cudaSetDevice(t->gpu[0].device));
    if (!status && w->first == 0) one_gpu_new(&one, &p);
    for (int s = 0; s < N_STRATEGIES && !status; s++)
        if (opt->strategy ? is_wanted(opt, (enum strategy)s) : is_sensible(&p, (enum strategy)s))
            status = bench_strategy(t, &p, (enum strategy)s, opt, &one, csv);
    CUDA_CHECK(cudaSetDevice(t->gpu[0].device));
    if (!status && !one.seconds.empty())
        why = report(t, csv, one.v->name, 1, one.seconds, one.bytes);
    one_gpu_free(&one);
    if (!status) status = world_agree(w, why, FAILED);
    why = csv ? csv_close(csv) : NULL;
    if (why) fprintf(stderr, "%s: --csv: %s\n", w->stage->name, why);
    return status ? status : why ? FAILED : OK;
}
