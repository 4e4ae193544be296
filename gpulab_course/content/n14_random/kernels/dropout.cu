__device__ uint4 philox(uint4 c, uint2 key)
{
    for (int round = 0; round < 10; ++round) {
        unsigned high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        unsigned high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return c;
}

extern "C" __global__
void dropout(const float* x, float* y, unsigned key0, unsigned key1, long long offset, unsigned dropped, float scale, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned long long at = offset + i;
        uint4 four = philox(make_uint4(unsigned(at >> 2), unsigned(at >> 34), 0, 0), make_uint2(key0, key1));
        unsigned word = at % 4 == 0 ? four.x : at % 4 == 1 ? four.y : at % 4 == 2 ? four.z : four.w;
        y[i] = word < dropped ? 0 : x[i] * scale;
    }
}
