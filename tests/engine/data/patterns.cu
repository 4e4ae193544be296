// Right kernels, in which nothing is to be found, and wrong ones, each after a line of its name, its grid,
// its block and what is to be found.

//! right: tree+shfl | 4 256 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[256];
  int t=threadIdx.x;
  s[t]=x[blockIdx.x*256+t];
  __syncthreads();
  for(int d=128; d>=32; d/=2){
    if(t<d) s[t]+=s[t+d];
    __syncthreads();
  }
  if(t<32){
    float v=s[t];
    for(int o=16; o; o/=2) v+=__shfl_down_sync(~0u, v, o);
    if(t==0) atomicAdd(y, v);
  }
}

//! right: blelloch | 1 256 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[512];
  int t=threadIdx.x;
  s[2*t]=x[2*t];
  s[2*t+1]=x[2*t+1];
  int o=1;
  for(int d=256; d>0; d/=2){
    __syncthreads();
    if(t<d){
      int a=o*(2*t+1)-1, b=o*(2*t+2)-1;
      s[b]+=s[a];
    }
    o*=2;
  }
  if(t==0) s[511]=0;
  for(int d=1; d<512; d*=2){
    o/=2;
    __syncthreads();
    if(t<d){
      int a=o*(2*t+1)-1, b=o*(2*t+2)-1;
      float q=s[a];
      s[a]=s[b];
      s[b]+=q;
    }
  }
  __syncthreads();
  y[2*t]=s[2*t];
  y[2*t+1]=s[2*t+1];
}

//! right: flag then whole block | 3 64 |
__device__ volatile int flag;
extern "C" __global__ void k(float* x, float* y, int n){
  int t=threadIdx.x;
  if(blockIdx.x==0){
    y[t]=x[t]*2;
    __threadfence();
    __syncthreads();
    if(t==0) flag=1;
  } else {
    if(t==0) while(flag==0);
    __syncthreads();
    y[blockIdx.x*64+t]=y[63-t];
  }
}

//! right: shared lock | 1 128 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ int l;
  __shared__ float s;
  int t=threadIdx.x;
  if(t==0){
    l=0;
    s=0;
  }
  __syncthreads();
  if(t%32==0){
    while(atomicCAS(&l,0,1));
    __threadfence_block();
    s+=x[t];
    __threadfence_block();
    atomicExch(&l,0);
  }
  __syncthreads();
  if(t==0) y[0]=s;
}

//! right: shared volatile flag | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ volatile int f;
  __shared__ float s[32];
  int t=threadIdx.x;
  if(t==0) f=0;
  __syncthreads();
  if(t<32){
    s[t]=x[t];
    __syncwarp();
    __threadfence_block();
    if(t==0) f=1;
  } else {
    while(f==0);
    __threadfence_block();
    y[t]=s[t-32];
  }
}

//! right: shared atomic flag | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ int f;
  __shared__ float s[32];
  int t=threadIdx.x;
  if(t==0) f=0;
  __syncthreads();
  if(t<32){
    s[t]=x[t];
    __threadfence_block();
    atomicAdd(&f,1);
  } else {
    while(atomicAdd(&f,0)<32);
    __threadfence_block();
    y[t]=s[t-32];
  }
}

//! right: named barriers double buffer | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[2][32];
  int t=threadIdx.x, l=t%32;
  float a=0;
  #define SYNC(i) asm volatile("bar.sync %0, 64;"::"r"(i):"memory")
  #define ARRIVE(i) asm volatile("bar.arrive %0, 64;"::"r"(i):"memory")
  if(t<32){
    for(int i=0; i<n; i++){
      if(i>=2) SYNC(3+i%2);
      s[i%2][l]=x[i*32+l];
      ARRIVE(1+i%2);
    }
  } else {
    for(int i=0; i<n; i++){
      SYNC(1+i%2);
      a+=s[i%2][31-l];
      if(i+2<n) ARRIVE(3+i%2);
    }
    y[l]=a;
  }
}

//! right: warp aggregated append | 4 256 |
extern "C" __global__ void k(float* x, float* y, int* c){
  int t=blockIdx.x*256+threadIdx.x;
  bool p=x[t]>0;
  unsigned m=__ballot_sync(~0u, p);
  int b=0;
  int l=threadIdx.x%32;
  if(l==0) b=atomicAdd(c, __popc(m));
  b=__shfl_sync(~0u, b,0);
  if(p) y[b+__popc(m&((1u<<l)-1))]=x[t];
}

//! right: bitonic | 1 256 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[256];
  int t=threadIdx.x;
  s[t]=x[t];
  __syncthreads();
  for(int k=2; k<=256; k*=2) for(int j=k/2; j>0; j/=2){
    int o=t^j;
    if(o>t){
      bool up=(t&k)==0;
      float a=s[t], b=s[o];
      if((a>b)==up){
        s[t]=b;
        s[o]=a;
      }
    }
    __syncthreads();
  }
  y[t]=s[t];
}

