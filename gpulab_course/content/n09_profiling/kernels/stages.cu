// Three stages of notebook 09. Each turns a map that stays within 0 and 1 so many rounds for each of n elements,
// in place, so that its time is easy to choose.
__device__ void turn(float* a, int n, int rounds) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        float v = a[i];
        for (int k = 0; k < rounds; ++k) v = 3.9f * v * (1.0f - v);
        a[i] = v;
    }
}
extern "C" __global__ void embed(float* a, int n, int rounds) { turn(a, n, rounds); }
extern "C" __global__ void mix(float* a, int n, int rounds) { turn(a, n, rounds); }
extern "C" __global__ void gate(float* a, int n, int rounds) { turn(a, n, rounds); }
