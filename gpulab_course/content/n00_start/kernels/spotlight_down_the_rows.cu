// Right, but neighbouring lanes take pixels below each other, a row apart in memory.
extern "C" __global__ void spotlight(const unsigned char* picture, unsigned char* out,
                                     int width, int height, int cx, int cy, int r) {
    int threads = gridDim.x * blockDim.x * gridDim.y * blockDim.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    for (int k = row * gridDim.x * blockDim.x + column; k < width * height; k += threads) {
        int x = k / height, y = k % height;
        int i = y * width + x;
        int dx = x - cx, dy = y - cy;
        bool lit = dx * dx + dy * dy <= r * r;
        out[i] = lit ? min(2 * picture[i], 255) : picture[i] / 2;
    }
}
