extern "C" __global__ void median5(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v[5];
    for (int k = 0; k < 5; ++k) v[k] = x[min(max(i + k - 2, 0), n - 1)];
    for (int k = 1; k < 5; ++k) {
        int key = v[k], j = k - 1;
        while (j >= 0 && v[j] > key) {
            v[j + 1] = v[j];
            --j;
        }
        v[j + 1] = key;
    }
    y[i] = v[2];
}
