/* Stage 4's variant dot_bf16 with its instruction executed by shifts and multiply-adds. */
#include <criterion/criterion.h>

#define MODEL
#include "../04_monoid_tiled_cpu/fast/dot_bf16.c"
#include "model_check.h"

Test(dot_bf16, a_multiply_add_takes_both_halves_of_a_pair)
{
    uint32_t a = (uint32_t)float_to_bfloat(3) << 16 | float_to_bfloat(2);
    uint32_t b = (uint32_t)float_to_bfloat(0.5f) << 16 | float_to_bfloat(10);
    cr_expect(dot_pairs(broadcast(&a), broadcast(&b), vset(7))[0] == 7 + 2 * 10 + 1.5f);
}

Test(dot_bf16, attention_on_the_model_passes_every_case)
{
    cr_expect(check_model("dot_model", dot_model_attention, dot_model_workspace) == 0);
}
