// Kernels whose use of L1, L2 and constant memory differs. What they compute is of no interest.
// Indices come from a hash where they are to look random, so that no array of indices takes part.

__device__ __forceinline__ unsigned mixed(unsigned h)
{
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    return h ^ (h >> 16);
}

extern "C" __global__ void copy_words(const float* a, float* b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}

extern "C" __global__ void copy_quads(const float4* a, float4* b, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i];
}

extern "C" __global__ void add_words(const float* a, const float* b, float* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

// Reads everything once, in a grid-stride loop.
extern "C" __global__ void read_all(const float4* a, float* out, int n)
{
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = a[i];
        sum += v.x + v.y + v.z + v.w;
    }
    if (sum != 0.0f) out[blockIdx.x] = sum;
}

// Reads everything twice in one launch: what the second pass finds depends on L2.
extern "C" __global__ void read_twice(const float4* a, float* out, int n)
{
    float sum = 0.0f;
    for (int pass = 0; pass < 2; pass++)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            float4 v = a[i];
            sum += v.x + v.y + v.z + v.w + pass;
        }
    if (sum == -1.0f) out[blockIdx.x] = sum;
}

// Each block reads its own piece four times: what is read again fits in L1 or does not.
extern "C" __global__ void reread(const float4* a, float* out, int piece)
{
    const float4* own = a + (size_t)blockIdx.x * piece;
    float sum = 0.0f;
    for (int pass = 0; pass < 4; pass++)
        for (int i = threadIdx.x; i < piece; i += blockDim.x) {
            float4 v = own[i];
            sum += v.x + v.y + v.z + v.w + pass;
        }
    if (sum == -1.0f) out[blockIdx.x] = sum;
}

// Every thread reads the whole table, all lanes the same word.
extern "C" __global__ void broadcast(const float* table, float* out, int k)
{
    float sum = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < k; j++) sum = sum * 0.5f + table[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void product_naive(const float* a, const float* b, float* c, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    #pragma unroll 1
    for (int k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

extern "C" __global__ void product_tiled(const float* a, const float* b, float* c, int n)
{
    __shared__ float s[16][16], t[16][16];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 16) {
        s[threadIdx.y][threadIdx.x] = a[y * n + k + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + x];
        __syncthreads();
        for (int j = 0; j < 16; j++) sum += s[threadIdx.y][j] * t[j][threadIdx.x];
        __syncthreads();
    }
    c[y * n + x] = sum;
}

extern "C" __global__ void turn_naive(const float* a, float* b, int n)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[x * n + y + j] = a[(y + j) * n + x];
}

extern "C" __global__ void turn_tiled(const float* a, float* b, int n)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = a[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) b[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void five_points(const float* a, float* b, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= n - 1 || y >= n - 1) return;
    int i = y * n + x;
    b[i] = a[i] + 0.25f * (a[i - 1] + a[i + 1] + a[i - n] + a[i + n]);
}

// A wider cross, through the read-only path.
extern "C" __global__ void cross_points(const float* __restrict__ a, float* b, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 4 || y < 4 || x >= n - 4 || y >= n - 4) return;
    int i = y * n + x;
    float sum = __ldg(a + i);
    for (int d = 1; d <= 4; d++)
        sum += __ldg(a + i - d) + __ldg(a + i + d) + __ldg(a + i - d * n) + __ldg(a + i + d * n);
    b[i] = sum;
}

// Random words of a table whose size is a power of two.
extern "C" __global__ void pick(const float* table, float* out, unsigned words)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = table[mixed(i) & (words - 1)];
}

extern "C" __global__ void pick_four(const float4* __restrict__ table, float* out, unsigned quads)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    #pragma unroll 1
    for (unsigned j = 0; j < 4; j++) sum += __ldg(&table[mixed(4 * i + j) & (quads - 1)].x);
    out[i] = sum;
}

extern "C" __global__ void strided(const float* a, float* b, int stride)
{
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i] = a[i * stride];
}

extern "C" __global__ void strided_stores(const float* a, float* b, int stride)
{
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    b[i * stride] = a[i];
}

// An array of structs, its members one after another.
extern "C" __global__ void members(const float* points, float* out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < count; j++) sum = sum * 0.5f + points[i * count + j];
    out[i] = sum;
}

