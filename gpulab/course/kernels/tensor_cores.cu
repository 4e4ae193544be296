// C = A B on tensor cores: row-major half-precision matrices A (m x k) and B (k x n), sums and C in float.
// k and n are multiples of 8.
#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 32
#endif
#ifndef WM
#define WM 64
#endif
#ifndef WN
#define WN 64
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef GROUP
#define GROUP 8
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
typedef unsigned short half_bits;

// The lane's part of d += a b for a of 16 x 16, b of 16 x 8 and d of 16 x 8. Lane 4 r + s holds of a rows r and
// r + 8 at columns 2 s, 2 s + 1 and 8 further, of b rows 2 s, 2 s + 1 and 8 further at column r, of d rows r
// and r + 8 at columns 2 s and 2 s + 1.
__device__ void multiply_16x8x16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#endif
}

__device__ unsigned two(const half_bits* p, size_t step, bool first, bool second)
{
    return (first ? p[0] : 0) | (unsigned)(second ? p[step] : 0) << 16;
}

// One warp makes 16 x 8 elements, its operands straight from global memory: tensor cores that wait.
extern "C" __global__ void __launch_bounds__(128)
hgemm_direct(const half_bits* a, const half_bits* b, float* c, int m, int n, int k)
{
    int lane = threadIdx.x % 32, r = lane / 4, s = lane % 4 * 2;
    int y0 = (blockIdx.y * 4 + threadIdx.x / 32) * 16, x0 = blockIdx.x * 8;
    float d[4] = {};
    for (int start = 0; start < k; start += 16) {
        unsigned fa[4], fb[2];
        for (int i = 0; i < 4; ++i) {
            int y = y0 + r + i % 2 * 8, x = start + s + i / 2 * 8;
            fa[i] = two(a + (size_t)y * k + x, 1, y < m && x < k, y < m && x + 1 < k);
        }
        for (int i = 0; i < 2; ++i) {
            int y = start + s + i * 8, x = x0 + r;
            fb[i] = two(b + (size_t)y * n + x, n, y < k && x < n, y + 1 < k && x < n);
        }
        multiply_16x8x16(d, fa, fb);
    }
    for (int i = 0; i < 4; ++i) {
        int y = y0 + r + i / 2 * 8, x = x0 + s + i % 2;
        if (y < m && x < n)
            c[(size_t)y * n + x] = d[i];
    }
}

#define THREADS ((BM / WM) * (BN / WN) * 32)
#define A_ROW (BK / 8)  // vectors of eight halves in a row of the tile of A
#define B_ROW (BN / 8)

__device__ int a_slot(int row, int vector)
{
    return row * A_ROW + (vector ^ (row / (8 / A_ROW > 0 ? 8 / A_ROW : 1) % A_ROW));
}

__device__ int b_slot(int row, int vector) { return row * B_ROW + (vector ^ (row % 8)); }

__device__ void copy_16(uint4* to, const half_bits* from, bool inside)
{
#if __CUDA_ARCH__ >= 800
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0) : "memory");
#else
    *to = inside ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
#endif
}

// Four 8 x 8 matrices of halves, a row of which each lane names, to the places that the product wants.
__device__ void load_4(unsigned (&r)[4], const uint4* row)
{
    unsigned place = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place) : "memory");
}

__device__ void load_4_turned(unsigned (&r)[4], const uint4* row)
{
    unsigned place = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place) : "memory");
}

// BM x BN elements a block, WM x WN a warp; tiles in STAGES stages of shared memory, filled by asynchronous
// copies, (BM + BN) * BK halves each, in dynamic shared memory.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
hgemm_async(const half_bits* a, const half_bits* b, float* c, int m, int n, int k)
{
    extern __shared__ uint4 stages[];
    const int A_TILE = BM * A_ROW, BOTH = A_TILE + BK * B_ROW;
    int rows = (m + BM - 1) / BM, columns = (n + BN - 1) / BN;
    int group = blockIdx.x / (GROUP * columns), first = group * GROUP;
    int high = min(GROUP, rows - first), within = blockIdx.x - group * GROUP * columns;
    int y0 = (first + within % high) * BM, x0 = within / high * BN;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int wy = warp / (BN / WN) * WM, wx = warp % (BN / WN) * WN;
    float sum[WM / 16][WN / 8][4] = {};
    auto fetch = [&](int start, int stage) {
        uint4* as = stages + stage * BOTH;
        uint4* bs = as + A_TILE;
#pragma unroll
        for (int at = threadIdx.x; at < A_TILE; at += THREADS) {
            int row = at / A_ROW, v = at % A_ROW;
            bool inside = y0 + row < m && start + 8 * v < k;
            copy_16(as + a_slot(row, v), inside ? a + (size_t)(y0 + row) * k + start + 8 * v : a, inside);
        }
#pragma unroll
        for (int at = threadIdx.x; at < BK * B_ROW; at += THREADS) {
            int row = at / B_ROW, v = at % B_ROW;
            bool inside = start + row < k && x0 + 8 * v < n;
            copy_16(bs + b_slot(row, v), inside ? b + (size_t)(start + row) * n + x0 + 8 * v : b, inside);
        }
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage * BK < k)
            fetch(stage * BK, stage);
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    }
    int now = 0, next = STAGES - 1;
    for (int start = 0; start < k; start += BK) {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
#endif
        __syncthreads();
        if (start + (STAGES - 1) * BK < k)
            fetch(start + (STAGES - 1) * BK, next);
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
        const uint4* as = stages + now * BOTH;
        const uint4* bs = as + A_TILE;
#pragma unroll
        for (int d = 0; d < BK; d += 16) {
            unsigned fa[WM / 16][4], fb[WN / 16][4];
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                load_4(fa[i], as + a_slot(wy + 16 * i + lane % 16, d / 8 + lane / 16));
#pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                load_4_turned(fb[j], bs + b_slot(d + lane % 16, wx / 8 + 2 * j + lane / 16));
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
#pragma unroll
                for (int j = 0; j < WN / 8; ++j) {
                    unsigned pair[2] = {fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]};
                    multiply_16x8x16(sum[i][j], fa[i], pair);
                }
        }
        now = now + 1 < STAGES ? now + 1 : 0;
        next = next + 1 < STAGES ? next + 1 : 0;
    }
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
        for (int j = 0; j < WN / 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int y = y0 + wy + 16 * i + lane / 4 + 8 * h, x = x0 + wx + 8 * j + lane % 4 * 2;
                if (y < m && x < n)
                    *(float2*)(c + (size_t)y * n + x) = make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
            }
}
