/* test_multi_gpu.cc: what several GPUs do, without one: the ring's balance and buffers, and the kernel
 * that folds parts, executed on the CPU.  That each pair is computed once is seen by processes, which
 * have the same schedule (test_mpi.py); merging one part after the other is in test_part_tuned.cc. */
#include <criterion/criterion.h>

#include <math.h>
#include <vector>

#include "../05_flash_cuda/hopper/merge_weights.h"
#include "../05_flash_cuda/multi_gpu/merge.h"
#include "../05_flash_cuda/multi_gpu/strategies.h"
#include "ranks/schedule.h"

extern "C" {
#include "problem/operation.h"
}

static const struct strategy *const RING = &gpu_strategies[1],
                             *const RING_UNBALANCED = &gpu_strategies[2];
enum { MOST_RANKS = 8 };

/* --- the schedule --- */

/* The visible pairs that a rank computes in a step, and in how many launches. */
static double pairs_of(const struct problem &p, const struct strategy *s, int me, int step,
                       int ranks, int *launches)
{
    struct chunks queries = queries_of(s, &p, me, ranks);
    struct chunks keys = keys_of(s, &p, owner_of(me, step, ranks), ranks);
    struct piece pieces[MOST_PIECES];
    double pairs = 0;
    *launches = pieces_of(&p, &queries, &keys, pieces);
    cr_assert(*launches <= MOST_PIECES && chunks_size(&keys) <= most_keys(s, &p, ranks));
    for (int n = 0; n < *launches; n++) {
        struct problem part = problem_of_piece(&p, &pieces[n]);
        pairs += problem_pairs(&part);
    }
    return pairs;
}

/* Every rank has the same work in every step, in one launch; a contiguous ring leaves rank 0 idle. */
Test(multi_gpu, a_causal_zigzag_is_balanced_and_one_launch)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (size_t more = 0; more < 4; more += 3) {
            struct problem p = {};
            int launches;
            p.op = OP_ATTENTION, p.batch = p.heads_q = p.heads_kv = p.causal = 1;
            p.seqlen_q = p.seqlen_k = 32 * (size_t)ranks + more, p.head_dim = p.head_dim_v = 8;
            for (int step = 0; step < ranks; step++) {
                double first = pairs_of(p, RING, 0, step, ranks, &launches);
                for (int me = 0; me < ranks; me++) {
                    double pairs = pairs_of(p, RING, me, step, ranks, &launches);
                    cr_assert((pairs == first || more) && launches == 1,
                              "%d ranks, rank %d, step %d", ranks, me, step);
                }
            }
            pairs_of(p, RING_UNBALANCED, 0, ranks - 1, ranks, &launches);
            cr_assert(ranks == 1 || !launches);
        }
}

Test(multi_gpu, keys_arrive_before_they_are_used_and_stay_while_they_are)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int me = 0; me < ranks; me++)
            for (int step = 0; step + 1 < ranks; step++) {
                int last = (me - 1 + ranks) % ranks; /* what it has in hand, I have next */
                cr_assert(owner_of(last, step, ranks) == owner_of(me, step + 1, ranks));
                cr_assert(place_of_step(step + 1) != place_of_step(step));
                cr_assert(place_of_step(step + 1) != 0, "a rank's own keys are overwritten");
            }
}

/* --- the kernels --- */

enum { D = 40, N_ROWS = 5, PARTS = 3 };

/* lse of each part: of a masked row, of keys in some parts alone, of a part that outweighs the others
 * by e^200, of a plain row.  Where it is -INFINITY the part's o is 0. */
static const float NONE = -INFINITY;
static const float part_lse[N_ROWS][PARTS] = {
    {NONE, NONE, NONE}, {NONE, 0.5f, 1}, {2, -1, NONE}, {1, 200, -3}, {0.1f, 0.2f, -0.3f}};

static float part_o(int r, int row, int c)
{
    return part_lse[row][r] == NONE ? 0 : (float)cos(7.0 * c + row + 3 * r);
}

/* lse = log(sum e^lse_r),  o = sum e^(lse_r - lse) o_r, in double. */
static void expect_whole(const char *what, const float *o, const float *lse)
{
    for (int row = 0; row < N_ROWS; row++) {
        double top = fmax(fmax(part_lse[row][0], part_lse[row][1]), part_lse[row][2]), l = 0, sum;
        for (int r = 0; r < PARTS; r++) l += top == NONE ? 0 : exp(part_lse[row][r] - top);
        double want = l > 0 ? top + log(l) : NONE;
        cr_assert(lse[row] == want || fabs(lse[row] - want) <= 1e-5 * (1 + fabs(want)),
                  "%s, row %d: lse %g, want %g", what, row, lse[row], want);
        for (int c = 0; c < D; c++) {
            sum = 0;
            for (int r = 0; r < PARTS && l > 0; r++)
                sum += exp(part_lse[row][r] - want) * part_o(r, row, c);
            cr_assert(fabs(o[row * D + c] - sum) <= 1e-6, "%s, row %d column %d: got %.9g, want %.9g",
                      what, row, c, o[row * D + c], sum);
        }
    }
}

Test(multi_gpu, gathered_parts_fold_to_the_whole)
{
    std::vector<float> o(N_ROWS * D, NAN), lse(N_ROWS, NAN), parts(PARTS * N_ROWS * (D + 1));
    for (int r = 0; r < PARTS; r++)
        for (int row = 0; row < N_ROWS; row++) {
            float *part = &parts[r * N_ROWS * (D + 1)];
            for (int c = 0; c < D; c++) part[row * D + c] = part_o(r, row, c);
            part[N_ROWS * D + row] = part_lse[row][r];
        }
    cudaLaunchConfig_t config = merge_launch(N_ROWS, NULL);
    CUDA_CHECK(cudaLaunchKernelEx(&config, unit_kernel, o.data(), lse.data(), N_ROWS, D));
    cr_assert(o[N_ROWS * D - 1] == 0 && lse[N_ROWS - 1] == NONE, "what a rank without keys gives");
    CUDA_CHECK(cudaLaunchKernelEx(&config, fold_kernel<float>, o.data(), lse.data(), parts.data(),
                                  PARTS, N_ROWS, D));
    expect_whole("fold", o.data(), lse.data());
}

Test(multi_gpu, a_part_without_keys_changes_no_bit_and_nan_stays)
{
    const float some[] = {0.0f, -3.7f, 88.1f, -1e30f, NONE};
    for (float lse : some) {
        struct merge_weights after = merge_weights_of(lse, NONE), before = merge_weights_of(NONE, lse);
        float is = lse == NONE ? 0 : 1;
        cr_assert(after.old == is && after.part == 0 && after.lse == lse, "lse %g", lse);
        cr_assert(before.old == 0 && before.part == is && before.lse == lse, "lse %g", lse);
    }
    struct merge_weights part = merge_weights_of(1.0f, NAN), old = merge_weights_of(NAN, 1.0f);
    cr_assert(isnan(part.lse) && isnan(part.old) && isnan(old.lse) && isnan(old.part));
}
