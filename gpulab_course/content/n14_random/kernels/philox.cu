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
void random_words(unsigned* words, unsigned key0, unsigned key1, long long first, int n)
{
    int block = blockIdx.x * blockDim.x + threadIdx.x, i = 4 * block;
    if (i >= n) return;
    unsigned long long counter = first + block;
    uint4 four = philox(make_uint4(unsigned(counter), unsigned(counter >> 32), 0, 0), make_uint2(key0, key1));
    words[i] = four.x;
    if (i + 1 < n) words[i + 1] = four.y;
    if (i + 2 < n) words[i + 2] = four.z;
    if (i + 3 < n) words[i + 3] = four.w;
}
