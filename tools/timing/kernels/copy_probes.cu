#include <cuda_pipeline.h>
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// A block reads n tiles, one piece per thread and tile, by asynchronous copies of which STAGES - 1 tiles are ahead,
// and computes `work` multiply-adds that depend on each other with each of them.
template <class Piece, int STAGES>
__device__ void copies(const Piece* in, float* out, int n, int work) {
    __shared__ Piece tile[STAGES][256];
    const Piece* from = in + (size_t)blockIdx.x * n * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < STAGES - 1; ++k) {
        __pipeline_memcpy_async(&tile[k][threadIdx.x], from + k * blockDim.x, sizeof(Piece));
        __pipeline_commit();
    }
    for (int k = 0; k < n; ++k) {
        int next = k + STAGES - 1;
        if (next < n) __pipeline_memcpy_async(&tile[next % STAGES][threadIdx.x], from + next * blockDim.x, sizeof(Piece));
        __pipeline_commit();
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        float v = *(const float*)&tile[k % STAGES][(threadIdx.x + 32) % blockDim.x];
        for (int i = 0; i < work; ++i) v = v * 0.5f + 1.0f;
        sum += v;
        __syncthreads();
    }
    out[AT] = sum;
}
#define COPIES(NAME, PIECE, STAGES)                                                                               \
    extern "C" __global__ void copies_##NAME##_##STAGES(const PIECE* in, float* out, int n, int work) {           \
        copies<PIECE, STAGES>(in, out, n, work);                                                                  \
    }
#define COPIES_OF(NAME, PIECE) COPIES(NAME, PIECE, 1) COPIES(NAME, PIECE, 2) COPIES(NAME, PIECE, 3) COPIES(NAME, PIECE, 4)
COPIES_OF(4, float)
COPIES_OF(8, float2)
COPIES_OF(16, float4)

// A block copies tiles of 1,024 pieces from an array that stays in L2: by asynchronous copies, by way of registers,
// or by loads only; four tiles may be in flight.
template <class Piece, int WAY>
__device__ void copy_rate(const Piece* in, float* out, int n, int mask) {
    __shared__ Piece tile[1024];
    const Piece* from = in + (size_t)blockIdx.x * 4096 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; ++k) {
        const Piece* pieces = from + (k & mask) * 1024;
        if (WAY == 0) {
            for (int i = 0; i < 1024; i += blockDim.x) __pipeline_memcpy_async(tile + threadIdx.x + i, pieces + i, sizeof(Piece));
            __pipeline_commit();
            __pipeline_wait_prior(4);
        } else {
            Piece held[4];
            for (int i = 0; i < 1024; i += 4 * blockDim.x) {
#pragma unroll
                for (int j = 0; j < 4; ++j) held[j] = __ldcg(pieces + i + j * blockDim.x);
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (WAY == 1) tile[threadIdx.x + i + j * blockDim.x] = held[j];
                    else sum += *(const float*)&held[j];
            }
        }
    }
    __pipeline_wait_prior(0);
    __syncthreads();
    out[AT] = sum + *(const float*)&tile[threadIdx.x];
}
#define COPY_RATE(NAME, PIECE, WAY)                                                                        \
    extern "C" __global__ void copy_rate_##NAME##_##WAY(const PIECE* in, float* out, int n, int mask) {     \
        copy_rate<PIECE, WAY>(in, out, n, mask);                                                           \
    }
COPY_RATE(4, float, 0) COPY_RATE(4, float, 1) COPY_RATE(4, float, 2)
COPY_RATE(16, float4, 0) COPY_RATE(16, float4, 1) COPY_RATE(16, float4, 2)

// The lanes below `lanes` of each warp follow chains of indices, each from its own start; `start` keeps where they are.
extern "C" __global__ void chase_lanes(const int* next, const int* start, int* out, int steps, int lanes) {
    if (threadIdx.x % 32 >= lanes) return;
    int p = start[AT];
    for (int k = 0; k < steps; ++k) p = next[p];
    out[AT] = p;
}
