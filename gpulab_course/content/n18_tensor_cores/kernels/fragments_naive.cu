extern "C" __global__ void fragments(const uint4* x, unsigned* y) {
    __shared__ uint4 tile[64 * 8];  // 64 rows of 8 vectors; a vector is 8 halves
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x += blockIdx.x * 512;
    y += blockIdx.x * 2048;
    for (int i = threadIdx.x; i < 512; i += blockDim.x) {
        int row = i / 8, v = i % 8;
        tile[row * 8 + v] = x[i];
    }
    __syncthreads();
    for (int part = warp; part < 16; part += warps) {  // 4 x 4 parts of 16 x 16 halves
        int row = part / 4 * 16 + lane % 16, v = part % 4 * 2 + lane / 16;
        unsigned address = __cvta_generic_to_shared(&tile[row * 8 + v]), r[4];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
            : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
        for (int i = 0; i < 4; ++i) y[(part * 4 + i) * 32 + lane] = r[i];
    }
}
