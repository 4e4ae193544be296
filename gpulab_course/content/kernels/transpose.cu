// The transpose of a matrix of rows x columns floats, row-major, of any shape. Blocks of 32 x 8 threads move
// tiles of 32 x 32, the last rung tiles of 64 x 64 with 256 threads.
#define TILE 32
#define STEP 8

// Reads along rows and writes along columns: each store touches 32 sectors.
extern "C" __global__ void transpose_naive(const float* in, float* out, int rows, int columns)
{
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += STEP)
        if (x < columns && y + j < rows)
            out[(size_t)x * rows + y + j] = in[(size_t)(y + j) * columns + x];
}

// A tile in shared memory makes both sides coalesced, but its columns all lie in one bank.
extern "C" __global__ void transpose_tiled(const float* in, float* out, int rows, int columns)
{
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += STEP)
        if (x < columns && y + j < rows)
            tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += STEP)
        if (x < rows && y + j < columns)
            out[(size_t)(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

// One unused column shifts every row by a bank: no conflicts are left.
extern "C" __global__ void transpose_padded(const float* in, float* out, int rows, int columns)
{
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x;
    int y = blockIdx.y * TILE + threadIdx.y;
#pragma unroll
    for (int j = 0; j < TILE; j += STEP)
        if (x < columns && y + j < rows)
            tile[threadIdx.y + j][threadIdx.x] = in[(size_t)(y + j) * columns + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
#pragma unroll
    for (int j = 0; j < TILE; j += STEP)
        if (x < rows && y + j < columns)
            out[(size_t)(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

// Four floats at a time, which need rows and columns that are multiples of 4. A thread turns 4 x 4 elements
// over in its registers; the tile holds vectors, and vector c of row r lies at c ^ (r / 4), so that eight
// lanes always meet eight different groups of four banks, by row and by column.
#ifndef SIDE
#define SIDE 16  // vectors along a tile's edge: 64 x 64 floats
#endif
extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
transpose_vectors(const float* in, float* out, int rows, int columns)
{
    __shared__ float4 tile[4 * SIDE][SIDE];
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    int x = blockIdx.x * 4 * SIDE + 4 * tx;
    int y = blockIdx.y * 4 * SIDE + 4 * ty;
    if (x < columns && y < rows) {
        const float* from = in + (size_t)y * columns + x;
        float4 a = *(const float4*)from, b = *(const float4*)(from + columns);
        float4 c = *(const float4*)(from + 2 * (size_t)columns), d = *(const float4*)(from + 3 * (size_t)columns);
        int slot = ty ^ tx;
        tile[4 * tx][slot] = make_float4(a.x, b.x, c.x, d.x);
        tile[4 * tx + 1][slot] = make_float4(a.y, b.y, c.y, d.y);
        tile[4 * tx + 2][slot] = make_float4(a.z, b.z, c.z, d.z);
        tile[4 * tx + 3][slot] = make_float4(a.w, b.w, c.w, d.w);
    }
    __syncthreads();
    x = blockIdx.y * 4 * SIDE + 4 * tx;
    y = blockIdx.x * 4 * SIDE;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        int row = ty + k * SIDE;
        if (x < rows && y + row < columns)
            *(float4*)(out + (size_t)(y + row) * rows + x) = tile[row][tx ^ (row / 4)];
    }
}
