// one instruction per block; a and b have register 0 of each lane, the other registers are 0
#if !defined(INSTRUCTION) || __CUDA_ARCH__ < 800  // an older GPU has only this instruction
#undef INSTRUCTION
#undef A_REGISTERS
#define INSTRUCTION m16n8k8.row.col.f32.f16.f16.f32
#define A_REGISTERS 2
#endif
#define TEXT(x) #x
#define MMA(x) "mma.sync.aligned." TEXT(x)
extern "C" __global__ void probe(const unsigned* a, const unsigned* b, float* d) {
    unsigned p = a[blockIdx.x * 32 + threadIdx.x], q = b[blockIdx.x * 32 + threadIdx.x], zero = 0;
    float sum[4] = {};
#if A_REGISTERS == 4
    asm volatile(MMA(INSTRUCTION) " {%0,%1,%2,%3}, {%4,%6,%6,%6}, {%5,%6}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(p), "r"(q), "r"(zero));
#else
    asm volatile(MMA(INSTRUCTION) " {%0,%1,%2,%3}, {%4,%6}, {%5}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(p), "r"(q), "r"(zero));
#endif
    if (threadIdx.x == 0) d[blockIdx.x] = sum[0];
}
