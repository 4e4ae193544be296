extern "C" __global__ void far_away(float* x) { x[1ll << 44] = 1.0f; }
extern "C" __global__ void odd_address(char* x) { *(double*)(x + 4) = 1.0; }
extern "C" __global__ void claims(const float* x) { assert(x[threadIdx.x] > 0.0f); }
extern "C" __global__ void gives_up(const float* x) { if (x[threadIdx.x] == 0.0f) __trap(); }
extern "C" __global__ void waits(volatile int* x) { while (x[0] == 0) { } }
