/* wgmma_on_cpu.cc: the matrix instruction of a warpgroup, see hopper_on_cpu.h.
 *
 * D (64 x n) lies in the registers of the 128 threads: thread t of the warpgroup, warp
 * w = t / 32, lane l, holds in register i
 *
 *     row 16 w + l / 4 + 8 (i / 2 % 2),   column 8 (i / 4) + 2 (l % 4) + i % 2.
 *
 * A in registers: four of packed pairs, the same layout for 16 columns.  A matrix in shared
 * memory is given by a descriptor: address, and the bytes to the next panel of 64 columns (for
 * a transposed B) and to the next 8 rows; its 16-byte chunks are swizzled by the address.  If they
 * are not, a row is one chunk, and the next 8 columns lie where the next panel would.
 *
 * Numbers of 8 bits: 32 columns in place of 16, four of them in a register, 16 in a chunk (the manual's
 * fragments of m64nNk32).  D of int8 holds int32.  A sum of e4m3 products and D keeps of each term
 * what is at least 2^-13 of the largest one's power of two, and drops the rest: what an H200's sums
 * over 64, 512 and 4096 instructions showed.
 *
 * Each thread records its products as it issues them.  They are executed, all threads of the
 * warpgroup together, when their group is committed or when a thread waits for them. */
#include "cuda_on_cpu/executor.h"
#include "cuda_on_cpu/hopper_on_cpu.h"

using namespace cuda_on_cpu;

namespace
{
struct product {
    struct wgmma what;
    float *d[128];
    const uint32_t *a[128];
};

/* The products of a warpgroup.  `executed` counts those that are no longer in the queue. */
struct warpgroup {
    std::vector<struct product> queue;
    std::vector<size_t> ends;  /* of each committed group: products before its end */
    std::vector<bool> now;     /* ... it is executed when committed */
    size_t executed, issued[128], committed[128]; /* committed: groups */
    int met;                                      /* threads that wait for the others */
};

struct warpgroups { struct warpgroup group[8]; };
} // namespace

UNSEEN static struct warpgroup *my_warpgroup(const struct caller &where)
{
    const unsigned i = self->current->rank / 128;
    if (i >= self->n_fibres / 128) fail(where, "wgmma: want a whole warpgroup of 128");
    return &of_block<struct warpgroups>().group[i];
}

/* Where a descriptor says that a matrix lies. */
struct matrix { size_t address, to_panel, to_8_rows, row; }; /* bytes */

UNSEEN static struct matrix matrix_of(uint64_t descriptor)
{
    return {(size_t)(descriptor & 0x3fff) << 4, (size_t)(descriptor >> 16 & 0x3fff) << 4,
            (size_t)(descriptor >> 32 & 0x3fff) << 4, descriptor >> 62 ? 128u : 16u};
}

/* One thread looks whether what the product reads is ordered after what threads wrote there. */
UNSEEN static void check_operands(const struct wgmma &w, const struct caller &where)
{
    const struct matrix a = matrix_of(w.a), b = matrix_of(w.b);
    const int panels = w.b_transposed ? (w.n + 63) / 64 : 1, rows = w.b_transposed ? 16 : w.n;
    if (!w.a_in_registers) check_accesses("wgmma", a.address, 64 * 128, true, where);
    for (int panel = 0; panel < panels; panel++)
        check_accesses("wgmma", b.address + panel * b.to_panel, rows * b.row, true, where);
}

UNSEEN void cuda_on_cpu::wgmma_issue(const struct wgmma &product, float *d, const uint32_t *a,
                                     const struct caller &where)
{
    struct warpgroup *g = my_warpgroup(where);
    unsigned t = self->current->rank % 128;
    size_t i = g->issued[t]++ - g->executed;
    if (t == 0) check_operands(product, where);
    if (i == g->queue.size()) g->queue.push_back({product, {}, {}});
    if (!(g->queue[i].what == product))
        fail(where, "wgmma: the threads of the warpgroup issue different products");
    g->queue[i].d[t] = d;
    g->queue[i].a[t] = a;
}

