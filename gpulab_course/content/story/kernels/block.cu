// A tiny attention block, each step as plainly as it can be written, and therefore slow.
// Rows are tokens, columns are features; every matrix lies row after row.

// One thread a row: y = (x - mean) / deviation.
extern "C" __global__ void layer_norm(const float* x, float* y, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f, squares = 0.0f;
    for (int col = 0; col < cols; col++) sum += x[row * cols + col];
    float mean = sum / cols;
    for (int col = 0; col < cols; col++) {
        float away = x[row * cols + col] - mean;
        squares += away * away;
    }
    float scale = rsqrtf(squares / cols + 1e-5f);
    for (int col = 0; col < cols; col++) y[row * cols + col] = (x[row * cols + col] - mean) * scale;
}

// One thread an element: c = scale * a b, where a is rows x inner and b is cols x inner (so b is transposed).
extern "C" __global__ void matmul_transposed(
    const float* a, const float* b, float* c, int rows, int cols, int inner, float scale)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    float sum = 0.0f;
    for (int k = 0; k < inner; k++) sum += a[row * inner + k] * b[col * inner + k];
    c[row * cols + col] = scale * sum;
}

// One thread an element: c = a b, where a is rows x inner and b is inner x cols.
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int rows, int cols, int inner)
{
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
    float sum = 0.0f;
    for (int k = 0; k < inner; k++) sum += a[row * inner + k] * b[k * cols + col];
    c[row * cols + col] = sum;
}

// One thread a row: each row becomes positive and sums to 1. Without its largest taken off, expf overflows.
extern "C" __global__ void softmax(const float* x, float* y, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float largest = x[row * cols];
    for (int col = 1; col < cols; col++) largest = fmaxf(largest, x[row * cols + col]);
    float sum = 0.0f;
    for (int col = 0; col < cols; col++) {
        float power = expf(x[row * cols + col] - largest);
        y[row * cols + col] = power;
        sum += power;
    }
    for (int col = 0; col < cols; col++) y[row * cols + col] /= sum;
}

// One thread an element: GELU by its usual approximation with tanh.
extern "C" __global__ void gelu(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
}
