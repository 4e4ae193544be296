// The block's two products in tiles of 16 x 16: each element of a factor is read from memory once a tile.
// The tiles are padded by a column, so that no two rows begin in the same bank.

// c = scale * a b, where a is rows x inner and b is cols x inner (so b is transposed).
extern "C" __global__ void matmul_transposed(
    const float* a, const float* b, float* c, int rows, int cols, int inner, float scale)
{
    __shared__ float as[16][17], bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty, other = blockIdx.x * 16 + ty;
    float sum = 0.0f;
    for (int first = 0; first < inner; first += 16) {
        as[ty][tx] = row < rows && first + tx < inner ? a[row * inner + first + tx] : 0.0f;
        bs[ty][tx] = other < cols && first + tx < inner ? b[other * inner + first + tx] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[tx][k];
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = scale * sum;
}

// c = a b, where a is rows x inner and b is inner x cols.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int rows, int cols, int inner)
{
    __shared__ float as[16][17], bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
    float sum = 0.0f;
    for (int first = 0; first < inner; first += 16) {
        as[ty][tx] = row < rows && first + tx < inner ? a[row * inner + first + tx] : 0.0f;
        bs[ty][tx] = first + ty < inner && col < cols ? b[(first + ty) * cols + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = sum;
}
