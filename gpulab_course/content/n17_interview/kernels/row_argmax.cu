// A block a row: every thread keeps the best of its columns, then the block climbs a tree of any width.
extern "C" __global__
void row_argmax(const int* x, int* at, int rows, int cols)
{
    __shared__ int best[1024], place[1024];
    int row = blockIdx.x, t = threadIdx.x, most = 0, where = -1;
    if (row >= rows) return;
    for (int c = t; c < cols; c += blockDim.x) {
        int v = x[row * cols + c];
        if (where < 0 || v > most) { most = v; where = c; }
    }
    best[t] = most;
    place[t] = where;
    __syncthreads();
    for (int n = blockDim.x; n > 1; n = (n + 1) / 2) {
        int o = t + (n + 1) / 2;
        if (o < n && place[o] >= 0
            && (place[t] < 0 || best[o] > best[t] || (best[o] == best[t] && place[o] < place[t]))) {
            best[t] = best[o];
            place[t] = place[o];
        }
        __syncthreads();
    }
    if (t == 0) at[row] = place[0];
}
