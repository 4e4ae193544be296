extern "C" __global__
void add_row(const float* m, const float* row, float* out, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < cols) {
        out[r * cols + c] = m[r * cols + c] + row[c];
    }
}
