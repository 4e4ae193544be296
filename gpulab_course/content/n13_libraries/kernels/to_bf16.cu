// Each number of x as BF16 has it, in a float: the nearest, of two equally near ones the even one.
extern "C" __global__ void to_bf16(const float* x, float* y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned bits = __float_as_uint(x[i]);
        // A NaN stays one: its fraction's upper bit is set.
        bits += (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x400000u & ~bits : 0x7FFFu + (bits >> 16 & 1u);
        y[i] = __uint_as_float(bits & 0xFFFF0000u);
    }
}
