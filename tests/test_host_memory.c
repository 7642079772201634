/* test_host_memory.c: the peak that `bench` reports counts the arrays, whatever an earlier
 * problem has left behind. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "problem/host_memory.h"

Test(host_memory, peak_counts_what_was_in_use_at_once)
{
    for (size_t n = 100; n < (size_t)64 << 20; n *= 8) {
        char *first = memory_new(n);
        memory_peak_reset();
        size_t before = memory_peak();
        char *second = memory_new(2 * n);
        cr_assert(first && second && (uintptr_t)first % 1024 == 0);
        first[n - 1] = second[2 * n - 1] = 1;
        memory_free(first);
        char *third = memory_new(n / 2); /* fits into what first has left */
        cr_expect(memory_peak() - before == 2 * n, "%zu for %zu", memory_peak() - before, n);
        memory_free(second), memory_free(third);
        cr_expect(memory_peak() - before == 2 * n);
        memory_peak_reset();
        cr_expect(before - memory_peak() == n, "%zu left of %zu", memory_peak(), before);
    }
    memory_free(NULL);
}
