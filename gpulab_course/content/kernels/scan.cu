// Inclusive prefix sums of n integers. A block of the last version takes a tile of BLOCK * ITEMS.
#define FULL 0xffffffffu
#ifndef ITEMS
#define ITEMS 28
#endif
#ifndef BLOCK
#define BLOCK 256
#endif
#define TILE (BLOCK * ITEMS)

// Hillis and Steele in shared memory: log2(BLOCK) steps, at each of which every thread adds, two barriers per
// step. Leaves the sum of each tile of BLOCK in `sums`, unless that is null.
extern "C" __global__ void scan_steps(const int* in, int* out, int* sums, int n)
{
    __shared__ int part[BLOCK];
    int t = threadIdx.x, i = blockIdx.x * BLOCK + t;
    part[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < BLOCK; step *= 2) {
        int before = t >= step ? part[t - step] : 0;
        __syncthreads();
        part[t] += before;
        __syncthreads();
    }
    if (i < n)
        out[i] = part[t];
    if (sums && t == BLOCK - 1)
        sums[blockIdx.x] = part[t];
}

__device__ int warp_scan(int v)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        int before = __shfl_up_sync(FULL, v, step);
        v += lane >= step ? before : 0;
    }
    return v;
}

// The inclusive prefix sum of `v` over the block's threads; `total` is the sum of all.
__device__ int block_scan(int v, int& total)
{
    __shared__ int of_warp[BLOCK / 32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_scan(v);
    if (lane == 31)
        of_warp[warp] = v;
    __syncthreads();
    int before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < BLOCK / 32; ++w) {
        before += w < warp ? of_warp[w] : 0;
        total += of_warp[w];
    }
    return v + before;
}

// Warps scan in registers, by shuffles: one barrier instead of two a step.
extern "C" __global__ void scan_shuffled(const int* in, int* out, int* sums, int n)
{
    int i = blockIdx.x * BLOCK + threadIdx.x, total;
    int v = block_scan(i < n ? in[i] : 0, total);
    if (i < n)
        out[i] = v;
    if (sums && threadIdx.x == 0)
        sums[blockIdx.x] = total;
}

// Adds to each tile of BLOCK what lies before it: the second pass over memory that the versions above need.
extern "C" __global__ void add_before(int* out, const int* sums, int n)
{
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += sums[blockIdx.x - 1];
}

// A tile's state: 0 nothing yet, 1 its own sum, 2 the sum up to its end; in one word with the sum, so that
// both are seen together.
typedef unsigned long long u64;
__device__ u64 packed(u64 state, int sum) { return state << 32 | (unsigned)sum; }

// One pass: a tile publishes its sum and looks back over its predecessors' until one knows everything before
// it (Merrill and Garland, "Single-pass parallel prefix scan with decoupled look-back"). Tiles are numbered
// in the order in which blocks start, so a block waits only for blocks that run already. `tiles` holds a
// ticket and a state for each tile, all 0 before.
extern "C" __global__ void __launch_bounds__(BLOCK)
scan_look_back(const int* in, int* out, volatile u64* tiles, int n)
{
    __shared__ int held[TILE], ticket, before_tile;
    int t = threadIdx.x, lane = t % 32;
    if (t == 0)
        ticket = atomicAdd((unsigned*)tiles, 1);
    __syncthreads();
    int tile = ticket, base = tile * TILE;
    volatile u64* state = tiles + 1;
    bool whole = base + TILE <= n;
#pragma unroll
    for (int k = 0; k < ITEMS / 4; ++k) {  // coalesced into shared memory, from there a run for each thread
        int at = 4 * (t + k * BLOCK);
        int4 v = make_int4(0, 0, 0, 0);
        if (whole)
            v = __ldcs((const int4*)(in + base + at));
        else {
            v.x = base + at < n ? in[base + at] : 0;
            v.y = base + at + 1 < n ? in[base + at + 1] : 0;
            v.z = base + at + 2 < n ? in[base + at + 2] : 0;
            v.w = base + at + 3 < n ? in[base + at + 3] : 0;
        }
        ((int4*)held)[t + k * BLOCK] = v;
    }
    __syncthreads();
    int4 run[ITEMS / 4];
#pragma unroll
    for (int k = 0; k < ITEMS / 4; ++k)
        run[k] = ((const int4*)held)[t * (ITEMS / 4) + k];
    int sum = 0;
#pragma unroll
    for (int k = 0; k < ITEMS / 4; ++k) {
        run[k].x += sum;
        run[k].y += run[k].x;
        run[k].z += run[k].y;
        run[k].w += run[k].z;
        sum = run[k].w;
    }
    int total, up_to = block_scan(sum, total);
    if (t < 32) {
        int before = 0;
        if (tile == 0) {
            if (lane == 0)
                state[0] = packed(2, total);
        } else {
            if (lane == 0)
                state[tile] = packed(1, total);
            for (int at = tile - 1 - lane;; at -= 32) {
                u64 seen = packed(2, 0);
                if (at >= 0)
                    while ((seen = state[at]) >> 32 == 0)
                        ;
                unsigned known = __ballot_sync(FULL, seen >> 32 == 2);
                int nearest = known ? __ffs(known) - 1 : 31;
                int part = lane <= nearest ? (int)(unsigned)seen : 0;
#pragma unroll
                for (int step = 16; step > 0; step /= 2)
                    part += __shfl_xor_sync(FULL, part, step);
                before += part;
                if (known)
                    break;
            }
            if (lane == 0)
                state[tile] = packed(2, before + total);
        }
        if (lane == 0)
            before_tile = before;
    }
    __syncthreads();
    int before = before_tile + up_to - sum;
#pragma unroll
    for (int k = 0; k < ITEMS / 4; ++k) {
        run[k].x += before;
        run[k].y += before;
        run[k].z += before;
        run[k].w += before;
        ((int4*)held)[t * (ITEMS / 4) + k] = run[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS / 4; ++k) {
        int at = 4 * (t + k * BLOCK);
        int4 v = ((const int4*)held)[t + k * BLOCK];
        if (whole)
            __stcs((int4*)(out + base + at), v);
        else {
            if (base + at < n) out[base + at] = v.x;
            if (base + at + 1 < n) out[base + at + 1] = v.y;
            if (base + at + 2 < n) out[base + at + 2] = v.z;
            if (base + at + 3 < n) out[base + at + 3] = v.w;
        }
    }
}

// Makes the tiles ready for the next scan.
extern "C" __global__ void clear_tiles(u64* tiles, int count)
{
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count)
        tiles[i] = 0;
}
