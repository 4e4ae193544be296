// The block's softmax and layer norm, a warp a row: neighbouring lanes read neighbouring elements.

// y = (x - mean) / deviation, both by Welford's update; triples of lanes combine like sums.
extern "C" __global__ void layer_norm(const float* x, float* y, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float count = 0.0f, mean = 0.0f, rest = 0.0f;
    for (int col = lane; col < cols; col += 32) {
        float away = x[row * cols + col] - mean;
        mean += away / ++count;
        rest += away * (x[row * cols + col] - mean);
    }
    for (int step = 16; step > 0; step /= 2) {
        float others = __shfl_xor_sync(0xffffffff, count, step), all = count + others;
        float away = __shfl_xor_sync(0xffffffff, mean, step) - mean;
        rest += __shfl_xor_sync(0xffffffff, rest, step);
        if (all > 0) {
            rest += away * away * count * others / all;
            mean += away * others / all;
        }
        count = all;
    }
    float scale = rsqrtf(rest / cols + 1e-5f);
    for (int col = lane; col < cols; col += 32) y[row * cols + col] = (x[row * cols + col] - mean) * scale;
}

// Each row becomes positive and sums to 1; largest and sum in one pass, online.
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float lowest = __int_as_float(0xff800000);
    float most = lowest, sum = 0.0f;
    for (int col = lane; col < cols; col += 32) {
        float v = x[row * cols + col], larger = fmaxf(most, v);
        if (v > lowest) sum = sum * expf(most - larger) + expf(v - larger);
        most = larger;
    }
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(0xffffffff, most, step), theirs = __shfl_xor_sync(0xffffffff, sum, step);
        float larger = fmaxf(most, other);
        if (larger > lowest) sum = sum * expf(most - larger) + theirs * expf(other - larger);
        most = larger;
    }
    for (int col = lane; col < cols; col += 32)
        y[row * cols + col] = sum > 0.0f ? expf(x[row * cols + col] - most) / sum : 0.0f;
}
