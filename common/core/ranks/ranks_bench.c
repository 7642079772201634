/* ranks_bench.c: the time of one problem on several ranks, from the first that begins to the last that
 * ends; on GPUs in turns with one of them. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "problem/operation.h"
#include "problem/choice.h"
#include "problem/variant.h"
#include "program/bench.h"
#include "program/complain.h"
#include "ranks/shards.h"

enum { FAILED = 1, BAD = 2, MOST = 1000, MOST_STRATEGIES = 4 };

/* Times of calls. */
struct calls { double seconds[MOST * MOST_STRATEGIES]; int n; };

/* A pause as long as the last call, so that the power limit counts for no method more than for
 * another: GPUs that compute without a pause lower their clocks after a while. */
static void rest(double seconds)
{
    if (kind->device == ON_GPU) usleep((useconds_t)(1e6 * fmin(fmax(seconds, 0.005), 0.1)));
}

static double one_call(void)
{
    world_max(0); /* all processes are ready */
    return world_max(kind->attention());
}

/* Calls of one GPU and of all in turn, so that both find the machine in the same state. */
static void take_turns(const struct problem *p, struct calls *all, struct calls *one)
{
    double last = one_call(), single;
    int n = last > 0 ? (int)fmin(1 / last, MOST) : MOST; /* the same on every process */
    if (n < kind->least_calls) n = kind->least_calls;
    if (n > kind->most_calls) n = kind->most_calls;
    for (int i = -1; i < n; i++) {
        rest(last);
        if (world.first == 0 && kind->alone && kind->alone(p, &single)) {
            rest(single);
            if (i >= 0) one->seconds[one->n++] = single;
        }
        last = one_call();
        if (i >= 0) all->seconds[all->n++] = last;
    }
}

/* Prints and writes one line, of calls on so many ranks. */
static const char *report(struct measurement *m, struct calls *calls, int ranks, struct csv *csv)
{
    struct timing t = timing_of(calls->seconds, calls->n);
    char more[64];
    m->bytes_predicted = attention_io_bytes(&m->p);
    m->bytes_measured = m->max_err = m->allowed_err = NAN;
    snprintf(more, sizeof more, "  %d %s%s, %.1f MB each", ranks, kind->name,
             ranks > 1 ? "s" : "", 1e-6 * m->peak_bytes);
    return bench_report(m, &t, 0, more, csv);
}

static int bench_strategy(const struct strategy *s, struct measurement m, struct calls *one,
                          struct csv *csv)
{
    static struct calls all;
    char name[64];
    all.n = 0;
    int status = world_agree(kind->shards_new(&m.p, s), FAILED);
    if (!status) {
        kind->draw(7);
        take_turns(&m.p, &all, one);
        m.peak_bytes = world_max(kind->bytes());
        snprintf(name, sizeof name, "%s-%d", s->name, world.ranks);
        m.variant = name;
        const char *why = world.first ? NULL : report(&m, &all, world.ranks, csv);
        status = world_agree(why, FAILED);
    }
    kind->shards_free();
    return status;
}

/* Which strategies are worth a measurement: on GPUs a ring of one query has nothing to share, and
 * the tree of a long prompt would hold all of it on each. */
static int is_wanted(const struct strategy *s, const struct problem *p, const char *given)
{
    if (given) return !strcmp(s->name, given);
    if (kind->device != ON_GPU) return 1;
    return s->is_ring ? p->seqlen_q >= 64 : p->seqlen_q <= 4096;
}

static int bench_all(const struct stage *stage, const struct options *opt,
                     const struct problem *p, struct csv *csv)
{
    static struct calls one;
    struct measurement m = {.stage = kind->stage, .p = *p, .device = kind->device};
    int status = 0;
    world_max(0);
    m.ceiling = world_sum(kind->ceiling(&m)); /* all at the same time */
    m.threads = (int)world_sum(m.threads);
    for (const struct strategy *s = stage->strategies; s->name && !status; s++)
        if (is_wanted(s, p, opt->strategy))
            status = bench_strategy(s, m, &one, csv);
    m.ceiling /= world.ranks;
    m.threads = 1;
    const char *why = NULL;
    if (world.first == 0 && kind->alone_done && kind->alone_done(&m) && !status && one.n) why = report(&m, &one, 1, csv);
    return status ? status : world_agree(why, FAILED);
}

int bench_on_ranks(const struct stage *stage, const struct options *opt)
{
    const struct variant *v = stage->variants[0];
    struct problem example = kind->example, p;
    if (opt->quick) example.seqlen_q = kind->quick;
    p = bench_heads(opt, &example);
    p.dtype = opt->has_dtype ? opt->dtype : v->types & TYPE(F32) ? F32 : BF16;
    p.scale = 1 / sqrtf((float)p.head_dim);
    int status = bench_fits(stage, opt, &p);
    if (status) return status;
    if (opt->rows || opt->cols || (opt->has_op && opt->op != OP_ATTENTION))
        return complain(stage, "bench: several ranks compute attention alone");
    if (variant_refuses(v, &p))
        return complain(stage, "several %ss do not support %s", kind->name,
                        variant_refuses(v, &p));
    const char *why = NULL;
    char text[512];
    struct csv *csv = opt->csv && world.first == 0 ? csv_open(opt->csv, &why) : NULL;
    snprintf(text, sizeof text, "--csv: %s: %s", opt->csv ? opt->csv : "", why ? why : "");
    status = world_agree(why ? text : NULL, BAD);
    if (!status) status = bench_all(stage, opt, &p, csv);
    why = csv ? csv_close(csv) : NULL;
    if (why) complain(stage, "--csv: %s", why);
    return status ? status : why ? FAILED : 0;
}
