// Where data come from: streams, strides, chains of addresses, gather and scatter.
#define AT blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void copy1(const float* a, float* b, int n) { int i = AT; if (i < n) b[i] = a[i]; }
extern "C" __global__ void copy2(const float2* a, float2* b, int n) { int i = AT; if (i < n) b[i] = a[i]; }
extern "C" __global__ void copy4(const float4* a, float4* b, int n) { int i = AT; if (i < n) b[i] = a[i]; }
extern "C" __global__ void copy_bytes(const char* a, char* b, int n) { int i = AT; if (i < n) b[i] = a[i]; }
extern "C" __global__ void write1(float* a, float v, int n) { int i = AT; if (i < n) a[i] = v; }
extern "C" __global__ void triad(const float* a, const float* b, float* c, float s, int n) {
    int i = AT;
    if (i < n) c[i] = a[i] + s * b[i];
}
extern "C" __global__ void triad_f64(const double* a, const double* b, double* c, double s, int n) {
    int i = AT;
    if (i < n) c[i] = a[i] + s * b[i];
}
extern "C" __global__ void saxpy_steps(const float* x, float* y, float s, int n) {
    for (int i = AT; i < n; i += gridDim.x * blockDim.x) y[i] = s * x[i] + y[i];
}
extern "C" __global__ void read_steps(const float* a, float* out, int n) {
    float v = 0;
    int i = AT;
    for (int k = i; k < n; k += gridDim.x * blockDim.x) v += a[k];
    if (v == 12345.f) out[i] = v;
}
extern "C" __global__ void read_steps4(const float4* a, float* out, int n) {
    float v = 0;
    int i = AT;
    for (int k = i; k < n; k += gridDim.x * blockDim.x) { float4 q = a[k]; v += q.x + q.y + q.z + q.w; }
    if (v == 12345.f) out[i] = v;
}
extern "C" __global__ void read_strided(const float* a, float* b, int n, int stride) {
    int i = AT;
    if (i < n) b[i] = a[(long long)i * stride];
}
extern "C" __global__ void write_strided(const float* a, float* b, int n, int stride) {
    int i = AT;
    if (i < n) b[(long long)i * stride] = a[i];
}
extern "C" __global__ void offset_copy(const float* a, float* b, int n, int offset) {
    int i = AT;
    if (i < n) b[i] = a[i + offset];
}
extern "C" __global__ void gather(const float* a, const int* index, float* b, int n) {
    int i = AT;
    if (i < n) b[i] = a[index[i]];
}
extern "C" __global__ void scatter(const float* a, const int* index, float* b, int n) {
    int i = AT;
    if (i < n) b[index[i]] = a[i];
}
extern "C" __global__ void chase(const int* next, int* out, int steps) {
    int p = (AT) * 0;
    for (int k = 0; k < steps; k++) p = next[p];
    out[AT] = p;
}
extern "C" __global__ void chase_many(const int* next, int* out, int steps, int n) {
    int p = ((AT) * 2654435761u) & (n - 1);
    for (int k = 0; k < steps; k++) p = next[p];
    out[AT] = p;
}
extern "C" __global__ void structs_aos(const float* a, float* b, int n) {
    int i = AT;
    if (i < n) b[i] = a[4 * i] + a[4 * i + 1] * a[4 * i + 2] - a[4 * i + 3];
}
extern "C" __global__ void structs_soa(const float* a, float* b, int n) {
    int i = AT;
    if (i < n) b[i] = a[i] + a[n + i] * a[2 * n + i] - a[3 * n + i];
}
extern "C" __global__ void sum_columns(const float* a, float* s, int rows, int columns) {
    int c = AT;
    if (c >= columns) return;
    float v = 0;
    for (int r = 0; r < rows; r++) v += a[r * columns + c];
    s[c] = v;
}
extern "C" __global__ void sum_rows(const float* a, float* s, int rows, int columns) {
    int r = AT;
    if (r >= rows) return;
    float v = 0;
    for (int c = 0; c < columns; c++) v += a[r * columns + c];
    s[r] = v;
}
extern "C" __global__ void rgb_to_gray(const uchar4* a, unsigned char* b, int n) {
    int i = AT;
    if (i < n) { uchar4 p = a[i]; b[i] = (unsigned char)(0.299f * p.x + 0.587f * p.y + 0.114f * p.z); }
}
