// What HIP offers kernels, for waves of gpulab_lanes lanes: 32, as here, or 64, played by two warps that meet.
__device__ __forceinline__ int gpulab_width() {
    int lanes;
    asm volatile("mov.u32 %0, %1;" : "=r"(lanes) : "n"(gpulab_lanes));
    return lanes;
}
#define warpSize gpulab_width()
typedef unsigned long long gpulab_mask;
__device__ __forceinline__ void gpulab_meet() {
    asm volatile("barrier.sync %0, %1;" :: "r"(threadIdx.x / gpulab_lanes + 1), "n"(gpulab_lanes) : "memory");
}
template <class T> __device__ __forceinline__ T gpulab_from(T value, int lane) {
    bool inside = lane >= 0 && lane < gpulab_lanes;
#if gpulab_lanes == 32
    T other = __shfl_sync(0xffffffffu, value, lane & 31);
    return inside ? other : value;
#else
    __shared__ double slots[1024];
    static_assert(sizeof(T) <= 8, "Values of up to 8 bytes can be shuffled.");
    *(T*)&slots[threadIdx.x] = value;
    gpulab_meet();
    T other = *(T*)&slots[inside ? threadIdx.x / gpulab_lanes * gpulab_lanes + lane : threadIdx.x];
    gpulab_meet();
    return other;
#endif
}
__device__ __forceinline__ gpulab_mask gpulab_votes(bool yes) {
#if gpulab_lanes == 32
    return __ballot_sync(0xffffffffu, yes);
#else
    __shared__ unsigned halves[32];
    unsigned half = __ballot_sync(0xffffffffu, yes);
    halves[threadIdx.x / 32] = half;
    gpulab_meet();
    gpulab_mask all = halves[threadIdx.x / 64 * 2] | (gpulab_mask)halves[threadIdx.x / 64 * 2 + 1] << 32;
    gpulab_meet();
    return all;
#endif
}
// Who is not in a mask, or asks one who is not, gets something, and nobody says what.
template <class M> __device__ __forceinline__ bool gpulab_named(M mask, int lane) {
    static_assert(sizeof(M) == 8, "The mask must be a 64-bit integer.");
    return (gpulab_mask)mask >> lane & 1;
}
#define gpulab_lane ((int)(threadIdx.x % gpulab_lanes))
template <class M, class T> __device__ __forceinline__ T gpulab_sync(M mask, T value, int lane) {
    T other = gpulab_from(value, lane);
    bool asked = lane >= 0 && lane < gpulab_lanes ? gpulab_named(mask, lane) : true;
    return gpulab_named(mask, gpulab_lane) && asked ? other : (T)12345;
}
#define __shfl(v, from) gpulab_from(v, from)
#define __shfl_down(v, d) gpulab_from(v, gpulab_lane + (int)(d))
#define __shfl_up(v, d) gpulab_from(v, gpulab_lane - (int)(d))
#define __shfl_xor(v, d) gpulab_from(v, gpulab_lane ^ (int)(d))
#define __shfl_sync(m, v, from) gpulab_sync(m, v, from)
#define __shfl_down_sync(m, v, d) gpulab_sync(m, v, gpulab_lane + (int)(d))
#define __shfl_up_sync(m, v, d) gpulab_sync(m, v, gpulab_lane - (int)(d))
#define __shfl_xor_sync(m, v, d) gpulab_sync(m, v, gpulab_lane ^ (int)(d))
#define __ballot(yes) gpulab_votes(yes)
#define __ballot_sync(m, yes) (gpulab_votes(gpulab_named(m, gpulab_lane) && (yes)))
#define __activemask() (gpulab_votes(true))
