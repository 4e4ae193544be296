// Shows: a struct passed by value; the fields lie in the parameter space with C's padding.
struct Line {
    float slope;
    double intercept;
    short scale;
    int offsets[3];
};

extern "C" __global__ void evaluate(Line line, const float* x, double* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = fma((double)(line.slope * x[i]), (double)line.scale, line.intercept) + line.offsets[i % 3];
}
