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

#define A_LOADS (BM * A_ROW / THREADS)
#define B_LOADS (BK * B_ROW / THREADS)

// Vector v of a row of A's tile lies at v ^ a_flip(row), of B's at v ^ row % 8, so that the eight rows that
// ldmatrix reads at once lie in different banks.
__device__ unsigned a_flip(unsigned row) { return A_ROW < 8 ? row / (8 / A_ROW) % A_ROW : row % 8; }

// 16 bytes, or 16 zeros, from global to shared memory; before compute capability 8.0 by way of registers.
__device__ void copy_16(unsigned to, const half_bits* from, bool inside)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
#else
    uint4 v = inside ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}

// Four 8 x 8 matrices of halves, a row of which each lane names, to the places that the product wants.
__device__ void load_4(unsigned (&r)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

__device__ void load_4_turned(unsigned (&r)[4], unsigned row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row) : "memory");
}

// BM x BN elements a block, WM x WN a warp; tiles in STAGES stages of shared memory, filled by asynchronous
// copies, (BM + BN) * BK halves each, in dynamic shared memory.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
hgemm_async(const half_bits* a, const half_bits* b, float* c, int m, int n, int k)
{
    extern __shared__ uint4 stages[];
    const unsigned A_TILE = BM * A_ROW, BOTH = 16 * (A_TILE + BK * B_ROW);  // vectors, bytes
    int rows = (m + BM - 1) / BM, columns = (n + BN - 1) / BN;
    int group = blockIdx.x / (GROUP * columns), first = group * GROUP;
    int high = min(GROUP, rows - first), within = blockIdx.x - group * GROUP * columns;
    int y0 = (first + within % high) * BM, x0 = within / high * BN;
    unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned wy = warp / (BN / WN) * WM, wx = warp % (BN / WN) * WN;
    unsigned shared = (unsigned)__cvta_generic_to_shared(stages);

    // What this thread copies: A_LOADS vectors of A, B_LOADS of B, rows that are multiples of eight apart.
    const unsigned A_ROWS = THREADS / A_ROW, B_ROWS = THREADS / B_ROW;
    unsigned a_row = threadIdx.x / A_ROW, a_v = threadIdx.x % A_ROW;
    unsigned b_row = threadIdx.x / B_ROW, b_v = threadIdx.x % B_ROW;
    const half_bits* from_a = a + (size_t)(y0 + a_row) * k + 8 * a_v;
    const half_bits* from_b = b + (size_t)b_row * n + x0 + 8 * b_v;
    unsigned to_a = shared + 16 * (a_row * A_ROW + (a_v ^ a_flip(a_row)));
    unsigned to_b = shared + 16 * (A_TILE + b_row * B_ROW + (b_v ^ b_row % 8));
    auto fetch = [&](int start, int stage) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            bool inside = y0 + a_row + i * A_ROWS < m && start + 8 * a_v < k;
            copy_16(to_a + stage * BOTH + 16 * i * A_ROWS * A_ROW, inside ? from_a + (size_t)i * A_ROWS * k : a, inside);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            bool inside = start + b_row + i * B_ROWS < k && x0 + 8 * b_v < n;
            copy_16(to_b + stage * BOTH + 16 * i * THREADS, inside ? from_b + (size_t)i * B_ROWS * n : b, inside);
        }
        from_a += BK;
        from_b += (size_t)BK * n;
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    };

    // Where this lane's rows for ldmatrix lie. What is added to a row or a vector below is a power of two that
    // these do not hold, so that flipping it flips the sum.
    unsigned a_at = shared + 16 * (wy + lane % 16) * A_ROW, a_turn = lane / 16 ^ a_flip(lane % 16);
    unsigned b_at = shared + 16 * (A_TILE + lane % 16 * B_ROW), b_turn = (wx / 8 + lane / 16) ^ lane % 8;
    float sum[WM / 16][WN / 8][4] = {};
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage)
        fetch(stage * BK, stage);
    int now = 0, next = STAGES - 1;
    for (int start = 0; start < k; start += BK) {
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
#endif
        __syncthreads();
        fetch(start + (STAGES - 1) * BK, next);
#pragma unroll
        for (int d = 0; d < BK; d += 16) {
            unsigned fa[WM / 16][4], fb[WN / 16][4];
#pragma unroll
            for (int i = 0; i < WM / 16; ++i)
                load_4(fa[i], a_at + now * BOTH + 16 * (16 * i * A_ROW + (a_turn ^ d / 8)));
#pragma unroll
            for (int j = 0; j < WN / 16; ++j)
                load_4_turned(fb[j], b_at + now * BOTH + 16 * (d * B_ROW + (b_turn ^ 2 * j)));
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
