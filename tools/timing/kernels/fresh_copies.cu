#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#define AT (blockIdx.x * blockDim.x + threadIdx.x)

// One step of heat on a plane of width x height: a block of 64 threads computes a strip 256 wide and `rows` high, four
// columns per thread. Rows come into a ring of five buffers by asynchronous copies; outside the plane is zero.
extern "C" __global__ void heat(const float* in, float* out, int width, int height, int rows) {
    __shared__ __align__(16) float ring[5][264];
    int x0 = blockIdx.x * 256, y0 = blockIdx.y * rows, t = threadIdx.x;
    auto fetch = [&](int y) {
        for (int i = t; i < 66; i += 64) {
            int x = x0 + 4 * i - 4;
            bool inside = x >= 0 && x < width && y >= 0 && y < height;
            __pipeline_memcpy_async(&ring[(y + 5) % 5][4 * i], inside ? in + (size_t)y * width + x : in, 16, inside ? 0 : 16);
        }
        __pipeline_commit();
    };
    for (int y = y0 - 1; y < y0 + 3; ++y) fetch(y);
    for (int y = y0; y < min(y0 + rows, height); ++y) {
        __pipeline_wait_prior(1);
        __syncthreads();
        const float *line = ring[y % 5] + 4 * t + 4, *above = ring[(y + 4) % 5] + 4 * t + 4, *below = ring[(y + 1) % 5] + 4 * t + 4;
        float4 up = *(const float4*)above, here = *(const float4*)line, down = *(const float4*)below;
        float4 result = {here.x + 0.2f * (up.x + down.x + line[-1] + here.y - 4 * here.x),
                         here.y + 0.2f * (up.y + down.y + here.x + here.z - 4 * here.y),
                         here.z + 0.2f * (up.z + down.z + here.y + here.w - 4 * here.z),
                         here.w + 0.2f * (up.w + down.w + here.z + line[4] - 4 * here.w)};
        *(float4*)&out[(size_t)y * width + x0 + 4 * t] = result;
        fetch(y + 3);
    }
}

// The root mean square of each row; a block of 256 threads reads one row through a pipeline of STAGES buffers of 4 KiB.
template <int STAGES>
__global__ void norms(const float* in, float* out, int columns) {
    __shared__ float4 ring[STAGES][256];
    __shared__ float parts[8];
    const float4* row = (const float4*)(in + (size_t)blockIdx.x * columns);
    int t = threadIdx.x, quads = columns / 4, steps = (quads + 255) / 256;
    auto fetch = [&](int step) {
        if (step * 256 + t < quads) __pipeline_memcpy_async(&ring[step % STAGES][t], row + step * 256 + t, 16);
        __pipeline_commit();
    };
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    float sum = 0;
    for (int step = 0; step < steps; ++step) {
        fetch(step + STAGES - 1);
        __pipeline_wait_prior(STAGES - 1);
        if (step * 256 + t < quads) {
            float4 v = ring[step % STAGES][t];
            sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        }
    }
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (t % 32 == 0) parts[t / 32] = sum;
    __syncthreads();
    if (t == 0) {
        for (int w = 1; w < 8; ++w) sum += parts[w];
        out[blockIdx.x] = sqrtf(sum / columns);
    }
}

// The second kernel of a product split over k: c = tanh(sum of the parts + bias).
extern "C" __global__ void finish(const float* parts, const float* bias, float* c, int count, int n, int splits) {
    int i = AT;
    if (i >= count) return;
    float sum = bias[i % n];
    for (int p = 0; p < splits; ++p) sum += parts[(size_t)p * count + i];
    c[i] = tanhf(sum);
}

// Attention of one new token: q is heads x 128, keys and values are heads / group x tokens x 128. A block of 4 warps takes
// the part blockIdx.x of the tokens; half a warp takes one key. Each part is normalized, and lse is the log of its sum.
extern "C" __global__ void decode(const half* q, const half* k, const half* v, float* out, float* lse, int tokens, int group) {
    __shared__ float sums[8][128], most[8], total[8];
    int t = threadIdx.x, unit = t / 16, lane = t % 16, head = blockIdx.y, part = tokens / gridDim.x;
    size_t start = (size_t)(head / group) * tokens * 128;
    float query[8], result[8] = {}, largest = -1e30f, sum = 0;
    for (int e = 0; e < 8; ++e) query[e] = __half2float(q[head * 128 + lane * 8 + e]) * 0.08838834765f;
    for (int token = blockIdx.x * part + unit; token < (blockIdx.x + 1) * part; token += 8) {
        uint4 key = *(const uint4*)&k[start + (size_t)token * 128 + lane * 8], value = *(const uint4*)&v[start + (size_t)token * 128 + lane * 8];
        const half *keys = (const half*)&key, *values = (const half*)&value;
        float score = 0;
        for (int e = 0; e < 8; ++e) score += query[e] * __half2float(keys[e]);
        for (int d = 8; d; d /= 2) score += __shfl_xor_sync(0xffffffff, score, d);
        float before = largest;
        largest = fmaxf(largest, score);
        float factor = __expf(before - largest), weight = __expf(score - largest);
        sum = sum * factor + weight;
        for (int e = 0; e < 8; ++e) result[e] = result[e] * factor + weight * __half2float(values[e]);
    }
    for (int e = 0; e < 8; ++e) sums[unit][lane * 8 + e] = result[e];
    if (lane == 0) most[unit] = largest, total[unit] = sum;
    __syncthreads();
    float top = -1e30f, all = 0, value = 0;
    for (int u = 0; u < 8; ++u) top = fmaxf(top, most[u]);
    for (int u = 0; u < 8; ++u) {
        all += total[u] * __expf(most[u] - top);
        value += sums[u][t] * __expf(most[u] - top);
    }
    out[((size_t)head * gridDim.x + blockIdx.x) * 128 + t] = value / all;
    if (t == 0) lse[head * gridDim.x + blockIdx.x] = top + __logf(all);
}

struct Entry { int key, value, next, unused; };
// Each of the first `lanes` lanes of a warp looks up keys in a chained hash table; the value is the next key.
extern "C" __global__ void lookups(const int* heads, const Entry* entries, const int* first, int* last, int mask, int steps, int lanes) {
    int lane = threadIdx.x % 32, i = AT / 32 * lanes + lane;
    if (lane >= lanes) return;
    int key = first[i];
    for (int step = 0; step < steps; ++step) {
        int p = heads[(unsigned)key * 2654435761u >> 7 & mask];
        while (entries[p].key != key) p = entries[p].next;
        key = entries[p].value;
    }
    last[i] = key;
}

// The root of the tree to which each queried node of a forest belongs.
extern "C" __global__ void roots(const int* parents, const int* nodes, int* result, int count) {
    int i = AT;
    if (i >= count) return;
    int node = nodes[i];
    for (int parent = parents[node]; parent != node; parent = parents[node]) node = parent;
    result[i] = node;
}
