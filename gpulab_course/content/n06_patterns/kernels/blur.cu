// The mean of 5 x 5 pixels around each; beyond the edges the nearest pixel counts. Blocks walk down the picture.
extern "C" __global__
void blur(const float* x, float* y, int rows, int cols)
{
    extern __shared__ float tile[];
    int width = blockDim.x + 4, height = blockDim.y + 4, threads = blockDim.x * blockDim.y;
    int t = threadIdx.y * blockDim.x + threadIdx.x;
    int left = blockIdx.x * blockDim.x - 2, col = blockIdx.x * blockDim.x + threadIdx.x;
    for (int top = blockIdx.y * blockDim.y; top < rows; top += gridDim.y * blockDim.y) {
        for (int k = t; k < width * height; k += threads) {
            int r = min(max(top - 2 + k / width, 0), rows - 1);
            int c = min(max(left + k % width, 0), cols - 1);
            tile[k] = x[r * cols + c];
        }
        __syncthreads();
        int row = top + threadIdx.y;
        if (row < rows && col < cols) {
            float sum = 0;
            for (int dy = 0; dy < 5; ++dy)
                for (int dx = 0; dx < 5; ++dx)
                    sum += tile[(threadIdx.y + dy) * width + threadIdx.x + dx];
            y[row * cols + col] = sum / 25;
        }
        __syncthreads();
    }
}
