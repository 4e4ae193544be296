// A block for each row: largest and sum in one pass, online; a row of nothing but -infinity becomes 0.
extern "C" __global__
void softmax(const float* x, float* y, int rows, int cols)
{
    __shared__ float mosts[32], sums[32];
    const float lowest = __int_as_float(0xff800000);
    int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const float* from = x + blockIdx.x * cols;
    float most = lowest, sum = 0;
    for (int i = t; i < cols; i += blockDim.x) {
        float v = from[i];
        if (v > most) {
            sum *= expf(most - v);
            most = v;
        }
        if (v > lowest) sum += expf(v - most);
    }
    for (int o = 16; o > 0; o /= 2) {
        float m = __shfl_xor_sync(0xffffffff, most, o), s = __shfl_xor_sync(0xffffffff, sum, o);
        float both = fmaxf(most, m);
        sum = (most > lowest ? sum * expf(most - both) : 0) + (m > lowest ? s * expf(m - both) : 0);
        most = both;
    }
    if (lane == 0) { mosts[warp] = most; sums[warp] = sum; }
    __syncthreads();
    for (int w = 0; w < blockDim.x / 32; ++w) most = fmaxf(most, mosts[w]);
    sum = 0;
    for (int w = 0; w < blockDim.x / 32; ++w) sum += mosts[w] > lowest ? sums[w] * expf(mosts[w] - most) : 0;
    for (int i = t; i < cols; i += blockDim.x)
        y[blockIdx.x * cols + i] = sum > 0 ? expf(from[i] - most) / sum : 0;
}
