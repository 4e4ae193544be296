extern "C" __global__ void matmul(const float* a, const float* b, float* c, int rows, int cols, int inner) {
    __shared__ float as[32][33], bs[32][33];
    int side = blockDim.x, tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * side + tx, row = blockIdx.y * side + ty;
    float sum = 0.0f;
    for (int k0 = 0; k0 < inner; k0 += side) {
        as[ty][tx] = row < rows && k0 + tx < inner ? a[row * inner + k0 + tx] : 0.0f;
        bs[ty][tx] = k0 + ty < inner && col < cols ? b[(k0 + ty) * cols + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < side; ++k) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = sum;
}
