// Shows: device-side printf. The order of the lines is not promised.
extern "C" __global__ void hello()
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    printf("hello from block %d, thread %d (%s), half of me is %.2f\n", blockIdx.x, threadIdx.x,
           i % 2 ? "odd" : "even", i / 2.0);
}
