// Barriers as programs use and misuse them. After "//!" a name, grid, block, and what a check has to say:
// "error" where threads of a block do not reach one barrier together, "warning" where compute-sanitizer
// does not see it, else "clean".

//! plain | 2 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  __syncthreads(); out[t]=s[blockDim.x-1-t]; }

//! ragged block | 2 40 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  __syncthreads(); out[t]=s[blockDim.x-1-t]; }

//! one lane | 1 1 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; s[0]=n; __syncthreads(); out[0]=s[0]; }

//! after a divergent branch | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x;
  if(t&1) s[t]=t*3; else s[t]=t*t;
  __syncthreads(); out[t]=s[63-t]; }

//! after loops of different lengths | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; int a=0;
  for(int i=0;i<t;i++) a=a*5+out[i];
  s[t]=a; __syncthreads(); out[t]=s[63-t]; }

//! after a loop that data ends | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; unsigned v=t*2654435761u+1, c=0;
  while(v!=1 && c<1000){ v=v&1? v*3+1: v/2; c++; }
  s[t]=c; __syncthreads(); out[t]=s[63-t]; }

//! in a branch that all take | 1 128 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(n>3){ __syncthreads(); out[t]=s[127-t]; } }

//! in a branch by block | 4 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(blockIdx.x&1){ __syncthreads(); out[t+64*blockIdx.x]=s[63-t]; } else { __syncthreads(); out[t+64*blockIdx.x]=s[t^1]; } }

//! tree with the barrier outside | 1 128 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t; __syncthreads();
  for(int d=64;d>0;d>>=1){ if(t<d) s[t]+=s[t+d]; __syncthreads(); }
  if(t==0) out[0]=s[0]; }

//! tree with the barrier in the branch | 1 128 | warning
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t; __syncthreads();
  for(int d=n*8;d>0;d>>=1){ if(t<d){ s[t]+=s[t+d]; __syncthreads(); } }
  if(t==0) out[0]=s[0]; }

//! tree unrolled with the barrier in the branch | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t; __syncthreads();
  for(int d=32;d>0;d>>=1){ if(t<d){ s[t]+=s[t+d]; __syncthreads(); } }
  if(t==0) out[0]=s[0]; }

//! early return of a warp | 1 128 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t>=96) return;
  __syncthreads(); out[t]=s[95-t]; }

//! early return within a warp | 1 128 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t>=100) return;
  __syncthreads(); out[t]=s[99-t]; }

//! early return with a last word, which the compiler makes a branch around the barrier | 1 128 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t>=100){ out[t]=-1; return; }
  __syncthreads(); out[t]=s[99-t]; }

//! only the first hundred | 1 128 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t<100) __syncthreads();
  out[t]=s[t^1]; }

//! only even threads | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(!(t&1)) __syncthreads();
  out[t]=s[t]; }

//! only the first thread | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t==0){ s[1]=7; __syncthreads(); }
  out[t]=s[t]; }

//! both arms, one line | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t&1){ s[t]+=1; __syncthreads(); s[t]*=2; } else { s[t]+=3; __syncthreads(); s[t]*=5; } out[t]=s[t]; }

//! both arms, two lines | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t&1){ s[t]+=1; __syncthreads(); s[t]*=2; }
  else { s[t]+=3; __syncthreads(); s[t]*=5; }
  out[t]=s[t]; }

//! both arms by a macro | 1 64 | error
#define MEET(x) { s[t]+=x; __syncthreads(); s[t]*=x; }
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t&1) MEET(3) else MEET(5)
  out[t]=s[t]; }

//! both arms by a helper | 1 64 | error
__device__ void meet(int* s, int x){ s[threadIdx.x]+=x; __syncthreads(); s[threadIdx.x]*=x; }
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t&1) meet(s,3); else meet(s,5);
  out[t]=s[t]; }

//! both arms by an inlined helper | 1 64 | error
__device__ __forceinline__ void meet(int* s, int x){ s[threadIdx.x]+=x; __syncthreads(); s[threadIdx.x]*=x; }
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t&1) meet(s,3); else meet(s,5);
  out[t]=s[t]; }

//! halves of a block, two lines | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t<32){ s[t]+=1; __syncthreads(); s[t]*=2; }
  else { s[t]+=3; __syncthreads(); s[t]*=5; }
  out[t]=s[t]; }

//! halves of a block, one line | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t<32){ s[t]+=1; __syncthreads(); s[t]*=2; } else { s[t]+=3; __syncthreads(); s[t]*=5; } out[t]=s[t]; }

//! four warps, four barriers | 1 128 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  switch(t/32){ case 0: s[t]+=1; __syncthreads(); s[t]*=3; break; case 1: s[t]+=2; __syncthreads(); s[t]*=7; break;
    case 2: s[t]+=5; __syncthreads(); s[t]*=11; break; default: s[t]+=4; __syncthreads(); s[t]*=13; }
  out[t]=s[t]; }