//! right: sub warp sync | 1 32 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[32];
  int t=threadIdx.x;
  unsigned m=t<16?0xffffu:0xffff0000u;
  s[t]=x[t];
  __syncwarp(m);
  y[t]=s[t^15];
}

//! right: syncthreads_count | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  int c=__syncthreads_count(x[t]>0);
  y[t]=s[63-t]+c;
}

//! right: lookback | 6 64 |
__device__ volatile unsigned long long st[16];
__device__ int tick;
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  __shared__ int b;
  __shared__ float pre;
  int t=threadIdx.x;
  if(t==0) b=atomicAdd(&tick,1);
  __syncthreads();
  int i=b;
  s[t]=x[i*64+t];
  __syncthreads();
  for(int d=1; d<64; d*=2){
    float v=t>=d?s[t-d]:0;
    __syncthreads();
    s[t]+=v;
    __syncthreads();
  }
  if(t==0){
    float p=0;
    if(i>0){
      unsigned long long q;
      while(((q=st[i-1])>>32)==0);
      p=__uint_as_float((unsigned)q);
    }
    st[i]=(1ull<<32)|__float_as_uint(p+s[63]);
    pre=p;
  }
  __syncthreads();
  y[i*64+t]=pre+s[t];
}

//! right: cas loop max | 4 64 |
__device__ float amax(float* a, float v){
  int* p=(int*)a;
  int o=*p, q;
  do{
    q=o;
    if(__int_as_float(q)>=v) break;
    o=atomicCAS(p, q, __float_as_int(v));
  } while(o!=q);
  return v;
}
extern "C" __global__ void k(float* x, float* y, int n){
  amax(y, x[blockIdx.x*64+threadIdx.x]);
}

//! right: linked push | 2 64 |
__device__ int head=-1;
extern "C" __global__ void k(float* x, int* y, int n){
  int i=blockIdx.x*64+threadIdx.x;
  int o=head;
  int q;
  do{
    q=o;
    y[i]=q;
    __threadfence();
    o=atomicCAS(&head, q, i);
  } while(o!=q);
}

//! right: early exit threads | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  int t=threadIdx.x;
  if(t>=48) return;
  s[t]=x[t];
  __syncthreads();
  y[t]=s[47-t];
}

//! right: match any | 1 64 |
extern "C" __global__ void k(float* x, int* y, int n){
  int v=(int)(x[threadIdx.x]+5)%4;
  unsigned m=__match_any_sync(~0u, v);
  int lead=__ffs(m)-1;
  if((threadIdx.x&31)==lead) atomicAdd(&y[v], __popc(m));
}

//! right: swap pointers | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  float *a=x, *b=y;
  int t=threadIdx.x;
  for(int i=0; i<n; i++){
    b[t]=a[63-t]+1;
    __syncthreads();
    float* q=a;
    a=b;
    b=q;
  }
}

//! right: ternary pointers | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  int t=threadIdx.x;
  float* a= t&1? x:y;
  a[t]=t;
  float* b=n>4?x+2000:y;
  b[t+64]=t;
}

//! right: offset base | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  int t=threadIdx.x;
  float* a=x-1;
  a[t+1]=y[t];
  float* z=x+2048;
  z[t-64]=y[t];
}

//! right: padding struct | 1 16 |
struct S{
  char a;
  int b;
  short c;
  double d;
};
__device__ S f(int i){
  S s;
  s.a=i;
  s.b=i*2;
  s.c=3;
  s.d=i;
  return s;
}
extern "C" __global__ void k(float* x, float* y, int n){
  S s[4];
  for(int i=0; i<4; i++) s[i]=f(i+n);
  S* o=(S*)y;
  for(int i=0; i<n/2; i++) o[threadIdx.x*4+i]=s[(i+threadIdx.x)&3];
}

//! right: local dynamic | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  float a[16];
  for(int i=0; i<n; i++) a[i]=x[i];
  float s=0;
  for(int i=0; i<n; i++) s+=a[(i*5+threadIdx.x)%n];
  y[threadIdx.x]=s;
}

//! right: vote loop barrier | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  int t=threadIdx.x;
  s[t]=t;
  __syncthreads();
  while(__syncthreads_or(s[t]<50)){
    float v=s[63-t];
    __syncthreads();
    s[t]=v+1;
  }
  y[t]=s[t];
}

//! right: rows of pointers | 1 64 |
extern "C" __global__ void k(float** x, float* y, int n){
  if(threadIdx.x==0){
    for(int i=0; i<4; i++) x[i]=y+i*16;
  }
  __syncthreads();
  x[threadIdx.x/16][threadIdx.x%16]=threadIdx.x;
}

