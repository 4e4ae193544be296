// A block for each row, in three passes: the largest, the sum, the quotients.
extern "C" __global__
void softmax(const float* x, float* y, int rows, int cols)
{
    __shared__ float box[1024];
    const float lowest = __int_as_float(0xff800000);
    int t = threadIdx.x;
    const float* from = x + blockIdx.x * cols;
    float most = lowest, sum = 0;
    for (int i = t; i < cols; i += blockDim.x) most = fmaxf(most, from[i]);
    box[t] = most;
    __syncthreads();
    for (int left = blockDim.x; left > 1; left = (left + 1) / 2) {
        int half = (left + 1) / 2;
        if (t < left / 2) box[t] = fmaxf(box[t], box[t + half]);
        __syncthreads();
    }
    most = box[0];
    __syncthreads();
    if (most > lowest)
        for (int i = t; i < cols; i += blockDim.x) sum += expf(from[i] - most);
    box[t] = sum;
    __syncthreads();
    for (int left = blockDim.x; left > 1; left = (left + 1) / 2) {
        int half = (left + 1) / 2;
        if (t < left / 2) box[t] += box[t + half];
        __syncthreads();
    }
    sum = box[0];
    for (int i = t; i < cols; i += blockDim.x)
        y[blockIdx.x * cols + i] = sum > 0 ? expf(from[i] - most) / sum : 0;
}
