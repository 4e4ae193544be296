extern "C" __global__
void add_row(const float* m, const float* row, float* out, int rows, int cols) {
    int wide = gridDim.x * blockDim.x, high = gridDim.y * blockDim.y;
    int t = (blockIdx.y * blockDim.y + threadIdx.y) * wide + blockIdx.x * blockDim.x + threadIdx.x;
    int r = t % high, c = t / high;
    if (r < rows && c < cols) {
        out[r * cols + c] = m[r * cols + c] + row[c];
    }
}
