// The block's second product with GELU at its end: what is still in a register need not be stored and read again.
// c = gelu(a b), where a is rows x inner and b is inner x cols.
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
    float v = sum;
    v = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    if (row < rows && col < cols) c[row * cols + col] = v;
}
