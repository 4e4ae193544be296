// Kernels of notebook 07. Each is a long chain of arithmetic on few elements, so that its time is easy to
// choose: many small pieces of work, as a simulation or a small network has them.

// One piece of work on n elements, in place: `rounds` turns of a map that stays within 0 and 1.
extern "C" __global__ void simmer(float* a, int n, int rounds) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        float v = a[i];
        for (int k = 0; k < rounds; ++k) v = 3.9f * v * (1.0f - v);
        a[i] = v;
    }
}

// A policy: for each of n observations an action from 0 to 1, after so many rounds of pondering (the
// generator of Numerical Recipes: a small change of the observation changes the action altogether).
extern "C" __global__ void decide(const float* observation, float* action, int n, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = __float_as_uint(observation[i]);
    for (int k = 0; k < rounds; ++k) v = v * 1664525u + 1013904223u;
    action[i] = (v >> 8) * (1.0f / 16777216.0f);
}
