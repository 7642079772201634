/* test_cli_data.c: real data in every form, softmax and attention.  Expected outputs come from
 * the attention written out in cli.h in double, for the fixture from NumPy. */
#include "cli.h"

TestSuite(cli_data, .init = make_place, .fini = remove_place, .timeout = 900);

Test(cli_data, fixture_is_right_in_every_variant)
{
    struct npy o, lse;
    char at[1100], list[sizeof printed + 32];
    snprintf(at, sizeof at, "%s/tests/fixture/o.npy", root);
    cr_assert(!npy_read(at, &o));
    snprintf(at, sizeof at, "%s/tests/fixture/lse.npy", root);
    cr_assert(!npy_read(at, &lse));
    double *want_o = malloc(o.count * sizeof *want_o);
    double *want_lse = malloc(lse.count * sizeof *want_lse);
    for (size_t i = 0; i < o.count; i++) want_o[i] = (double)((float *)o.data)[i];
    for (size_t i = 0; i < lse.count; i++) want_lse[i] = (double)((float *)lse.data)[i];

    for (int s = 0; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "list") == 0);
        snprintf(list, sizeof list, "default attention f32\n%s", printed);
        char *next;
        for (char *line = strtok_r(list, "\n", &next); line;
             line = strtok_r(NULL, "\n", &next)) {
            char name[64], chosen[80] = "", what[160];
            if (!strstr(line, "attention") || !strstr(line, "f32")) continue;
            sscanf(line, "%63s", name);
            if (strcmp(name, "default")) sprintf(chosen, "--variant %s", name);
            snprintf(what, sizeof what, "%s %s", stages[s], name);
            int status = run(stages[s], FIXTURE "--o o.npy --lse lse.npy %s", root, root,
                             root, chosen);
            if (status == 77 || strstr(complained, "not support attention") ||
                strstr(complained, "queries for a key head"))
                continue;
            cr_assert(status == 0, "%s: %d %s", what, status, complained);
            float *got = load(what, "o.npy", 3, o.shape);
            compare(what, got, want_o, o.count, 1e-5);
            free(got);
            got = load(what, "lse.npy", 2, lse.shape);
            compare(what, got, want_lse, lse.count, 2e-5);
            free(got);
        }
    }
}

Test(cli_data, two_three_and_four_dimensions_are_accepted)
{
    for (size_t ndim = 2; ndim <= 4; ndim++) {
        struct oracle t = { .batch = ndim == 4 ? 2 : 1, .heads_q = ndim >= 3 ? 6 : 1,
                            .heads_kv = ndim >= 3 ? 2 : 1, .seqlen_q = 5, .seqlen_k = 7,
                            .head_dim = 3, .head_dim_v = 4, .scale = 1 / sqrt(3) };
        save_problem(&t, ndim);
        oracle_compute(&t);
        for (int s = 0; s < N_STAGES; s++) {
            cr_assert(run(stages[s], "run " FILES) == 0, "%s: %s", stages[s], complained);
            compare_outputs(stages[s], &t, ndim, 1e-5);
        }
    }
}

Test(cli_data, causal_bias_and_scale_are_obeyed)
{
    struct oracle t = { .batch = 1, .heads_q = 4, .heads_kv = 2, .seqlen_q = 9,
                        .seqlen_k = 13, .head_dim = 8, .head_dim_v = 5 };
    save_problem(&t, 3);
    float *bias = numbers(9 * 13, 4);
    bias[3] = bias[20] = -INFINITY;
    cr_assert(!npy_write_f32("bias.npy", 2, (size_t[]){ 9, 13 }, bias));
    for (int mask = 0; mask < 8; mask++) {
        t.causal = mask & 1;
        t.bias = mask & 2 ? bias : NULL;
        t.scale = mask & 4 ? -0.25 : 1 / sqrt(8);
        oracle_compute(&t);
        for (int s = 0; s < N_STAGES; s++) {
            char what[80];
            snprintf(what, sizeof what, "%s, mask %d", stages[s], mask);
            cr_assert(run(stages[s], "run " FILES "%s %s %s", mask & 1 ? "--causal" : "",
                          mask & 2 ? "--bias bias.npy" : "",
                          mask & 4 ? "--scale=-0.25" : "") == 0, "%s: %s", what,
                      complained);
            compare_outputs(what, &t, 3, 1e-5);
        }
    }
}

/* More queries than keys: causal, bottom right, hides every key from the first two. */
Test(cli_data, fully_masked_rows_are_zero)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 6,
                        .seqlen_k = 4, .head_dim = 8, .head_dim_v = 8, .causal = 1,
                        .scale = 1 / sqrt(8) };
    save_problem(&t, 2);
    oracle_compute(&t);
    cr_assert(t.lse[1] == -INFINITY && t.lse[2] > -INFINITY && t.o[0] == 0);
    for (int s = 1; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "run " FILES "--causal") == 0, "%s", complained);
        compare_outputs(stages[s], &t, 2, 1e-5);
    }
}

