/* gpu.h: the GPU as the harness sees it.  gpu.cu implements it with CUDA; gpu_none.c
 * stands in where there is no nvcc. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

int gpu_arch(void);                 /* compute capability x 10 (90 on Hopper), 0: no GPU */
const char *gpu_name(void);         /* "NVIDIA H200" or "" */
const char *gpu_why_not(void);      /* why gpu_arch() is 0: "built without nvcc", the driver's
                                     * error, "--device cpu" */
void gpu_forbid(void);              /* --device cpu */
/* NULL when this program holds code that this GPU can run and that was compiled for sm_least
 * or newer, else what was compiled instead. */
const char *gpu_has_code_for(int least);
void *gpu_alloc(size_t bytes);      /* NULL when the GPU's memory is short */
void gpu_free(void *d);
size_t gpu_memory_free(void);       /* bytes */
void gpu_upload(void *d, const void *h, size_t bytes);
void gpu_download(void *h, const void *d, size_t bytes);
void gpu_wait(void);                /* synchronise; any error: message, exit 1 */
/* Seconds that call(context) takes on the GPU, by events; if cold, the L2 cache is flushed
 * before (outside the timed region). */
double gpu_time(void (*call)(void *), void *context, int cold);
double gpu_copy_gbps(void);         /* read + written GB/s of a large device copy, cached */
double gpu_read_gbps(void);         /* read-only GB/s, cached */
double gpu_gemm_gflops(int dtype);  /* cuBLAS GEMM 8192^3 (enum dtype), cached per dtype;
                                     * 0 where cuBLAS is missing */
#ifdef __cplusplus
}
#endif
