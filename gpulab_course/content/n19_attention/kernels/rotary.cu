// Scores of one query with keys that are rotated while they are loaded: one warp for each key.
extern "C" __global__ void rotary(const float* q, const float* k, const float* cosine, const float* sine,
                                  const int* position, float* score, int keys)
{
    int lane = threadIdx.x % 32, j = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (j >= keys) return;
    float a = k[j * 64 + lane], b = k[j * 64 + lane + 32];
    float c = cosine[position[j] * 32 + lane], s = sine[position[j] * 32 + lane];
    float sum = q[lane] * (a * c - b * s) + q[lane + 32] * (a * s + b * c);
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (lane == 0) score[j] = 0.125f * sum;
}
