extern "C" __global__ void transpose(const float* x, float* y, int rows, int cols) {
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
    for (int k = threadIdx.y; k < 32; k += blockDim.y)
        if (row + k < rows && col < cols) y[col * rows + row + k] = x[(row + k) * cols + col];
}
