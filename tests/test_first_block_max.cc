/* test_first_block_max.cc: the state of rung 13 (hopper/rows.h), executed on the CPU: the
 * maximum of the first block, and the repair of a block that outgrows it.  The loop below is
 * the kernel's, on one row of scores without its matrix products. */
#include <criterion/criterion.h>

#include <math.h>
#include <vector>

#include "../05_flash_cuda/hopper/rows.h"

struct folded {
    double l, o; /* sum of weights, and of weights times values, both relative to m */
    float mc;
    int repairs;
};

typedef void repair_function(struct rows &, const float (&)[2], const float (&)[2], float,
                             float (&)[2]);

/* Folds scores s with values v in blocks; both rows of the state see the same scores. */
static struct folded fold(const std::vector<float> &s, const std::vector<float> &v, size_t block,
                          repair_function *repair)
{
    struct rows r = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, {0.0f, 0.0f}};
    float o = 0.0f, alpha[2], top[2];
    int repairs = 0;
    for (size_t j = 0; j < s.size(); j += block) {
        size_t end = j + block < s.size() ? j + block : s.size();
        top[0] = top[1] = -INFINITY;
        for (size_t i = j; i < end; i++) top[0] = top[1] = fmaxf(top[0], s[i]);
        if (j == 0) refer_to(r, top, 1.0f, alpha);
        const float l[2] = {r.l[0], r.l[1]};
        for (int pass = 0; pass < 2; pass++) {
            float sum = 0.0f;
            for (size_t i = j; i < end; i++) {
                float p = exp2_fast(s[i] - r.mc[0]);
                r.l[0] += p, r.l[1] += p;
                sum += p * v[i];
            }
            if (pass == 0 && has_outgrown(r)) {
                repair(r, l, top, 1.0f, alpha);
                o *= alpha[0];
                repairs++;
                continue;
            }
            o += sum;
            break;
        }
    }
    return {r.l[0], o, r.mc[0], repairs};
}

static void expect_right(const char *name, const std::vector<float> &s, int least_repairs,
                         repair_function *repair)
{
    std::vector<float> v(s.size());
    for (size_t i = 0; i < v.size(); i++) v[i] = (float)(i % 13) - 6.0f;
    double m = -INFINITY, l = 0.0, o = 0.0;
    for (float x : s) m = fmax(m, x);
    for (size_t i = 0; i < s.size(); i++) {
        double p = s[i] == -INFINITY ? 0.0 : exp2(s[i] - m);
        l += p, o += p * v[i];
    }
    struct folded f = fold(s, v, 64, repair);
    cr_expect(f.repairs >= least_repairs, "%s: %d repairs, want at least %d", name, f.repairs,
              least_repairs);
    cr_expect(fabs(f.o / f.l - o / l) <= 1e-4 * fmax(1.0, fabs(o / l)),
              "%s: o got %g, want %g", name, f.o / f.l, o / l);
    double lse = f.mc + log2(f.l), want = m + log2(l);
    cr_expect(fabs(lse - want) <= 1e-4 * fmax(1.0, fabs(want)), "%s: lse got %g, want %g", name,
              lse, want);
}

static void expect_all_right(repair_function *repair)
{
    std::vector<float> s(4096);
    for (size_t i = 0; i < s.size(); i++) s[i] = (float)(i * 37 % 29) / 8.0f;
    expect_right("random", s, 0, repair);
    for (size_t i = 0; i < s.size(); i++) s[i] = 1.6f * (float)i;
    expect_right("steep: every block but the first", s, 62, repair);
    for (size_t i = 0; i < s.size(); i++) s[i] = (float)(i * 37 % 29) / 8.0f;
    s[3000] = 500.0f;
    expect_right("late spike", s, 1, repair);
    for (size_t i = 0; i < s.size(); i++) s[i] = i < 700 ? -INFINITY : (float)(i % 31);
    expect_right("first blocks masked", s, 1, repair);
    for (size_t i = 0; i < s.size(); i++) s[i] = 5000.0f - 3.0f * (float)i;
    expect_right("descending", s, 0, repair);
}

Test(first_block_max, repaired_blocks_give_the_safe_result)
{
    expect_all_right(repair_rows);
    expect_all_right(repair_mc);
}
