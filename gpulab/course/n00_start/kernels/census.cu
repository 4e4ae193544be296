// Who is there? Every thread marks its element; threads without one are counted.
extern "C" __global__ void census(int* seen, int* spare, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&seen[i], 1);
    } else {
        atomicAdd(spare, 1);
    }
}
