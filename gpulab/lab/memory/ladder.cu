// What gl.ladder measures with: chains of addresses for latency, and readers of each level for bandwidth.

// Every load needs the address that the one before it brings. `warm` loads go first and are not timed apart:
// a second launch without the others tells what they cost.
extern "C" __global__ void chase(const unsigned long long* first, unsigned long long* out, int warm, int steps)
{
    unsigned long long at = (unsigned long long)first;
    for (int i = 0; i < warm; ++i)
        asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(at));
#pragma unroll 16
    for (int i = 0; i < steps; ++i)
        asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(at));
    *out = at;
}

// Eight chains of multiplications with addition: each reads three registers and writes one.
extern "C" __global__ void registers(float* out, float by, float plus, int rounds)
{
    float v[8];
    for (int k = 0; k < 8; ++k)
        v[k] = k;
    for (int i = 0; i < rounds; ++i)
#pragma unroll
        for (int k = 0; k < 64; ++k)
            v[k % 8] = v[k % 8] * by + plus;
    float sum = 0;
    for (int k = 0; k < 8; ++k)
        sum += v[k];
    if (sum == 1.5f)
        *out = sum;
}

// 16 bytes a lane, neighbours side by side: four wavefronts a request, none of them wasted. Where a load goes
// depends on the round, and all that is loaded is used, or the assembler would drop loads.
extern "C" __global__ void shared_memory(float* out, int rounds)
{
    __shared__ uint4 tile[2048];
    for (int i = threadIdx.x; i < 2048; i += blockDim.x)
        tile[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    unsigned place = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x), seen = 0;
#pragma unroll 1
    for (int i = 0; i < rounds; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            uint4 v;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(place + (k ^ i & 3) * 8192) : "memory");
            seen ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    if (seen == 15)
        *out = seen;
}

// Each block reads 32 KiB of its own again and again.
extern "C" __global__ void l1(const uint4* in, float* out, int rounds)
{
    const uint4* mine = in + blockIdx.x * 2048 + threadIdx.x;
    unsigned seen = 0;
#pragma unroll 1
    for (int i = 0; i < rounds; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            uint4 v;
            asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(mine + (k ^ i & 3) * 512) : "memory");
            seen ^= v.x ^ v.y ^ v.z ^ v.w;
        }
    if (seen == 15)
        *out = seen;
}

// All blocks together read `count` vectors `rounds` times, each block another part every time, and past L1.
extern "C" __global__ void reads(const float4* in, float* out, long long count, int rounds)
{
    long long step = (long long)gridDim.x * blockDim.x;
    float sum = 0;
    for (int i = 0; i < rounds; ++i) {
        int part = (blockIdx.x + 37 * i) % gridDim.x;
        for (long long at = part * (long long)blockDim.x + threadIdx.x; at < count; at += 8 * step) {
            float4 v[8];
#pragma unroll
            for (int k = 0; k < 8; ++k)
                v[k] = at + k * step < count ? __ldcg(in + at + k * step) : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int k = 0; k < 8; ++k)
                sum += v[k].x + v[k].y + v[k].z + v[k].w;
        }
    }
    if (sum == 1.5f)
        *out = sum;
}