//! right: two-phase block grid barrier handmade | 4 64 |
__device__ unsigned cnt;
__device__ volatile unsigned gen;
__device__ void gsync(){
  __syncthreads();
  if(threadIdx.x==0){
    unsigned g=gen;
    __threadfence();
    if(atomicAdd(&cnt,1)==gridDim.x-1){
      cnt=0;
      __threadfence();
      gen=g+1;
    } else while(gen==g);
    __threadfence();
  }
  __syncthreads();
}
extern "C" __global__ void k(float* x, float* y, int n){
  int i=blockIdx.x*64+threadIdx.x, m=gridDim.x*64;
  for(int r=0; r<3; r++){
    y[i]=x[m-1-i];
    gsync();
    x[i]=y[(i+5)%m];
    gsync();
  }
}

//! right: threadfence between warps with shfl | 1 256 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[8];
  int t=threadIdx.x;
  float v=x[t];
  for(int o=16; o; o/=2) v+=__shfl_down_sync(~0u, v, o);
  if((t&31)==0) s[t>>5]=v;
  __syncthreads();
  v=t<8?s[t]:0;
  if(t<32){
    for(int o=4; o; o/=2) v+=__shfl_down_sync(~0u, v, o);
    if(t==0) y[0]=v;
  }
}

//! right: stencil halo | 8 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[66];
  int t=threadIdx.x, i=blockIdx.x*64+t;
  s[t+1]=x[i];
  if(t==0) s[0]=i?x[i-1]:0;
  if(t==63) s[65]=x[i+1];
  __syncthreads();
  y[i]=s[t]+s[t+1]+s[t+2];
}

//! right: transpose | 1 256 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[32][33];
  int a=threadIdx.x%32, b=threadIdx.x/32;
  for(int j=b; j<32; j+=8) s[j][a]=x[j*32+a];
  __syncthreads();
  for(int j=b; j<32; j+=8) y[j*32+a]=s[a][j];
}

//! right: ring of one place | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float buf[32];
  __shared__ int full, empty;
  int t=threadIdx.x, lane=t&31;
  if(t==0) full=empty=0;
  __syncthreads();
  if(t<32){
    for(int i=0; i<n; i++){
      if(lane==0) while(atomicAdd(&empty,0)<i);
      __syncwarp();
      buf[lane]=x[32*i+lane];
      __threadfence_block(); __syncwarp();
      if(lane==0) atomicExch(&full,i+1);
    }
  } else {
    for(int i=0; i<n; i++){
      if(lane==0) while(atomicAdd(&full,0)<i+1);
      __syncwarp();
      y[32*i+lane]=buf[31-lane];
      __threadfence_block(); __syncwarp();
      if(lane==0) atomicExch(&empty,i+1);
    }
  }
}

//! right: box between blocks | 2 32 |
__device__ volatile int flag[2];
__device__ float box;
extern "C" __global__ void k(float* x, float* y, int n){
  if(threadIdx.x) return;
  if(blockIdx.x==0){
    for(int i=0; i<n; i++){
      while(flag[1]<i);
      __threadfence();
      box=x[i];
      __threadfence();
      flag[0]=i+1;
    }
  } else {
    for(int i=0; i<n; i++){
      while(flag[0]<i+1);
      __threadfence();
      y[i]=box;
      __threadfence();
      flag[1]=i+1;
    }
  }
}

//! right: tile of two warps | 1 128 |
#include <cooperative_groups.h>
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ cooperative_groups::block_tile_memory<128> memory;
  __shared__ float s[128];
  auto block=cooperative_groups::this_thread_block(memory);
  auto tile=cooperative_groups::tiled_partition<64>(block);
  int t=threadIdx.x;
  for(int i=0; i<4; i++){
    s[t]=x[128*i+t];
    tile.sync();
    y[t]+=s[t^63];
    tile.sync();
  }
}

//! wrong: ring without an answer | 1 64 | RAW WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float buf[32];
  __shared__ int full, empty;
  int t=threadIdx.x, lane=t&31;
  if(t==0) full=empty=0;
  __syncthreads();
  if(t<32){
    for(int i=0; i<n; i++){
      buf[lane]=x[32*i+lane];
      __threadfence_block(); __syncwarp();
      if(lane==0) atomicExch(&full,i+1);
    }
  } else {
    for(int i=0; i<n; i++){
      if(lane==0) while(atomicAdd(&full,0)<i+1);
      __syncwarp();
      y[32*i+lane]=buf[31-lane];
      __threadfence_block(); __syncwarp();
      if(lane==0) atomicExch(&empty,i+1);
    }
  }
}

