/* test_cli_misuse.c: bad use of every kind exits 2, in one line that says what would be right. */
#include "cli.h"

TestSuite(cli_misuse, .init = make_place, .fini = remove_place, .timeout = 900);

/* Arguments, and a word of the one line that they must cause. */
struct misuse { const char *arguments, *word; };

#define QKV "run --q q.npy --k k.npy --v v.npy --o o.npy "

static const struct misuse misuses[] = {
    { "", "verb" },
    { "dance", "dance" },
    { "--quick", "--quick" },
    { "run", "--x" },
    { "run --q q.npy", "--k" },
    { "run --q q.npy --k k.npy --v v.npy", "--o" },
    { "run --q q.npy --k k.npy --o o.npy", "--v" },
    { "run --k k.npy --v v.npy --o o.npy", "--q" },
    { "run --x x.npy", "--y" },
    { "run --y y.npy", "--x" },
    { "run --x x.npy --y y.npy --q q.npy", "--q" },
    { "run --x x.npy --y y.npy --causal", "--causal" },
    { QKV "--log", "--log" },
    { QKV "--x x.npy", "--x" },
    { QKV "--frobnicate", "--frobnicate" },
    { QKV "stray", "stray" },
    { QKV "'stray\nargument'", "stray?argument" },
    { "check --case 'no\nsuch'", "no?such" },
    { "bench --csv 'missing\n/a.csv'", "missing?" },
    { "trace --row '1\n,'", "--row" },
    { QKV "-v", "-v" },
    { QKV "--", "--" },
    { QKV "--quick", "--quick" },
    { QKV "--row 1,2", "--row" },
    { QKV "--o o2.npy", "--o" },
    { QKV "--causal --causal", "--causal" },
    { QKV "--causal=1", "--causal" },
    { QKV "--scale", "--scale" },
    { QKV "--scale nan", "--scale" },
    { QKV "--scale inf", "--scale" },
    { QKV "--scale -inf", "--scale" },
    { QKV "--scale abc", "--scale" },
    { QKV "--scale ''", "--scale" },
    { QKV "--scale 1e99", "--scale" },
    { QKV "--scale 1.0x", "--scale" },
    { QKV "--scale ' 1'", "--scale" },
    { QKV "--scale 1 --scale 1", "--scale" },
    { QKV "--variant", "--variant" },
    { QKV "--variant nosuch", "nosuch" },
    { QKV "--variant ''", "--variant" },
    { QKV "--dtype f64", "f64" },
    { QKV "--dtype", "--dtype" },
    { QKV "--threads 0", "--threads" },
    { QKV "--threads -1", "--threads" },
    { QKV "--threads 1e3", "--threads" },
    { QKV "--threads 99999999999999999999", "--threads" },
    { QKV "--device tpu", "tpu" },
    { "check --gpus 0", "--gpus" },
    { "check --gpus 65", "--gpus" },
    { "check --gpus 1 --variant tiled", "-" },
    { "check --strategy ring", "--strategy" },
    { "bench --timeline t.csv", "--timeline" },
    { QKV "--lse o.npy", "--lse" },
    { QKV "--lse ./o.npy", "o.npy" },
    { QKV "--lse missing/lse.npy", "missing/lse.npy" },
    { QKV "--lse directory", "directory" },
    { QKV "--bias missing.npy", "missing.npy" },
    { QKV "--bias q.npy", "q.npy" },
    { QKV "--bias x.npy", "x.npy" },
    { "run --q missing.npy --k k.npy --v v.npy --o o.npy", "missing.npy" },
    { "run --q q.npy --k directory --v v.npy --o o.npy", "directory" },
    { "run --q q.npy --k k.npy --v text.npy --o o.npy", "text.npy" },
    { "run --q q.npy --k k.npy --v short.npy --o o.npy", "short.npy" },
    { "run --q q.npy --k k.npy --v integers.npy --o o.npy", "integers.npy" },
    { "run --q q.npy --k k.npy --v big.npy --o o.npy", "big.npy" },
    { "run --q q.npy --k k.npy --v '' --o o.npy", "--v" },
    { "run --q q.npy --k k.npy --v v.npy --o ''", "--o" },
    { "run --q q.npy --k k.npy --v v.npy --o missing/o.npy", "missing/o.npy" },
    { "run --q q.npy --k k.npy --v v.npy --o directory", "directory" },
    { "run --q q.npy --k k.npy --v v.npy --o v.npy/o.npy", "v.npy/o.npy" },
    { "run --q q.npy --k k_dim.npy --v v.npy --o o.npy", "k_dim.npy" },
    { "run --q q.npy --k k.npy --v v_keys.npy --o o.npy", "v_keys.npy" },
    { "run --q q.npy --k k.npy --v v_heads.npy --o o.npy", "v_heads.npy" },
    { "run --q q.npy --k k_heads.npy --v v_heads.npy --o o.npy", "k_heads.npy" },
    { "run --q q.npy --k k_none.npy --v v_none.npy --o o.npy", "k_none.npy" },
    { "run --q q.npy --k k4.npy --v v.npy --o o.npy", "k4.npy" },
    { "run --q q4.npy --k k4.npy --v v4.npy --o o.npy", "k4.npy" },
    { "run --q one.npy --k one.npy --v one.npy --o o.npy", "one.npy" },
    { "run --q scalar.npy --k scalar.npy --v scalar.npy --o o.npy", "scalar.npy" },
    { "run --q five.npy --k five.npy --v five.npy --o o.npy", "five.npy" },
    { "run --q no_dim.npy --k no_dim.npy --v v.npy --o o.npy", "no_dim.npy" },
    { "run --x scalar.npy --y y.npy", "scalar.npy" },
    { "run --x missing.npy --y y.npy", "missing.npy" },
    { "check --o o.npy", "--o" },
    { "check --variant nosuch", "nosuch" },
    { "check --case nosuch", "nosuch" },
    { "check --seed -1", "--seed" },
    { "check --seed x", "--seed" },
    { "list --quick", "--quick" },
    { "trace --row ''", "--row" },
    { "trace --row abc", "abc" },
    { "trace --row 1,,2", "--row" },
    { "bench --rows 0", "--rows" },
    { "bench --rows -5", "--rows" },
    { "bench --head-dim 3.5", "--head-dim" },
    { "bench --op dance", "dance" },
    { "bench --heads-q 3 --heads-kv 2", "--heads" },
    { "bench --rows 5 --seqlen-q 6", "--rows" },
    { "bench --rows 5 --op attention", "--op" },
    { "bench --seqlen-q 5 --op softmax", "--op" },
    { "bench --op mean", "--op" },
    { "bench --rows 1099511627776 --cols 1099511627776 --csv new.csv", "memory" },
    { "bench --seqlen-q 1099511627776 --csv new.csv", "memory" },
    { "bench --quick --batch 2147483648", "--batch: the arrays" },
    { "bench --quick --heads-q 2147483648", "--heads-q: the arrays" },
    { "bench --quick --head-dim 2147483648", "--head-dim: the arrays" },
    { "bench --head-dim-v 2147483648 --batch 64", "--batch, --head-dim-v: the arrays" },
    { "bench --csv missing/a.csv", "missing/a.csv" },
    { "bench --csv directory", "directory" },
    { "bench --csv text.npy", "text.npy" },
};

