// One thread for each key: the lanes of a warp load from 32 rows.
extern "C" __global__ void rotary(const float* q, const float* k, const float* cosine, const float* sine,
                                  const int* position, float* score, int keys)
{
    int warps = blockDim.x / 32, first = blockIdx.x * warps;
    int j = first + threadIdx.x;
    if (threadIdx.x >= warps || j >= keys) return;
    float sum = 0;
    for (int i = 0; i < 32; ++i) {
        float a = k[j * 64 + i], b = k[j * 64 + i + 32];
        float c = cosine[position[j] * 32 + i], s = sine[position[j] * 32 + i];
        sum += q[i] * (a * c - b * s) + q[i + 32] * (a * s + b * c);
    }
    score[j] = 0.125f * sum;
}
