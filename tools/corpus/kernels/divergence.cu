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

// The same two loops, but whole warps go one way or the other: nobody waits.
extern "C" __global__ void two_ways_by_warp(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = in[i];
    if (threadIdx.x / 32 % 2) {
        for (int k = 0; k < 20; k++)
            v = v * 1664525u + (v >> 13) + out[i];
    } else {
        for (int k = 0; k < 10; k++)
            v = (v ^ (v << 7)) + 1013904223u * out[i];
    }
    out[i] = v;
}

// Four ways through one warp; the compiler may not unroll the loops, so that they stay branches.
extern "C" __global__ void four_ways(unsigned* data)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = data[i];
    switch (threadIdx.x % 4) {
    case 0:
#pragma unroll 1
        for (int k = 0; k < 5; k++)
            v = v * 69069u + 1;
        break;
    case 1:
#pragma unroll 1
        for (int k = 0; k < 7; k++)
            v ^= v >> 5 ^ v << 3;
        break;
    case 2:
#pragma unroll 1
        for (int k = 0; k < 9; k++)
            v = v / 3 + 0x9e3779b9u;
        break;
    default:
#pragma unroll 1
        for (int k = 0; k < 11; k++)
            v -= v >> 7;
    }
    data[i] = v;
}

// Lane 0 turns once, lane 31 turns 32 times: one lane fewer in every turn.
extern "C" __global__ void stairs(unsigned* data)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned v = data[i];
#pragma unroll 1
    for (int k = 0; k <= threadIdx.x % 32; k++)
        v = v * 33 + k;
    data[i] = v;
}

// Euclid's algorithm: how often a lane turns depends on its numbers.
extern "C" __global__ void gcd(const unsigned* a, const unsigned* b, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned x = a[i];
    unsigned y = b[i];
#pragma unroll 1
    while (y != 0) {
        unsigned rest = x % y;
        x = y;
        y = rest;
    }
    out[i] = x;
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