/* q.npy, k.npy, v.npy that fit, and files that do not. */
static void save_misfits(void)
{
    free(SAVE("q.npy", 1, 4, 3, 8)), free(SAVE("k.npy", 2, 2, 5, 8));
    free(SAVE("v.npy", 3, 2, 5, 6)), free(SAVE("x.npy", 4, 3, 4));
    free(SAVE("k_dim.npy", 5, 2, 5, 7)), free(SAVE("v_keys.npy", 6, 2, 4, 6));
    free(SAVE("v_heads.npy", 7, 3, 5, 6)), free(SAVE("k_heads.npy", 8, 3, 5, 8));
    free(SAVE("k_none.npy", 9, 0, 5, 8)), free(SAVE("v_none.npy", 9, 0, 5, 6));
    free(SAVE("q4.npy", 9, 1, 2, 5, 8)), free(SAVE("k4.npy", 9, 2, 2, 5, 8));
    free(SAVE("v4.npy", 9, 2, 2, 5, 8)), free(SAVE("one.npy", 9, 8));
    free(SAVE("five.npy", 9, 1, 1, 1, 2, 3)), free(SAVE("no_dim.npy", 9, 2, 5, 0));
    const float one = 1;
    cr_assert(!npy_write_f32("scalar.npy", 0, NULL, &one));
    write_text("text.npy", "no array at all\n");
    cr_assert(!system("head -c 200 v.npy > short.npy && sed 's/<f4/<i4/' v.npy >"
                      " integers.npy && sed 's/(2, 5, 6), }          /"
                      "(2, 5, 6000000000000)}/' v.npy > big.npy && mkdir directory"));
    write_text("o.npy", "old"), write_text("lse.npy", "old"), write_text("y.npy", "old");
}

