/* roundings.c: what the additions of a sum may err by. */
#include "verification/reference_sum.h"

/* A running sum and the roundings that it has seen. */
struct chain {
    double m, sum, x1, x2;            /* largest score, partial sum, the last two terms */
    double alike, squares, rescaled;  /* as in sum_roundings(), in units of u */
};

static void chain_add(struct chain *c, double x, double s, double extent)
{
    if (s > c->m) c->rescaled += fabs(c->sum), c->m = s;
    if (x == 0) return;
    c->sum += x;
    double size = smaller(extent, fabs(x) / ROUNDOFF);
    if (fabs(x - 2 * c->x1 + c->x2) <= 4 * ROUNDOFF * extent)
        c->alike += smaller(size, fabs(c->sum) + extent * 0x1p-10);
    else c->squares += size * size;
    c->x2 = c->x1, c->x1 = x;
}

/* The largest difference of two partial sums, in the order of the terms; and of other orders the
 * likely one. */
static double extent_of(const double *x, size_t n)
{
    double sum = 0, low = 0, high = 0, squares = 0;
    for (size_t j = 0; j < n; j++) {
        sum += x[j], squares += x[j] * x[j];
        low = smaller(low, sum), high = -smaller(-high, -sum);
    }
    return high - low + (low < 0 ? sqrt(squares) : 0);
}

double sum_roundings(const double *x, const double *s, size_t n, double more)
{
    double worst = 0, extent = extent_of(x, n);
    for (int back = 0; back < 2; back++) {
        struct chain c = {.m = -INFINITY};
        for (size_t i = 0; i < n; i++) {
            size_t j = back ? n - 1 - i : i;
            chain_add(&c, x[j], s ? s[j] : -INFINITY, extent);
        }
        worst = fmax(worst, more * c.alike + LAMBDA * sqrt(more * c.squares) +
                                (KAPPA + 2) * c.rescaled);
    }
    return worst;
}
