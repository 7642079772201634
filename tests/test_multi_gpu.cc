/* test_multi_gpu.cc: what several GPUs do, without one: the schedule of the ring, and the
 * kernels that merge parts, executed on the CPU. */
#include <criterion/criterion.h>

#include <math.h>
#include <vector>

#include "../05_flash_cuda/hopper/merge_weights.h"
#include "../05_flash_cuda/multi_gpu/merge.h"
#include "../05_flash_cuda/multi_gpu/strategies.h"
#include "ranks/schedule.h"

static const struct strategy *const RING = &gpu_strategies[1],
                             *const RING_UNBALANCED = &gpu_strategies[2];

static struct problem problem_of(size_t seqlen_q, size_t seqlen_k, int causal)
{
    struct problem p = {};
    p.op = OP_ATTENTION;
    p.batch = p.heads_q = p.heads_kv = 1;
    p.seqlen_q = seqlen_q;
    p.seqlen_k = seqlen_k;
    p.head_dim = p.head_dim_v = 8;
    p.causal = causal;
    return p;
}

/* --- the schedule --- */

/* The global rows of a shard's chunks, in their local order. */
static std::vector<size_t> rows_of(const struct chunks &c)
{
    std::vector<size_t> rows;
    for (int i = 0; i < CHUNKS; i++)
        for (size_t r = c.at[i].first; r < c.at[i].end; r++) rows.push_back(r);
    return rows;
}

/* Adds 1 to seen[query][key] for every pair that the piece's mask shows. */
static void mark(const struct problem &p, const struct piece &x, const struct chunks &queries,
                 const struct chunks &keys, std::vector<int> &seen)
{
    std::vector<size_t> q = rows_of(queries), k = rows_of(keys);
    struct problem part = problem_of_piece(&p, &x);
    for (size_t i = 0; i < part.seqlen_q; i++) {
        struct key_range sees = visible_keys(&part, i);
        for (size_t j = sees.first; j < sees.end; j++)
            seen[q[x.rows.first + i] * p.seqlen_k + k[x.cols.first + j]]++;
    }
}

/* All steps of all ranks together see each visible pair once, and no other. */
static void expect_each_pair_once(const struct problem &p, const struct strategy *s, int ranks)
{
    std::vector<int> seen(p.seqlen_q * p.seqlen_k);
    for (int me = 0; me < ranks; me++)
        for (int step = 0; step < (s->is_ring ? ranks : 1); step++) {
            struct chunks queries = queries_of(s, &p, me, ranks);
            struct chunks keys = keys_of(s, &p, s->is_ring ? owner_of(me, step, ranks) : me,
                                         ranks);
            struct piece pieces[MOST_PIECES];
            int n = pieces_of(&p, &queries, &keys, pieces);
            cr_assert(n <= MOST_PIECES);
            for (int i = 0; i < n; i++) mark(p, pieces[i], queries, keys, seen);
        }
    for (size_t i = 0; i < p.seqlen_q; i++) {
        struct key_range sees = visible_keys(&p, i);
        for (size_t j = 0; j < p.seqlen_k; j++) {
            int want = sees.first <= j && j < sees.end, got = seen[i * p.seqlen_k + j];
            cr_assert(got == want, "strategy %s, %d ranks, %zu x %zu%s, query %zu key %zu: "
                      "seen %d times, want %d", s->name, ranks, p.seqlen_q, p.seqlen_k,
                      p.causal ? " causal" : "", i, j, got, want);
        }
    }
}

Test(multi_gpu, every_visible_pair_is_computed_once)
{
    const size_t sizes[][2] = {{1, 1},   {1, 40},  {40, 1},  {3, 5},   {16, 16}, {17, 17},
                               {64, 64}, {37, 53}, {53, 37}, {7, 100}, {100, 7}, {0, 9}};
    for (const struct strategy *s = gpu_strategies; s->name; s++)
        for (int ranks = 1; ranks <= 8; ranks++)
            for (auto &size : sizes)
                for (int causal = 0; causal < 2; causal++)
                    expect_each_pair_once(problem_of(size[0], size[1], causal),
                                          s, ranks);
}

