// The mean of a cell and its 24 neighbours, 5 x 5, in a picture of height x width floats; cells beyond the edge
// count as 0.
#define R 2
#define TX 32
#ifndef TY
#define TY 8
#endif

// 25 loads from global memory a cell.
extern "C" __global__ void stencil_naive(const float* in, float* out, int height, int width)
{
    int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = -R; dy <= R; ++dy)
        for (int dx = -R; dx <= R; ++dx)
            if (x + dx >= 0 && x + dx < width && y + dy >= 0 && y + dy < height)
                sum += in[(size_t)(y + dy) * width + x + dx];
    out[(size_t)y * width + x] = sum / 25;
}

// A tile with its rim in shared memory: a cell is loaded about twice instead of 25 times.
extern "C" __global__ void stencil_tiled(const float* in, float* out, int height, int width)
{
    __shared__ float tile[TY + 2 * R][TX + 2 * R];
    int x0 = blockIdx.x * TX - R, y0 = blockIdx.y * TY - R;
    for (int i = threadIdx.y * TX + threadIdx.x; i < (TY + 2 * R) * (TX + 2 * R); i += TX * TY) {
        int tx = i % (TX + 2 * R), ty = i / (TX + 2 * R), x = x0 + tx, y = y0 + ty;
        tile[ty][tx] = x >= 0 && x < width && y >= 0 && y < height ? in[(size_t)y * width + x] : 0;
    }
    __syncthreads();
    int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = 0; dy <= 2 * R; ++dy)
        for (int dx = 0; dx <= 2 * R; ++dx)
            sum += tile[threadIdx.y + dy][threadIdx.x + dx];
    out[(size_t)y * width + x] = sum / 25;
}

// A thread walks down ROWS cells. It adds each row of the tile once and keeps the last five sums in registers:
// 5 reads from shared memory a row instead of 25.
#ifndef ROWS
#define ROWS 16
#endif
extern "C" __global__ void stencil_sliding(const float* in, float* out, int height, int width)
{
    __shared__ float tile[TY * ROWS + 2 * R][TX + 2 * R];
    int x0 = blockIdx.x * TX - R, y0 = blockIdx.y * TY * ROWS - R;
    for (int i = threadIdx.y * TX + threadIdx.x; i < (TY * ROWS + 2 * R) * (TX + 2 * R); i += TX * TY) {
        int tx = i % (TX + 2 * R), ty = i / (TX + 2 * R), x = x0 + tx, y = y0 + ty;
        tile[ty][tx] = x >= 0 && x < width && y >= 0 && y < height ? in[(size_t)y * width + x] : 0;
    }
    __syncthreads();
    int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY * ROWS + threadIdx.y * ROWS;
    float of_row[2 * R + 1];
#pragma unroll
    for (int k = 0; k < ROWS + 2 * R; ++k) {
        float sum = 0;
#pragma unroll
        for (int dx = 0; dx <= 2 * R; ++dx)
            sum += tile[threadIdx.y * ROWS + k][threadIdx.x + dx];
        of_row[k % (2 * R + 1)] = sum;
        if (k < 2 * R || x >= width || y + k - 2 * R >= height)
            continue;
        float all = 0;
#pragma unroll
        for (int j = 0; j <= 2 * R; ++j)
            all += of_row[j];
        out[(size_t)(y + k - 2 * R) * width + x] = all / 25;
    }
}
