/* The tiles of stage 4's variant amx, executed by their model: its code is right on every machine.
 * Where the processor has the unit, `check` runs the variant on it. */
#include <criterion/criterion.h>
#include <string.h>

#define MODEL
#include "../04_monoid_tiled_cpu/fast/amx.c"
#include "model_check.h"

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

Test(amx, attention_on_the_model_passes_every_case)
{
    cr_expect(check_model("amx_model", amx_model_attention, amx_model_workspace) == 0);
}