Test(cli_data, nan_in_a_masked_value_does_not_leak)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 70,
                        .seqlen_k = 70, .head_dim = 8, .head_dim_v = 8, .causal = 1,
                        .scale = 1 / sqrt(8) };
    save_problem(&t, 2);
    float *v = (float *)t.v;
    for (int c = 0; c < 8; c++) v[69 * 8 + c] = c % 2 ? NAN : INFINITY;
    cr_assert(!npy_write_f32("v.npy", 2, (size_t[]){ 70, 8 }, v));
    oracle_compute(&t);
    for (int s = 1; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "run " FILES "--causal") == 0, "%s", complained);
        float *o = load(stages[s], "o.npy", 2, (size_t[]){ 70, 8 });
        compare(stages[s], o, t.o, 69 * 8, 1e-5);
        cr_assert(isnan(o[69 * 8 + 1]), "%s: the last query sees the NaN", stages[s]);
        free(o);
    }
}

/* Every form of file gives what the plain one gives, and says what was converted. */
Test(cli_data, other_types_and_orders_are_converted_and_said)
{
    struct oracle t = { .batch = 1, .heads_q = 1, .heads_kv = 1, .seqlen_q = 5,
                        .seqlen_k = 7, .head_dim = 3, .head_dim_v = 4,
                        .scale = 1 / sqrt(3) };
    save_problem(&t, 2);
    float *const arrays[3] = { (float *)t.q, (float *)t.k, (float *)t.v };
    const size_t counts[3] = { 5 * 3, 7 * 3, 7 * 4 };
    for (int a = 0; a < 3; a++) /* numbers that every type holds */
        for (size_t i = 0; i < counts[a]; i++)
            arrays[a][i] = half_to_float(float_to_half(arrays[a][i]));
    oracle_compute(&t);
    for (int size = 2; size <= 8; size *= 2)
        for (int form = 0; form < 4; form++) {
            int big = form & 1, fortran = form >> 1;
            save_as("q.npy", t.q, 5, 3, size, big, fortran);
            save_as("k.npy", t.k, 7, 3, size, big, fortran);
            save_as("v.npy", t.v, 7, 4, size, big, fortran);
            for (int s = 0; s < N_STAGES; s++) {
                char what[80];
                snprintf(what, sizeof what, "%s, f%d, form %d", stages[s], 8 * size,
                         form);
                cr_assert(run(stages[s], "run " FILES) == 0, "%s: %s", what, complained);
                compare_outputs(what, &t, 2, size == 2 ? 5e-3 : 1e-5);
                cr_expect(!!strstr(printed, "f64") == (size == 8) &&
                          !!strstr(printed, "big-endian") == big &&
                          !!strstr(printed, "Fortran") == fortran, "%s: %s", what,
                          printed);
            }
        }
}

Test(cli_data, dtype_rounds_the_inputs)
{
    struct oracle t = { .batch = 1, .heads_q = 2, .heads_kv = 1, .seqlen_q = 5,
                        .seqlen_k = 7, .head_dim = 16, .head_dim_v = 4, .scale = 0.25 };
    static const char *const names[2] = { "f16", "bf16" };
    save_problem(&t, 3);
    for (int type = 0; type < 2; type++) {
        float *rounded[3], *original[3] = { (float *)t.q, (float *)t.k, (float *)t.v };
        const size_t n[3] = { 2 * 5 * 16, 7 * 16, 7 * 4 };
        for (int a = 0; a < 3; a++) {
            rounded[a] = malloc(n[a] * sizeof(float));
            for (size_t i = 0; i < n[a]; i++)
                rounded[a][i] = type ? bfloat_to_float(float_to_bfloat(original[a][i]))
                              : half_to_float(float_to_half(original[a][i]));
        }
        struct oracle r = t;
        r.q = rounded[0], r.k = rounded[1], r.v = rounded[2];
        oracle_compute(&r);
        for (int s = 0; s < N_STAGES; s++) {
            char what[80];
            snprintf(what, sizeof what, "%s --dtype %s", stages[s], names[type]);
            cr_assert(run(stages[s], "run " FILES "--dtype %s", names[type]) == 0,
                      "%s: %s", what, complained);
            cr_expect(strstr(printed, "converted"), "%s: said '%s'", what, printed);
            compare_outputs(what, &r, 3, type ? 3e-2 : 4e-3);
        }
    }
}

