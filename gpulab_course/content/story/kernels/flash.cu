// The block's scores, softmax, second product and GELU in one kernel: out = gelu(softmax(scale h hᵀ) h). No score is
// stored. A block has 128 threads and 8 rows of h; 16 threads share a row. Rows have at most 128 numbers. As query, key
// and value of a token are the same, one tile of 32 tokens serves as keys and as values.
typedef unsigned short bf16;
__device__ float wide(bf16 v) { return __uint_as_float((unsigned)v << 16); }

extern "C" __global__ void attention(const bf16* h, float* out, int rows, int cols, float scale)
{
    __shared__ float4 own[8][32], tile[32][33];  // 128 numbers per row, four at a time; the tile's rows are padded
    __shared__ float weights[8][32];
    int lane = threadIdx.x % 16, own_row = threadIdx.x / 16, row = blockIdx.x * 8 + own_row;
    int quads = (cols + 3) / 4;  // of four numbers each, in a row
    float* queries = (float*)own[own_row];
    for (int c = lane; c < 4 * quads; c += 16) queries[c] = row < rows && c < cols ? scale * wide(h[row * cols + c]) : 0.0f;
    float4 result[2] = {};  // the numbers 4 lane to 4 lane + 3, and 64 after them
    float most = __int_as_float(0xff800000), sum = 0.0f;
    for (int first = 0; first < rows; first += 32) {
        for (int i = 0; i < (quads + 3) / 4; ++i) {  // 16 threads fill a row of the tile
            int c = lane + 16 * i;
            bf16 loaded[4];
            for (int k = 0; k < 4; ++k)  // four loads, which do not wait for each other; indices stay inside the array
                loaded[k] = h[min(first + 8 * k + own_row, rows - 1) * cols + min(c, cols - 1)];
            for (int k = 0; k < 4; ++k)
                ((float*)tile[8 * k + own_row])[c] = first + 8 * k + own_row < rows && c < cols ? wide(loaded[k]) : 0.0f;
        }
        __syncthreads();
        float score[2] = {};  // of the keys lane and lane + 16
#pragma unroll 4
        for (int c = 0; c < quads; ++c) {
            float4 a = own[own_row][c];
            for (int i = 0; i < 2; ++i) {
                float4 b = tile[lane + 16 * i][c];
                score[i] += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
            }
        }
        float larger = most;
        for (int i = 0; i < 2; ++i)
            if (first + lane + 16 * i < rows) larger = fmaxf(larger, score[i]);
        for (int step = 8; step > 0; step /= 2) larger = fmaxf(larger, __shfl_xor_sync(0xffffffff, larger, step));
        float factor = expf(most - larger);
        most = larger;
        sum *= factor;
        for (int i = 0; i < 2; ++i) {
            float weight = first + lane + 16 * i < rows ? expf(score[i] - most) : 0.0f;
            sum += weight;  // of this thread's keys; the threads of a row add up at the end
            weights[own_row][lane + 16 * i] = weight;
        }
        __syncwarp();
        for (int i = 0; i < 2; ++i) {
            if (lane + 16 * i >= quads) break;
            float4 r = result[i];
            r.x *= factor; r.y *= factor; r.z *= factor; r.w *= factor;
#pragma unroll 8
            for (int j = 0; j < 32; ++j) {
                float weight = weights[own_row][j];
                float4 b = tile[j][lane + 16 * i];
                r.x += weight * b.x; r.y += weight * b.y; r.z += weight * b.z; r.w += weight * b.w;
            }
            result[i] = r;
        }
        __syncthreads();
    }
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    for (int i = 0; i < 2; ++i) {
        float numbers[4] = {result[i].x, result[i].y, result[i].z, result[i].w};
        for (int k = 0; k < 4; ++k) {
            int c = 4 * (lane + 16 * i) + k;
            float v = numbers[k] / sum;
            v = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
            if (row < rows && c < cols) out[row * cols + c] = v;
        }
    }
}