//! wrong: box between blocks without an answer | 2 32 | WAR
__device__ volatile int flag[2];
__device__ float box;
extern "C" __global__ void k(float* x, float* y, int n){
  if(threadIdx.x) return;
  if(blockIdx.x==0){
    for(int i=0; i<n; i++){
      box=x[i];
      __threadfence();
      flag[0]=i+1;
    }
  } else {
    for(int i=0; i<n; i++){
      while(flag[0]<i+1);
      __threadfence();
      y[i]=box;
      __threadfence();
      flag[1]=i+1;
    }
  }
}

//! wrong: tile of two warps, one sync | 1 128 | RAW WAR
#include <cooperative_groups.h>
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ cooperative_groups::block_tile_memory<128> memory;
  __shared__ float s[128];
  auto block=cooperative_groups::this_thread_block(memory);
  auto tile=cooperative_groups::tiled_partition<64>(block);
  int t=threadIdx.x;
  for(int i=0; i<4; i++){
    s[t]=x[128*i+t];
    tile.sync();
    y[t]+=s[t^63];
  }
}

//! wrong: flag before others wrote | 3 64 | RAW
__device__ volatile int flag;
extern "C" __global__ void k(float* x, float* y, int n){
  int t=threadIdx.x;
  if(blockIdx.x==0){
    y[t]=x[t]*2;
    if(t==0){
      __threadfence();
      flag=1;
    }
  } else {
    if(t==0) {
      while(flag==0);
      __threadfence();
    }
    __syncthreads();
    y[blockIdx.x*64+t]=y[63-t];
  }
}

//! wrong: shared lock no fence | 1 128 | lost-update
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ int l;
  __shared__ float s;
  int t=threadIdx.x;
  if(t==0){
    l=0;
    s=0;
  }
  __syncthreads();
  if(t%32==0){
    while(atomicCAS(&l,0,1));
    s+=x[t];
    atomicExch(&l,0);
  }
  __syncthreads();
  if(t==0) y[0]=s;
}

//! wrong: named barriers no empty | 1 64 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[2][32];
  int t=threadIdx.x, l=t%32;
  float a=0;
  #define SYNC(i) asm volatile("bar.sync %0, 64;"::"r"(i):"memory")
  #define ARRIVE(i) asm volatile("bar.arrive %0, 64;"::"r"(i):"memory")
  if(t<32){
    for(int i=0; i<n; i++){
      s[0][l]=x[i*32+l];
      SYNC(1);
    }
  } else {
    for(int i=0; i<n; i++){
      SYNC(1);
      a+=s[0][31-l];
    }
    y[l]=a;
  }
}

//! wrong: bitonic no sync in warp | 1 256 | RAW WAR WAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[256];
  int t=threadIdx.x;
  s[t]=x[t];
  __syncthreads();
  for(int k=2; k<=256; k*=2) for(int j=k/2; j>0; j/=2){
    int o=t^j;
    if(o>t){
      bool up=(t&k)==0;
      float a=s[t], b=s[o];
      if((a>b)==up){
        s[t]=b;
        s[o]=a;
      }
    }
    if(j>32) __syncthreads();
  }
  y[t]=s[t];
}

//! wrong: sub warp sync wrong | 1 32 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[32];
  int t=threadIdx.x;
  unsigned m=t<16?0xffffu:0xffff0000u;
  s[t]=x[t];
  __syncwarp(m);
  y[t]=s[31-t];
}

//! wrong: vector overlap | 1 64 | WAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[68];
  int t=threadIdx.x;
  *(float2*)&s[t*2&62]=((float2*)x)[t];
  __syncthreads();
  y[t]=s[t];
}

//! wrong: uninit dynamic | 1 64 | uninitialised-read
extern "C" __global__ void k(float* x, float* y, int n){
  extern __shared__ float s[];
  int t=threadIdx.x;
  if(t<63) s[t]=x[t];
  __syncthreads();
  y[t]=s[63-t];
}

//! wrong: volatile warp reduce (pre Volta) | 1 32 | RAW WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ volatile float s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  s[t+32]=x[t+32];
  s[t]+=s[t+32];
  s[t]+=s[t+16];
  s[t]+=s[t+8];
  s[t]+=s[t+4];
  s[t]+=s[t+2];
  s[t]+=s[t+1];
  y[t]=s[0];
}

