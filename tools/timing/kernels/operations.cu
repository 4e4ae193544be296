// One operation a kernel, over and over: a chain in which each waits for the one before, and with `4` in its name
// four chains that do not wait for each other.
#define CHAIN(name, T, step)                                     \
    extern "C" __global__ void name(T* x, int n, int m) {        \
        int i = blockIdx.x * blockDim.x + threadIdx.x;           \
        T v = x[i];                                              \
        for (int k = 0; k < n; k++) { step; }                    \
        x[i] = v;                                                \
    }
#define CHAIN4(name, T, f)                                       \
    extern "C" __global__ void name(T* x, int n, int m) {        \
        int i = blockIdx.x * blockDim.x + threadIdx.x;           \
        T a = x[i], b = a + (T)1, c = a + (T)2, d = a + (T)3;    \
        for (int k = 0; k < n; k++) { a = f(a); b = f(b); c = f(c); d = f(d); } \
        x[i] = a + b + c + d;                                    \
    }
#define FMA32(v) ((v) * 1.000001f + 0.5f)
#define FMA64(v) ((v) * 1.000001 + 0.5)
#define MAD32(v) ((v) * m + 12345)
#define XOR32(v) ((v) ^ ((v) << 5))
#define EXP32(v) (__expf(v) - 0.9f)
CHAIN(fma_f32, float, v = FMA32(v))
CHAIN4(fma4_f32, float, FMA32)
CHAIN(add_f32, float, v = v + 0.5f)
CHAIN(minmax_f32, float, v = fminf(fmaxf(v, 0.25f * k), 3.0f))
CHAIN(fma_f64, double, v = FMA64(v))
CHAIN4(fma4_f64, double, FMA64)
CHAIN(mad_s32, int, v = MAD32(v))
CHAIN4(mad4_s32, int, MAD32)
CHAIN(xorshift_s32, int, v = XOR32(v))
CHAIN4(xorshift4_s32, int, XOR32)
CHAIN(mad_s64, long long, v = v * (long long)m + 12345)
CHAIN(add_s64, long long, v = (v + k) ^ m)
CHAIN(mulhi_u32, unsigned, v = __umulhi(v, 0x9E3779B1u) + k)
CHAIN(popc_u32, unsigned, v = v + __popc(v) + k)
CHAIN(clz_brev_u32, unsigned, v = __brev(v) + __clz(v))
CHAIN(div_s32, int, v = 1000000007 / (v | 1) + m)
CHAIN(mod_s32, int, v = v % m + 1000000)
CHAIN(mod_u32, unsigned, v = (v + k) % (unsigned)m + 1000000u)
CHAIN(mod_const_s32, int, v = v % 7 + 1000000 + k)
CHAIN(div_s64, long long, v = 1000000007000000009LL / (v | 1) + m)
CHAIN(convert_f32_s32, float, v = (float)((int)v + k) * 0.5f)
CHAIN(convert_f64_f32, float, v = (float)((double)v * 0.999) + 0.5f)
CHAIN(fast_sin, float, v = __sinf(v))
CHAIN(fast_exp, float, v = EXP32(v))
CHAIN4(fast_exp4, float, EXP32)
CHAIN(fast_log, float, v = __logf(v + 1.5f))
CHAIN(fast_div, float, v = __fdividef(1.5f, v + 0.5f))
CHAIN(sin_f32, float, v = sinf(v))
CHAIN(exp_f32, float, v = expf(v) - 0.9f)
CHAIN(log_f32, float, v = logf(v + 1.5f))
CHAIN(sqrt_f32, float, v = sqrtf(v + 1.5f))
CHAIN(rsqrt_f32, float, v = rsqrtf(v + 1.5f))
CHAIN(div_f32, float, v = 1.5f / (v + 0.5f))
CHAIN(pow_f32, float, v = powf(v + 0.5f, 0.7f))
CHAIN(tanh_f32, float, v = tanhf(v) + 0.5f)
CHAIN(div_f64, double, v = 1.5 / (v + 0.5))
CHAIN(sqrt_f64, double, v = sqrt(v + 1.5))
CHAIN(exp_f64, double, v = exp(v) - 0.9)
CHAIN(sin_f64, double, v = sin(v))
CHAIN(log_f64, double, v = log(v + 1.5))
CHAIN(shuffle, int, v = __shfl_xor_sync(~0u, v, 1) + k)
CHAIN(ballot, int, v = v + __popc(__ballot_sync(~0u, v & 1)) + k)
CHAIN(reduce_sync, int, v = __reduce_add_sync(~0u, v) + k)

extern "C" __global__ void empty() {}

extern "C" __global__ void shared_chain(int* x, int n, int m) {
    __shared__ int s[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = (t + 33 * m) % blockDim.x;
    __syncthreads();
    int v = t;
    for (int k = 0; k < n; k++) v = s[v];
    x[i] = v;
}

extern "C" __global__ void barriers(int* x, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i];
    for (int k = 0; k < n; k++) { __syncthreads(); v += k * m; }
    x[i] = v;
}
__constant__ float table[1024];
extern "C" __global__ void constant_read(float* x, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0;
    for (int k = 0; k < n; k++) v += table[(k + (threadIdx.x & (m - 1)) * 4) & 1023];
    x[i] = v;
}
