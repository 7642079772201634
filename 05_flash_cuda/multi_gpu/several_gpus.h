/* several_gpus.h: what stage.cu knows of this folder.  One of two files defines it:
 * one_process.c, or none.c in a program built without NCCL. */
#ifndef SEVERAL_GPUS_H
#define SEVERAL_GPUS_H

#include "program/options.h"
#include "harness.h"

#ifdef __cplusplus
extern "C" {
#endif

/* check, bench or run (a bit of program/parse.h) with --gpus; the exit status. */
int several_gpus(const struct stage *stage, unsigned verb, const struct options *opt);

#ifdef __cplusplus
}
#endif
#endif