/* --- Matrices of floats, from registers and shared memory --- */

namespace
{
/* N is at most 256. */
struct tiles {
    float a[64][32], b[32][256], d[64][256];
};
} // namespace

/* half_to_float() and bfloat_to_float() in a form that compilers vectorise. */
UNSEEN static inline float widen16(uint32_t u, bool bf16)
{
    if (bf16) return f32_from_bits(u << 16);
    uint32_t magnitude = u & 0x7fff, sign = (u & 0x8000) << 16;
    float x = f32_from_bits(magnitude << 13) * 0x1p112f;
    uint32_t bits = magnitude >= 0x7c00 ? 0x7f800000u | magnitude << 13 : f32_bits(x);
    return f32_from_bits(sign | bits);
}

/* Numbers in a chunk of 16 bytes, and columns of A. */
UNSEEN static inline int per_chunk(const struct wgmma &w) { return w.eight ? 16 : 8; }

/* Number i of those at `from`. */
UNSEEN static inline float widen(const char *from, int i, const struct wgmma &w)
{
    if (!w.eight) return widen16(((const uint16_t *)from)[i], w.bf16);
    return w.eight == EIGHT_E4M3 ? e4m3_to_float((uint8_t)from[i]) : (float)(int8_t)from[i];
}

/* The numbers of the chunk at the address, of which the swizzle knows bits 4 to 9. */
UNSEEN static inline void load_chunk(float *to, const char *shared, size_t address,
                                     const struct wgmma &w, bool swizzled = true)
{
    const char *from = shared + (swizzled ? address ^ (address >> 7 & 7) << 4 : address);
    for (int i = 0; i < per_chunk(w); i++) to[i] = widen(from, i, w);
}

/* `rows` rows of two chunks. */
UNSEEN static void load_rows(float (*to)[32], int rows, const struct matrix &m,
                             const char *shared, const struct wgmma &w)
{
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < 2; c++)
            load_chunk(to[r] + c * per_chunk(w), shared,
                       m.address + r / 8 * m.to_8_rows + r % 8 * m.row +
                           c * (m.row == 16 ? m.to_panel : 16), w, m.row == 128);
}

UNSEEN static void load_b(struct tiles *x, const struct wgmma &w, const char *shared)
{
    const struct matrix m = matrix_of(w.b);
    if (w.b_transposed) {
        for (int k = 0; k < 16; k++)
            for (int c = 0; c < w.n; c += 8)
                load_chunk(x->b[k] + c, shared, m.address + k / 8 * m.to_8_rows + k % 8 * 128 +
                           c / 64 * m.to_panel + c % 64 * 2, w);
        return;
    }
    float rows[256][32];
    load_rows(rows, w.n, m, shared, w);
    for (int k = 0; k < 2 * per_chunk(w); k++)
        for (int c = 0; c < w.n; c++) x->b[k][c] = rows[c][k];
}

UNSEEN static void load_a(struct tiles *x, const struct product &p, const char *shared)
{
    const struct wgmma &w = p.what;
    if (!w.a_in_registers) {
        load_rows(x->a, 64, matrix_of(w.a), shared, w);
        return;
    }
    const int n = per_chunk(w) / 4; /* numbers in a register */
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < 4 * n; i++)
            x->a[t / 32 * 16 + t % 32 / 4 + i / n % 2 * 8][i / (2 * n) * 4 * n + t % 4 * n + i % n] =
                widen((const char *)&p.a[t][i / n], i % n, w);
}

/* D between the registers and the tile. */
UNSEEN static void move_d(struct tiles *x, const struct product &p, bool load)
{
    for (int t = 0; t < 128; t++)
        for (int i = 0; i < p.what.n / 2; i++) {
            float *in_tile = &x->d[t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8]
                                  [i / 4 * 8 + t % 4 * 2 + i % 2];
            const bool whole = p.what.eight == EIGHT_INT8; /* D holds int32 */
            if (load) *in_tile = whole ? (float)(int32_t)f32_bits(p.d[t][i]) : p.d[t][i];
            else p.d[t][i] = whole ? f32_from_bits((uint32_t)(int32_t)*in_tile) : *in_tile;
        }
}

