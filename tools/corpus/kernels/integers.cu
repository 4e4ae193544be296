// Shows: integer arithmetic of every kind; all of it is exact, so every GPU gives the same bits.

extern "C" __global__ void mix32(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned h = in[i];
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= __umulhi(h, 0xc2b2ae35u);
    h += h / (in[(i + 1) % n] | 1u);
    h -= h % 10007u;
    int s = (int)h;
    s = s / -17 + s % 1000 + (s >> 5);
    h = (unsigned)s ^ __funnelshift_l((unsigned)s, h, 9);
    out[i] = min(h, ~h) + max((int)h, s);
}

extern "C" __global__ void mix64(const unsigned long long* in, unsigned long long* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long h = in[i];
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
    h ^= __umul64hi(h, 0x94d049bb133111ebull);
    h += h / (in[(i + 3) % n] >> 20 | 1ull);
    h -= h % 1000003ull;
    long long s = (long long)h;
    s = s / -12345 + (s >> 7);
    out[i] = (unsigned long long)s ^ (h << 13);
}

// Bit tricks that are single instructions.
extern "C" __global__ void bits(const unsigned* in, unsigned* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v = in[i];
    unsigned r = __popc(v) + 64u * __clz(v) + 4096u * __ffs(v);
    r ^= __brev(v);
    r += __byte_perm(v, ~v, 0x4712);
    r ^= (unsigned)__dp4a((int)v, 0x01020304, (int)r);
    r += (unsigned)(unsigned short)(v >> 3) + (unsigned)(int)(signed char)v;
    out[i] = r;
}