//! wrong: handmade grid barrier without fence | 4 64 | RAW WAR WAW
__device__ unsigned cnt;
__device__ volatile unsigned gen;
__device__ void gsync(){
  __syncthreads();
  if(threadIdx.x==0){
    unsigned g=gen;
    if(atomicAdd(&cnt,1)==gridDim.x-1){
      cnt=0;
      gen=g+1;
    } else while(gen==g);
  }
  __syncthreads();
}
extern "C" __global__ void k(float* x, float* y, int n){
  int i=blockIdx.x*64+threadIdx.x, m=gridDim.x*64;
  for(int r=0; r<3; r++){
    y[i]=x[m-1-i];
    gsync();
    x[i]=y[(i+5)%m];
    gsync();
  }
}

//! wrong: bar.arrive missing second | 1 64 | barrier-deadlock
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[32];
  int t=threadIdx.x, l=t%32;
  if(t<32){
    s[l]=x[l];
  } else {
    asm volatile("bar.sync 1, 64;":::"memory");
    y[l]=s[31-l];
  }
}

//! wrong: arrive before write | 1 64 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[32];
  int t=threadIdx.x, l=t%32;
  if(t<32){
    asm volatile("bar.arrive 1, 64;":::"memory");
    s[l]=x[l];
  } else {
    asm volatile("bar.sync 1, 64;":::"memory");
    y[l]=s[31-l];
  }
}

//! wrong: arriver reads too | 1 64 | WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  if(t<32){
    asm volatile("bar.arrive 1, 64;":::"memory");
  } else {
    asm volatile("bar.sync 1, 64;":::"memory");
  }
  y[t]=s[63-t];
}

//! wrong: use after shfl no sync | 1 64 | RAW WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  float v=__shfl_xor_sync(~0u, x[t],1);
  y[t]=s[t^33]+v;
}

//! wrong: stale loop exit barrier | 1 64 | RAW WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s;
  int t=threadIdx.x;
  for(int i=0; i<4; i++){
    if(t==0) s=x[i];
    __syncthreads();
    y[t]+=s;
  }
}

//! right: ping-pong buffers, one barrier a turn | 1 128 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[2][128];
  int t=threadIdx.x;
  s[0][t]=x[t];
  __syncthreads();
  float v=0;
  for(int i=0; i<n; i++){
    int now=i&1;
    s[1-now][t]=x[t]+i;
    v+=s[now][127-t];
    __syncthreads();
  }
  y[t]=v;
}

//! wrong: ping-pong buffers, barrier only every other turn | 1 128 | RAW WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[2][128];
  int t=threadIdx.x;
  s[0][t]=x[t];
  __syncthreads();
  float v=0;
  for(int i=0; i<n; i++){
    int now=i&1;
    s[1-now][t]=x[t]+i;
    v+=s[now][127-t];
    if(i&1) __syncthreads();
  }
  y[t]=v;
}

//! right: histogram of each warp, then of the block | 2 128 |
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int h[4][64];
  int t=threadIdx.x, w=t/32;
  for(int b=t%32; b<64; b+=32) h[w][b]=0;
  __syncwarp();
  atomicAdd(&h[w][(x[blockIdx.x*128+t]+5)&63],1);
  __syncthreads();
  if(t<64) atomicAdd(&y[t],h[0][t]+h[1][t]+h[2][t]+h[3][t]);
}

//! wrong: histogram of each warp added up too early | 2 128 | RAW
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int h[4][64];
  int t=threadIdx.x, w=t/32;
  for(int b=t%32; b<64; b+=32) h[w][b]=0;
  __syncwarp();
  atomicAdd(&h[w][(x[blockIdx.x*128+t]+5)&63],1);
  __syncwarp();
  if(t<64) atomicAdd(&y[t],h[0][t]+h[1][t]+h[2][t]+h[3][t]);
}

//! right: scan of a block by shuffles | 1 256 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float sums[8];
  int t=threadIdx.x, l=t%32, w=t/32;
  float v=x[t];
  for(int d=1; d<32; d*=2){
    float u=__shfl_up_sync(~0u,v,d);
    if(l>=d) v+=u;
  }
  if(l==31) sums[w]=v;
  __syncthreads();
  if(w==0){
    float u=l<8? sums[l]:0;
    for(int d=1; d<8; d*=2){
      float o=__shfl_up_sync(~0u,u,d);
      if(l>=d) u+=o;
    }
    if(l<8) sums[l]=u;
  }
  __syncthreads();
  if(w>0) v+=sums[w-1];
  y[t]=v;
}

//! wrong: scan of a block, no barrier before its sums are used | 1 256 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float sums[8];
  int t=threadIdx.x, l=t%32, w=t/32;
  float v=x[t];
  for(int d=1; d<32; d*=2){
    float u=__shfl_up_sync(~0u,v,d);
    if(l>=d) v+=u;
  }
  if(l==31) sums[w]=v;
  __syncthreads();
  if(w==0){
    float u=l<8? sums[l]:0;
    for(int d=1; d<8; d*=2){
      float o=__shfl_up_sync(~0u,u,d);
      if(l>=d) u+=o;
    }
    if(l<8) sums[l]=u;
  }
  if(w>0) v+=sums[w-1];
  y[t]=v;
}

