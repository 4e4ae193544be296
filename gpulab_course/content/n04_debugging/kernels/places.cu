extern "C" __global__
void places(const int* row, const int* col, long long* from, long long* to, int rows, int cols, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        from[i] = (long long)row[i] * cols + col[i];
        to[i] = (long long)col[i] * rows + row[i];
    }
}
