/* monoid.c: stage 4 for the figures: leaves and merges, and attention by tiles. */
#include "figures.h"

#include "../../../../04_monoid_tiled_cpu/monoid.h"

enum { MOST_NODES = 64, D = 2 };

/* A node of a tree of merges: the aggregate (m, l, o), the same in double, and two pairs
 * for contrast: a mean with its count, which is a monoid too, and a mean without one. */
static struct node {
    float m, l, o[D];
    double exact_m, exact_l, exact_o[D];
    float count, mean, bare;
} nodes[MOST_NODES];

float *EXPORT(node_address)(int i) { return &nodes[i].m; }
double *EXPORT(node_exact)(int i) { return &nodes[i].exact_m; }
float *EXPORT(node_contrast)(int i) { return &nodes[i].count; }

static struct aggregate view(int i)
{
    return (struct aggregate){nodes[i].m, nodes[i].l, nodes[i].o, D};
}

static void keep(int i, const struct aggregate *x)
{
    nodes[i].m = x->m;
    nodes[i].l = x->l;
}

/* Node i becomes the unit. */
static void node_unit(int i)
{
    struct aggregate x = view(i);
    aggregate_unit(&x);
    keep(i, &x);
    nodes[i].exact_m = -__builtin_inf();
    nodes[i].exact_l = nodes[i].exact_o[0] = nodes[i].exact_o[1] = 0;
    nodes[i].count = nodes[i].mean = nodes[i].bare = 0;
}

/* Node i becomes the leaf (v, 1, score); a score of -INFINITY is a masked key, the unit. */
void EXPORT(node_leaf)(int i, float score, float v0, float v1)
{
    const float v[D] = {v0, v1};
    struct aggregate x = view(i);
    node_unit(i);
    if (score == -INFINITY) return;
    aggregate_unit(&x);
    aggregate_push(&x, score, v);
    keep(i, &x);
    nodes[i].exact_m = score;
    nodes[i].exact_l = 1;
    nodes[i].exact_o[0] = v0;
    nodes[i].exact_o[1] = v1;
    nodes[i].count = 1;
    nodes[i].mean = nodes[i].bare = v0;
}

/* Node i becomes x . y. */
void EXPORT(node_merge)(int i, int x, int y)
{
    struct node a = nodes[x], b = nodes[y], *z = &nodes[i];
    *z = a;
    struct aggregate left = view(i), right = {b.m, b.l, b.o, D};
    aggregate_merge(&left, &right);
    keep(i, &left);
    z->exact_m = a.exact_m > b.exact_m ? a.exact_m : b.exact_m;
    double f = a.exact_l == 0 ? 0 : exp(a.exact_m - z->exact_m);
    double g = b.exact_l == 0 ? 0 : exp(b.exact_m - z->exact_m);
    z->exact_l = a.exact_l * f + b.exact_l * g;
    for (int c = 0; c < D; c++) z->exact_o[c] = a.exact_o[c] * f + b.exact_o[c] * g;
    z->count = a.count + b.count;
    z->mean = z->count == 0 ? 0 : (a.count * a.mean + b.count * b.mean) / z->count;
    z->bare = (a.bare + b.bare) / 2;
}

/* The attention that node i stands for: o / l and its distance from the same in double.
 *   arena  o[0], o[1], error[0], error[1] */
void EXPORT(node_finish)(int i)
{
    struct aggregate x = view(i);
    float lse;
    aggregate_finish(&x, arena, &lse);
    for (int c = 0; c < D; c++) {
        double exact = nodes[i].exact_l == 0 ? 0 : nodes[i].exact_o[c] / nodes[i].exact_l;
        arena[D + c] = (float)((double)arena[c] - exact);
    }
}
