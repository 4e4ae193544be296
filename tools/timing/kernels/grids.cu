// Stencils, convolutions, cells.
#define X (blockIdx.x * blockDim.x + threadIdx.x)
#define Y (blockIdx.y * blockDim.y + threadIdx.y)
__constant__ float weights[25] = {1, 4, 6, 4, 1, 4, 16, 24, 16, 4, 6, 24, 36, 24, 6, 4, 16, 24, 16, 4, 1, 4, 6, 4, 1};
extern "C" __global__ void line7(const float* a, float* b, int n) {
    int i = X;
    if (i < 3 || i >= n - 3) return;
    float s = 0;
    for (int k = -3; k <= 3; k++) s += a[i + k];
    b[i] = s / 7.0f;
}
extern "C" __global__ void line7_shared(const float* a, float* b, int n) {
    __shared__ float s[256 + 6];
    int i = X, t = threadIdx.x + 3;
    s[t] = i < n ? a[i] : 0.f;
    if (threadIdx.x < 3) { s[t - 3] = i >= 3 ? a[i - 3] : 0.f; s[t + 256] = i + 256 < n ? a[i + 256] : 0.f; }
    __syncthreads();
    float v = 0;
    for (int k = -3; k <= 3; k++) v += s[t + k];
    if (i < n) b[i] = v * 0.142857f;
}
extern "C" __global__ void heat(const float* a, float* b, int w, int h) {
    int x = X, y = Y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    int i = y * w + x;
    b[i] = a[i] + 0.2f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w] - 4.0f * a[i]);
}
extern "C" __global__ void heat_shared(const float* a, float* b, int w, int h) {
    __shared__ float s[18][34];
    int x = X, y = Y, tx = threadIdx.x + 1, ty = threadIdx.y + 1, i = y * w + x;
    s[ty][tx] = a[i];
    if (tx == 1 && x > 0) s[ty][0] = a[i - 1];
    if (tx == 32 && x < w - 1) s[ty][33] = a[i + 1];
    if (ty == 1 && y > 0) s[0][tx] = a[i - w];
    if (ty == 16 && y < h - 1) s[17][tx] = a[i + w];
    __syncthreads();
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    b[i] = s[ty][tx] + 0.2f * (s[ty][tx - 1] + s[ty][tx + 1] + s[ty - 1][tx] + s[ty + 1][tx] - 4.0f * s[ty][tx]);
}
extern "C" __global__ void cube7(const float* a, float* b, int n) {
    int x = X, y = Y, z = blockIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    int i = (z * n + y) * n + x;
    b[i] = a[i - 1] + a[i + 1] + a[i - n] + a[i + n] + a[i - n * n] + a[i + n * n] - 6.0f * a[i];
}
extern "C" __global__ void convolve5(const float* a, float* b, int w, int h) {
    int x = X, y = Y;
    if (x < 2 || y < 2 || x >= w - 2 || y >= h - 2) return;
    float s = 0;
    for (int j = 0; j < 5; j++)
        for (int i = 0; i < 5; i++) s += weights[j * 5 + i] * a[(y + j - 2) * w + x + i - 2];
    b[y * w + x] = s;
}
extern "C" __global__ void sobel(const float* a, float* b, int w, int h) {
    int x = X, y = Y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    const float* p = a + y * w + x;
    float gx = p[-w + 1] - p[-w - 1] + 2 * (p[1] - p[-1]) + p[w + 1] - p[w - 1];
    float gy = p[w - 1] - p[-w - 1] + 2 * (p[w] - p[-w]) + p[w + 1] - p[-w + 1];
    b[y * w + x] = sqrtf(gx * gx + gy * gy);
}
extern "C" __global__ void life(const unsigned char* a, unsigned char* b, int w, int h) {
    int x = X, y = Y;
    if (x >= w || y >= h) return;
    int n = 0;
    for (int j = -1; j <= 1; j++)
        for (int i = -1; i <= 1; i++)
            if (i || j) n += a[((y + j + h) % h) * w + (x + i + w) % w];
    b[y * w + x] = n == 3 || (n == 2 && a[y * w + x]);
}
extern "C" __global__ void mandelbrot(int* o, int w, int h, int limit) {
    int x = X, y = Y;
    if (x >= w || y >= h) return;
    float cx = -2.f + 3.f * x / w, cy = -1.5f + 3.f * y / h, a = 0, b = 0;
    int i = 0;
    while (i < limit && a * a + b * b < 4.f) { float t = a * a - b * b + cx; b = 2 * a * b + cy; a = t; i++; }
    o[y * w + x] = i;
}
extern "C" __global__ void julia(float* o, int w, int h, int limit) {
    int x = X, y = Y;
    float a = 3.f * x / w - 1.5f, b = 3.f * y / h - 1.5f;
    int i = 0;
    for (; i < limit; i++) { float t = a * a - b * b - 0.8f; b = 2 * a * b + 0.156f; a = t; if (a * a + b * b > 16.f) break; }
    o[y * w + x] = (float)i / limit;
}
