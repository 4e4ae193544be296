// Shows: a grid-stride loop, so that any grid size covers any array.
extern "C" __global__ void saxpy(float alpha, const float* x, float* y, int n)
{
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] = alpha * x[i] + y[i];
}