UNSEEN static void multiply(struct tiles *x, const struct wgmma &w)
{
    for (int i = 0; i < 64; i++)
        for (int k = 0; k < 2 * per_chunk(w); k++)
            for (int j = 0; j < w.n; j++) x->d[i][j] += x->a[i][k] * x->b[k][j];
}

/* The same with the sums of e4m3.  What is not finite stays so. */
UNSEEN static void multiply_e4m3(struct tiles *x, int n)
{
    for (int i = 0; i < 64; i++) {
        float top[256], unit[256], sum[256];
        for (int j = 0; j < n; j++) top[j] = fabsf(x->d[i][j]);
        for (int k = 0; k < 32; k++)
            for (int j = 0; j < n; j++) top[j] = fmaxf(top[j], fabsf(x->a[i][k] * x->b[k][j]));
        for (int j = 0; j < n; j++) { /* 2^-13 of the power of two; 0 for all zeros */
            unit[j] = f32_from_bits(f32_bits(top[j]) & 0x7f800000u) * 0x1p-13f + 0x1p-100f;
            sum[j] = truncf(x->d[i][j] / unit[j]);
        }
        for (int k = 0; k < 32; k++)
            for (int j = 0; j < n; j++) sum[j] += truncf(x->a[i][k] * x->b[k][j] / unit[j]);
        for (int j = 0; j < n; j++) x->d[i][j] = sum[j] * unit[j];
    }
}

/* Executes the oldest products, n of them.  D stays in the tile from one to the next that has
 * the same. */
UNSEEN static void execute_products(struct warpgroup *g, size_t n)
{
    static __thread struct tiles *tiles;
    if (!tiles) tiles = new struct tiles();
    const char *shared = self->block.shared;
    for (size_t i = 0; i < n; i++) {
        const struct product &p = g->queue[i];
        const struct wgmma &w = p.what;
        if (w.first) memset(tiles->d, 0, sizeof tiles->d);
        else if (i == 0 || g->queue[i - 1].d[0] != p.d[0]) move_d(tiles, p, true);
        load_a(tiles, p, shared);
        load_b(tiles, w, shared);
        if (w.eight == EIGHT_E4M3) multiply_e4m3(tiles, w.n);
        else multiply(tiles, w);
        if (i + 1 == n || g->queue[i + 1].d[0] != p.d[0]) move_d(tiles, p, false);
    }
    g->queue.erase(g->queue.begin(), g->queue.begin() + n);
    g->executed += n;
}

/* Products before number `end` have been executed when this returns. */
UNSEEN static void complete(struct warpgroup *g, size_t end, const char *name,
                            const struct caller &where)
{
    if (g->executed >= end) return;
    TSAN(__tsan_release(g));
    if (++g->met < 128) {
        wait_for(g, NULL, name, where);
        return;
    }
    TSAN(__tsan_acquire(g));
    g->met = 0;
    execute_products(g, end - g->executed);
    wake_waiters(g);
}

UNSEEN void wgmma_commit(const struct caller &where)
{
    struct warpgroup *g = my_warpgroup(where);
    unsigned t = self->current->rank % 128;
    size_t i = g->committed[t]++;
    if (i == g->ends.size()) {
        g->ends.push_back(g->issued[t]);
        g->now.push_back(executes_now());
    }
    if (g->ends[i] != g->issued[t])
        fail(where, "wgmma: the threads of the warpgroup commit different groups");
    if (g->now[i]) complete(g, g->ends[i], "wgmma_commit", where);
}

UNSEEN void cuda_on_cpu::wgmma_wait_groups(int groups_left, const struct caller &where)
{
    struct warpgroup *g = my_warpgroup(where);
    size_t committed = g->committed[self->current->rank % 128];
    if (committed > (size_t)groups_left)
        complete(g, g->ends[committed - groups_left - 1], "wgmma_wait", where);
}
