// C = A B for row-major float matrices: A is m x k, B is k x n. The ladder from one element a thread to tiles
// in registers that asynchronous copies feed. Rungs that read vectors want k and n to be multiples of 4.
#define TILE 16

// One element a thread. Coalesced already: what it wastes is reading every row n times, every column m times.
extern "C" __global__ void sgemm_naive(const float* a, const float* b, float* c, int m, int n, int k)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= m)
        return;
    float sum = 0;
    for (int i = 0; i < k; ++i)
        sum += a[(size_t)y * k + i] * b[(size_t)i * n + x];
    c[(size_t)y * n + x] = sum;
}

// Tiles of both in shared memory: every element is read once a block instead of once a thread.
extern "C" __global__ void sgemm_tiled(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int x = blockIdx.x * TILE + tx, y = blockIdx.y * TILE + ty;
    float sum = 0;
    for (int start = 0; start < k; start += TILE) {
        as[ty][tx] = y < m && start + tx < k ? a[(size_t)y * k + start + tx] : 0;
        bs[ty][tx] = start + ty < k && x < n ? b[(size_t)(start + ty) * n + x] : 0;
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            sum += as[ty][i] * bs[i][tx];
        __syncthreads();
    }
    if (x < n && y < m)
        c[(size_t)y * n + x] = sum;
}

// 64 x 64 elements a block of 256 threads, 4 x 4 of them in the registers of each: what is read from shared
// memory serves four multiplications instead of one.
#define BLOCK_64 64
#define DEPTH 16
extern "C" __global__ void __launch_bounds__(256)
sgemm_registers(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float as[DEPTH][BLOCK_64 + 1], bs[DEPTH][BLOCK_64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int x0 = blockIdx.x * BLOCK_64, y0 = blockIdx.y * BLOCK_64;
    float sum[4][4] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int i = t; i < BLOCK_64 * DEPTH; i += 256) {
            int row = i / DEPTH, column = i % DEPTH;
            as[column][row] = y0 + row < m && start + column < k ? a[(size_t)(y0 + row) * k + start + column] : 0;
        }
        for (int i = t; i < BLOCK_64 * DEPTH; i += 256) {
            int row = i / BLOCK_64, column = i % BLOCK_64;
            bs[row][column] = start + row < k && x0 + column < n ? b[(size_t)(start + row) * n + x0 + column] : 0;
        }
        __syncthreads();
#pragma unroll 4
        for (int i = 0; i < DEPTH; ++i) {
            float p[4], q[4];
            for (int j = 0; j < 4; ++j) {
                p[j] = as[i][ty + 16 * j];
                q[j] = bs[i][tx + 16 * j];
            }
            for (int r = 0; r < 4; ++r)
                for (int s = 0; s < 4; ++s)
                    sum[r][s] += p[r] * q[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s)
            if (y0 + ty + 16 * r < m && x0 + tx + 16 * s < n)
                c[(size_t)(y0 + ty + 16 * r) * n + x0 + tx + 16 * s] = sum[r][s];
}

// The last three rungs share a shape: BM x BN elements a block, WM x WN of them a warp, TM x TN a thread, BK
// deep. A tile of A lies in shared memory as in global memory, BK floats a row, so that both are moved in
// vectors of four and neither is turned over; vector v of row r lies at v ^ (r / 2), which keeps the rows that
// lanes read at once out of each other's banks.
#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 16
#endif
#ifndef WM
#define WM 64
#endif
#ifndef WN
#define WN 32
#endif
#ifndef TM
#define TM 8
#endif
#ifndef TN
#define TN 8
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef GROUP
#define GROUP 8  // rows of blocks that run side by side, so that what they share stays in L2
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#ifndef UNROLL
#define UNROLL 1  // how many of these pieces the compiler lays out one after the other
#endif
#ifndef A_WIDTH
#define A_WIDTH 4  // floats of A's row that a thread reads at once: 4 or 2
#endif
#if A_WIDTH == 4
typedef float4 Piece;
#else
typedef float2 Piece;
#endif
#define THREADS ((BM / WM) * (BN / WN) * 32)
#define LANES_X (WN / TN)
#define LANES_Y (WM / TM)
#define VECTORS (BK / 4)
#define A_LOADS (BM * VECTORS / THREADS)
#define B_LOADS (BN / 4 * BK / THREADS)

__device__ unsigned a_flip(unsigned row) { return VECTORS < 8 ? row / (8 / VECTORS) % VECTORS : row % VECTORS; }
__device__ unsigned a_slot(unsigned row, unsigned v) { return row * VECTORS + (v ^ a_flip(row)); }

// Where this thread's part of a tile lies: its rows are y + i LANES_Y, its columns 4 (x + j LANES_X) and the
// three after each.
struct Place {
    unsigned y, x;
    __device__ Place()
    {
        unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        y = warp / (BN / WN) * WM + lane / LANES_X;
        x = warp % (BN / WN) * (WN / 4) + lane % LANES_X;
    }
};

__device__ float element(float4 p, int d) { return d == 0 ? p.x : d == 1 ? p.y : d == 2 ? p.z : p.w; }
__device__ float element(float2 p, int d) { return d == 0 ? p.x : p.y; }

// LANES_Y is a power of two, so that what row y + i LANES_Y flips is what y flips and what i LANES_Y does.
__device__ void multiply(const float4* as, const float4* bs, Place at, float (&sum)[TM][TN])
{
    const float4* rows = as + at.y * VECTORS;
    const float4* columns = bs + at.x;
    unsigned flip = a_flip(at.y);
#pragma unroll UNROLL
    for (unsigned piece = 0; piece < BK / A_WIDTH; ++piece) {
        Piece p[TM];
#pragma unroll
        for (int i = 0; i < TM; ++i) {
            unsigned v = piece * A_WIDTH / 4 ^ a_flip(i * LANES_Y);
            p[i] = ((const Piece*)(rows + i * LANES_Y * VECTORS + (v ^ flip)))[piece % (4 / A_WIDTH)];
        }
#pragma unroll
        for (int d = 0; d < A_WIDTH; ++d) {
            float q[TN];
#pragma unroll
            for (int j = 0; j < TN / 4; ++j)
                *(float4*)(q + 4 * j) = columns[(A_WIDTH * piece + d) * (BN / 4) + j * LANES_X];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    sum[i][j] += element(p[i], d) * q[j];
        }
    }
}

__device__ void store(float* c, int m, int n, int y0, int x0, Place at, const float (&sum)[TM][TN])
{
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            int y = y0 + at.y + i * LANES_Y, x = x0 + 4 * at.x + j * LANES_X;
            if (y < m && x < n)
                *(float4*)(c + (size_t)y * n + x) = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
        }
}

