// Shows: the family of atomics on one set of totals. None of the results depends on the order.
extern "C" __global__ void totals(const int* in, int* out, unsigned long long* sum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int v = in[i];
    atomicAdd(&out[0], v);
    atomicMin(&out[1], v);
    atomicMax(&out[2], v);
    atomicXor(&out[3], v);
    atomicOr(&out[4], v & 0x00ff00ff);
    atomicAnd(&out[5], v | 0x0000000f);
    atomicAdd(sum, (unsigned long long)(long long)v * v);
    int seen = out[6];  // a saturating add made of compare-and-swap
    int expected;
    do {
        expected = seen;
        seen = atomicCAS(&out[6], expected, expected < 100 ? expected + 1 : expected);
    } while (seen != expected);
}