/* Pairs that `me` computes in a step, counted as the kernel's time is. */
static double work_of(const struct problem &p, const struct strategy *s, int me, int step, int ranks)
{
    struct chunks queries = queries_of(s, &p, me, ranks);
    struct chunks keys = keys_of(s, &p, owner_of(me, step, ranks), ranks);
    struct piece pieces[MOST_PIECES];
    double work = 0;
    int n = pieces_of(&p, &queries, &keys, pieces);
    for (int i = 0; i < n; i++) {
        struct problem part = problem_of_piece(&p, &pieces[i]);
        for (size_t q = 0; q < part.seqlen_q; q++) {
            struct key_range sees = visible_keys(&part, q);
            work += (double)(sees.end - sees.first);
        }
    }
    return work;
}

Test(multi_gpu, zigzag_gives_every_rank_the_same_work_in_every_step)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        struct problem p = problem_of(32 * (size_t)ranks, 32 * (size_t)ranks, 1);
        for (int step = 0; step < ranks; step++)
            for (int me = 1; me < ranks; me++)
                cr_assert(work_of(p, RING, me, step, ranks) == work_of(p, RING, 0, step, ranks),
                          "%d ranks, step %d: rank %d has other work than rank 0", ranks, step,
                          me);
        double first = work_of(p, RING_UNBALANCED, 0, ranks - 1, ranks);
        cr_assert(ranks == 1 || first == 0, "unbalanced: rank 0 idles in the last step");
    }
}

Test(multi_gpu, a_step_of_the_causal_zigzag_is_one_launch)
{
    for (int ranks = 1; ranks <= 8; ranks++) {
        struct problem p = problem_of(64 * (size_t)ranks + 3, 64 * (size_t)ranks + 3, 1);
        for (int me = 0; me < ranks; me++)
            for (int step = 0; step < ranks; step++) {
                struct chunks queries = queries_of(RING, &p, me, ranks);
                struct chunks keys = keys_of(RING, &p, owner_of(me, step, ranks), ranks);
                struct piece pieces[MOST_PIECES];
                int n = pieces_of(&p, &queries, &keys, pieces);
                cr_assert(n == 1, "%d ranks, rank %d, step %d: %d pieces", ranks, me, step, n);
            }
    }
}

Test(multi_gpu, keys_arrive_before_they_are_used_and_stay_while_they_are)
{
    for (int ranks = 1; ranks <= 8; ranks++)
        for (int me = 0; me < ranks; me++)
            for (int step = 0; step + 1 < ranks; step++) {
                int last = (me - 1 + ranks) % ranks; /* what it has in hand, I have next */
                cr_assert(owner_of(last, step, ranks) == owner_of(me, step + 1, ranks));
                cr_assert(place_of_step(step + 1) != place_of_step(step));
                cr_assert(place_of_step(step + 1) != 0, "a rank's own keys are overwritten");
            }
}

/* --- the kernels --- */

enum { D = 40, ROWS = 5, PARTS = 3 };

/* Normalised answers of some keys, in double: scores s, values v [keys][D]. */
struct answer { double o[D], lse; };

static struct answer answer_of(const std::vector<double> &s, const std::vector<double> &v,
                               size_t first, size_t end)
{
    struct answer a = {};
    double m = -INFINITY, l = 0;
    for (size_t j = first; j < end; j++) m = fmax(m, s[j]);
    a.lse = -INFINITY;
    if (m == -INFINITY) return a;
    for (size_t j = first; j < end; j++) {
        double p = exp(s[j] - m);
        l += p;
        for (int c = 0; c < D; c++) a.o[c] += p * v[j * D + c];
    }
    for (int c = 0; c < D; c++) a.o[c] /= l;
    a.lse = m + log(l);
    return a;
}

/* ROWS rows of scores over 12 keys in PARTS parts.  Row 0 is masked, row 1 in part 0 alone,
 * row 2 in the last; in row 3 part 1 outweighs the others by e^200; row 4 is plain. */
struct parts_case {
    std::vector<float> parts; /* as fold_kernel wants it: (PARTS, ROWS * (D + 1)) */
    struct answer want[ROWS];
};

