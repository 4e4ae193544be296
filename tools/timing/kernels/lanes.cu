// Divergence, imbalance, occupancy, bank conflicts, local memory.
#define AT blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void ways(float* x, int n, int m) {
    int i = AT, way = threadIdx.x % m;
    float v = x[i];
    for (int w = 0; w < m; w++)
        if (way == w) for (int k = 0; k < n; k++) v = v * 1.000001f + (float)w;
    x[i] = v;
}
extern "C" __global__ void stairs(float* x, int n) {
    int i = AT;
    float v = x[i];
    for (int k = 0; k < n * (int)(threadIdx.x % 32); k++) v = v * 1.000001f + 0.5f;
    x[i] = v;
}
extern "C" __global__ void uneven_blocks(float* x, int n) {
    int i = AT;
    float v = x[i];
    int steps = (blockIdx.x * 7919) % 97 * n;
    for (int k = 0; k < steps; k++) v = v * 1.000001f + 0.5f;
    x[i] = v;
}
extern "C" __global__ void late_block(float* x, int n) {
    int i = AT;
    float v = x[i];
    int steps = blockIdx.x == gridDim.x - 1 ? 20 * n : n;
    for (int k = 0; k < steps; k++) v = v * 1.000001f + 0.5f;
    x[i] = v;
}
extern "C" __global__ void work(float* x, int n) {
    extern __shared__ float s[];
    int i = AT;
    float v = x[i];
    s[threadIdx.x] = v;
    for (int k = 0; k < n; k++) v = v * 1.000001f + 0.5f;
    x[i] = v + s[threadIdx.x ^ 1];
}
extern "C" __global__ void stream_shared(const float* a, float* b, int n) {
    extern __shared__ float s[];
    int i = AT;
    s[threadIdx.x] = a[i];
    __syncthreads();
    b[i] = s[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void banks(float* x, int n, int stride) {
    __shared__ float s[4096];
    int t = threadIdx.x;
    for (int k = t; k < 4096; k += blockDim.x) s[k] = (float)k;
    __syncthreads();
    float v = 0;
    int at = t * stride;
    for (int k = 0; k < n; k++) v += s[(at + k) & 4095];
    x[AT] = v;
}
extern "C" __global__ void local_array(const int* index, float* x, int n) {
    float a[32];
    int i = AT;
    for (int k = 0; k < 32; k++) a[k] = (float)(k * i);
    for (int k = 0; k < n; k++) a[(index[k] + i) & 31] += 1.0f;
    float v = 0;
    for (int k = 0; k < 32; k++) v += a[k];
    x[i] = v;
}
extern "C" __global__ void bitonic(int* x) {
    __shared__ int s[1024];
    int t = threadIdx.x;
    s[t] = x[AT];
    for (int k = 2; k <= 1024; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            int o = t ^ j;
            if (o > t) {
                int a = s[t], b = s[o];
                if ((a > b) == ((t & k) == 0)) { s[t] = b; s[o] = a; }
            }
        }
    __syncthreads();
    x[AT] = s[t];
}
extern "C" __global__ void collatz(int* out, int n) {
    unsigned long long v = (AT) + 1;
    int steps = 0;
    while (v != 1 && steps < n) { v = v & 1 ? 3 * v + 1 : v / 2; steps++; }
    out[AT] = steps;
}
extern "C" __global__ void gcd(const int* a, const int* b, int* out) {
    int x = a[AT], y = b[AT];
    while (y) { int r = x % y; x = y; y = r; }
    out[AT] = x;
}
extern "C" __global__ void odd_even(const float* a, float* b, int n) {
    int i = AT;
    float v = a[i];
    for (int k = 0; k < n; k++) v = (i & 1) ? sinf(v) : sqrtf(v + 1.0f);
    b[i] = v;
}
