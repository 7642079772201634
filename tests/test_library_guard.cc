/* test_library_guard.cc: a CUDA error in a launcher becomes a code and a message; the process
 * goes on and nothing is printed. */
#include <criterion/criterion.h>
#include <string.h>

#include "harness.h"

#include "gpu/cuda_check.h"
#include "library/backend.h"
extern "C" {
#include "library/request.h"
}

static int went_on;

static size_t failing_workspace(const struct problem *)
{
    CUDA_CHECK(cudaErrorInvalidConfiguration);
    return went_on = 1;
}

static int lay_out(void *request) { return request_layout((struct request *)request); }

/* From inside of a variant, through the library's own C functions. */
Test(library_guard, a_cuda_error_is_returned)
{
    struct five_steps_error error = {};
    struct variant v = {};
    struct request r = {};
    v.name = "failing";
    v.workspace = failing_workspace;
    r.v = &v;
    cr_assert(backend_guard(lay_out, &r, &error) == FIVE_STEPS_CUDA && !went_on);
    cr_assert(error.code == FIVE_STEPS_CUDA);
    cr_assert(strstr(error.message, "not allowed") &&
              strstr(error.message, "test_library_guard.cc:"), "%s", error.message);
    cr_assert(backend_guard(lay_out, &r, NULL) == FIVE_STEPS_CUDA, "without an error");
    cr_assert(cudaGetLastError() == cudaSuccess);
}

static size_t a_kilobyte(const struct problem *) { return 1024; }

static const void *seen;
static void look(const struct problem *, const struct arrays *a) { seen = a->workspace; }

/* TMA, vectors and packs of 16 bytes count on it, whatever address the caller has. */
Test(library_guard, the_kernels_part_of_the_workspace_is_aligned)
{
    static char memory[4096];
    struct variant v = {};
    v.workspace = a_kilobyte;
    v.does[0].op = OP_ATTENTION, v.does[0].function = look;
    for (int i = 0; i < 1024; i += 7) {
        struct request r = {};
        r.v = &v;
        r.p.op = OP_ATTENTION;
        r.workspace = memory + i, r.bytes = 2047;
        cr_assert(request_run(&r) == FIVE_STEPS_OK);
        cr_assert((size_t)seen % 1024 == 0 && seen >= memory + i && seen < memory + i + 1024);
    }
}
