// Three pictures: one thread a pixel.

// How many turns of z = z * z + c stay near 0, for the c of each pixel: Mandelbrot's set.
extern "C" __global__ void mandelbrot(int* turns, int width, int height, int limit)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float c_re = -2.2f + 3.2f * x / width, c_im = -1.2f + 2.4f * y / height;
    float re = 0.0f, im = 0.0f;
    int turn = 0;
    while (turn < limit && re * re + im * im < 4.0f) {
        float next = re * re - im * im + c_re;
        im = 2.0f * re * im + c_im;
        re = next;
        turn++;
    }
    turns[y * width + x] = turn;
}

// Conway's game of life, one generation: edges meet the opposite edges.
extern "C" __global__ void life(const unsigned char* now, unsigned char* next, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    int alive = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx != 0 || dy != 0) alive += now[(y + dy + height) % height * width + (x + dx + width) % width];
    next[y * width + x] = alive == 3 || (alive == 2 && now[y * width + x]);
}

// The mean of the square around each pixel; at the edges, of what there is of it.
extern "C" __global__ void blur(const float* in, float* out, int width, int height, int radius)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0.0f;
    int pixels = 0;
    for (int row = max(y - radius, 0); row <= min(y + radius, height - 1); row++)
        for (int col = max(x - radius, 0); col <= min(x + radius, width - 1); col++) {
            sum += in[row * width + col];
            pixels++;
        }
    out[y * width + x] = sum / pixels;
}