// The block's tile of C: GROUP rows of blocks are walked column by column.
__device__ void tile_of_block(int m, int n, int& y0, int& x0)
{
    int rows = (m + BM - 1) / BM, columns = (n + BN - 1) / BN;
    int group = blockIdx.x / (GROUP * columns), first = group * GROUP;
    int high = min(GROUP, rows - first), within = blockIdx.x - group * GROUP * columns;
    y0 = (first + within % high) * BM;
    x0 = within / high * BN;
}

// This thread's share of the next tiles, from global memory to registers and on to shared memory.
struct Share {
    float4 a[A_LOADS], b[B_LOADS];

    __device__ void load(const float* ga, const float* gb, int m, int n, int k, int y0, int x0, int start)
    {
        float4 none = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            int at = threadIdx.x + i * THREADS, y = y0 + at / VECTORS, x = start + at % VECTORS * 4;
            a[i] = y < m && x < k ? *(const float4*)(ga + (size_t)y * k + x) : none;
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            int at = threadIdx.x + i * THREADS, y = start + at / (BN / 4), x = x0 + at % (BN / 4) * 4;
            b[i] = y < k && x < n ? *(const float4*)(gb + (size_t)y * n + x) : none;
        }
    }

    __device__ void keep(float4* as, float4* bs)
    {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            int at = threadIdx.x + i * THREADS;
            as[a_slot(at / VECTORS, at % VECTORS)] = a[i];
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i)
            bs[threadIdx.x + i * THREADS] = b[i];
    }
};

#if 2 * (BM + BN) * BK <= 12288  // both of these rungs fit into the 48 KiB that can be declared
// Larger tiles, and everything moves in vectors of four: a quarter of the requests.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
sgemm_vectors(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float4 as[BM * VECTORS], bs[BK * BN / 4];
    int y0, x0;
    tile_of_block(m, n, y0, x0);
    Place at;
    Share share;
    float sum[TM][TN] = {};
    for (int start = 0; start < k; start += BK) {
        share.load(a, b, m, n, k, y0, x0, start);
        __syncthreads();
        share.keep(as, bs);
        __syncthreads();
        multiply(as, bs, at, sum);
    }
    store(c, m, n, y0, x0, at, sum);
}

