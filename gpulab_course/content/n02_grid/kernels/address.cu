extern "C" __global__
void address(int* warp, int* lane, int* row) {
    int threads = blockDim.x * blockDim.y * blockDim.z;
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    warp[block * threads + t] = t / 32;
    lane[block * threads + t] = t % 32;
    row[block * threads + t] = blockIdx.y * blockDim.y + threadIdx.y;
}