static struct parts_case new_parts(void)
{
    struct parts_case x;
    x.parts.resize(PARTS * ROWS * (D + 1));
    for (int row = 0; row < ROWS; row++) {
        std::vector<double> s(12), v(12 * D);
        for (size_t j = 0; j < 12; j++) {
            int part = (int)j / 4;
            s[j] = sin(3.0 * (double)j + row);
            if (row == 0 || (row == 1 && part == 0) || (row == 2 && part == 2)) s[j] = -INFINITY;
            if (row == 3 && part == 1) s[j] += 200;
            for (size_t c = 0; c < D; c++) v[j * D + c] = cos((double)(7 * j + c + row));
        }
        x.want[row] = answer_of(s, v, 0, 12);
        for (size_t r = 0; r < PARTS; r++) {
            struct answer a = answer_of(s, v, 4 * r, 4 * r + 4);
            float *part = &x.parts[r * ROWS * (D + 1)];
            for (int c = 0; c < D; c++) part[row * D + c] = (float)a.o[c];
            part[ROWS * D + row] = (float)a.lse;
        }
    }
    return x;
}

static void expect_answer(const char *what, const struct parts_case &x, const float *o,
                          const float *lse)
{
    for (int row = 0; row < ROWS; row++) {
        double want = x.want[row].lse;
        cr_assert(lse[row] == want || fabs(lse[row] - want) <= 1e-5 * (1 + fabs(want)),
                  "%s, row %d: lse %g, want %g", what, row, lse[row], want);
        for (int c = 0; c < D; c++)
            cr_assert(fabs(o[row * D + c] - x.want[row].o[c]) <= 1e-6,
                      "%s, row %d column %d: got %.9g, want %.9g", what, row, c,
                      o[row * D + c], x.want[row].o[c]);
    }
}

/* As the ring's kernel does with the rows of a tile. */
Test(multi_gpu, parts_merged_one_after_another_are_the_whole)
{
    struct parts_case x = new_parts();
    std::vector<float> o(ROWS * D, NAN), lse(ROWS, NAN);
    cudaLaunchConfig_t config = merge_launch(ROWS, NULL);
    CUDA_CHECK(cudaLaunchKernelEx(&config, unit_kernel, o.data(), lse.data(), ROWS, D));
    for (size_t r = 0; r < PARTS; r++)
        for (size_t row = 0; row < ROWS; row++) {
            const float *part = &x.parts[r * ROWS * (D + 1)];
            struct merge_weights w = merge_weights_of(lse[row], part[ROWS * D + row]);
            lse[row] = w.lse;
            for (size_t c = row * D; c < (row + 1) * D; c++)
                o[c] = w.old * o[c] + w.part * part[c];
        }
    expect_answer("merge", x, o.data(), lse.data());
}

Test(multi_gpu, a_part_without_keys_changes_no_bit)
{
    const float unit = -INFINITY, some[] = {0.0f, -3.7f, 88.1f, -1e30f};
    for (float lse : some) {
        struct merge_weights after = merge_weights_of(lse, unit);
        struct merge_weights before = merge_weights_of(unit, lse);
        cr_assert(after.old == 1 && after.part == 0 && after.lse == lse, "lse %g", lse);
        cr_assert(before.old == 0 && before.part == 1 && before.lse == lse, "lse %g", lse);
    }
    struct merge_weights none = merge_weights_of(unit, unit);
    cr_assert(none.old == 0 && none.part == 0 && none.lse == unit);
}

Test(multi_gpu, nan_in_a_part_stays)
{
    struct merge_weights part = merge_weights_of(1.0f, NAN), old = merge_weights_of(NAN, 1.0f);
    cr_assert(isnan(part.lse) && isnan(part.old) && isnan(old.lse) && isnan(old.part));
}

Test(multi_gpu, gathered_parts_fold_to_the_whole)
{
    struct parts_case x = new_parts();
    std::vector<float> o(ROWS * D, NAN), lse(ROWS, NAN);
    cudaLaunchConfig_t config = merge_launch(ROWS, NULL);
    CUDA_CHECK(cudaLaunchKernelEx(&config, fold_kernel<float>, o.data(), lse.data(),
                                  x.parts.data(), PARTS, ROWS, D));
    expect_answer("fold", x, o.data(), lse.data());
}