Test(cli_data, softmax_and_its_logarithm)
{
    enum { ROWS = 3, COLS = 37 };
    float *x = numbers(ROWS * COLS, 7);
    double want[ROWS * COLS], logarithm[ROWS * COLS];
    for (int i = 0; i < COLS; i++) x[i] *= 20;
    x[5] = -INFINITY;
    for (int r = 0; r < ROWS; r++) {
        double l = 0;
        for (int j = 0; j < COLS; j++) l += exp((double)x[r * COLS + j]);
        for (int j = 0; j < COLS; j++) {
            want[r * COLS + j] = exp((double)x[r * COLS + j]) / l;
            logarithm[r * COLS + j] = (double)x[r * COLS + j] - log(l);
        }
    }
    cr_assert(!npy_write_f32("x.npy", 2, (size_t[]){ ROWS, COLS }, x));
    for (int s = 0; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "list") == 0);
        int has_log = strstr(printed, "logsoftmax,") || strstr(printed, "logsoftmax ");
        int status = run(stages[s], "run --x x.npy --y y.npy");
        if (s == 4) {
            cr_expect(status == 2 && strstr(complained, "softmax"), "%d %s", status,
                      complained);
            continue;
        }
        cr_assert(status == 0, "%s: %s", stages[s], complained);
        float *y = load(stages[s], "y.npy", 2, (size_t[]){ ROWS, COLS });
        compare(stages[s], y, want, ROWS * COLS, 1e-6);
        free(y);
        status = run(stages[s], "run --x x.npy --y y.npy --log");
        cr_assert(status == (has_log ? 0 : 2), "%s --log: %s", stages[s], complained);
        if (!has_log) continue;
        y = load(stages[s], "y.npy", 2, (size_t[]){ ROWS, COLS });
        compare(stages[s], y, logarithm, ROWS * COLS, 2e-5);
        free(y);
    }
}

Test(cli_data, softmax_of_one_and_of_three_dimensions_keeps_the_shape)
{
    free(SAVE("x.npy", 1, 6));
    free(SAVE("x3.npy", 1, 2, 3, 4));
    for (int s = 0; s < 4; s++) {
        cr_assert(run(stages[s], "run --x x.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 1, (size_t[]){ 6 }));
        cr_assert(run(stages[s], "run --x x3.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 3, (size_t[]){ 2, 3, 4 }));
    }
}

Test(cli_data, empty_arrays_give_empty_outputs)
{
    free(SAVE("rows.npy", 1, 0, 4));
    free(SAVE("cols.npy", 1, 4, 0));
    for (int s = 0; s < 4; s++) {
        cr_assert(run(stages[s], "run --x rows.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 2, (size_t[]){ 0, 4 }));
        cr_assert(run(stages[s], "run --x cols.npy --y y.npy") == 0, "%s", complained);
        free(load(stages[s], "y.npy", 2, (size_t[]){ 4, 0 }));
    }
    for (int zero = 0; zero < 4; zero++) { /* no batch, no heads, no queries, no keys */
        size_t batch = zero != 0, heads = zero == 1 ? 0 : 2, nq = zero == 2 ? 0 : 3;
        size_t nk = zero == 3 ? 0 : 5;
        free(SAVE("q.npy", 1, batch, heads, nq, 4));
        free(SAVE("k.npy", 2, batch, heads, nk, 4));
        free(SAVE("v.npy", 3, batch, heads, nk, 6));
        for (int s = 0; s < N_STAGES; s++) {
            const size_t shape[4] = { batch, heads, nq, 6 };
            cr_assert(run(stages[s], "run " FILES) == 0, "%s, %d: %s", stages[s], zero,
                      complained);
            float *o = load(stages[s], "o.npy", 4, shape);
            float *lse = load(stages[s], "lse.npy", 3, shape);
            size_t rows = batch * heads * nq;
            for (size_t i = 0; i < rows * 6; i++)
                cr_assert(o[i] == 0, "%s: o[%zu] is %g", stages[s], i, (double)o[i]);
            for (size_t i = 0; i < rows; i++)
                cr_assert(lse[i] == -INFINITY, "%s: lse[%zu] is %g", stages[s], i,
                          (double)lse[i]);
            free(o), free(lse);
        }
    }
}

/* The first row sees key 0 alone; the other key's value is infinite once it is rounded. */
Test(cli_data, value_that_overflows_in_f16_stays_behind_its_mask)
{
    const float v[2] = { 1, 1e6f };
    free(SAVE("q.npy", 1, 2, 8)), free(SAVE("k.npy", 2, 2, 8));
    float wide[16];
    for (int i = 0; i < 16; i++) wide[i] = v[i / 8];
    cr_assert(!npy_write_f32("v.npy", 2, (size_t[]){ 2, 8 }, wide));
    for (int s = 1; s < N_STAGES; s++) {
        cr_assert(run(stages[s], "run " FILES "--causal --dtype f16") == 0, "%s: %s",
                  stages[s], complained);
        float *o = load(stages[s], "o.npy", 2, (size_t[]){ 2, 8 });
        for (int c = 0; c < 8; c++)
            cr_expect(o[c] == 1 && isinf(o[8 + c]), "%s: column %d: %g, %g", stages[s], c,
                      (double)o[c], (double)o[8 + c]);
        free(o);
    }
}

Test(cli_data, no_heads_give_empty_files)
{
    free(SAVE("q.npy", 1, 0, 5, 8)), free(SAVE("k.npy", 2, 0, 7, 8));
    free(SAVE("v.npy", 3, 0, 7, 16));
    for (int s = 0; s < N_STAGES; s++)
        for (int f16 = 0; f16 < 2; f16++) {
            cr_assert(run(stages[s], "run " FILES "%s", f16 ? "--dtype f16" : "") == 0,
                      "%s: %s", stages[s], complained);
            free(load(stages[s], "o.npy", 3, (size_t[]){ 0, 5, 16 }));
            free(load(stages[s], "lse.npy", 2, (size_t[]){ 0, 5 }));
        }
}
