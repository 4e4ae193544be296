// Shows: what a tile in shared memory saves. Both kernels compute C = A B for n x n matrices.
#define TILE 16

// Every thread reads a whole row of A and a whole column of B from global memory.
extern "C" __global__ void matmul_naive(const float* A, const float* B, float* C, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= n)
        return;
    float sum = 0.0f;
    for (int k = 0; k < n; k++)
        sum += A[row * n + k] * B[k * n + col];
    C[row * n + col] = sum;
}

// A block loads each tile once and its 256 threads share it. n must be a multiple of TILE.
extern "C" __global__ void matmul_tiled(const float* A, const float* B, float* C, int n)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < n; start += TILE) {
        tile_a[threadIdx.y][threadIdx.x] = A[row * n + start + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = B[(start + threadIdx.y) * n + col];
        __syncthreads();  // the tile is complete
        for (int k = 0; k < TILE; k++)
            sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
        __syncthreads();  // nobody reads the tile any more
    }
    C[row * n + col] = sum;
}
