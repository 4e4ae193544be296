#include <cuda_pipeline.h>
#include <mma.h>
using namespace nvcuda;
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// c[i] = a[i] b[i] for a batch of matrices of 64 x 64; a block of 4 warps computes one, in tiles of 32 of k.
extern "C" __global__ void batched(const half* a, const half* b, float* c) {
    __shared__ __align__(16) half left[64][40], right[32][72];
    const half *from_a = a + blockIdx.x * 4096, *from_b = b + blockIdx.x * 4096;
    int row = threadIdx.x / 64 * 32, column = threadIdx.x / 32 % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    for (int i = 0; i < 4; ++i) wmma::fill_fragment(sum[i / 2][i % 2], 0.0f);
    for (int k = 0; k < 64; k += 32) {
        for (int i = threadIdx.x; i < 256; i += 128) {
            *(uint4*)&left[i / 4][i % 4 * 8] = *(const uint4*)&from_a[i / 4 * 64 + k + i % 4 * 8];
            *(uint4*)&right[i / 8][i % 8 * 8] = *(const uint4*)&from_b[(k + i / 8) * 64 + i % 8 * 8];
        }
        __syncthreads();
        for (int d = 0; d < 32; d += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb[2];
            for (int i = 0; i < 2; ++i) {
                wmma::load_matrix_sync(fa[i], &left[row + 16 * i][d], 40);
                wmma::load_matrix_sync(fb[i], &right[d][column + 16 * i], 72);
            }
            for (int i = 0; i < 4; ++i) wmma::mma_sync(sum[i / 2][i % 2], fa[i / 2], fb[i % 2], sum[i / 2][i % 2]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        wmma::store_matrix_sync(c + blockIdx.x * 4096 + (row + i / 2 * 16) * 64 + column + i % 2 * 16, sum[i / 2][i % 2], 64,
                                wmma::mem_row_major);
}

// A 3 x 3 convolution of 32 channels to 32, as nine products: in (side + 2) x (side + 2) x 32, weights 9 x 32 x 32.
// A warp computes 16 neighbouring pixels of a row.
extern "C" __global__ void convolution(const half* in, const half* weights, float* out, int side) {
    int pixel = AT / 32 * 16, y = pixel / side, x = pixel % side;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2];
    for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[j], 0.0f);
    for (int tap = 0; tap < 9; ++tap)
        for (int c = 0; c < 32; c += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
            wmma::load_matrix_sync(fa, in + ((y + tap / 3) * (side + 2) + x + tap % 3) * 32 + c, 32);
            for (int j = 0; j < 2; ++j) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
                wmma::load_matrix_sync(fb, weights + (tap * 32 + c) * 32 + 16 * j, 32);
                wmma::mma_sync(sum[j], fa, fb, sum[j]);
            }
        }
    for (int j = 0; j < 2; ++j) wmma::store_matrix_sync(out + pixel * 32 + 16 * j, sum[j], 32, wmma::mem_row_major);
}

// c = a bᵀ in integers: a is m x k, b is n x k; a warp computes 16 x 32 elements, straight from global memory.
extern "C" __global__ void integers(const int* a, const int* b, int* c, int n, int k) {
    int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4, words = k / 4;
    int row = (blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32) * 16, column = blockIdx.x * 32;
    int d[4][4] = {};
    for (int w = 0; w < words; w += 8) {
        const int* from = a + (row + r) * words + w + s;
        int fa[4] = {from[0], from[8 * words], from[4], from[8 * words + 4]};
        for (int j = 0; j < 4; ++j) {
            const int* other = b + (column + 8 * j + r) * words + w + s;
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                : "+r"(d[j][0]), "+r"(d[j][1]), "+r"(d[j][2]), "+r"(d[j][3])
                : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(other[0]), "r"(other[4]));
        }
    }
    for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 4; ++e) c[(row + r + e / 2 * 8) * n + column + 8 * j + 2 * s + e % 2] = d[j][e];
}

