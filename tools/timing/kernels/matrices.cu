// Products and transposes.
#define X (blockIdx.x * blockDim.x + threadIdx.x)
#define Y (blockIdx.y * blockDim.y + threadIdx.y)
extern "C" __global__ void product_naive(const float* A, const float* B, float* C, int N) {
    float s = 0;
    for (int k = 0; k < N; k++) s += A[Y * N + k] * B[k * N + X];
    C[Y * N + X] = s;
}
extern "C" __global__ void product_swapped(const float* A, const float* B, float* C, int N) {
    float s = 0;
    for (int k = 0; k < N; k++) s += A[X * N + k] * B[k * N + Y];
    C[X * N + Y] = s;
}
template <int T> __device__ void tiled(const float* A, const float* B, float* C, int N) {
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
extern "C" __global__ void product_tiled16(const float* A, const float* B, float* C, int N) { tiled<16>(A, B, C, N); }
extern "C" __global__ void product_tiled32(const float* A, const float* B, float* C, int N) { tiled<32>(A, B, C, N); }
extern "C" __global__ void product_registers(const float* A, const float* B, float* C, int N) {
    __shared__ float a[16][65], b[16][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16, r = blockIdx.y * 64, c = blockIdx.x * 64;
    float s[4][4] = {};
    for (int m = 0; m < N; m += 16) {
        for (int q = 0; q < 4; q++) {
            int e = t + 256 * q;
            a[e % 16][e / 16] = A[(r + e / 16) * N + m + e % 16];
            b[e / 64][e % 64] = B[(m + e / 64) * N + c + e % 64];
        }
        __syncthreads();
        for (int k = 0; k < 16; k++) {
            float u[4], v[4];
            for (int q = 0; q < 4; q++) { u[q] = a[k][ty * 4 + q]; v[q] = b[k][tx + 16 * q]; }
            for (int p = 0; p < 4; p++)
                for (int q = 0; q < 4; q++) s[p][q] += u[p] * v[q];
        }
        __syncthreads();
    }
    for (int p = 0; p < 4; p++)
        for (int q = 0; q < 4; q++) C[(r + ty * 4 + p) * N + c + tx + 16 * q] = s[p][q];
}
extern "C" __global__ void product_f64(const double* A, const double* B, double* C, int N) {
    double s = 0;
    for (int k = 0; k < N; k++) s += A[Y * N + k] * B[k * N + X];
    C[Y * N + X] = s;
}
extern "C" __global__ void vector_rows(const float* A, const float* x, float* y, int N) {
    int w = X / 32, lane = threadIdx.x % 32;
    float s = 0;
    for (int k = lane; k < N; k += 32) s += A[w * N + k] * x[k];
    for (int k = 16; k; k /= 2) s += __shfl_down_sync(~0u, s, k);
    if (lane == 0) y[w] = s;
}
extern "C" __global__ void vector_naive(const float* A, const float* x, float* y, int N) {
    float s = 0;
    for (int k = 0; k < N; k++) s += A[X * N + k] * x[k];
    y[X] = s;
}
extern "C" __global__ void transpose_reads(const float* a, float* b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = a[x * n + y + j];
}
extern "C" __global__ void transpose_writes(const float* a, float* b, int n) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[x * n + y + j] = a[(y + j) * n + x];
}
template <int W> __device__ void transpose_tile(const float* a, float* b, int n) {
    __shared__ float t[32][W];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) t[threadIdx.y + j][threadIdx.x] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = t[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void transpose_tile32(const float* a, float* b, int n) { transpose_tile<32>(a, b, n); }
extern "C" __global__ void transpose_tile33(const float* a, float* b, int n) { transpose_tile<33>(a, b, n); }
extern "C" __global__ void transpose_16(const float* a, float* b, int n) { b[X * n + Y] = a[Y * n + X]; }
