/* dtype.c: the types of numbers. */
#include "problem/dtype.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include "vector/codes8.h"
#include "problem/host_memory.h"

#define OF(type, number, widen, narrow)                                                          \
    static float load_##type(const void *a, size_t i) { return widen(((const number *)a)[i]); }  \
    static void store_##type(void *a, size_t i, float x) { ((number *)a)[i] = narrow(x); }
OF(f32, float, (float), (float))
OF(f16, uint16_t, half_to_float, float_to_half)
OF(bf16, uint16_t, bfloat_to_float, float_to_bfloat)
OF(e4m3, uint8_t, e4m3_to_float, float_to_e4m3)
OF(int8, int8_t, (float), float_to_int8)

const struct dtype_entry dtypes[N_DTYPES] = {
    [F32] = {.name = "f32", .size = 4, .load = load_f32, .store = store_f32,
             .largest = FLT_MAX, .denormal = 1e-39f, .filling = 0x7fc0dead},
    [F16] = {.name = "f16", .size = 2, .load = load_f16, .store = store_f16,
             .roundoff = 0x1p-11, .least_step = 0x1p-25, .largest = 65504,
             .denormal = 3e-6f, .filling = 0x7ead},
    [BF16] = {.name = "bf16", .size = 2, .load = load_bf16, .store = store_bf16,
              .roundoff = 0x1p-8, .least_step = 0x1p-134, .largest = 0x1.fep127f,
              .denormal = 1e-39f, .filling = 0x7fed},
    [E4M3] = {.name = "e4m3", .size = 1, .load = load_e4m3, .store = store_e4m3,
              .roundoff = 0x1p-4, .least_step = 0x1p-10, .largest = 448,
              .denormal = 5e-3f, .filling = 0x7f},
    [INT8] = {.name = "int8", .size = 1, .load = load_int8, .store = store_int8,
              .roundoff = 0x1p-8, .least_step = 0.5, .largest = 127, .denormal = 1,
              .filling = 0x7f},
};

int dtype_find(const char *name, enum dtype *dtype)
{
    for (int t = 0; t < N_DTYPES; t++)
        if (!strcmp(name, dtypes[t].name)) {
            *dtype = (enum dtype)t;
            return 1;
        }
    return 0;
}

const char *problem_types(const struct problem *p)
{
    static char text[24];
    int two = p->cache && p->cache != p->dtype;
    snprintf(text, sizeof text, "%s%s%s", dtype_name(p->dtype), two ? "/" : "",
             two ? dtype_name(p->cache) : "");
    return text;
}

void dtype_names(unsigned types, char *text, size_t size)
{
    size_t n = 0;
    *text = 0;
    for (int t = 0; t < N_DTYPES && n < size; t++)
        if (types & TYPE(t))
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "," : "", dtypes[t].name);
}

float dtype_round(enum dtype dtype, float x)
{
    float stored = 0; /* room for any type */
    dtypes[dtype].store(&stored, 0, x);
    return dtypes[dtype].load(&stored, 0);
}

uint32_t dtype_bits(enum dtype dtype, const void *array, size_t i)
{
    if (dtypes[dtype].size == sizeof(float)) return ((const uint32_t *)array)[i];
    if (dtypes[dtype].size == 1) return ((const uint8_t *)array)[i];
    return ((const uint16_t *)array)[i];
}

void dtype_set_bits(enum dtype dtype, void *array, size_t i, uint32_t bits)
{
    if (dtypes[dtype].size == sizeof(float)) ((uint32_t *)array)[i] = bits;
    else if (dtypes[dtype].size == 1) ((uint8_t *)array)[i] = (uint8_t)bits;
    else ((uint16_t *)array)[i] = (uint16_t)bits;
}

float *widen(const void *x, enum dtype dtype, size_t n)
{
    float *y = xcalloc(n, sizeof *y);
    for (size_t i = 0; i < n; i++) y[i] = dtypes[dtype].load(x, i);
    return y;
}
