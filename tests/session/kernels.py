"""Kernels that the session's tests run, as a learner would write them."""

VECTOR_ADD = r"""
extern "C" __global__
void vector_add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}
"""

NO_TAIL_CHECK = r"""
extern "C" __global__ void double_all(float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = 2.0f * x[i];
}
"""

COLUMN_SUM = r"""
extern "C" __global__ void column(const float* x, float* y, int stride) {
    __shared__ float part[64];
    int i = threadIdx.x;
    part[i] = x[i * stride];
    __syncthreads();
    if (i % 2) y[i] = part[i - 1]; else y[i] = part[i];
}
"""

COUNT_UP = r"""
extern "C" __global__ void count_up(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
"""

FOREVER = r"""
extern "C" __global__ void forever(volatile int* x) { while (x[0] == 0) {} }
"""

STAGES = r"""
extern "C" __global__ void stages(const float* x, float* y, int n) {
    __shared__ float tile[2][64];
    float sum = 0;
    tile[0][threadIdx.x] = x[threadIdx.x];
    for (int t = 0; t < n / 64; ++t) {
        __syncthreads();
        if (t + 1 < n / 64) tile[(t + 1) % 2][threadIdx.x] = x[64 * (t + 1) + threadIdx.x];
        sum += tile[t % 2][63 - threadIdx.x];
    }
    y[threadIdx.x] = sum;
}"""
