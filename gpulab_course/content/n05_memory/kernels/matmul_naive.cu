extern "C" __global__ void matmul(const float* a, const float* b, float* c, int rows, int cols, int inner) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    float sum = 0.0f;
    for (int k = 0; k < inner; ++k) sum += a[row * inner + k] * b[k * cols + col];
    c[row * cols + col] = sum;
}
