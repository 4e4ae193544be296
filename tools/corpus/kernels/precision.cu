// Shows: what IEEE arithmetic promises (the same bits everywhere) and what fast functions do not.

// Horner's rule in double precision: one fused multiply-add a coefficient.
extern "C" __global__ void polynomial(const double* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double v = x[i];
    double sum = 1.0 / 5040.0;
    sum = fma(sum, v, 1.0 / 720.0);
    sum = fma(sum, v, 1.0 / 120.0);
    sum = fma(sum, v, 1.0 / 24.0);
    sum = fma(sum, v, 1.0 / 6.0);
    sum = fma(sum, v, 0.5);
    sum = fma(sum, v, 1.0);
    sum = fma(sum, v, 1.0);
    y[i] = sum;
}

// Division, square root and conversions, all correctly rounded.
extern "C" __global__ void ieee(const float* x, float* quotient, float* root, int* rounded, double* wide, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    float w = x[(i + 1) % n];
    quotient[i] = v / w;
    root[i] = sqrtf(fabsf(v));
    rounded[i] = __float2int_rn(v * 100.0f) + (int)floorf(w) - (int)ceilf(v) + (int)v;
    wide[i] = (double)v / (double)w + sqrt(fabs((double)w));
}

// The special function unit: fast, close, not the last bit.
extern "C" __global__ void fast_functions(const float* x, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    out[5 * i + 0] = __sinf(v);
    out[5 * i + 1] = __cosf(v);
    out[5 * i + 2] = __expf(v);
    out[5 * i + 3] = __logf(fabsf(v) + 1.5f);
    out[5 * i + 4] = rsqrtf(fabsf(v) + 0.5f);
}

// The mathematical library: some instructions each, accurate to a unit or two in the last place.
extern "C" __global__ void library_functions(const float* x, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    out[6 * i + 0] = sinf(v);
    out[6 * i + 1] = cosf(v);
    out[6 * i + 2] = expf(v * 0.1f);
    out[6 * i + 3] = logf(fabsf(v) + 0.1f);
    out[6 * i + 4] = tanhf(v);
    out[6 * i + 5] = powf(fabsf(v) + 0.1f, 0.7f);
}

// A softmax a row: maximum, sum of exponentials, division. One block a row.
extern "C" __global__ void softmax(const float* in, float* out, int columns)
{
    __shared__ float partial[32];
    const float* row = in + blockIdx.x * columns;
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    int warps = blockDim.x / 32;

    float high = -1e30f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        high = fmaxf(high, row[c]);
    for (int offset = 16; offset > 0; offset /= 2)
        high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, offset));
    if (lane == 0)
        partial[warp] = high;
    __syncthreads();
    for (int w = 0; w < warps; w++)
        high = fmaxf(high, partial[w]);
    __syncthreads();

    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        sum += expf(row[c] - high);
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (lane == 0)
        partial[warp] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int w = 0; w < warps; w++)
        sum += partial[w];
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        out[blockIdx.x * columns + c] = expf(row[c] - high) / sum;
}
