// Kernels timed on an H200; h200_times.tsv holds the times.
#define T 16
extern "C" __global__ void empty() {}

extern "C" __global__ void vadd(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void strided(const float* a, float* c, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[(long long)i * stride];
}

extern "C" __global__ void alu(float* x, int k) {
    float v = x[threadIdx.x];
    for (int i = 0; i < k; i++) v = v * 1.000001f + 0.5f;
    x[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

extern "C" __global__ void alu4(float* x, int k) {
    float a = x[threadIdx.x], b = a + 1, c = a + 2, d = a + 3;
    for (int i = 0; i < k; i++) {
        a = a * 1.000001f + 0.5f;
        b = b * 1.000001f + 0.5f;
        c = c * 1.000001f + 0.5f;
        d = d * 1.000001f + 0.5f;
    }
    x[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

extern "C" __global__ void matmul(const float* A, const float* B, float* C, int N) {
    int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
    for (int k = 0; k < N; k++) s += A[r * N + k] * B[k * N + c];
    C[r * N + c] = s;
}

extern "C" __global__ void matmul_tiled(const float* A, const float* B, float* C, int N) {
    __shared__ float a[T][T], b[T][T];
    int tx = threadIdx.x, ty = threadIdx.y, r = blockIdx.y * T + ty, c = blockIdx.x * T + tx;
    float s = 0;
    for (int m = 0; m < N / T; m++) {
        a[ty][tx] = A[r * N + m * T + tx];
        b[ty][tx] = B[(m * T + ty) * N + c];
        __syncthreads();
        for (int k = 0; k < T; k++) s += a[ty][k] * b[k][tx];
        __syncthreads();
    }
    C[r * N + c] = s;
}

extern "C" __global__ void copy(const float* a, float* b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = a[(y + j) * n + x];
}

extern "C" __global__ void transpose(const float* a, float* b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[x * n + y + j] = a[(y + j) * n + x];
}

extern "C" __global__ void transpose_conflict(const float* a, float* b, int n) {
    __shared__ float t[32][32];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = t[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void transpose_padded(const float* a, float* b, int n) {
    __shared__ float t[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = t[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void reduce(const float* x, float* o, int n) {
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = i < n ? x[i] : 0.f;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) atomicAdd(o, s[0]);
}

extern "C" __global__ void mandelbrot(int* o, int w, int h, int m) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    float cx = -2.f + 3.f * x / w, cy = -1.5f + 3.f * y / h, a = 0, b = 0;
    int i = 0;
    while (i < m && a * a + b * b < 4.f) {
        float t = a * a - b * b + cx;
        b = 2 * a * b + cy;
        a = t;
        i++;
    }
    o[y * w + x] = i;
}

extern "C" __global__ void atomics(int* h, int m) {
    atomicAdd(&h[(blockIdx.x * blockDim.x + threadIdx.x) % m], 1);
}