//! double buffer by halves | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[2][64]; int t=threadIdx.x, sum=0;
  for(int i=0;i<n;i++){
    if(t<32){ s[i&1][t]=i*t; __syncthreads(); }
    else { if(i) sum+=s[1-(i&1)][t-32]; __syncthreads(); }
  }
  out[t]=sum; }

//! loop with a count by thread | 1 64 | warning
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  for(int i=0;i<=(t&3);i++){ s[t]+=i; __syncthreads(); }
  out[t]=s[t]; }

//! loop with a count by block | 3 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  for(int i=0;i<=blockIdx.x;i++){ s[t]+=s[63-t]&1; __syncthreads(); }
  if(blockIdx.x==0) out[t]=s[t]; }

//! break out of a loop of barriers | 1 64 | warning
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  for(int i=0;i<n;i++){ if(s[t]>60+i) break; __syncthreads(); s[t]+=1; }
  out[t]=s[t]; }

//! continue before a barrier | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  for(int i=0;i<n;i++){ if((t+i)&1){ s[t]+=2; continue; } __syncthreads(); s[t]+=1; }
  out[t]=s[t]; }

//! vote at the barrier | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ int t=threadIdx.x; int c=__syncthreads_count(t<n); out[t]=c; }

//! vote that all take until it is over | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  while(__syncthreads_or(s[t]>0)){ if(s[t]>0) s[t]-=7; }
  out[t]=s[t]; }

//! vote in one arm | 1 64 | warning
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t; int c=0;
  if(t&1) c=__syncthreads_count(t<n);
  out[t]=c+s[t]; }

//! named barriers of whole warps | 1 128 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t<64) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.sync 2, 64;");
  out[t]=s[t^1]; __syncthreads(); }

//! producers arrive, consumers wait | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[32]; int t=threadIdx.x;
  if(t<32){ s[t]=t*3; __threadfence_block(); asm volatile("bar.arrive 1, 64;"); }
  else { asm volatile("bar.sync 1, 64;"); out[t]=s[63-t]; } }

//! tile sync | 1 64 | clean
#include <cooperative_groups.h>
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  auto tile=cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
  if(t<32) tile.sync();
  __syncthreads(); out[t]=s[63-t]; }

//! group sync of all | 1 64 | clean
#include <cooperative_groups.h>
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  auto block=cooperative_groups::this_thread_block(); block.sync(); out[t]=s[63-t]; }

//! warp sync in a branch | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t<16){ __syncwarp(0xffff); s[t]=s[15-t]+0*s[t]; }
  __syncthreads(); out[t]=t; }

//! lock, then a barrier | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ int t=threadIdx.x; bool done=false;
  while(!done){ if(atomicCAS(out+100,0,1)==0){ __threadfence(); atomicAdd(out+101,1); __threadfence(); atomicExch(out+100,0); done=true; } }
  __syncthreads(); out[t]=t; }

//! return in a loop of barriers | 1 64 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  for(int i=0;i<n;i++){ if(t>60-8*i) return; __syncthreads(); s[t]+=1; }
  out[t]=s[t]; }

//! goto around a barrier | 1 64 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  if(t%3==0) goto on;
  s[t]+=1; __syncthreads(); s[t]*=2;
on: s[t]+=4; __syncthreads(); out[t]=s[63-t]; }

//! ternary with a barrier in a function | 1 64 | error
__device__ int waits(int* s, int t){ s[t]+=1; __syncthreads(); return s[63-t]; }
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  out[t]=(t&4)? waits(s,t) : -t; }

//! short circuit | 1 64 | error
__device__ bool waits(int* s, int t){ s[t]+=1; __syncthreads(); return s[63-t]>3; }
extern "C" __global__ void k(int* out, int n){ __shared__ int s[256]; int t=threadIdx.x; s[t]=t;
  out[t]=(s[t]&1) && waits(s,t); }

//! two dimensions, guard on y | 1 16x8 | clean
extern "C" __global__ void k(int* out, int n){ __shared__ int s[8][16]; s[threadIdx.y][threadIdx.x]=threadIdx.x;
  __syncthreads(); out[threadIdx.y*16+threadIdx.x]=s[7-threadIdx.y][15-threadIdx.x]; }

//! two dimensions, barrier for some columns | 1 16x8 | error
extern "C" __global__ void k(int* out, int n){ __shared__ int s[8][16]; s[threadIdx.y][threadIdx.x]=threadIdx.x;
  if(threadIdx.x<8) __syncthreads();
  out[threadIdx.y*16+threadIdx.x]=s[threadIdx.y][15-threadIdx.x]; }
