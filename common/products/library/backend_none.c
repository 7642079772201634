/* backend_none.c: the library without CUDA. */
#include "library/backend.h"

int backend_arch(const char **why)
{
    *why = "this library was built without CUDA";
    return 0;
}

int backend_guard(int (*work)(void *context), void *context, struct five_steps_error *error)
{
    (void)error;
    return work(context);
}

const char *backend_built_with(void) { return "no CUDA"; }
