# ruff: noqa: E501 - lines of CUDA C++
"""CUDA C++ that every generated program starts with: helpers that keep the kernels well defined."""

from __future__ import annotations

PREAMBLE = r"""
typedef signed char i8; typedef unsigned char u8; typedef short i16; typedef unsigned short u16;
typedef int i32; typedef unsigned int u32; typedef long long i64; typedef unsigned long long u64;
typedef float f32; typedef double f64;
struct Mixed { i32 a; f32 b; u64 c; i16 d; u8 e[3]; f64 f; };
#define ZI static __device__ __forceinline__

// Bits of a float; every NaN has the same.
ZI u32 z_bits(f32 x) { return x != x ? 0x7fffffffu : __float_as_uint(x); }
ZI u64 z_bits(f64 x) { return x != x ? 0x7fffffffffffffffull : (u64)__double_as_longlong(x); }
// A number whose sign is defined.
ZI f32 z_number(f32 x) { return x != x ? 1.25f : x; }
ZI f64 z_number(f64 x) { return x != x ? 1.25 : x; }
// Keep magnitudes moderate.
ZI f32 z_tame(f32 x) { return x == x && fabsf(x) < 1.0e12f ? x : 0.375f; }
ZI f64 z_tame(f64 x) { return x == x && fabs(x) < 1.0e60 ? x : 0.375; }
// Hides a constant: some compilers turn division by one into multiplication, rounded otherwise.
ZI f32 z_any(f32 x) { f32 y; asm("mov.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
ZI f64 z_any(f64 x) { f64 y; asm("mov.f64 %0, %1;" : "=d"(y) : "d"(x)); return y; }
// Floats of moderate size from any bits.
ZI f32 z_f32(u32 v) { return __uint_as_float((v & 0x807fffffu) | (112u + (v >> 8) % 31u) << 23); }
ZI f64 z_f64(u64 v) {
    return __longlong_as_double((v & 0x800fffffffffffffull) | (1008ull + (v >> 20) % 31u) << 52);
}

ZI u64 z_mix(u64 h, u64 v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdull;
}
ZI u64 z_mix(u64 h, i64 v) { return z_mix(h, (u64)v); }
ZI u64 z_mix(u64 h, u32 v) { return z_mix(h, (u64)v); }
ZI u64 z_mix(u64 h, i32 v) { return z_mix(h, (u64)(i64)v); }
ZI u64 z_mix(u64 h, u16 v) { return z_mix(h, (u64)v); }
ZI u64 z_mix(u64 h, i16 v) { return z_mix(h, (u64)(i64)v); }
ZI u64 z_mix(u64 h, u8 v) { return z_mix(h, (u64)v); }
ZI u64 z_mix(u64 h, i8 v) { return z_mix(h, (u64)(i64)v); }
ZI u64 z_mix(u64 h, bool v) { return z_mix(h, (u64)(v ? 77 : 5)); }
ZI u64 z_mix(u64 h, f32 v) { return z_mix(h, (u64)z_bits(v)); }
ZI u64 z_mix(u64 h, f64 v) { return z_mix(h, z_bits(v)); }

// Division without undefined cases.
template <class T> ZI T z_div(T a, T b) {
    return b == (T)0 ? (T)~a : ((T)-1 < (T)0 && b == (T)-1) ? (T)(0 - (u64)a) : (T)(a / b);
}
template <class T> ZI T z_rem(T a, T b) {
    return b == (T)0 ? a : ((T)-1 < (T)0 && b == (T)-1) ? (T)0 : (T)(a % b);
}

// Shuffles whose source may be missing: then the lane's own value.
ZI u32 z_lane() { u32 lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); return lane; }
template <class T> ZI T z_pick(u32 mask, T moved, T own, u32 source) {
    return source < 32u && (mask >> source & 1u) ? moved : own;
}
template <class T> ZI T z_shfl(u32 mask, T v, u32 source, u32 width) {
    u32 from = (z_lane() & ~(width - 1u)) | (source & (width - 1u));
    return z_pick(mask, __shfl_sync(mask, v, (int)source, (int)width), v, from);
}
template <class T> ZI T z_up(u32 mask, T v, u32 delta, u32 width) {
    u32 lane = z_lane(), inside = lane & (width - 1u);
    return z_pick(mask, __shfl_up_sync(mask, v, delta, (int)width), v, inside < delta ? lane : lane - delta);
}
template <class T> ZI T z_down(u32 mask, T v, u32 delta, u32 width) {
    u32 lane = z_lane(), inside = lane & (width - 1u);
    u32 from = inside + delta >= width ? lane : lane + delta;
    return z_pick(mask, __shfl_down_sync(mask, v, delta, (int)width), v, from);
}
template <class T> ZI T z_xor(u32 mask, T v, u32 pattern, u32 width) {
    u32 lane = z_lane(), from = lane ^ pattern;
    if (from > (lane | (width - 1u))) from = lane;
    return z_pick(mask, __shfl_xor_sync(mask, v, (int)pattern, (int)width), v, from);
}
// The k-th lane (modulo their number) of a mask that is not empty.
ZI u32 z_nth(u32 mask, u32 k) {
    for (k %= __popc(mask); k > 0u; --k) mask &= mask - 1u;
    return (u32)__ffs(mask) - 1u;
}
// Reductions over the lanes of a mask; all of them call together.
#if __CUDA_ARCH__ >= 800
ZI u32 z_sum(u32 mask, u32 v) { return __reduce_add_sync(mask, v); }
ZI u32 z_most(u32 mask, u32 v) { return __reduce_max_sync(mask, v); }
ZI i32 z_least(u32 mask, i32 v) { return __reduce_min_sync(mask, v); }
ZI u32 z_odd(u32 mask, u32 v) { return __reduce_xor_sync(mask, v); }
ZI u32 z_every(u32 mask, u32 v) { return __reduce_and_sync(mask, v); }
ZI u32 z_some(u32 mask, u32 v) { return __reduce_or_sync(mask, v); }
#else
#define Z_REDUCE(name, T, step) \
    ZI T name(u32 mask, T v) { \
        T r = __shfl_sync(mask, v, __ffs(mask) - 1); \
        for (u32 left = mask & (mask - 1u); left; left &= left - 1u) { \
            T x = __shfl_sync(mask, v, __ffs(left) - 1); step; \
        } \
        return r; \
    }
Z_REDUCE(z_sum, u32, r += x) Z_REDUCE(z_most, u32, r = max(r, x)) Z_REDUCE(z_least, i32, r = min(r, x))
Z_REDUCE(z_odd, u32, r ^= x) Z_REDUCE(z_every, u32, r &= x) Z_REDUCE(z_some, u32, r |= x)
#endif

// Structures by value, pointers to local and shared memory, bytes of a word: through real calls.
static __device__ __noinline__ Mixed z_twist(Mixed m, u32 k) {
    m.a = (i32)((u32)m.a ^ k);
    m.b = z_tame(m.b * 1.5f);
    m.c += (u64)k << (m.d & 31);
    m.e[k % 3u] = (u8)(m.e[(k + 1u) % 3u] * 3u + 1u);
    m.f = z_tame(m.f + (f64)m.b);
    return m;
}
static __device__ __noinline__ u32 z_stir(u32* p, u32 count, u32 seed) {
    u32 sum = seed;
    for (u32 k = 0; k < count; ++k) {
        p[(seed + k) % count] ^= sum * 9u + k;
        sum += p[k] >> (k & 7u);
    }
    return sum;
}
static __device__ __noinline__ u64 z_bytes(u64 v, u32 k) {
    u8* bytes = (u8*)&v;
    for (u32 i = 0; i < 4u; ++i) bytes[(k + i) & 7u] = (u8)(bytes[i] + k);
    return v;
}

// 128-bit arithmetic: carry chains.
ZI u64 z_wide(u64 a, u64 b, u64 c, u32 shift) {
    unsigned __int128 x = (unsigned __int128)a * b + c;
    x += ((unsigned __int128)b << 64) | a;
    x -= (unsigned __int128)c << (shift & 63u);
    return (u64)(x >> (shift & 127u)) ^ (u64)x;
}
// Inline assembly: instructions that the compiler seldom chooses.
// PTX leaves positions and lengths above 255 open.
ZI i32 z_bfe(i32 a, u32 b, u32 c) { i32 d; b &= 255u; c &= 255u; asm("bfe.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
ZI u64 z_bfe(u64 a, u32 b, u32 c) { u64 d; b &= 255u; c &= 255u; asm("bfe.u64 %0, %1, %2, %3;" : "=l"(d) : "l"(a), "r"(b), "r"(c)); return d; }
ZI u32 z_bfi(u32 a, u32 b, u32 c, u32 d) {
    u32 r; c &= 255u; d &= 255u; asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(r) : "r"(a), "r"(b), "r"(c), "r"(d)); return r;
}
ZI u64 z_bfi(u64 a, u64 b, u32 c, u32 d) {
    u64 r; c &= 255u; d &= 255u; asm("bfi.b64 %0, %1, %2, %3, %4;" : "=l"(r) : "l"(a), "l"(b), "r"(c), "r"(d)); return r;
}
ZI u32 z_bfind(i32 a) { u32 d; asm("bfind.s32 %0, %1;" : "=r"(d) : "r"(a)); return d; }
ZI u32 z_bfind(u64 a) { u32 d; asm("bfind.shiftamt.u64 %0, %1;" : "=r"(d) : "l"(a)); return d; }
template <int table> ZI u32 z_lop3(u32 a, u32 b, u32 c) {
    u32 d; asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(table)); return d;
}
ZI u32 z_cnot(u32 a) { u32 d; asm("cnot.b32 %0, %1;" : "=r"(d) : "r"(a)); return d; }
ZI u32 z_set(f32 a, f32 b) { u32 d; asm("set.ltu.u32.f32 %0, %1, %2;" : "=r"(d) : "f"(a), "f"(b)); return d; }
ZI f32 z_set(i32 a, i32 b) { f32 d; asm("set.ge.f32.s32 %0, %1, %2;" : "=f"(d) : "r"(a), "r"(b)); return d; }
#define Z_TESTP(name, what, T, letter) ZI bool name(T a) { \
    u32 d; asm("{ .reg .pred p; testp." what " p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(d) : letter(a)); return d != 0u; }
Z_TESTP(z_subnormal, "subnormal.f64", f64, "d") Z_TESTP(z_normal, "normal.f32", f32, "f")
Z_TESTP(z_infinite, "infinite.f64", f64, "d") Z_TESTP(z_finite, "finite.f32", f32, "f")
ZI u32 z_mul24hi(u32 a, u32 b) { u32 d; asm("mul24.hi.u32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
ZI i32 z_madhi(i32 a, i32 b, i32 c) { i32 d; asm("mad.hi.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
ZI bool z_uniform(u32 mask, bool p) {
    u32 d; asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.uni.pred q, p, %2; selp.u32 %0, 1, 0, q; }"
                        : "=r"(d) : "r"((u32)p), "r"(mask)); return d != 0u;
}
// Packed halves, from numbers that stay numbers: every result is exact or rounded once.
ZI u32 z_halves(u32 v) { return (v & 0x83ff83ffu) | 0x38003800u | (v >> 3 & 0x04000400u); }
ZI u32 z_add2(u32 a, u32 b) { u32 d; asm("add.f16x2 %0, %1, %2;" : "=r"(d) : "r"(z_halves(a)), "r"(z_halves(b))); return d; }
ZI u32 z_mul2(u32 a, u32 b) { u32 d; asm("mul.f16x2 %0, %1, %2;" : "=r"(d) : "r"(z_halves(a)), "r"(z_halves(b))); return d; }
ZI u32 z_fma2(u32 a, u32 b, u32 c) {
    u32 d; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(z_halves(a)), "r"(z_halves(b)), "r"(z_halves(c))); return d;
}
ZI i32 z_half2int(u32 a) {
    i32 d; asm("{ .reg .b16 h, g; mov.b32 {h, g}, %1; cvt.rmi.s32.f16 %0, g; }" : "=r"(d) : "r"(z_halves(a))); return d;
}
ZI bool z_halfless(u32 a, u32 b) {
    u32 d; asm("{ .reg .pred p; .reg .b16 g, h, i; mov.b32 {g, i}, %1; mov.b32 {h, i}, %2; setp.lt.f16 p, g, h;"
               " selp.u32 %0, 1, 0, p; }" : "=r"(d) : "r"(z_halves(a)), "r"(z_halves(b))); return d != 0u;
}
// 16 bytes from global to shared memory, without going through registers where the target can.
ZI void z_copy16(float4* to, const float4* from) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
#else
    *to = *from;
#endif
}
ZI u32 z_prmt(u32 a, u32 b, u32 c) { u32 d; asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
ZI i32 z_sadd(i32 a, i32 b) { i32 d; asm("add.sat.s32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
ZI i32 z_ssub(i32 a, i32 b) { i32 d; asm("sub.sat.s32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
ZI u32 z_shl(u32 a, u32 b) { u32 d; asm("shl.b32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
ZI i32 z_shr(i32 a, u32 b) { i32 d; asm("shr.s32 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
ZI i64 z_shr(i64 a, u32 b) { i64 d; asm("shr.s64 %0, %1, %2;" : "=l"(d) : "l"(a), "r"(b)); return d; }
ZI u64 z_shl(u64 a, u32 b) { u64 d; asm("shl.b64 %0, %1, %2;" : "=l"(d) : "l"(a), "r"(b)); return d; }
ZI i32 z_slct(i32 a, i32 b, i32 c) { i32 d; asm("slct.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); return d; }
ZI i32 z_cvt8(i32 a) { i32 d; asm("{ .reg .s8 t; cvt.sat.s8.s32 t, %1; cvt.s32.s8 %0, t; }" : "=r"(d) : "r"(a)); return d; }
ZI u32 z_cvt16(i64 a) { u16 d; asm("cvt.sat.u16.s64 %0, %1;" : "=h"(d) : "l"(a)); return d; }
ZI u32 z_mad(u32 a, u32 b, u32 c) {
    u32 lo, hi;
    asm("mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.u32 %1, %2, %3, 0;" : "=r"(lo), "=r"(hi) : "r"(a), "r"(b), "r"(c));
    return lo ^ hi;
}
ZI f32 z_half(f32 a, f32 b, f32 c) {
    u16 h; f32 d;
    asm("{ .reg .b16 x, y, z; cvt.rn.f16.f32 x, %1; cvt.rn.f16.f32 y, %2; cvt.rn.f16.f32 z, %3;\n\t"
        "fma.rn.f16 %0, x, y, z; }" : "=h"(h) : "f"(a), "f"(b), "f"(c));
    asm("cvt.f32.f16 %0, %1;" : "=f"(d) : "h"(h));
    return d;
}
"""
