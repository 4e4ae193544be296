// What programs compute.
#define AT blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void bodies(const float4* p, float4* out, int n) {
    int i = AT;
    float4 q = p[i];
    float x = 0, y = 0, z = 0;
    for (int k = 0; k < n; k++) {
        float4 o = p[k];
        float dx = o.x - q.x, dy = o.y - q.y, dz = o.z - q.z;
        float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
        float f = o.w * r * r * r;
        x += f * dx; y += f * dy; z += f * dz;
    }
    out[i] = make_float4(x, y, z, 0);
}
extern "C" __global__ void bodies_tiled(const float4* p, float4* out, int n) {
    __shared__ float4 s[256];
    int i = AT;
    float4 q = p[i];
    float x = 0, y = 0, z = 0;
    for (int m = 0; m < n; m += 256) {
        s[threadIdx.x] = p[m + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < 256; k++) {
            float4 o = s[k];
            float dx = o.x - q.x, dy = o.y - q.y, dz = o.z - q.z;
            float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float f = o.w * r * r * r;
            x += f * dx; y += f * dy; z += f * dz;
        }
        __syncthreads();
    }
    out[i] = make_float4(x, y, z, 0);
}
extern "C" __global__ void pi_lcg(int* hits, int n) {
    unsigned s = (AT) * 747796405u + 2891336453u;
    int in = 0;
    for (int k = 0; k < n; k++) {
        s = s * 1664525u + 1013904223u;
        float x = (s >> 8) * (1.0f / 16777216.0f);
        s = s * 1664525u + 1013904223u;
        float y = (s >> 8) * (1.0f / 16777216.0f);
        in += x * x + y * y < 1.0f;
    }
    hits[AT] = in;
}
extern "C" __global__ void normals(float* out, int n) {
    unsigned s = (AT) + 1u;
    float sum = 0;
    for (int k = 0; k < n; k++) {
        s ^= s << 13; s ^= s >> 17; s ^= s << 5;
        float u = (s >> 8) * (1.0f / 16777216.0f) + 1e-7f;
        s ^= s << 13; s ^= s >> 17; s ^= s << 5;
        float v = (s >> 8) * (1.0f / 16777216.0f);
        sum += sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
    }
    out[AT] = sum;
}
extern "C" __global__ void black_scholes(const float* S, const float* K, float* call, float* put, int n) {
    int i = AT;
    if (i >= n) return;
    float s = S[i], k = K[i], t = 1.0f, r = 0.05f, v = 0.2f, q = sqrtf(t);
    float d1 = (logf(s / k) + (r + 0.5f * v * v) * t) / (v * q), d2 = d1 - v * q;
    float n1 = 0.5f * erfcf(-d1 * 0.70710678f), n2 = 0.5f * erfcf(-d2 * 0.70710678f), e = expf(-r * t);
    call[i] = s * n1 - k * e * n2;
    put[i] = k * e * (1.0f - n2) - s * (1.0f - n1);
}
extern "C" __global__ void spmv_rows(const int* start, const int* column, const float* value, const float* x, float* y, int n) {
    int r = AT;
    if (r >= n) return;
    float s = 0;
    for (int k = start[r]; k < start[r + 1]; k++) s += value[k] * x[column[k]];
    y[r] = s;
}
extern "C" __global__ void spmv_warps(const int* start, const int* column, const float* value, const float* x, float* y, int n) {
    int r = (AT) / 32, lane = threadIdx.x % 32;
    if (r >= n) return;
    float s = 0;
    for (int k = start[r] + lane; k < start[r + 1]; k += 32) s += value[k] * x[column[k]];
    for (int k = 16; k; k /= 2) s += __shfl_down_sync(~0u, s, k);
    if (lane == 0) y[r] = s;
}
extern "C" __global__ void softmax_block(const float* a, float* b, int columns) {
    __shared__ float s[256];
    const float* row = a + blockIdx.x * columns;
    int t = threadIdx.x;
    float m = -1e30f;
    for (int k = t; k < columns; k += 256) m = fmaxf(m, row[k]);
    s[t] = m;
    __syncthreads();
    for (int k = 128; k; k /= 2) { if (t < k) s[t] = fmaxf(s[t], s[t + k]); __syncthreads(); }
    m = s[0];
    __syncthreads();
    float sum = 0;
    for (int k = t; k < columns; k += 256) sum += __expf(row[k] - m);
    s[t] = sum;
    __syncthreads();
    for (int k = 128; k; k /= 2) { if (t < k) s[t] += s[t + k]; __syncthreads(); }
    sum = s[0];
    for (int k = t; k < columns; k += 256) b[blockIdx.x * columns + k] = __expf(row[k] - m) / sum;
}
extern "C" __global__ void softmax_warp(const float* a, float* b, int columns, int rows) {
    int r = (AT) / 32, lane = threadIdx.x % 32;
    if (r >= rows) return;
    const float* row = a + r * columns;
    float m = -1e30f, sum = 0;
    for (int k = lane; k < columns; k += 32) m = fmaxf(m, row[k]);
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    for (int k = lane; k < columns; k += 32) sum += expf(row[k] - m);
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    for (int k = lane; k < columns; k += 32) b[r * columns + k] = expf(row[k] - m) / sum;
}
extern "C" __global__ void layernorm(const float* a, float* b, int columns) {
    __shared__ float s[2][8];
    const float* row = a + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (int k = threadIdx.x; k < columns; k += 256) { float v = row[k]; sum += v; squares += v * v; }
    for (int k = 16; k; k /= 2) { sum += __shfl_xor_sync(~0u, sum, k); squares += __shfl_xor_sync(~0u, squares, k); }
    if (threadIdx.x % 32 == 0) { s[0][threadIdx.x / 32] = sum; s[1][threadIdx.x / 32] = squares; }
    __syncthreads();
    sum = squares = 0;
    for (int k = 0; k < 8; k++) { sum += s[0][k]; squares += s[1][k]; }
    float mean = sum / columns, scale = rsqrtf(squares / columns - mean * mean + 1e-5f);
    for (int k = threadIdx.x; k < columns; k += 256) b[blockIdx.x * columns + k] = (row[k] - mean) * scale;
}
extern "C" __global__ void gelu(const float* a, float* b, int n) {
    int i = AT;
    if (i < n) { float x = a[i]; b[i] = 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x))); }
}
extern "C" __global__ void binary_search(const int* sorted, const int* keys, int* out, int n) {
    int i = AT, low = 0, high = n, key = keys[i];
    while (low < high) { int mid = (low + high) / 2; if (sorted[mid] < key) low = mid + 1; else high = mid; }
    out[i] = low;
}
extern "C" __global__ void fft_shared(const float2* a, float2* b) {
    __shared__ float2 s[512];
    int t = threadIdx.x;
    const float2* in = a + blockIdx.x * 512;
    s[__brev(t) >> 23] = in[t];
    s[__brev(t + 256) >> 23] = in[t + 256];
    for (int half = 1; half < 512; half *= 2) {
        __syncthreads();
        int k = t % half, i = (t / half) * 2 * half + k, j = i + half;
        float sn, cs;
        __sincosf(-3.14159265f * k / half, &sn, &cs);
        float2 u = s[i], v = s[j];
        float2 w = make_float2(v.x * cs - v.y * sn, v.x * sn + v.y * cs);
        s[i] = make_float2(u.x + w.x, u.y + w.y);
        s[j] = make_float2(u.x - w.x, u.y - w.y);
    }
    __syncthreads();
    b[blockIdx.x * 512 + t] = s[t];
    b[blockIdx.x * 512 + t + 256] = s[t + 256];
}
extern "C" __global__ void fnv_hash(const unsigned char* text, unsigned* out, int length) {
    const unsigned char* p = text + (AT) * length;
    unsigned h = 2166136261u;
    for (int k = 0; k < length; k++) h = (h ^ p[k]) * 16777619u;
    out[AT] = h;
}
extern "C" __global__ void horner(const float* x, float* y, int n, int degree) {
    int i = AT;
    if (i >= n) return;
    float v = 0, u = x[i];
    for (int k = 0; k < degree; k++) v = v * u + (float)(k + 1);
    y[i] = v;
}
extern "C" __global__ void pairwise(const float* a, float* d, int n, int dims) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
    for (int k = 0; k < dims; k++) { float e = a[i * dims + k] - a[j * dims + k]; s += e * e; }
    d[i * n + j] = sqrtf(s);
}
extern "C" __global__ void primes(int* out, int n) {
    int v = (AT) + 3, is = 1;
    for (int k = 2; k * k <= v && k < n; k++) if (v % k == 0) { is = 0; break; }
    out[AT] = is;
}
extern "C" __global__ void attention(const float* q, const float* k, const float* v, float* o, int n) {
    int i = AT;
    float acc[16], query[16], m = -1e30f, sum = 0;
    for (int d = 0; d < 16; d++) { acc[d] = 0; query[d] = q[i * 16 + d]; }
    for (int j = 0; j < n; j++) {
        float s = 0;
        for (int d = 0; d < 16; d++) s += query[d] * k[j * 16 + d];
        float next = fmaxf(m, s), scale = __expf(m - next), p = __expf(s - next);
        sum = sum * scale + p;
        for (int d = 0; d < 16; d++) acc[d] = acc[d] * scale + p * v[j * 16 + d];
        m = next;
    }
    for (int d = 0; d < 16; d++) o[i * 16 + d] = acc[d] / sum;
}
