/* place_gpu_none.c: a judge built without GPU code has no place on a GPU. */
#include "place.h"

const struct place_kind *on_gpu(void) { return NULL; }
