/* run.c: attention of real data on several ranks.  Each process reads the rows of its ranks and
 * nothing else, and process 0 writes the output slice by slice as it comes: nobody holds the
 * whole. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "problem/dtype.h"
#include "problem/host_memory.h"
#include "problem/operation.h"
#include "problem/variant.h"
#include "program/complain.h"
#include "program/options.h"
#include "program/run.h"
#include "ranks/shards.h"

/* --- The inputs. --- */

/* Do all of a process's steps agree with the others'?  The complaint is kept (complain.h). */
static int agree(int status)
{
    return world_agree(status ? complained() : NULL, BAD);
}

/* Reads the headers alone and asks `run` what they mean. */
static int problem_of_headers(struct run *r)
{
    const unsigned taken = HAS(ARRAY_Q) | HAS(ARRAY_K) | HAS(ARRAY_V) | HAS(ARRAY_BIAS) |
                           HAS(ARRAY_O) | HAS(ARRAY_LSE);
    for (int i = 0; i < N_ARRAYS; i++) {
        struct npy *a = &r->in[i];
        const char *path = r->opt->file[i], *why = NULL;
        if (path && !(taken & HAS(i)))
            return bad(r, "several ranks do not support --%s", array_list[i].name);
        if (!path || !(operations[r->p.op].inputs & HAS(i))) continue;
        why = npy_read(path, 0, (const size_t[]){0, 0}, a);
        if (why) return bad(r, "%s", why);
        a->shape[a->ndim - 2] = a->rows_there;
    }
    return run_choose_problem(r);
}

/* The type that the ranks compute in: a 16-bit file may be widened, f32 is not rounded unasked. */
static int choose_rank_type(struct run *r)
{
    const struct variant *v = r->stage->variants[0];
    enum dtype type;
    if (!choice_type(v, &r->p, 0, &type))
        return bad(r, "several %ss do not support %s%s", kind_of_rank.name,
                   variant_refuses(v, &r->p),
                   r->p.dtype == F32 ? "; --dtype bf16 or f16 rounds it" : "");
    r->p.dtype = type;
    return OK;
}

/* Do all processes see the same problem? */
static const char *same_everywhere(const struct problem *p)
{
    struct problem first = *p;
    world_share(&first, sizeof first);
    return memcmp(&first, p, sizeof first) ? "its files have other shapes than those of rank 0"
                                           : NULL;
}

/* The strategy that was asked for; else the tree for few queries, the ring for many. */
static const struct strategy *choose_strategy(const struct run *r)
{
    const struct strategy *s = r->stage->strategies;
    for (; r->opt->strategy ? strcmp(s->name, r->opt->strategy) != 0
                            : s->is_ring != (r->p.seqlen_q >= 64); s++) continue;
    return s;
}

static const char *rows_of_files(const void *from, enum array which, struct key_range rows,
                                 float **numbers)
{
    const struct options *opt = from;
    struct npy part;
    const char *why = npy_read(opt->file[which], 0, (const size_t[]){rows.first, rows.end}, &part);
    if (why) return why;
    *numbers = memory_new(size_times(part.count, sizeof **numbers));
    for (size_t i = 0; *numbers && i < part.count; i++)
        (*numbers)[i] = dtypes[part.dtype].load(part.data, i);
    npy_free(&part);
    return *numbers ? NULL : "no memory for rows of a file";
}

/* --- The outputs. --- */

/* Writes o and lse: all appear, or none.  Process 0 writes; the others send, also what a full
 * disk does not take any more. */
static int write_answer(struct run *r)
{
    static const enum array outputs[] = {ARRAY_O, ARRAY_LSE};
    static struct slices slices[2]; /* the writers point at them */
    size_t n = r->opt->file[ARRAY_LSE] ? 2 : 1;
    const char *why = NULL;
    const float *ignored;
    for (size_t i = 0; i < n; i++) {
        const char *here = slices_new(&slices[i], outputs[i]);
        if (here) why = here;
    }
    int status = world_agree(why, FAILED);
    why = NULL;
    for (size_t i = 0; i < n && !status && world.first == 0; i++) {
        struct npy_writer *w = &r->writer[outputs[i]];
        w->ndim = run_file_shape(r, outputs[i], w->shape);
        w->next = slices_next;
        w->context = &slices[i];
    }
    if (!status && world.first == 0) why = npy_writer_commit(r->writer, N_ARRAYS);
    for (size_t i = 0; i < n; i++) {
        while (!status && slices_next(&slices[i], &ignored)) continue;
        memory_free(slices[i].memory);
    }
    return status ? status : world_agree(why, FAILED);
}

static int do_run(struct run *r)
{
    int status = agree(problem_of_headers(r));
    if (!status) status = agree(choose_rank_type(r));
    if (!status) status = world_agree(same_everywhere(&r->p), BAD);
    if (!status) status = agree(world.first ? OK : run_open_outputs(r));
    if (status) return status;
    const struct strategy *s = choose_strategy(r);
    status = world_agree(shards_new(&r->p, s), BAD);
    if (!status) status = world_agree(shards_fill(rows_of_files, r->opt), BAD);
    if (!status) {
        shards_attention();
        say(r, "%s: %s on %s, %s\n", r->stage->name, s->name, r->stage->ranks, s->idea);
        status = write_answer(r);
    }
    shards_free();
    return status;
}

int run_on_ranks(const struct stage *stage, const struct options *opt)
{
    struct run r = {.stage = stage, .opt = opt, .report = stdout, .p = opt->score};
    int speaks = complains();
    r.p.op = run_operation(opt);
    complain_silently(1); /* world_agree() says it once, with the rank */
    int status = do_run(&r);
    complain_silently(!speaks);
    npy_writer_abort(r.writer, N_ARRAYS);
    for (int i = 0; i < N_ARRAYS; i++) npy_free(&r.in[i]);
    return status;
}
