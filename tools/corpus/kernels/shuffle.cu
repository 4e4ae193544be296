// Shows: all four shuffles. Each lane writes what it receives; out has 4 numbers a thread.
extern "C" __global__ void shuffles(const int* in, int* out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = in[i];
    out[4 * i + 0] = __shfl_sync(0xffffffff, value, 5);          // everybody hears lane 5
    out[4 * i + 1] = __shfl_up_sync(0xffffffff, value, 3);       // lanes 0 to 2 keep their own
    out[4 * i + 2] = __shfl_down_sync(0xffffffff, value, 1, 8);  // groups of 8 lanes
    out[4 * i + 3] = __shfl_xor_sync(0xffffffff, value, 16);     // halves swap
}
