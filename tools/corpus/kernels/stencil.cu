// Shows: a halo in shared memory and weights in constant memory, which a warp reads in one go.
#define RADIUS 3

__constant__ float weights[2 * RADIUS + 1] = {0.03125f, 0.109375f, 0.21875f, 0.28125f, 0.21875f, 0.109375f, 0.03125f};

extern "C" __global__ void stencil(const float* in, float* out, int n)
{
    extern __shared__ float tile[];  // blockDim.x + 2 * RADIUS
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int t = threadIdx.x + RADIUS;
    tile[t] = i < n ? in[i] : 0.0f;
    if (threadIdx.x < RADIUS) {
        int left = i - RADIUS;
        int right = i + blockDim.x;
        tile[t - RADIUS] = left >= 0 ? in[left] : 0.0f;
        tile[t + blockDim.x] = right < n ? in[right] : 0.0f;
    }
    __syncthreads();
    float sum = 0.0f;
    for (int k = -RADIUS; k <= RADIUS; k++)
        sum += weights[k + RADIUS] * tile[t + k];
    if (i < n)
        out[i] = sum;
}
