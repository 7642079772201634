/* backend_none.c: the library without CUDA. */
#include "library/backend.h"

const struct variant *const backend_attention[] = {NULL};
const struct variant *const backend_softmax[] = {NULL};
const size_t n_backend_attention = 0, n_backend_softmax = 0;

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

void backend_no_keys(const struct problem *p, const struct arrays *a) { (void)p, (void)a; }

void backend_clear(void *array, size_t bytes, void *stream)
{
    (void)array, (void)bytes, (void)stream;
}

void backend_merge(enum dtype type, const struct five_steps_merge_problem *p)
{
    (void)type, (void)p;
}

void backend_widen(const struct problem *p, const struct arrays *a, enum array i, void *to, enum dtype type)
{
    (void)p, (void)a, (void)i, (void)to, (void)type;
}

void backend_quantise(enum dtype type, const struct five_steps_quantise_problem *p)
{
    (void)type, (void)p;
}

const char *backend_built_with(void) { return "no CUDA"; }
