// Kernels that are each wrong in one way; faulty_kernels.py says how they are launched and what a
// checker must find. The line where it goes wrong ends with //!, the earlier access of a race with //<.

// === global_read_past_end
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  y[i] = x[i];  //!
}

// === global_write_past_end
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i + 90] = 1.0f;  //!
}

// === global_atomic_past_end
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  atomicAdd(&x[i + 96], 1.0f);  //!
}

// === negative_index_read
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  y[i] = x[i - 1];  //!
}

// === negative_index_write
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i - 3] = 1.0f;  //!
}

// === negative_index_atomic
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  atomicAdd(&x[t - 1], 1.0f);  //!
}

// === off_by_one_in_the_pools_rounding
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i == 0)
    for (int j = 0; j <= 100; j++)
      x[j] = j;  //!
}

// === wide_read_over_the_end
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float4 v = ((float4*)x)[i];  //!
  y[i] = v.x + v.y + v.z + v.w;
}

// === use_after_free
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  y[i] = x[i];  //!
}

// === null_pointer
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = 1.0f;  //!
}

// === wild_pointer
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i + (1ll << 40)] = 1.0f;  //!
}

// === garbage_pointer
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = y[i];  //!
}

// === runs_into_the_next_array
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  y[i] = 0;
  x[i + 120] = 1.0f;  //!
}

// === constant_past_end
__constant__ float c[4] = {1, 2, 3, 4};
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = c[i];  //!
}

// === module_array_past_end
__device__ float d[16];
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  d[i + 8] = x[i];  //!
}

// === shared_static_past_end
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[t + 1] = x[i];  //!
  __syncthreads();
  x[i] = s[t];
}

// === shared_dynamic_past_end
extern __shared__ float s[];
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = x[i];  //!
  __syncthreads();
  x[i] = s[t];
}

// === shared_dynamic_forgotten
extern __shared__ float s[];
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = x[i];  //!
  __syncthreads();
  x[i] = s[t];
}

// === shared_negative_index
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[t] = x[i];
  __syncthreads();
  x[i] = s[t - 1];  //!
}

// === local_past_end
extern "C" __global__ void k(float* x, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  int a[8];
  for (int j = 0; j < 8; j++) a[j] = j * n;
  x[i] = a[n * 100000];  //!
}

// === misaligned_int
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  int* p = (int*)((char*)x + 1);
  p[t] = 1;  //!
}

// === misaligned_float4
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float4 v = *(float4*)(x + 1 + 4 * t);  //!
  y[t] = v.x + v.y + v.z + v.w;
}

// === misaligned_double
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  double* p = (double*)(x + 1);
  p[t] = 1;  //!
}

// === misaligned_view
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[t] = 1.0f;  //!
}

// === misaligned_shared
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ char s[256];
  *(int*)(s + 1 + 4 * t) = t;  //!
  __syncthreads();
  x[t] = s[t];
}

// === missing_barrier
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[t] = x[i];  //<
  x[i] = s[63 - t];  //!
}

// === shift_in_place
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[t] = x[i];
  __syncthreads();
  float v = s[(t + 1) % 64];  //<
  s[t] = v;  //!
  __syncthreads();
  x[i] = s[t];
}

// === all_write_one_word
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[0] = t;  //!
  __syncthreads();
  x[i] = s[0];
}

// === all_write_one_value
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[0] = 7.0f;
  __syncthreads();
  x[i] = s[0];
}

// === missing_syncwarp
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[t] = x[i];  //<
  x[i] = s[t ^ 1];  //!
}

// === tile_reused_too_early
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  float v = 0;
  for (int j = 0; j < 4; j++) {
    s[t] = x[64 * j + t];  //!
    __syncthreads();
    v += s[63 - t];  //<
  }
  x[i] = v;
}

// === zeroed_without_barrier
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ int s;
  if (t == 0)
    s = 0;  //<
  atomicAdd(&s, 1);  //!
  __syncthreads();
  x[i] = s;
}

// === reduction_without_barrier
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  s[t] = x[i];
  for (int d = 32; d > 0; d /= 2) {
    if (t < d)
      s[t] += s[t + d];  //!
  }
  if (t == 0) x[0] = s[0];
}

// === blocks_write_one_word
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[t] = i;  //!
}

// === lost_update
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[0] = x[0] + 1.0f;  //!
}

// === stencil_in_place
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i < 127)
    x[i] = x[i + 1];  //!
}

// === last_block_without_fence
__device__ unsigned count;
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ bool last;
  if (t == 0) {
    y[blockIdx.x] = x[i];  //<
    last = atomicAdd(&count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t < 4) x[t] = y[t];  //!
}

