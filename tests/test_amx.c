/* The tiles of stage 4's variant amx, executed by their model: its code is right on every
 * machine.  Where the processor has the unit, the model gives the unit's bits. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#if defined __AMX_BF16__ || defined __AMXBF16__
#include <immintrin.h>
/* tiles: c (16, 16) += a (16, 32) . b (16, 32), by the unit; 0 without one. */
static int by_the_unit(const void *shape, float *c, const uint16_t *a, const uint16_t *b)
{
    _tile_loadconfig(shape);
    _tile_loadd(0, c, 64);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, c, 64);
    __asm__ volatile("" ::: "memory");
    _tile_release();
    return 1;
}
#else
static int by_the_unit(const void *shape, float *c, const uint16_t *a, const uint16_t *b)
{
    (void)shape, (void)c, (void)a, (void)b;
    return 0;
}
#endif

#define MODEL
#include "../04_monoid_tiled_cpu/fast/amx.c"
#include "model_check.h"
#include "problem/random.h"

/* a[m][2m] = 1 and a[m][2m + 1] = 2, so c[m][n] is the lower half of a pair of b and twice the
 * upper one; done twice. */
Test(amx, a_product_sums_pairs)
{
    float c[16][16];
    tile_zero(0);
    memset(tile[1].row, 0, sizeof tile[1]);
    for (int m = 0; m < 16; m++) {
        tile[1].half[m][2 * m] = float_to_bfloat(1);
        tile[1].half[m][2 * m + 1] = float_to_bfloat(2);
        for (int n = 0; n < 16; n++) {
            tile[2].half[m][2 * n] = float_to_bfloat((float)m);
            tile[2].half[m][2 * n + 1] = float_to_bfloat((float)(n * 16));
        }
    }
    tile_product(0, 1, 2);
    tile_product(0, 1, 2);
    tile_store(0, c, 64);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++)
            cr_expect(c[m][n] == (float)(2 * (m + 2 * 16 * n)), "c[%d][%d] = %g", m, n, c[m][n]);
}

Test(amx, the_model_has_the_bits_of_the_unit)
{
    const char *lacking = bf16_amx.lacks();
    static const struct { uint8_t head[16]; uint16_t bytes[16]; uint8_t rows[16]; }
        shape = {{1}, {64, 64, 64}, {16, 16, 16}};
    static float c[256], want[256];
    static uint16_t a[512], b[512];
    struct random r = {5};
    if (lacking) cr_skip("this machine lacks %s", lacking);
    for (int i = 0; i < 512; i++) {
        a[i] = float_to_bfloat(random_normal(&r));
        b[i] = float_to_bfloat(random_normal(&r));
        c[i / 2] = want[i / 2] = random_normal(&r);
    }
    if (!by_the_unit(&shape, c, a, b)) cr_skip("built for a machine without AMX");
    tile_load(0, want, 64);
    tile_load(1, a, 64);
    tile_load(2, b, 64);
    tile_product(0, 1, 2);
    tile_store(0, want, 64);
    for (int i = 0; i < 256; i++)
        cr_expect(c[i] == want[i], "sum %d: the unit %a, the model %a", i, c[i], want[i]);
}

Test(amx, attention_on_the_model_passes_every_case)
{
    cr_expect(check_model("amx_model", amx_model_attention, amx_model_workspace) == 0);
}