// A row of a matrix for each warp, and for each thread.
extern "C" __global__ void rows_by_warp(const float* m, const float* v, float* out, int n)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0.0f;
    #pragma unroll 1
    for (int k = lane; k < n; k += 32) sum += m[row * n + k] * v[k];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) out[row] = sum;
}

extern "C" __global__ void rows_by_thread(const float* m, const float* v, float* out, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    #pragma unroll 1
    for (int k = 0; k < n; k++) sum += m[row * n + k] * v[k];
    out[row] = sum;
}

extern "C" __global__ void tally(unsigned* bins, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&bins[mixed(i) & (count - 1)], 1u);
}

extern "C" __global__ void tally_read(const unsigned* keys, float* bins, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&bins[(keys[i] + mixed(i)) & (count - 1)], 1.0f);
}

// An array of each thread's own in local memory, since its index is not known beforehand.
extern "C" __global__ void own_array(float* out, int turns)
{
    float own[64];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll 1
    for (int j = 0; j < 64; j++) own[j] = i + j;
    float sum = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < turns; j++) sum += own[(j * 7) & 63];
    out[i] = sum;
}

// The same with an index of each lane's own.
extern "C" __global__ void own_array_mixed(float* out, int turns)
{
    float own[128];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll 1
    for (int j = 0; j < 128; j++) own[j] = i + j;
    float sum = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < turns; j++) sum += own[(mixed(i + j) >> 3) & 127];
    out[i] = sum;
}

__constant__ float weights[16384];

extern "C" __global__ void same_weight(float* out, int k)
{
    float sum = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < k; j++) sum = sum * 0.5f + weights[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// So many different words a warp asks for at once.
extern "C" __global__ void several_weights(float* out, int different)
{
    int lane = threadIdx.x % 32;
    float sum = 0.0f;
    #pragma unroll 1
    for (int j = 0; j < 256; j++) sum = sum * 0.5f + weights[(j + (lane % different) * 97) & 1023];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" __global__ void store_bytes(unsigned char* out, int stride)
{
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i * stride] = i;
}

// Adds up a part of the array for each block, through shared memory.
extern "C" __global__ void block_sums(const float* a, float* out, int n)
{
    __shared__ float part[256];
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) sum += a[i];
    part[threadIdx.x] = sum;
    for (int half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}

// Writes, and reads within the block what other warps wrote.
extern "C" __global__ void write_read(float* a, float* out, int far)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = i;
    __syncthreads();
    out[i] = a[i ^ far];
}

extern "C" __global__ void seven_points(const float* a, float* b, int n)
{
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y, z = blockIdx.z * 2 + threadIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1) return;
    int i = (z * n + y) * n + x;
    b[i] = a[i] + 0.1f * (a[i - 1] + a[i + 1] + a[i - n] + a[i + n] + a[i - n * n] + a[i + n * n]);
}

// A row for each block, which reads it three times.
extern "C" __global__ void soft_rows(const float* a, float* b, int n)
{
    __shared__ float shared;
    const float* row = a + (size_t)blockIdx.x * n;
    float most = -1e30f, sum = 0.0f;
    for (int k = threadIdx.x; k < n; k += blockDim.x) most = fmaxf(most, row[k]);
    if (threadIdx.x == 0) shared = most;
    __syncthreads();
    most = shared;
    for (int k = threadIdx.x; k < n; k += blockDim.x) sum += row[k] - most;
    __syncthreads();
    if (threadIdx.x == 0) shared = sum + 1.0f;
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += blockDim.x) b[(size_t)blockIdx.x * n + k] = (row[k] - most) / shared;
}

// Rows of 64 words of a table, at random: a warp each.
extern "C" __global__ void pick_rows(const float2* table, float2* out, unsigned rows)
{
    unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    out[warp * 32 + lane] = table[(size_t)(mixed(warp) & (rows - 1)) * 32 + lane];
}

extern "C" __global__ void column_sums(const float* m, float* out, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    #pragma unroll 1
    for (int y = 0; y < n; y++) sum += m[(size_t)y * n + x];
    out[x] = sum;
}
