// Atomics: to one address and to many, in device memory and in shared memory.
#define AT blockIdx.x * blockDim.x + threadIdx.x
extern "C" __global__ void one_address(int* h, int m) { atomicAdd(h, (int)threadIdx.x * m); }
extern "C" __global__ void modulo_int(int* h, int m) { atomicAdd(&h[(AT) % m], 1); }
extern "C" __global__ void modulo_float(float* h, int m) { atomicAdd(&h[(AT) % m], 1.0f); }
extern "C" __global__ void modulo_f64(double* h, int m) { atomicAdd(&h[(AT) % m], 1.0); }
extern "C" __global__ void per_warp(int* h, int m) { atomicAdd(&h[((AT) / 32) % m], (int)threadIdx.x); }
extern "C" __global__ void spread(int* h, int m) { atomicAdd(&h[((AT) * 32) % m], 1); }
extern "C" __global__ void random_bins(const int* bins, int* h, int n) { int i = AT; if (i < n) atomicAdd(&h[bins[i]], 1); }
extern "C" __global__ void returned(int* h, int* out, int m) { out[AT] = atomicAdd(&h[(AT) % m], 1); }
extern "C" __global__ void maximum(const int* x, int* h, int n) { int i = AT; if (i < n) atomicMax(h, x[i]); }
extern "C" __global__ void cas_loop(float* h, int m) {
    int* p = (int*)&h[(AT) % m];
    int old = *p, seen;
    do { seen = old; old = atomicCAS(p, seen, __float_as_int(__int_as_float(seen) + 1.0f)); } while (old != seen);
}
extern "C" __global__ void aggregated(int* h, const int* x, int n) {
    int i = AT;
    bool keep = i < n && x[i] > 0;
    unsigned mask = __ballot_sync(~0u, keep);
    if ((threadIdx.x & 31) == 0 && mask) atomicAdd(h, __popc(mask));
}
extern "C" __global__ void shared_bins(const int* bins, int* h, int n, int m, int rounds) {
    __shared__ int s[1024];
    for (int k = threadIdx.x; k < m; k += blockDim.x) s[k] = 0;
    __syncthreads();
    for (int r = 0; r < rounds; r++) { int i = (AT) + r * gridDim.x * blockDim.x; if (i < n) atomicAdd(&s[bins[i] % m], 1); }
    __syncthreads();
    for (int k = threadIdx.x; k < m; k += blockDim.x) atomicAdd(&h[k], s[k]);
}
