/* list.c: the variants in groups, one line each: name, device, types, operations, passes
 * (reads and writes of the whole large array), bytes, idea. */
#include <stdio.h>
#include <string.h>

#include "measurement/csv.h"
#include "problem/variant.h"
#include "program/complain.h"
#include "program/options.h"

const char *group_name(enum group group)
{
    static const char *const names[] = {
        [IN_LESSON] = "lesson",     [IN_FAST] = "faster",    [IN_GPU] = "GPU",
        [IN_ASIDES] = "asides",     [IN_PORTABLE] = "any GPU", [IN_HOPPER] = "Hopper",
        [IN_SPLIT_KV] = "few queries", [IN_EIGHT_BITS] = "8 bits", [IN_BACKWARD] = "backward",
    };
    _Static_assert(sizeof names / sizeof *names == N_GROUPS, "each group's heading");
    return names[group];
}

enum { N_CELLS = 6, CELL = 48, MOST_LINES = 64 };

/* The columns of a line before the idea. */
struct line { char cell[N_CELLS][CELL]; const char *idea; };

/* The shapes whose cost is listed: long enough that lower-order terms vanish. */
static struct problem example(enum op op)
{
    return (struct problem){.op = op, .rows = 1, .cols = 1 << 20, .batch = 1, .heads_q = 1,
                            .heads_kv = 1, .seqlen_q = operations[op].one_query ? 1 : 1 << 20,
                            .seqlen_k = 1 << 20, .head_dim = 64, .head_dim_v = 64,
                            .scale = 0.125f};
}

/* The operation whose cost stands for the variant: the first that it does. */
static enum op main_op(const struct variant *v)
{
    for (int op = 0; op < N_OPS; op++)
        if (variant_does(v, (enum op)op)) return (enum op)op;
    return N_OPS;
}

static enum dtype main_dtype(const struct variant *v)
{
    return v->types & TYPE(F32) ? F32 : v->types & TYPE(BF16) ? BF16
         : v->types & TYPE(F16) ? F16 : v->types & TYPE(E4M3) ? E4M3 : INT8;
}

static void append(char *text, const char *word)
{
    size_t n = strlen(text);
    snprintf(text + n, CELL - n, "%s%s", n ? "," : "", word);
}

/* "cpu", "gpu sm_80+", "gpu sm_90a", "cpu-executed". */
static void device_text(const struct variant *v, char *text)
{
    int gpu = v->device == ON_GPU || v->only_arch ||
              variant_only_on_gpu(v, main_op(v));
    if (!gpu) snprintf(text, CELL, "%s", device_name(v->device));
    else if (v->only_arch) snprintf(text, CELL, "gpu sm_%da", v->only_arch);
    else snprintf(text, CELL, "gpu sm_%d+", v->least_arch);
}

/* Passes, and bytes for one element, score or key beyond the least that attention moves. */
static void cost_text(const struct variant *v, char *passes, char *bytes)
{
    snprintf(passes, CELL, "-");
    snprintf(bytes, CELL, "-");
    if (!v->cost || main_op(v) == N_OPS) return;
    struct problem p = example(main_op(v));
    p.dtype = main_dtype(v);
    struct cost cost = v->cost(&p);
    const struct operation *op = &operations[p.op];
    int scores = on_heads(&p) && !op->one_query;
    double unit = scores ? score_count(&p) : (double)(on_heads(&p) ? p.seqlen_k : p.cols);
    double beyond = scores ? cost.bytes - attention_io_bytes(&p) : cost.bytes;
    double each = beyond < 0.005 * unit ? 0 : beyond / unit;
    snprintf(passes, CELL, "%g", cost.passes);
    snprintf(bytes, CELL, each < 100 ? "%.3g/%s" : "%.0f/%s", each, op->unit);
}

static struct line line_of(const struct variant *v)
{
    struct line line = {.idea = v->idea};
    snprintf(line.cell[0], CELL, "%s", v->name);
    device_text(v, line.cell[1]);
    dtype_names(v->types, line.cell[2], CELL);
    if (v->supports & WITH_EIGHT_BITS && v->types & ALL_TYPES) append(line.cell[2], "kv8");
    for (int op = 0; op < N_OPS; op++)
        if (variant_does(v, (enum op)op)) append(line.cell[3], operations[op].name);
    cost_text(v, line.cell[4], line.cell[5]);
    return line;
}

/* A heading with the names of the columns, then the lines, in columns as wide as needed.
 * An idea is short enough that the line has at most 100 columns (a test). */
static void print_group(const struct line *lines, size_t n)
{
    size_t width[N_CELLS];
    for (int c = 0; c < N_CELLS; c++) {
        width[c] = strlen(lines[0].cell[c]);
        for (size_t i = 1; i < n; i++)
            if (strlen(lines[i].cell[c]) > width[c]) width[c] = strlen(lines[i].cell[c]);
    }
    for (size_t i = 0; i < n; i++) {
        for (int c = 0; c < N_CELLS; c++)
            printf("%-*s  ", (int)width[c], lines[i].cell[c]);
        printf("%s\n", lines[i].idea);
    }
}

/* The same and more, for scripts. */
static void list_as_csv(const struct stage *stage, FILE *f)
{
    static const struct rung none = {"", "", "", "", ""};
    fprintf(f, "stage,group,variant,device,types,operations,passes,bytes,idea,measured_in,over,expected,because,"
               "look_at\n");
    for (size_t i = 0, g = 0; g < N_GROUPS; i = stage->variants[i + 1] ? i + 1 : (g++, 0)) {
        const struct variant *v = variant_here(stage->variants[i]);
        if (v->group != g) continue;
        const struct rung *r = stage->rungs ? &stage->rungs[i] : &none;
        const struct line line = line_of(v);
        const char *const more[] = {line.idea, r->dtype, r->over, r->expected, r->because, r->look_at};
        fprintf(f, "%d,%s", stage->number, group_name(v->group));
        for (int c = 0; c < N_CELLS; c++) fputc(',', f), csv_text(f, line.cell[c]);
        for (size_t c = 0; c < sizeof more / sizeof *more; c++) fputc(',', f), csv_text(f, more[c]);
        fputc('\n', f);
    }
    fclose(f);
}

int list_stage(const struct stage *stage, const struct options *opt)
{
    FILE *csv = opt->csv ? fopen(opt->csv, "w") : NULL;
    if (opt->csv && !csv) return complain(stage, "--csv: %s: cannot be written", opt->csv);
    if (opt->columns) csv_columns(stdout);
    if (csv) list_as_csv(stage, csv);
    for (int g = 0; g < N_GROUPS && !csv && !opt->columns; g++) {
        struct line lines[MOST_LINES] = {
            {.cell = {"", "device", "types", "operations", "passes", "bytes"},
             .idea = "idea"}};
        size_t n = 1;
        snprintf(lines[0].cell[0], CELL, "# %s", group_name((enum group)g));
        for (size_t i = 0; stage->variants[i] && n < MOST_LINES; i++)
            if (stage->variants[i]->group == (enum group)g)
                lines[n++] = line_of(variant_here(stage->variants[i]));
        if (n > 1) print_group(lines, n);
    }
    return 0;
}
