// Shows: work that differs from pixel to pixel, so that neighbouring lanes wait for each other.
extern "C" __global__ void mandelbrot(int* iterations, int width, int height, int limit)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x;
    int py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height)
        return;
    float cr = -2.0f + 2.5f * px / width;
    float ci = -1.25f + 2.5f * py / height;
    float zr = 0.0f;
    float zi = 0.0f;
    int count = 0;
    while (count < limit && zr * zr + zi * zi < 4.0f) {
        float next = zr * zr - zi * zi + cr;
        zi = 2.0f * zr * zi + ci;
        zr = next;
        count++;
    }
    iterations[py * width + px] = count;
}
