// Sums, scans and dot products in several styles.
#define AT blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void sum_interleaved(const float* x, float* o, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = AT;
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) { if (t % (2 * k) == 0) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) o[blockIdx.x] = s[0];
}
extern "C" __global__ void sum_conflicts(const float* x, float* o, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = AT;
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int k = 1; k < 256; k *= 2) { int j = 2 * k * t; if (j < 256) s[j] += s[j + k]; __syncthreads(); }
    if (t == 0) o[blockIdx.x] = s[0];
}
extern "C" __global__ void sum_tree(const float* x, float* o, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = AT;
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    if (t == 0) o[blockIdx.x] = s[0];
}
extern "C" __global__ void sum_shuffles(const float* x, float* o, int n) {
    __shared__ float s[32];
    float v = 0;
    for (int i = AT; i < n; i += gridDim.x * blockDim.x) v += x[i];
    for (int k = 16; k; k /= 2) v += __shfl_down_sync(~0u, v, k);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? s[threadIdx.x] : 0.f;
        for (int k = 16; k; k /= 2) v += __shfl_down_sync(~0u, v, k);
        if (threadIdx.x == 0) atomicAdd(o, v);
    }
}
extern "C" __global__ void dot(const float* x, const float* y, float* o, int n) {
    __shared__ float s[256];
    float v = 0;
    for (int i = AT; i < n; i += gridDim.x * blockDim.x) v += x[i] * y[i];
    s[threadIdx.x] = v;
    __syncthreads();
    for (int k = 128; k > 0; k /= 2) { if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k]; __syncthreads(); }
    if (threadIdx.x == 0) atomicAdd(o, s[0]);
}
extern "C" __global__ void scan_steps(const float* x, float* y) {
    __shared__ float s[2][512];
    int t = threadIdx.x, p = 0;
    s[0][t] = x[AT];
    __syncthreads();
    for (int k = 1; k < 512; k *= 2) {
        s[1 - p][t] = s[p][t] + (t >= k ? s[p][t - k] : 0.f);
        p = 1 - p;
        __syncthreads();
    }
    y[AT] = s[p][t];
}
extern "C" __global__ void scan_tree(const float* x, float* y) {
    __shared__ float s[1024];
    int t = threadIdx.x;
    const float* a = x + blockIdx.x * 1024;
    s[2 * t] = a[2 * t];
    s[2 * t + 1] = a[2 * t + 1];
    int offset = 1;
    for (int d = 512; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) s[1023] = 0;
    for (int d = 1; d < 1024; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            float v = s[offset * (2 * t + 1) - 1];
            s[offset * (2 * t + 1) - 1] = s[offset * (2 * t + 2) - 1];
            s[offset * (2 * t + 2) - 1] += v;
        }
    }
    __syncthreads();
    y[blockIdx.x * 1024 + 2 * t] = s[2 * t];
    y[blockIdx.x * 1024 + 2 * t + 1] = s[2 * t + 1];
}
extern "C" __global__ void scan_warps(const float* x, float* y) {
    __shared__ float s[32];
    int t = threadIdx.x;
    float v = x[AT];
    for (int k = 1; k < 32; k *= 2) { float u = __shfl_up_sync(~0u, v, k); if (t % 32 >= k) v += u; }
    if (t % 32 == 31) s[t / 32] = v;
    __syncthreads();
    float before = 0;
    for (int w = 0; w < t / 32; w++) before += s[w];
    y[AT] = v + before;
}
