// Branches that stay branches in machine code: their arms loop or are long.

// One row of a sparse matrix (CSR) a thread: rows differ in length.
extern "C" __global__ void sparse_rows(const int* starts, const int* columns, const float* values, const float* x,
                                       float* y, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
    int end = starts[row + 1];
#pragma unroll 1
    for (int k = starts[row]; k < end; k++)
        sum += values[k] * x[columns[k]];
    y[row] = sum;
}

// A linear search that each lane leaves when it has found its key.
extern "C" __global__ void first_above(const unsigned* in, const unsigned* limits, int* found, int n, int length)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned limit = limits[i];
    int k = 0;
#pragma unroll 1
    while (k < length && in[k] <= limit)
        k++;
    found[i] = k;
}

// Loops in the arms of a branch in the arm of a branch.
extern "C" __global__ void nested(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = in[i];
    if (v & 1) {
        if (v & 2) {
#pragma unroll 1
            for (unsigned k = 0; k < (v >> 2 & 7); k++)
                out[i] += v >> k;
        } else {
#pragma unroll 1
            for (unsigned k = 0; k < (v >> 2 & 3); k++)
                out[i] ^= v << k;
        }
    } else {
#pragma unroll 1
        for (unsigned k = 0; k < 5; k++)
            out[i] = out[i] * 33u + v;
    }
}

// Warps that agree never diverge: the condition is the same for all lanes of a warp.
extern "C" __global__ void agreed(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = in[i / 32];
    if (v & 1) {
#pragma unroll 1
        for (unsigned k = 0; k < (v >> 2 & 7); k++)
            out[i] += v >> k;
    } else {
#pragma unroll 1
        for (unsigned k = 0; k < 5; k++)
            out[i] = out[i] * 33u + v;
    }
}
