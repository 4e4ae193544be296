// c = a b, for m, n and k that are multiples of 64; a block computes 64 x 64 elements, a warp WARP x WARP
#ifndef WARP
#define WARP 32
#endif
#ifndef STAGES
#define STAGES 3
#endif
extern "C" __global__ void product(const half* a, const half* b, float* c, int m, int n, int k) {
    __shared__ uint4 tiles[STAGES][2][64 * 8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
    int wy = warp / (64 / WARP) * WARP, wx = warp % (64 / WARP) * WARP;
    float sum[WARP / 16][WARP / 8][4] = {};
    auto fetch = [&](int k0) {  // starts to copy the tiles at k0, if there are any
        uint4(&to)[2][64 * 8] = tiles[k0 / 64 % STAGES];
        for (int i = threadIdx.x; i < 512 && k0 < k; i += blockDim.x) {
            int row = i / 8, v = i % 8;
            __pipeline_memcpy_async(&to[0][place(row, v)], a + (size_t)(row0 + row) * k + k0 + 8 * v, 16);
            __pipeline_memcpy_async(&to[1][place(row, v)], b + (size_t)(k0 + row) * n + col0 + 8 * v, 16);
        }
        __pipeline_commit();
    };
    for (int stage = 0; stage < STAGES - 1; ++stage) fetch(64 * stage);
    for (int k0 = 0; k0 < k; k0 += 64) {
        if (STAGES == 1) fetch(k0);
        __pipeline_wait_prior(STAGES > 1 ? STAGES - 2 : 0);
        __syncthreads();
        if (STAGES > 1) fetch(k0 + 64 * (STAGES - 1));
        const uint4(&from)[2][64 * 8] = tiles[k0 / 64 % STAGES];
        for (int d = 0; d < 64; d += 16) {
            unsigned fa[WARP / 16][4], fb[WARP / 16][4];
            for (int i = 0; i < WARP / 16; ++i) {
                load_4(fa[i], &from[0][place(wy + 16 * i + lane % 16, d / 8 + lane / 16)]);
                load_4_transposed(fb[i], &from[1][place(d + lane % 16, wx / 8 + 2 * i + lane / 16)]);
            }
            for (int i = 0; i < WARP / 16; ++i)
                for (int j = 0; j < WARP / 8; ++j) {
                    unsigned pair[2] = {fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]};
                    multiply(sum[i][j], fa[i], pair);
                }
        }
        if (STAGES == 1) __syncthreads();
    }
    for (int i = 0; i < WARP / 16; ++i)
        for (int j = 0; j < WARP / 8; ++j)
            for (int h = 0; h < 2; ++h) {
                int row = row0 + wy + 16 * i + lane / 4 + 8 * h, column = col0 + wx + 8 * j + lane % 4 * 2;
                *(float2*)(c + (size_t)row * n + column) = make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
            }
}