Test(cli_misuse, bad_use_exits_2_names_the_culprit_and_touches_nothing)
{
    save_misfits();
    int before = n_files();
    for (int s = 0; s < N_STAGES; s++)
        for (size_t t = 0; t < sizeof misuses / sizeof *misuses; t++) {
            const struct misuse *m = &misuses[t];
            int status = run(stages[s], "%s", m->arguments);
            char *newline = strchr(complained, '\n');
            cr_expect(status == 2, "%s %s: exit %d, want 2: %s", stages[s], m->arguments,
                      status, complained);
            cr_expect(newline && !newline[1], "%s %s: not one line: '%s'", stages[s],
                      m->arguments, complained);
            cr_expect(strstr(complained, m->word), "%s %s: want '%s' in '%s'", stages[s],
                      m->arguments, m->word, complained);
            cr_expect(holds("o.npy", "old") && holds("lse.npy", "old") &&
                      holds("y.npy", "old") && n_files() == before,
                      "%s %s: touched a file", stages[s], m->arguments);
        }
}

/* A named variant is judged by what it can do before it is asked where it can run. */
Test(cli_misuse, variant_that_cannot_do_the_problem_exits_2)
{
    static const struct { int stage; const char *arguments; } cases[] = {
        { 2, "run --x long.npy --y y.npy --variant gpu_registers" }, /* f32 in 16 bits */
        { 2, "run --x x.npy --y y.npy --variant normalised" },
        { 2, "run --q x.npy --k x.npy --v x.npy --o y.npy --variant gpu_cluster" },
        { 4, "run --x x.npy --y y.npy --variant wgmma" },
        { 2, "bench --rows 2 --cols 16384 --variant gpu_registers --csv new.csv" },
        { 3, "bench --op softmax --quick --variant tiled --csv new.csv" },
        { 3, "bench --quick --variant scan --csv new.csv" },
        { 4, "bench --rows 3 --cols 4 --variant wgmma --csv new.csv" },
        { 4, "bench --rows 3 --cols 4 --csv new.csv" },
    };
    free(SAVE("x.npy", 1, 3, 4)), free(SAVE("long.npy", 1, 2, 16384));
    write_text("y.npy", "old");
    for (size_t t = 0; t < sizeof cases / sizeof *cases; t++) {
        int status = run(stages[cases[t].stage], "%s", cases[t].arguments);
        cr_expect(status == 2 && strstr(complained, "not support"), "%s: exit %d, '%s'",
                  cases[t].arguments, status, complained);
        cr_expect(holds("y.npy", "old") && n_files() == 3, "%s: touched a file",
                  cases[t].arguments);
    }
}

/* The sizes of o overflow a size_t, once to a number that is 0 modulo 2^64. */
Test(cli_misuse, output_of_more_elements_than_memory_is_refused)
{
    const size_t shapes[][2] = { { 17, 1085102592571150096 }, { 32, 576460752303423488 },
                                 { 64, (size_t)1 << 59 }, { 1, (size_t)1 << 45 } };
    free(SAVE("k.npy", 2, 0, 1));
    for (size_t i = 0; i < 4; i++) {
        free(SAVE("q.npy", 1, shapes[i][0], 1));
        free(SAVE("v.npy", 3, 0, shapes[i][1]));
        for (int s = 0; s < N_STAGES; s++) {
            int status = run(stages[s], "run " FILES);
            cr_assert(status == 2 && strstr(complained, "the output does not fit into memory"),
                      "%s, %zu: exit %d: %s", stages[s], i, status, complained);
            cr_assert(n_files() == 3, "%s, %zu: an output exists", stages[s], i);
        }
    }
}

/* o [0, 2^30, 2^57] is empty, but NumPy and our reader refuse such a shape. */
Test(cli_misuse, empty_output_of_a_shape_that_no_reader_takes_is_refused)
{
    free(SAVE("q.npy", 1, 0, (size_t)1 << 30, 1)), free(SAVE("k.npy", 2, 0, 1, 1));
    free(SAVE("v.npy", 3, 0, 1, (size_t)1 << 57));
    for (int s = 0; s < N_STAGES; s++) {
        int status = run(stages[s], "run " FILES);
        cr_assert(status == 2 && n_files() == 3, "%s: exit %d: %s", stages[s], status,
                  complained);
    }
}

Test(cli_misuse, arguments_without_end_are_refused)
{
    char longest[3000];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    for (int s = 0; s < N_STAGES; s++) {
        cr_expect(run(stages[s], "%s", longest) == 2);
        cr_expect(run(stages[s], "run --x %s --y y.npy", longest) == 2);
        cr_expect(run(stages[s], "run --%s", longest) == 2);
        cr_expect(run(stages[s], "check --variant %s", longest) == 2);
    }
    cr_expect(n_files() == 0);
}
