// Shared memory in 8-, 16- and 1-byte accesses, with and without bank conflicts.

// Doubles `stride` elements apart.
extern "C" __global__ void doubles_strided(const double* in, double* out, int stride)
{
    __shared__ double tile[1024];
    for (int w = threadIdx.x; w < 1024; w += blockDim.x)
        tile[w] = in[w];
    __syncthreads();
    double sum = 0.0;
    for (int k = 0; k < 8; k++)
        sum = 3.0 * sum + tile[(threadIdx.x * stride + 33 * k) & 1023];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Vectors of four floats `stride` elements apart.
extern "C" __global__ void quads_strided(const float4* in, float4* out, int stride)
{
    __shared__ float4 tile[512];
    for (int w = threadIdx.x; w < 512; w += blockDim.x)
        tile[w] = in[w];
    __syncthreads();
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int k = 0; k < 6; k++) {
        float4 v = tile[(threadIdx.x * stride + 17 * k) & 511];
        sum = make_float4(sum.x + v.x, 2.0f * sum.y + v.y, sum.z - v.z, sum.w + 3.0f * v.w);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Complex numbers transposed through a tile: 8-byte stores along rows, loads along columns.
template <int PAD>
__device__ void transpose_pairs(const float2* in, float2* out, int n)
{
    __shared__ float2 tile[16][16 + PAD];
    int x = blockIdx.x * 16 + threadIdx.x;
    int y = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void pairs_transposed(const float2* in, float2* out, int n) { transpose_pairs<0>(in, out, n); }
extern "C" __global__ void pairs_transposed_padded(const float2* in, float2* out, int n) { transpose_pairs<1>(in, out, n); }

// The same with 16 bytes an element and tiles of 8 by 8: a warp holds four rows.
extern "C" __global__ void quads_transposed(const float4* in, float4* out, int n)
{
    __shared__ float4 tile[8][8];
    int x = blockIdx.x * 8 + threadIdx.x;
    int y = blockIdx.y * 8 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * n + x];
    __syncthreads();
    x = blockIdx.y * 8 + threadIdx.x;
    y = blockIdx.x * 8 + threadIdx.y;
    out[y * n + x] = tile[threadIdx.x][threadIdx.y];
}

// C = A B, four columns a thread: rows of A are broadcast, B is read 16 bytes at a time.
extern "C" __global__ void matmul_quads(const float* A, const float4* B, float4* C, int n)
{
    __shared__ float tile_a[32][33];
    __shared__ float4 tile_b[32][8];
    int row = blockIdx.y * 32 + threadIdx.y;
    int quad = blockIdx.x * 8 + threadIdx.x;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int start = 0; start < n; start += 32) {
        for (int k = 0; k < 4; k++)
            tile_a[threadIdx.y][threadIdx.x + 8 * k] = A[row * n + start + threadIdx.x + 8 * k];
        tile_b[threadIdx.y][threadIdx.x] = B[((start + threadIdx.y) * n >> 2) + quad];
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < 32; k++) {
            float a = tile_a[threadIdx.y][k];
            float4 b = tile_b[k][threadIdx.x];
            sum.x += a * b.x;
            sum.y += a * b.y;
            sum.z += a * b.z;
            sum.w += a * b.w;
        }
        __syncthreads();
    }
    C[(row * n >> 2) + quad] = sum;
}

// Bytes of a block in reverse order: four lanes share a word.
extern "C" __global__ void bytes_reversed(const unsigned char* in, unsigned char* out, int n)
{
    __shared__ unsigned char line[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    line[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    if (i < n)
        out[i] = line[255 - threadIdx.x];
}

// Half of each warp works, on 8-byte elements, and the working half changes from warp to warp.
extern "C" __global__ void half_warps(const double* in, double* out, int stride)
{
    __shared__ double tile[512];
    for (int w = threadIdx.x; w < 512; w += blockDim.x)
        tile[w] = in[w];
    __syncthreads();
    double sum = 0.0;
    if ((threadIdx.x >> 4 & 1) == (threadIdx.x >> 5 & 1))
#pragma unroll 1
        for (int k = 0; k < 4; k++)
            sum += tile[(threadIdx.x * stride + k) & 511];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
