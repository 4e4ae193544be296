// A block for each row, which it keeps in shared memory: one read, one write. y = softmax(x * scale + bias).
extern "C" __global__
void softmax(const float* x, const float* bias, float* y, float scale, int rows, int cols)
{
    extern __shared__ float row[];
    __shared__ float box[32];
    int t = threadIdx.x, lane = t % 32, warp = t / 32, warps = blockDim.x / 32;
    float most = __int_as_float(0xff800000), sum = 0;
    for (int i = t; i < cols; i += blockDim.x) {
        row[i] = x[blockIdx.x * cols + i] * scale + bias[i];
        most = fmaxf(most, row[i]);
    }
    for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, o));
    if (lane == 0) box[warp] = most;
    __syncthreads();
    for (int w = 0; w < warps; ++w) most = fmaxf(most, box[w]);
    __syncthreads();
    for (int i = t; i < cols; i += blockDim.x) {
        row[i] = expf(row[i] - most);
        sum += row[i];
    }
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (lane == 0) box[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < warps; ++w) sum += box[w];
    for (int i = t; i < cols; i += blockDim.x) y[blockIdx.x * cols + i] = row[i] / sum;
}
