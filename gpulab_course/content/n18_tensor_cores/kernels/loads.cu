#include <cuda_pipeline.h>
#ifndef SWIZZLE
#define SWIZZLE 1
#endif
// the position of vector v (8 halves) of a row in a tile with 8 vectors per row
__device__ int place(int row, int v) { return row * 8 + (SWIZZLE ? v ^ row % 8 : v); }

// four matrices of 8 x 8 halves; each lane passes the address of one of the 32 rows
__device__ void load_4(unsigned (&r)[4], const uint4* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
// the same, but each matrix is transposed
__device__ void load_4_transposed(unsigned (&r)[4], const uint4* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
