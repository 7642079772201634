/* test_errata.c: the slips of the notes "Flash Attention" that are a formula or code
 * (notes/errata.md has the list; errata_example.h says what is tested). */
#include "errata_example.h"

/* ---- the notes "Flash Attention" ---- */

/* Section 1.1, under equation 9: the new log-sum-exp of a tile with sum l has l once. */
Test(errata, note_lse_update_has_no_second_l)
{
    double lse = exact_lse(0, HALF), m = fmax(maximum(HALF, N), lse);
    double l = sum(HALF, N, m, -1);
    right(m + log(exp(lse - m) + l), exact_lse(0, N));
    wrong(m + log(exp(lse - m) + l) + l, exact_lse(0, N));
    wrong(m + log(exp(lse - m) + l + l), exact_lse(0, N));
    wrong(m + log((lse - m) + l), exact_lse(0, N)); /* the missing exp */
}

/* Section 1.1: the last step divides by the denominator e^{lse - m}. */
Test(errata, note_final_factor_is_the_reciprocal_of_the_denominator)
{
    double m = maximum(0, N), lse = exact_lse(0, N);
    for (int c = 0; c < DV; c++) {
        right(sum(0, N, m, c) * exp(m - lse), exact_attention(c));
        wrong(sum(0, N, m, c) * exp(lse - m), exact_attention(c));
    }
}

/* A part of the keys as section 1.2 hands it over: b maximum, e = sum, o normalised. */
struct part { double b, e, o[DV]; };

static struct part part_of(int first, int last)
{
    struct part x = {.b = maximum(first, last)};
    x.e = sum(first, last, x.b, -1);
    for (int c = 0; c < DV; c++) x.o[c] = sum(first, last, x.b, c) / x.e;
    return x;
}

/* Section 1.2: the second part's output is d2 / e2, and each part has its own Delta. */
Test(errata, note_combiner_uses_both_parts)
{
    struct part x = part_of(0, HALF), y = part_of(HALF, N);
    double b = fmax(x.b, y.b), dx = x.b - b, dy = y.b - b;
    double l = exp(dx) * x.e + exp(dy) * y.e;
    for (int c = 0; c < DV; c++) {
        double d1 = x.o[c] * x.e, d2 = y.o[c] * y.e; /* un-normalised */
        right((exp(dx) * x.e * x.o[c] + exp(dy) * y.e * (d2 / y.e)) / l,
              exact_attention(c));
        wrong((exp(dx) * x.e * x.o[c] + exp(dy) * y.e * (d1 / x.e)) / l,
              exact_attention(c));
        wrong((exp(dx) * d1 + exp(dx) * d2) / l, exact_attention(c)); /* row d */
    }
}

/* Section 1.3: log-softmax attention from two parts. */
Test(errata, note_log_combiner_moves_each_part_and_needs_the_sum_of_v)
{
    struct part x = part_of(0, HALF), y = part_of(HALF, N);
    double b = fmax(x.b, y.b), lse = exact_lse(0, N);
    right(exp(x.b - b) * x.e + exp(y.b - b) * y.e, exp(lse - b));
    wrong(exp(b - x.b) * x.e + exp(b - y.b) * y.e,
          exp(lse - b)); /* the sign as printed */
    wrong(exp(x.b - b) * x.e + exp(x.b - b) * y.e, exp(lse - b)); /* Delta c1 twice */
    wrong(exp(x.b - b) * x.e + exp(y.b - b), exp(lse - b));       /* e2 missing */
    for (int c = 0; c < DV; c++) {
        double a1 = 0, a2 = 0, z1 = 0, z2 = 0;
        for (int j = 0; j < HALF; j++) {
            a1 += (s[j] - x.b) * v[j][c];
            z1 += v[j][c];
        }
        for (int j = HALF; j < N; j++) {
            a2 += (s[j] - y.b) * v[j][c];
            z2 += v[j][c];
        }
        double a = a1 + (x.b - b) * z1 + a2 + (y.b - b) * z2, log_l = lse - b;
        right(a - log_l * (z1 + z2), exact_log_attention(c));
        wrong(a1 + a2 - log_l * (z1 + z2), exact_log_attention(c)); /* maxima not moved */
        wrong(a - log_l, exact_log_attention(c)); /* sum of v left out */
    }
}

