// out = softmax(q kᵀ / √D) v. LANES threads share a row of q; each of them holds D / LANES numbers of the row.
// A block consists of whole warps. It reads k and v in tiles of TILE rows. blockIdx.y is the head.
template <int D, int LANES, int TILE>
__global__ void forward(const float* q, const float* k, const float* v, float* out, int rows, int keys)
{
    const int OWN = D / LANES;
    q += (size_t)blockIdx.y * rows * D, out += (size_t)blockIdx.y * rows * D;
    k += (size_t)blockIdx.y * keys * D, v += (size_t)blockIdx.y * keys * D;
    __shared__ float ks[TILE][D], vs[TILE][D];
    int lane = threadIdx.x % LANES, row = (blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    float own[OWN], result[OWN], most = __int_as_float(0xff800000), sum = 0;  // -infinity
    for (int c = 0; c < OWN; ++c) {
        own[c] = row < rows ? q[row * D + c * LANES + lane] * rsqrtf(D) : 0;
        result[c] = 0;
    }
    for (int first = 0; first < keys; first += TILE) {
        int count = min(TILE, keys - first);
        for (int e = threadIdx.x; e < count * D; e += blockDim.x) {
            ks[e / D][e % D] = k[first * D + e];
            vs[e / D][e % D] = v[first * D + e];
        }
        __syncthreads();
        for (int j = 0; j < count; ++j) {
            float score = 0;
            for (int c = 0; c < OWN; ++c) score += own[c] * ks[j][c * LANES + lane];
            for (int o = LANES / 2; o > 0; o /= 2) score += __shfl_xor_sync(0xffffffff, score, o);
            float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);
            most = larger;
            sum = sum * scale + weight;
            for (int c = 0; c < OWN; ++c) result[c] = result[c] * scale + weight * vs[j][c * LANES + lane];
        }
        __syncthreads();
    }
    if (row < rows)
        for (int c = 0; c < OWN; ++c) out[row * D + c * LANES + lane] = result[c] / sum;
}
