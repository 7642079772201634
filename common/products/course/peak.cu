/* peak.cu: multiply-adds that read one operand from shared memory, without conflicts: what one warp for each query
 * and one lane for each key can do at most.  256 threads a block; for each thread 16 of them a round. */
struct arguments { float *y; int rounds; };

extern "C" __global__ void ceiling(struct arguments c)
{
    __shared__ float x[32 * 16 + 256];
    for (int i = threadIdx.x; i < 32 * 16 + 256; i += 256) x[i] = (float)i;
    __syncthreads();
    float sum[16] = {}, a = c.y[blockIdx.x * 256 + threadIdx.x];
    for (int r = 0; r < c.rounds; r++)
        for (int i = 0; i < 16; i++) sum[i] = fmaf(a, x[32 * i + (threadIdx.x + r) % 256], sum[i]);
    for (int i = 1; i < 16; i++) sum[0] += sum[i];
    c.y[blockIdx.x * 256 + threadIdx.x] = sum[0];
}
