// Shows: lanes of one warp taking different ways, and where they meet again.

// Odd and even lanes run one after the other: the warp pays for both loops.
extern "C" __global__ void two_ways(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = in[i];
    if (threadIdx.x % 2) {
        for (int k = 0; k < 20; k++)
            v = v * 1664525u + (v >> 13) + out[i];
    } else {
        for (int k = 0; k < 10; k++)
            v = (v ^ (v << 7)) + 1013904223u * out[i];
    }
    out[i] = v;
}

// Nested branches, a switch and a loop that lanes leave at different times.
extern "C" __global__ void maze(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = in[i];
    unsigned steps = 0;
    for (unsigned k = 0; k < 40; k++) {
        if (v % 7 == 3)
            break;
        if (v % 5 == 0) {
            v += 11;
            continue;
        }
        switch (v & 3) {
        case 0:
            v = v / 2 + in[k];
            break;
        case 1:
            v = 3 * v + 1;
            if (v > 1000000u) {
                v -= 1000000u;
                if (v & 16)
                    steps += 100;
            }
            break;
        case 2:
            v ^= v >> 3;  // and on into the next case
        default:
            v += k;
        }
        steps++;
    }
    out[i] = v + (steps << 24);
}

// The Collatz walk: every lane needs its own number of turns, the warp as many as its longest.
__device__ __noinline__ unsigned collatz_steps(unsigned long long v)
{
    unsigned steps = 0;
    while (v != 1) {
        v = v % 2 ? 3 * v + 1 : v / 2;
        steps++;
    }
    return steps;
}

extern "C" __global__ void collatz(unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = collatz_steps(i + 1);
}
