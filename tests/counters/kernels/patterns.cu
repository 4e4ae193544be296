// One warp, one access: every lane has a place of its own, in units of the access, and `mask` says which take part.

#define SHARED(NAME, TYPE)                                                                             \
    extern "C" __global__ void shared_load_##NAME(const int* places, unsigned mask, TYPE* out)         \
    {                                                                                                  \
        extern __shared__ uint4 room[];                                                                \
        int place = places[threadIdx.x];                                                               \
        if (mask >> threadIdx.x & 1)                                                                   \
            out[threadIdx.x] = reinterpret_cast<TYPE*>(room)[place];                                   \
    }                                                                                                  \
    extern "C" __global__ void shared_store_##NAME(const int* places, unsigned mask, TYPE* out)        \
    {                                                                                                  \
        extern __shared__ uint4 room[];                                                                \
        int place = places[threadIdx.x];                                                               \
        TYPE value = out[threadIdx.x];                                                                 \
        if (mask >> threadIdx.x & 1)                                                                   \
            reinterpret_cast<TYPE*>(room)[place] = value;                                              \
        __syncthreads();                                                                               \
        if (threadIdx.x == 0)                                                                          \
            out[32] = reinterpret_cast<TYPE*>(room)[0];                                                \
    }

#define GLOBAL(NAME, TYPE)                                                                             \
    extern "C" __global__ void global_load_##NAME(const int* places, unsigned mask, TYPE* data)        \
    {                                                                                                  \
        int place = places[threadIdx.x];                                                               \
        if (mask >> threadIdx.x & 1)                                                                   \
            data[1024 + threadIdx.x] = data[place];                                                    \
    }                                                                                                  \
    extern "C" __global__ void global_store_##NAME(const int* places, unsigned mask, TYPE* data)       \
    {                                                                                                  \
        int place = places[threadIdx.x];                                                               \
        TYPE value = data[1024 + threadIdx.x];                                                         \
        if (mask >> threadIdx.x & 1)                                                                   \
            data[place] = value;                                                                       \
    }

SHARED(1, unsigned char)
SHARED(2, unsigned short)
SHARED(4, unsigned)
SHARED(8, uint2)
SHARED(16, uint4)
GLOBAL(4, unsigned)
GLOBAL(8, uint2)
GLOBAL(16, uint4)

typedef unsigned long long wide;

// Atomics whose result nobody wants (RED, ATOMS without a destination) and whose result is kept.
#define ATOMIC(NAME, TYPE)                                                                             \
    extern "C" __global__ void global_red_##NAME(const int* places, unsigned mask, TYPE* data)         \
    {                                                                                                  \
        int place = places[threadIdx.x];                                                               \
        if (mask >> threadIdx.x & 1)                                                                   \
            atomicAdd(&data[place], TYPE(threadIdx.x));                                                \
    }                                                                                                  \
    extern "C" __global__ void global_atom_##NAME(const int* places, unsigned mask, TYPE* data)        \
    {                                                                                                  \
        int place = places[threadIdx.x];                                                               \
        if (mask >> threadIdx.x & 1)                                                                   \
            data[1024 + threadIdx.x] = atomicAdd(&data[place], TYPE(threadIdx.x));                     \
    }

ATOMIC(4, unsigned)
ATOMIC(8, wide)

// EFFECT is the atomic, on `*at`; `lane` is at hand.
#define SHARED_RED(NAME, TYPE, EFFECT)                                                                 \
    extern "C" __global__ void shared_##NAME(const int* places, unsigned mask, TYPE* out)              \
    {                                                                                                  \
        extern __shared__ uint4 room[];                                                                \
        unsigned lane = threadIdx.x;                                                                   \
        TYPE* at = reinterpret_cast<TYPE*>(room) + places[lane];                                       \
        if (mask >> lane & 1)                                                                          \
            EFFECT;                                                                                    \
        __syncthreads();                                                                               \
        if (lane == 0)                                                                                 \
            out[32] = reinterpret_cast<TYPE*>(room)[0];                                                \
    }
#define SHARED_ATOM(NAME, TYPE, EFFECT)                                                                \
    extern "C" __global__ void shared_##NAME(const int* places, unsigned mask, TYPE* out)              \
    {                                                                                                  \
        extern __shared__ uint4 room[];                                                                \
        unsigned lane = threadIdx.x;                                                                   \
        TYPE* at = reinterpret_cast<TYPE*>(room) + places[lane];                                       \
        if (mask >> lane & 1)                                                                          \
            out[lane] = EFFECT;                                                                        \
    }
#define GLOBAL_ATOM(NAME, TYPE, EFFECT)                                                                \
    extern "C" __global__ void global_##NAME(const int* places, unsigned mask, TYPE* data)             \
    {                                                                                                  \
        unsigned lane = threadIdx.x;                                                                   \
        TYPE* at = data + places[lane];                                                                \
        if (mask >> lane & 1)                                                                          \
            EFFECT;                                                                                    \
    }

SHARED_RED(red_4, unsigned, atomicAdd(at, lane))
SHARED_RED(count_4, unsigned, atomicAdd(at, 1u))
SHARED_RED(max_4, int, atomicMax(at, int(lane)))
SHARED_ATOM(atom_4, unsigned, atomicAdd(at, lane))
SHARED_ATOM(ticket_4, unsigned, atomicAdd(at, 1u))
SHARED_ATOM(exch_4, unsigned, atomicExch(at, lane))
SHARED_ATOM(cas_4, unsigned, atomicCAS(at, lane, lane + 1))
SHARED_ATOM(cas_8, wide, atomicCAS(at, lane, lane + 1))
SHARED_ATOM(exch_8, wide, atomicExch(at, lane))
GLOBAL_ATOM(max_4, int, atomicMax(at, int(lane)))
GLOBAL_ATOM(float_4, float, atomicAdd(at, float(lane)))
GLOBAL_ATOM(float_8, double, atomicAdd(at, double(lane)))
GLOBAL_ATOM(exch_4, unsigned, data[1024 + lane] = atomicExch(at, lane))
GLOBAL_ATOM(cas_4, unsigned, data[1024 + lane] = atomicCAS(at, lane, lane + 1))
GLOBAL_ATOM(cas_8, wide, data[1024 + lane] = atomicCAS(at, wide(lane), wide(lane + 1)))
