/* native.c: the functions behind the figures, compiled for this machine: what the browser must
 * find bit for bit.   native ROWS: one line a row, stage and type: n, l, m and the weights in
 * hexadecimal.  The rows are drawn as browser.py draws them. */
#include <stdio.h>
#include <stdlib.h>

#include "../../common/book/wasm/figures.h"
#include "problem/half.h"
#undef main

int naive_row(int n, int type);
int safe_row(int n, int type);
int online_row(int n, int type);

static uint32_t state = 1;

static uint32_t draw(void)
{
    return state = state * 1664525u + 1013904223u;
}

/* Up to 16 multiples of 1/16 from -125 to 125, now and then masked. */
static int draw_row(float *x)
{
    int n = 1 + (int)(draw() >> 28);
    for (int j = 0; j < n; j++) {
        x[j] = (float)((int)(draw() >> 8) % 4001 - 2000) / 16;
        if (draw() >> 28 == 0) x[j] = -INFINITY;
    }
    return n;
}

int main(int argc, char **argv)
{
    int (*const row[])(int, int) = {naive_row, safe_row, online_row};
    int n_rows = argc > 1 ? atoi(argv[1]) : 1000;
    for (int r = 0; r < n_rows; r++) {
        float x[16];
        int n = draw_row(x);
        for (int s = 0; s < 3; s++)
            for (int type = F32; type <= BF16; type++) {
                for (int j = 0; j < n; j++) scores[j] = to_type(x[j], type);
                int count = row[s](n, type);
                printf("%d %d %d %08x %08x", r, s, type, f32_bits(steps[count - 1].l),
                       f32_bits(steps[count - 1].m));
                for (int j = 0; j < n; j++)
                    printf(" %08x", isnan(weights[j]) ? 0x7fc00000u : f32_bits(weights[j]));
                printf("\n");
            }
    }
    return 0;
}