// === global_exchange_without_barrier
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = t;  //<
  x[i + 64] = x[i ^ 32];  //!
}

// === shared_never_written
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  __shared__ float s[64];
  if (t < 32)
    s[t] = x[i];
  __syncthreads();
  x[i] = s[t];  //!
}

// === global_never_written
extern "C" __global__ void k(float* x, float* y) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  y[i] = x[i];  //!
}

// === local_never_written
extern "C" __global__ void k(float* x, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  int a[8];
  a[n] = 1;
  x[i] = a[(n + t) % 8];  //!
}

// === barrier_in_both_branches
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < 16) {
    x[t] = 1;
    __syncthreads();  //!
  } else {
    x[t] = 2;
    __syncthreads();
    x[t + 32] = x[t - 16];
  }
}

// === barrier_in_one_branch
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < 16) {
    x[t] = 1;
    __syncthreads();  //!
    x[t + 64] = 2;
  }
  x[t] += 1;
  __syncthreads();
  x[t + 32] = x[31 - t];
}

// === barrier_in_divergent_loop
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  for (int j = 0; j <= t % 2; j++) {
    x[t] += j;
    __syncthreads();
  }
  x[t] = 0;
  __syncthreads();  //!
  x[t + 32] = x[31 - t];
}

// === named_barrier_of_too_few
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[t] = 1;
  asm volatile("bar.sync 1, 64;" ::: "memory");  //!
  x[t] = 2;
}

// === two_named_barriers
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t < 32) {
    asm volatile("bar.sync 1, 64;" ::: "memory");  //!
    x[t] = 1;
  } else {
    asm volatile("bar.sync 2, 64;" ::: "memory");
    x[t] = 2;
  }
}

// === two_shuffles_wait_for_each_other
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float v = x[t];
  if (t < 16) {
    v += __shfl_down_sync(0xffffffff, v, 8);  //!
    x[t] = v;
  } else {
    v *= __shfl_xor_sync(0xffffffff, v, 4);  //!
    x[t + 32] = v;
  }
}

// === shuffle_from_absent_lanes
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  float v = x[t];
  if (t < 16)
    v += __shfl_down_sync(0xffffffff, v, 8);  //!
  x[t] = v;
}

// === shuffle_from_exited_lanes
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t >= 20) return;
  x[t] += __shfl_down_sync(0xffffffff, x[t], 8);  //!
}

// === lane_outside_its_mask
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[t] = __shfl_xor_sync(0x0000ffff, x[t], 1);  //!
}

// === ballot_outside_its_mask
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  unsigned b = __ballot_sync(0xfffffffe, x[t] > 0);  //!
  x[t] = b;
}

// === syncwarp_outside_its_mask
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[t] = 1;
  if (t < 8)
    __syncwarp(0xff00);  //!
  x[t] = 2;
}

// === endless_loop
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  volatile float* v = x;
  while (v[0] >= 0) v[1] = t;  //!
}

// === endless_in_one_lane
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  volatile float* v = x;
  if (t == 7)
    while (v[0] >= 0) { }  //!
  x[t] = 1;
}

// === warps_wait_for_each_other
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  volatile float* v = x;
  if (t == 0)
    while (v[1] != 5) { }  //!
  if (t == 32)
    while (v[0] != 5) { }  //!
  if (t == 0) v[0] = 5;
  if (t == 32) v[1] = 5;
}

// === block_waits_for_itself
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t == 0) {
    while (atomicAdd(x, 0.0f) < 4) { }  //!
    atomicAdd(x, 1.0f);
  }
}

// === device_assert
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  assert(x[i] < 20);  //!
}

// === trap
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (i == 35)
    __trap();  //!
  x[i] = 1;
}

// === endless_recursion
__device__ __noinline__ float deeper(int n, float* x) {
  float kept = x[n % 32];
  return kept * deeper(n + 1, x) + kept;  //!
}
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = deeper(i, x);
}

// === root_of_a_negative
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = sqrtf(x[i] - 3.0f);  //!
}

// === zero_over_zero
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = x[i] / x[i];  //!
}

// === integer_division_by_zero
extern "C" __global__ void k(float* x, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = n / (n - 5) == -1;
}

// === huge_shift
extern "C" __global__ void k(float* x, int n) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  x[i] = (1u << (n * 100)) + (256u >> (n * 100));
}

// === barrier_after_early_return
extern "C" __global__ void k(float* x) {
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  if (t >= 40) return;
  x[i] = 1;
  __syncthreads();
  x[i + 64] = x[39 - t];
}