/* Section 2.1: the fused expression, version 1. */
Test(errata, note_fused_expression_rescales_l_and_adds_x5)
{
    struct part old = part_of(0, HALF);
    double x2 = maximum(HALF, N), x4 = sum(HALF, N, x2, -1), m = fmax(old.b, x2);
    double x6 = exp(old.b - m), x7 = exp(x2 - m), l = x6 * old.e + x7 * x4;
    right(l, sum(0, N, m, -1));
    for (int c = 0; c < DV; c++) {
        double x3 = exp(s[HALF] - x2), x5 = sum(HALF, N, x2, c);
        wrong(x6 * old.o[c] + x7 * x4, sum(0, N, m, -1)); /* o_old for L_old */
        right((x6 * old.e * old.o[c] + x7 * x5) / l, exact_attention(c));
        wrong((x6 * old.e * old.o[c] + x7 * x3) / l, exact_attention(c)); /* x3 for x5 */
    }
}

/* Section 3: block counts and offsets of the kernel, as positions in the arrays. */
Test(errata, note_block_counts_need_a_ceiling)
{
    const int L = 100, B = 32;
    int covered_floor = L / B * B, covered_ceiling = (L + B - 1) / B * B;
    cr_assert(covered_floor < L && covered_ceiling >= L);
}

/* Query block t of head h starts at row h L_Q + t Br.  Numbering the blocks of all heads
 * in one row, (h T_r + t) Br, is the same only if Br divides L_Q. */
Test(errata, note_q_offset_crosses_heads_unless_br_divides_the_length)
{
    const int L = 100, Br = 32, T_r = 4;
    for (int h = 0; h < 3; h++)
        for (int t = 0; t < T_r; t++) {
            int right_row = h * L + t * Br, printed = (h * T_r + t) * Br;
            cr_assert(right_row / L == h);
            cr_assert((printed == right_row) == (h == 0));
        }
    for (int h = 0; h < 3; h++) /* with a length of 128 both agree */
        for (int t = 0; t < T_r; t++) cr_assert(h * 128 + t * Br == (h * T_r + t) * Br);
}

/* V has a row for each key, of length head_dim_v; a bias tile starts at row block t of
 * the queries, and its next tile lies Bc columns on. */
Test(errata, note_v_and_bias_offsets_follow_keys_and_their_own_widths)
{
    const int L_Q = 5, L_K = 9, d = 4, dv = 3, Br = 2, Bc = 4;
    int v_head_1 = 0; /* where head 1 of V begins, by counting every element before it */
    for (int j = 0; j < L_K; j++)
        for (int c = 0; c < dv; c++) v_head_1++;
    cr_assert(1 * L_K * dv == v_head_1);
    cr_assert(1 * L_Q * dv != v_head_1, "rows of V counted by L_Q");
    cr_assert(1 * L_K * d != v_head_1, "rows of V taken to be d long");
    int t = 1, i = 1,
        at = 0; /* bias of row block 1, key tile 1: 2 rows and 4 columns on */
    for (int row = 0; row < t * Br; row++)
        for (int col = 0; col < L_K; col++) at++;
    for (int col = 0; col < i * Bc; col++) at++;
    cr_assert(t * Br * L_K + i * Bc == at);
    cr_assert(i * Bc != at, "the row block left out");
    cr_assert(t * Br * L_K + i * Bc * L_K != at, "a tile step of whole rows");
}

/* Section 5.1: the loop s = A(s, x_i), then R2 with its own state over G(x_i, result of
 * R1). R1: sum; G: x - mean; R2: sum of squares.  By hand for 1, 2, 6: mean 3, 4 + 1 + 9
 * = 14. */
Test(errata, note_reduction_must_carry_its_state)
{
    const double x[] = {1, 2, 6};
    const double I = 0;
    double carried = I, restarted = I;
    for (int j = 0; j < 3; j++) {
        carried = carried + x[j];
        restarted = I + x[j]; /* as printed: every step starts from I */
    }
    cr_assert(carried == 9 && restarted == 6);
    double mean = carried / 3, own = 0, shared = carried, blind = 0;
    for (int j = 0; j < 3; j++) {
        own += (x[j] - mean) * (x[j] - mean);
        shared += (x[j] - mean) * (x[j] - mean); /* R1's accumulator used again */
        blind += x[j] * x[j];                    /* G without R1's result */
    }
    cr_assert(own == 14 && shared != 14 && blind != 14);
}

/* Section 5.2: without the finisher R1's state is a sum where G needs a mean. */
Test(errata, note_finisher_of_the_first_reduction_is_needed)
{
    const double x[] = {1, 2, 6};
    double finished = 0, state = 0;
    for (int j = 0; j < 3; j++) {
        finished += (x[j] - 9.0 / 3) * (x[j] - 9.0 / 3);
        state += (x[j] - 9.0) * (x[j] - 9.0);
    }
    cr_assert(finished == 14 && state != 14);
}
