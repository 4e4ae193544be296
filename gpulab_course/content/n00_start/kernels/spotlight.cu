extern "C" __global__ void spotlight(const unsigned char* picture, unsigned char* out,
                                     int width, int height, int cx, int cy, int r) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        int i = y * width + x;
        int dx = x - cx, dy = y - cy;
        bool lit = dx * dx + dy * dy <= r * r;
        out[i] = lit ? min(2 * picture[i], 255) : picture[i] / 2;
    }
}
