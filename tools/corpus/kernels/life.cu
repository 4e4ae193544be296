// Shows: one byte a cell and eight neighbours: Conway's game of life on a torus.
extern "C" __global__ void life(const unsigned char* now, unsigned char* next, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int neighbours = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx != 0 || dy != 0)
                neighbours += now[(y + dy + height) % height * width + (x + dx + width) % width];
    next[y * width + x] = neighbours == 3 || (neighbours == 2 && now[y * width + x]);
}