// Two of each tile: the next ones are on their way while this one is multiplied, and one barrier a step is enough.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
sgemm_double(const float* a, const float* b, float* c, int m, int n, int k)
{
    __shared__ float4 as[2][BM * VECTORS], bs[2][BK * BN / 4];
    int y0, x0;
    tile_of_block(m, n, y0, x0);
    Place at;
    Share share;
    float sum[TM][TN] = {};
    share.load(a, b, m, n, k, y0, x0, 0);
    share.keep(as[0], bs[0]);
    __syncthreads();
    for (int start = 0, now = 0; start < k; start += BK, now ^= 1) {
        bool more = start + BK < k;
        if (more)
            share.load(a, b, m, n, k, y0, x0, start + BK);
        multiply(as[now], bs[now], at, sum);
        if (more)
            share.keep(as[now ^ 1], bs[now ^ 1]);
        __syncthreads();
    }
    store(c, m, n, y0, x0, at, sum);
}

#endif

// 16 bytes from global to shared memory, or 16 zeros; before compute capability 8.0 by way of registers.
__device__ void copy_16(float4* to, const float* from, bool inside)
{
#if __CUDA_ARCH__ >= 800
    unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0) : "memory");
#else
    *to = inside ? *(const float4*)from : make_float4(0, 0, 0, 0);
#endif
}

__device__ void end_group()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LEFT>
__device__ void wait_for_all_but()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// STAGES tiles, filled by copies that pass by the registers: what they held is free for more of C. They are in
// dynamic shared memory, STAGES * (BM + BN) * BK floats.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
sgemm_async(const float* a, const float* b, float* c, int m, int n, int k)
{
    extern __shared__ float4 stages[];
    const int A_TILE = BM * VECTORS, BOTH = A_TILE + BK * BN / 4;
    int y0, x0;
    tile_of_block(m, n, y0, x0);
    Place at;
    float sum[TM][TN] = {};
    // What this thread copies: A_LOADS vectors of A, B_LOADS of B, equally far apart.
    const unsigned A_ROWS = THREADS / VECTORS, B_ROWS = THREADS / (BN / 4);
    unsigned a_row = threadIdx.x / VECTORS, a_column = 4 * (threadIdx.x % VECTORS);
    unsigned b_row = threadIdx.x / (BN / 4), b_column = x0 + 4 * (threadIdx.x % (BN / 4));
    const float* from_a = a + (size_t)(y0 + a_row) * k + a_column;
    const float* from_b = b + (size_t)b_row * n + b_column;
    float4* to_a = stages + a_slot(a_row, a_column / 4);
    float4* to_b = stages + A_TILE + threadIdx.x;
    auto fetch = [&](int start, int stage) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            bool inside = y0 + a_row + i * A_ROWS < m && start + a_column < k;
            // The next rows flip alike: A_ROWS is a multiple of eight.
            copy_16(to_a + stage * BOTH + i * A_ROWS * VECTORS, inside ? from_a + (size_t)i * A_ROWS * k : a, inside);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            bool inside = start + b_row + i * B_ROWS < k && b_column < n;
            copy_16(to_b + stage * BOTH + i * THREADS, inside ? from_b + (size_t)i * B_ROWS * n : b, inside);
        }
        from_a += BK;
        from_b += (size_t)BK * n;
    };
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage * BK < k)
            fetch(stage * BK, stage);
        end_group();
    }
    int now = 0, next = STAGES - 1;
    for (int start = 0; start < k; start += BK) {
        wait_for_all_but<STAGES - 2>();
        __syncthreads();
        if (start + (STAGES - 1) * BK < k)
            fetch(start + (STAGES - 1) * BK, next);
        end_group();
        multiply(stages + now * BOTH, stages + now * BOTH + A_TILE, at, sum);
        now = now + 1 < STAGES ? now + 1 : 0;
        next = next + 1 < STAGES ? next + 1 : 0;
    }
    store(c, m, n, y0, x0, at, sum);
}
