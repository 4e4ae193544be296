// Shows: an array that is indexed by a variable cannot live in registers; it goes to local memory.
extern "C" __global__ void median_of_nine(const int* in, int* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int window[9];
    int filled = 0;
    for (int k = -4; k <= 4; k++) {
        int value = in[min(max(i + k, 0), n - 1)];
        int place = filled++;
        while (place > 0 && window[place - 1] > value) {  // insertion sort
            window[place] = window[place - 1];
            place--;
        }
        window[place] = value;
    }
    out[i] = window[4];
}
