// The block with its normed rows, scores and weights in BF16, two bytes an element; sums stay in FP32, as do input and
// result. Numbers are rounded by their bits, so that this runs where there is no instruction for it, too.
typedef unsigned short bf16;
__device__ float wide(bf16 v) { return __uint_as_float((unsigned)v << 16); }
__device__ bf16 nearest(float v)
{
    unsigned bits = __float_as_uint(v);
    return (bits + ((bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x400000u & ~bits : 0x7FFFu + (bits >> 16 & 1u))) >> 16;
}

// y = (x - mean) / deviation, both by Welford's update; triples of lanes combine like sums.
extern "C" __global__ void layer_norm(const float* x, bf16* y, int rows, int cols)
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
    for (int col = lane; col < cols; col += 32) y[row * cols + col] = nearest((x[row * cols + col] - mean) * scale);
}

// Each row becomes positive and sums to 1; largest and sum in one pass, online.
extern "C" __global__ void softmax(const bf16* x, bf16* y, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float lowest = __int_as_float(0xff800000);
    float most = lowest, sum = 0.0f;
    for (int col = lane; col < cols; col += 32) {
        float v = wide(x[row * cols + col]), larger = fmaxf(most, v);
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
        y[row * cols + col] = nearest(sum > 0.0f ? expf(wide(x[row * cols + col]) - most) / sum : 0.0f);
}

// c = scale * a b, where a is rows x inner and b is cols x inner (so b is transposed).
extern "C" __global__ void matmul_transposed(
    const bf16* a, const bf16* b, bf16* c, int rows, int cols, int inner, float scale)
{
    __shared__ float as[16][17], bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y;
    int col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty, other = blockIdx.x * 16 + ty;
    float sum = 0.0f;
    for (int first = 0; first < inner; first += 16) {
        as[ty][tx] = row < rows && first + tx < inner ? wide(a[row * inner + first + tx]) : 0.0f;
        bs[ty][tx] = other < cols && first + tx < inner ? wide(b[other * inner + first + tx]) : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[tx][k];
        __syncthreads();
    }
    if (row < rows && col < cols) c[row * cols + col] = nearest(scale * sum);
}

// c = gelu(a b), where a is rows x inner and b is inner x cols.
extern "C" __global__ void matmul(const bf16* a, const bf16* b, float* c, int rows, int cols, int inner)
{
    __shared__ float as[16][17], bs[16][17];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
    float sum = 0.0f;
    for (int first = 0; first < inner; first += 16) {
        as[ty][tx] = row < rows && first + tx < inner ? wide(a[row * inner + first + tx]) : 0.0f;
        bs[ty][tx] = first + ty < inner && col < cols ? wide(b[(first + ty) * cols + col]) : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += as[ty][k] * bs[k][tx];
        __syncthreads();
    }
    float v = sum;
    v = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    if (row < rows && col < cols) c[row * cols + col] = v;
}