//! wrong: two reductions with the same scratch memory | 1 128 | WAR
__device__ float total(float v, float* s){
  int l=threadIdx.x%32, w=threadIdx.x/32;
  for(int d=16; d; d/=2) v+=__shfl_down_sync(~0u,v,d);
  if(l==0) s[w]=v;
  __syncthreads();
  return s[0]+s[1]+s[2]+s[3];
}
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[4];
  float a=total(x[threadIdx.x],s);
  float b=total(x[threadIdx.x]*x[threadIdx.x],s);
  y[threadIdx.x]=a+b;
}

//! right: two reductions with the same scratch memory, a barrier between | 1 128 |
__device__ float total(float v, float* s){
  int l=threadIdx.x%32, w=threadIdx.x/32;
  for(int d=16; d; d/=2) v+=__shfl_down_sync(~0u,v,d);
  __syncthreads();
  if(l==0) s[w]=v;
  __syncthreads();
  return s[0]+s[1]+s[2]+s[3];
}
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[4];
  float a=total(x[threadIdx.x],s);
  float b=total(x[threadIdx.x]*x[threadIdx.x],s);
  y[threadIdx.x]=a+b;
}

//! right: tile of cooperative groups, and the block's own | 1 128 |
#include <cooperative_groups.h>
namespace cg=cooperative_groups;
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[128], w[4];
  auto block=cg::this_thread_block();
  auto tile=cg::tiled_partition<32>(block);
  int t=threadIdx.x;
  s[t]=x[t];
  tile.sync();
  float v=s[t^31]+s[t];
  for(int d=16; d; d/=2) v+=tile.shfl_down(v,d);
  if(tile.thread_rank()==0) w[t/32]=v;
  block.sync();
  y[t]=w[0]+w[1]+w[2]+w[3];
}

//! wrong: tile of cooperative groups where the block was meant | 1 128 | RAW
#include <cooperative_groups.h>
namespace cg=cooperative_groups;
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[128], w[4];
  auto block=cg::this_thread_block();
  auto tile=cg::tiled_partition<32>(block);
  int t=threadIdx.x;
  s[t]=x[t];
  tile.sync();
  float v=s[t^31]+s[t];
  for(int d=16; d; d/=2) v+=tile.shfl_down(v,d);
  if(tile.thread_rank()==0) w[t/32]=v;
  tile.sync();
  y[t]=w[0]+w[1]+w[2]+w[3];
}

//! right: float4 written, floats read | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float4 s[64];
  int t=threadIdx.x;
  s[t]=((float4*)x)[t];
  __syncthreads();
  float* f=(float*)s;
  y[t]=f[t]+f[255-t];
}

//! wrong: float4 written, floats of others read | 1 64 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float4 s[64];
  int t=threadIdx.x;
  s[t]=((float4*)x)[t];
  float* f=(float*)s;
  y[t]=f[t]+f[255-t];
}

//! right: union of two phases | 1 128 |
union Both { float f[128]; int i[256]; };
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ Both s;
  int t=threadIdx.x;
  s.f[t]=x[t];
  __syncthreads();
  float v=s.f[127-t];
  __syncthreads();
  s.i[t]=(int)v;
  s.i[t+128]=t;
  __syncthreads();
  y[t]=s.i[127-t]+s.i[255-t];
}

//! wrong: union of two phases, second begun too early | 1 128 | RAW WAR
union Both { float f[128]; int i[256]; };
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ Both s;
  int t=threadIdx.x;
  s.f[t]=x[t];
  __syncthreads();
  float v=s.f[127-t];
  s.i[t]=(int)v;
  s.i[t+128]=t;
  __syncthreads();
  y[t]=s.i[127-t]+s.i[255-t];
}

//! right: relaxation until nothing changes | 1 64 |
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int s[66];
  int t=threadIdx.x;
  s[t+1]=x[t];
  if(t<2) s[65*t]=0;
  __syncthreads();
  int changes;
  do {
    int l=s[t], m=s[t+1], r=s[t+2];
    int best=max(m,max(l,r)-1);
    __syncthreads();
    s[t+1]=best;
    changes=__syncthreads_or(best!=m);
  } while(changes);
  y[t]=s[t+1];
}

//! right: flag by release and acquire | 2 32 |
#include <cuda/atomic>
__device__ int flag, data[32];
extern "C" __global__ void k(float* x, float* y, int n){
  cuda::atomic_ref<int,cuda::thread_scope_device> f(flag);
  if(blockIdx.x==0){
    data[threadIdx.x]=(int)x[threadIdx.x];
    __syncthreads();
    if(threadIdx.x==0) f.store(1,cuda::memory_order_release);
  } else {
    if(threadIdx.x==0) while(f.load(cuda::memory_order_acquire)==0);
    __syncthreads();
    y[threadIdx.x]=data[31-threadIdx.x];
  }
}

