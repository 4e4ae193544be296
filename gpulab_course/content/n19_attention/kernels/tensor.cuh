// out = softmax(q kᵀ / √D) v in half precision, with sums in FP32; blockIdx.y is the head.
// A block has 4 warps with 16 rows of q each. A tile of k or v has 4,096 halves: 64 or 32 rows.
// Returns the position of vector v (8 halves) of a row in a tile: a swizzle without bank conflicts.
template <int D> __device__ int position(int row, int v) { return row * D / 8 + (v ^ row % 8); }

__device__ unsigned pack(float low, float high)  // two neighbours of a fragment
{
    half2 pair = __floats2half2_rn(low, high);
    return *(unsigned*)&pair;
}

template <int D, bool CAUSAL>
__global__ void __launch_bounds__(128)
attention(const half* q, const half* k, const half* v, half* out, int n)
{
    const int TILE = 4096 / D;
    __shared__ uint4 tiles[2][2][TILE * D / 8];  // two buffers for k and v
    int lane = threadIdx.x % 32, g = lane / 4, s = lane % 4 * 2;
    int top = 64 * blockIdx.x, row = top + threadIdx.x / 32 * 16 + g;  // rows of a lane: row and row + 8
    size_t head = (size_t)blockIdx.y * n * D;
    q += head, k += head, v += head, out += head;

    auto fetch = [&](int first) {  // starts to copy the tiles at `first`, with 0 for missing rows
        auto& to = tiles[first / TILE % 2];
        for (int i = threadIdx.x; i < TILE * D / 8; i += 128) {
            int r = i / (D / 8), c = i % (D / 8), missing = first + r < n ? 0 : 16;  // bytes
            size_t from = missing ? 0 : (size_t)(first + r) * D + 8 * c;
            __pipeline_memcpy_async(&to[0][position<D>(r, c)], k + from, 16, missing);
            __pipeline_memcpy_async(&to[1][position<D>(r, c)], v + from, 16, missing);
        }
        __pipeline_commit();
    };
    unsigned own[D / 16][4] = {};  // fragments of q
    for (int c = 0; c < D / 16; ++c)
        for (int i = 0; i < 4; ++i) {
            int r = row + i % 2 * 8;
            if (r < n) own[c][i] = *(const unsigned*)(q + r * D + 16 * c + s + i / 2 * 8);
        }
    float result[D / 8][4] = {}, sum[2] = {}, most[2];
    most[0] = most[1] = __int_as_float(0xff800000);  // -infinity
    const float factor = rsqrtf(D) * 1.44269504f;  // exp2f needs scores times log2(e)

    int end = CAUSAL ? min(n, top + 64) : n;
    fetch(0);
    for (int first = 0; first < end; first += TILE) {
        __pipeline_wait_prior(0);
        __syncthreads();  // the tile is complete, and the other buffer is free
        if (first + TILE < end) fetch(first + TILE);
        auto& now = tiles[first / TILE % 2];

        float score[TILE / 8][4] = {};
        for (int c = 0; c < D / 16; ++c)
            for (int j = 0; j < TILE / 16; ++j) {
                unsigned keys[4];  // 16 keys, 16 columns
                load_4(keys, &now[0][position<D>(16 * j + lane / 16 * 8 + lane % 8, 2 * c + lane / 8 % 2)]);
                for (int h = 0; h < 2; ++h)
                    multiply(score[2 * j + h], own[c], {keys[2 * h], keys[2 * h + 1]});
            }

        if (first + TILE > (CAUSAL ? min(n, top) : n))  // only such a tile has keys that a row must not see
            for (int j = 0; j < TILE / 8; ++j)
                for (int i = 0; i < 4; ++i) {
                    int key = first + 8 * j + s + i % 2;
                    if (key >= n || CAUSAL && key > row + i / 2 * 8) score[j][i] = __int_as_float(0xff800000);
                }
        for (int h = 0; h < 2; ++h) {  // the two rows of a lane
            float larger = most[h];
            for (int j = 0; j < TILE / 8; ++j)
                larger = fmaxf(larger, fmaxf(score[j][2 * h], score[j][2 * h + 1]));
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffff, larger, 1));
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffff, larger, 2));
            float scale = exp2f((most[h] - larger) * factor);
            most[h] = larger;
            sum[h] *= scale;
            for (int c = 0; c < D / 8; ++c) result[c][2 * h] *= scale, result[c][2 * h + 1] *= scale;
            for (int j = 0; j < TILE / 8; ++j)
                for (int i = 2 * h; i < 2 * h + 2; ++i)
                    sum[h] += score[j][i] = exp2f((score[j][i] - larger) * factor);
        }

        for (int j = 0; j < TILE / 16; ++j) {  // the weights of 16 keys are a fragment of the left factor
            unsigned weights[4];
            for (int i = 0; i < 4; ++i) {
                const float* pair = &score[2 * j + i / 2][i % 2 * 2];
                weights[i] = pack(pair[0], pair[1]);
            }
            for (int c = 0; c < D / 16; ++c) {
                unsigned values[4];  // 16 keys, 16 columns
                load_4_transposed(values, &now[1][position<D>(16 * j + lane % 16, 2 * c + lane / 16)]);
                for (int h = 0; h < 2; ++h)
                    multiply(result[2 * c + h], weights, {values[2 * h], values[2 * h + 1]});
            }
        }
    }
    for (int h = 0; h < 2; ++h) {  // each of four lanes has a part of the sum of a row
        sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffff, sum[h], 2);
        int r = row + 8 * h;
        for (int c = 0; r < n && c < D / 8; ++c)
            *(unsigned*)(out + r * D + 8 * c + s) = pack(result[c][2 * h] / sum[h], result[c][2 * h + 1] / sum[h]);
    }
}