// c = a b in float32, rounded to TF32; 8 warps compute 64 x 64 elements from tiles of 16 of k in shared memory.
extern "C" __global__ void single(const float* a, const float* b, float* c, int n, int k) {
    __shared__ float left[64][20], right[16][68];
    int row = blockIdx.y * 64, column = blockIdx.x * 64, warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, 16, 16, 8, float> sum[2];
    for (int i = 0; i < 2; ++i) wmma::fill_fragment(sum[i], 0.0f);
    for (int start = 0; start < k; start += 16) {
        for (int i = threadIdx.x; i < 1024; i += 256) {
            left[i / 16][i % 16] = wmma::__float_to_tf32(a[(row + i / 16) * k + start + i % 16]);
            right[i / 64][i % 64] = wmma::__float_to_tf32(b[(start + i / 64) * n + column + i % 64]);
        }
        __syncthreads();
        for (int d = 0; d < 16; d += 8) {
            wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa;
            wmma::load_matrix_sync(fa, &left[warp / 2 * 16][d], 20);
            for (int i = 0; i < 2; ++i) {
                wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb;
                wmma::load_matrix_sync(fb, &right[d][warp % 2 * 32 + 16 * i], 68);
                wmma::mma_sync(sum[i], fa, fb, sum[i]);
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        wmma::store_matrix_sync(c + (row + warp / 2 * 16) * n + column + warp % 2 * 32 + 16 * i, sum[i], n, wmma::mem_row_major);
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ unsigned pack(float first, float second) {
    half2 both = __floats2half2_rn(first, second);
    return *(unsigned*)&both;
}
// softmax(q kᵀ / 8) v for heads of 64 numbers. A warp has 16 rows of q, a block 64; tiles of 32 keys come by copies.
extern "C" __global__ void flash(const half* q, const half* k, const half* v, float* out, int tokens) {
    __shared__ __align__(16) half ks[2][32][72], vs[2][32][72];
    int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4 * 2;
    size_t head = (size_t)blockIdx.y * tokens * 64;
    int row = blockIdx.x * 64 + threadIdx.x / 32 * 16;
    unsigned fq[4][4];
    for (int d = 0; d < 4; ++d)
        for (int i = 0; i < 4; ++i)
            fq[d][i] = *(const unsigned*)&q[head + (row + r + i % 2 * 8) * 64 + 16 * d + s + i / 2 * 8];
    auto fetch = [&](int first) {
        for (int i = threadIdx.x; i < 256 && first < tokens; i += 128) {
            int line = i / 8, column = i % 8 * 8, stage = first / 32 % 2;
            __pipeline_memcpy_async(&ks[stage][line][column], &k[head + (first + line) * 64 + column], 16);
            __pipeline_memcpy_async(&vs[stage][line][column], &v[head + (first + line) * 64 + column], 16);
        }
        __pipeline_commit();
    };
    float result[8][4] = {}, most[2] = {-1e30f, -1e30f}, sum[2] = {};
    fetch(0);
    for (int first = 0; first < tokens; first += 32) {
        fetch(first + 32);
        __pipeline_wait_prior(1);
        __syncthreads();
        int stage = first / 32 % 2;
        float score[4][4] = {};
        for (int d = 0; d < 4; ++d)
            for (int j = 0; j < 4; ++j) {
                const half* key = &ks[stage][8 * j + r][16 * d + s];
                multiply(score[j], fq[d], *(const unsigned*)key, *(const unsigned*)(key + 8));
            }
        for (int h = 0; h < 2; ++h) {
            float largest = most[h], total = 0;
            for (int j = 0; j < 4; ++j) largest = fmaxf(largest, fmaxf(score[j][2 * h], score[j][2 * h + 1]) * 0.125f);
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
            float scale = __expf(most[h] - largest);
            for (int j = 0; j < 4; ++j)
                for (int e = 2 * h; e < 2 * h + 2; ++e) total += score[j][e] = __expf(score[j][e] * 0.125f - largest);
            most[h] = largest;
            sum[h] = sum[h] * scale + total;
            for (int j = 0; j < 8; ++j)
                for (int e = 2 * h; e < 2 * h + 2; ++e) result[j][e] *= scale;
        }
        for (int d = 0; d < 2; ++d) {
            unsigned weights[4] = {pack(score[2 * d][0], score[2 * d][1]), pack(score[2 * d][2], score[2 * d][3]),
                                   pack(score[2 * d + 1][0], score[2 * d + 1][1]), pack(score[2 * d + 1][2], score[2 * d + 1][3])};
            for (int j = 0; j < 4; ++j) {
                unsigned b[4];
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                    : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                    : "r"((unsigned)__cvta_generic_to_shared(&vs[stage][16 * d + lane % 16][16 * j + lane / 16 * 8])) : "memory");
                multiply(result[2 * j], weights, b[0], b[1]);
                multiply(result[2 * j + 1], weights, b[2], b[3]);
            }
        }
        __syncthreads();
    }
    for (int h = 0; h < 2; ++h) {
        sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
        for (int j = 0; j < 8; ++j)
            for (int e = 0; e < 2; ++e)
                out[head + (row + r + 8 * h) * 64 + 8 * j + s + e] = result[j][2 * h + e] / sum[h];
    }
}

// Mean of 9 neighbours along lines of 4,096 numbers, in tiles of 1,024 with two buffers: while one is used, the next comes.
extern "C" __global__ void smooth(const float* in, float* out, int tiles) {
    __shared__ __align__(16) float tile[2][1024 + 8];
    const float* line = in + (size_t)blockIdx.x * tiles * 1024;
    auto fetch = [&](int t) {
        for (int i = threadIdx.x; i < 258 && t < tiles; i += blockDim.x)
            __pipeline_memcpy_async(&tile[t % 2][4 * i], line + t * 1024 + 4 * i, 16);
        __pipeline_commit();
    };
    fetch(0);
    for (int t = 0; t < tiles; ++t) {
        fetch(t + 1);
        __pipeline_wait_prior(1);
        __syncthreads();
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
            float sum = 0;
            for (int j = 0; j < 9; ++j) sum += tile[t % 2][i + j];
            out[((size_t)blockIdx.x * tiles + t) * 1024 + i] = sum / 9;
        }
        __syncthreads();
    }
}

struct Node { int next, key; float value; int length; };
// Each thread sums the values of one list, up to its end.
extern "C" __global__ void lists(const Node* nodes, const int* first, float* sums, int count) {
    int i = AT;
    if (i >= count) return;
    float sum = 0;
    for (int p = first[i]; p >= 0;) {
        Node node = nodes[p];
        sum += node.value * (node.key & 1 ? -1.0f : 1.0f);
        p = node.next;
    }
    sums[i] = sum;
}
// Each thread descends a binary tree (children of i at 2 i + 1 and 2 i + 2) by comparing its key.
extern "C" __global__ void descend(const float* keys, const float* wanted, int* leaves, int levels, int count) {
    int i = AT;
    if (i >= count) return;
    float key = wanted[i];
    int p = 0;
    for (int level = 0; level < levels; ++level) p = 2 * p + 1 + (key >= keys[p]);
    leaves[i] = p;
}