//! wrong: flag by relaxed stores | 2 32 | RAW
#include <cuda/atomic>
__device__ int flag, data[32];
extern "C" __global__ void k(float* x, float* y, int n){
  cuda::atomic_ref<int,cuda::thread_scope_device> f(flag);
  if(blockIdx.x==0){
    data[threadIdx.x]=(int)x[threadIdx.x];
    __syncthreads();
    if(threadIdx.x==0) f.store(1,cuda::memory_order_relaxed);
  } else {
    if(threadIdx.x==0) while(f.load(cuda::memory_order_relaxed)==0);
    __syncthreads();
    y[threadIdx.x]=data[31-threadIdx.x];
  }
}

//! right: broadcast twice | 1 128 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float b;
  int t=threadIdx.x;
  float v=0;
  for(int i=0; i<n; i++){
    if(t==(i*37)%128) b=x[i];
    __syncthreads();
    v+=b;
    __syncthreads();
  }
  y[t]=v;
}

//! wrong: broadcast twice, no barrier behind the reads | 1 128 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float b;
  int t=threadIdx.x;
  float v=0;
  for(int i=0; i<n; i++){
    if(t==(i*37)%128) b=x[i];
    __syncthreads();
    v+=b;
  }
  y[t]=v;
}

//! wrong: a counter read beside its atomics | 1 128 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ int c;
  int t=threadIdx.x;
  if(t==0) c=0;
  __syncthreads();
  if(x[t]>20) atomicAdd(&c,1);
  y[t]=c;
}

//! wrong: first lane speaks, others do not wait | 1 32 | WAR
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s;
  if(threadIdx.x==0) s=x[0];
  y[threadIdx.x]=s;
}

//! right: first lane speaks, others wait | 1 32 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s;
  if(threadIdx.x==0) s=x[0];
  __syncwarp();
  y[threadIdx.x]=s;
}

//! wrong: warps leave a loop of barriers at different turns | 1 128 | divergent-barrier
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[128];
  int t=threadIdx.x;
  s[t]=x[t];
  __syncthreads();
  for(int i=0; i<1+t/32; i++){
    y[t]+=s[(t+i)%128];
    __syncthreads();
  }
  __syncthreads();
  y[t]+=s[127-t];
}

//! wrong: halo loaded by the edges, used at once | 2 64 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[66];
  int t=threadIdx.x, i=64*blockIdx.x+t;
  s[t+1]=x[i];
  if(t==0) s[0]=i? x[i-1]:0;
  if(t==63) s[65]=x[i+1];
  y[i]=s[t]+s[t+1]+s[t+2];
}

//! wrong: bytes packed into words without atomics | 1 64 | lost-update
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int s[16];
  int t=threadIdx.x;
  if(t<16) s[t]=0;
  __syncthreads();
  s[t/4]|=(x[t]&255)<<8*(t%4);
  __syncthreads();
  if(t<16) y[t]=s[t];
}

//! right: bytes packed into words as bytes | 1 64 |
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int s[16];
  int t=threadIdx.x;
  ((unsigned char*)s)[t]=x[t];
  __syncthreads();
  if(t<16) y[t]=s[t];
}

//! right: hash table by compare-and-swap | 4 64 |
extern "C" __global__ void k(int* x, int* y, int n){
  int key=x[64*blockIdx.x+threadIdx.x]+6;
  for(int at=key*7&255; ; at=at+1&255){
    int old=atomicCAS(&y[at],0,key);
    if(old==0 || old==key) break;
  }
}

//! wrong: hash table by look, then write | 4 64 | lost-update
extern "C" __global__ void k(int* x, int* y, int n){
  int key=x[64*blockIdx.x+threadIdx.x]+6;
  for(int at=key*7&255; ; at=at+1&255){
    if(y[at]==0) y[at]=key;
    if(y[at]==key) break;
  }
}

//! right: doubles and pairs of floats | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ double s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  __syncthreads();
  float2 v=((float2*)s)[63-t];
  y[t]=v.x+v.y;
}

//! wrong: doubles of neighbours by their halves | 1 64 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ double s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  y[t]=((float*)s)[t];
}

//! wrong: barrier object, arrived but never waited for | 1 64 | WAR
#include <cuda/barrier>
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ cuda::barrier<cuda::thread_scope_block> b;
  __shared__ float s[64];
  int t=threadIdx.x;
  if(t==0) init(&b,64);
  __syncthreads();
  s[t]=x[t];
  auto token=b.arrive();
  y[t]=s[63-t];
  (void)token;
}

//! wrong: volatile does not order warps | 1 64 | RAW
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ volatile float s[64];
  int t=threadIdx.x;
  s[t]=x[t];
  y[t]=s[63-t];
}

//! right: flag between warps of a block | 1 64 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ volatile int ready;
  __shared__ float s[32];
  int t=threadIdx.x;
  if(t==0) ready=0;
  __syncthreads();
  if(t<32){
    s[t]=x[t];
    __threadfence_block();
    __syncwarp();
    if(t==0) ready=1;
  } else {
    while(!ready);
    __threadfence_block();
    y[t]=s[63-t];
  }
}

//! wrong: shuffle among lanes that have parted | 1 32 | shuffle-from-an-absent-lane
extern "C" __global__ void k(float* x, float* y, int n){
  int t=threadIdx.x;
  float v=x[t];
  if(t<16) v+=__shfl_down_sync(0xffff,v,8,32);
  if(t<20 && t>=8) v+=__shfl_sync(__activemask(),v,0);
  y[t]=v;
}

//! wrong: two blocks write overlapping halos | 4 64 | WAW
extern "C" __global__ void k(float* x, float* y, int n){
  int i=blockIdx.x*62+threadIdx.x;
  y[i]=x[i]*(1+threadIdx.x);
}

//! right: stack of free places by atomics | 2 64 |
extern "C" __global__ void k(int* x, int* y, int n){
  int at=atomicAdd(&y[0],1);
  y[1+at]=x[64*blockIdx.x+threadIdx.x];
}

//! wrong: stack of free places, popped at once | 2 64 | RAW
extern "C" __global__ void k(int* x, int* y, int n){
  int at=atomicAdd(&y[0],1);
  y[1+at]=x[64*blockIdx.x+threadIdx.x];
  if(at>10) x[2048+at]=y[1+at-5];
}

//! right: warp specialised by roles, block barrier by all | 1 96 |
extern "C" __global__ void k(float* x, float* y, int n){
  __shared__ float s[64];
  int t=threadIdx.x;
  for(int b=0; b<4; b++){
    if(t>=32) s[t-32]=x[b*64+t-32];
    __syncthreads();
    if(t<32) y[b*32+t]=s[t]+s[t+32];
    __syncthreads();
  }
}

//! right: done flag set by many, read after the barrier, cleared after another | 1 64 |
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int more;
  int t=threadIdx.x, v=x[t];
  while(true){
    if(t==0) more=0;
    __syncthreads();
    if(v>3){ v/=2; more=1; }
    __syncthreads();
    if(!more) break;
    __syncthreads();
  }
  y[t]=v;
}

//! wrong: done flag cleared too early | 1 64 | WAR
extern "C" __global__ void k(int* x, int* y, int n){
  __shared__ int more;
  int t=threadIdx.x, v=x[t];
  for(int i=0; i<8; i++){
    if(t==32) more=0;
    __syncthreads();
    if(v>3){ v/=2; more=1; }
    __syncthreads();
    if(!more) v+=1;
  }
  y[t]=v;
}

//! wrong: match with a full mask in a guard | 1 64 | mask-names-an-absent-lane
extern "C" __global__ void k(const float* x, int* y, int* n) {
  int i = threadIdx.x;
  if (i < 40) y[i] = __match_any_sync(0xffffffff, (int)x[i]);
}

//! wrong: ballot after some have returned | 1 64 | mask-names-an-absent-lane
extern "C" __global__ void k(const float* x, int* y, int* n) {
  int i = threadIdx.x;
  if (i >= 40) return;
  y[i] = __ballot_sync(0xffffffff, x[i] > 20);
}

//! wrong: reduction after some have returned | 1 64 | mask-names-an-absent-lane
extern "C" __global__ void k(const float* x, int* y, int* n) {
  int i = threadIdx.x;
  if (i >= 40) return;
  y[i] = __reduce_add_sync(0xffffffff, (int)x[i]);
}

//! right: full masks in a last warp of eight threads | 1 40 |
extern "C" __global__ void k(const float* x, int* y, int* n) {
  int i = threadIdx.x, v = (int)x[i];
  y[i] = __match_any_sync(0xffffffff, v) + __ballot_sync(0xffffffff, v > 20) + __reduce_add_sync(0xffffffff, v);
}

//! right: votes with masks of those who come | 1 64 |
extern "C" __global__ void k(const float* x, int* y, int* n) {
  int i = threadIdx.x;
  unsigned here = __ballot_sync(0xffffffff, i < 40);
  if (i >= 40) return;
  y[i] = __match_any_sync(here, (int)x[i]) + __any_sync(__activemask(), x[i] > 20);
}
