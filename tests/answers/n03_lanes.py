"""Wrong and right answers to the exercises of notebook 03."""

from __future__ import annotations

from tests.answers import Right, Wrong, kernel_text

_rules = kernel_text("two_rules(const int* x, int* y, int n)")
_sum = kernel_text("warp_sum(const int* x, int* out, int n)")
_max = kernel_text("warp_max(const int* x, int* out, int n)")
_bins = kernel_text("count_keys(const int* keys, int* bins, int n)")
_compact = kernel_text("compact(const float* x, float* out, int* counts, int n)")

_I = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
_GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"


_EVEN_ROUND = "v ^= v << 13; v ^= v >> 17; v ^= v << 5; v = v * 3 + k; v ^= v >> 9; v += v << 7;"
_ODD_ROUND = "v = v * 5 - k; v ^= v >> 7; v = v * 9 ^ k; v ^= v << 11; v += v >> 6; v ^= v << 3;"
_EVEN = f"for (int k = 0; k < 32; ++k) {{ {_EVEN_ROUND} }}"
_ODD = f"for (int k = 0; k < 32; ++k) {{ {_ODD_ROUND} }}"


def _ruled(which: str, element: str, guard: str = "if (i >= n) return;") -> str:
    """Element `i` as `element` says, treated by the even rule where `which` holds."""
    return str(
        _rules(
            f"int t = blockIdx.x * blockDim.x + threadIdx.x; {element} {guard} int v = x[i];"
            f"if ({which}) {{ {_EVEN} }} else {{ {_ODD} }} y[i] = v;"
        )
    )


_PAIRED = "int i = t / 64 * 64 + t % 32 * 2 + t / 32 % 2;"
_BRANCHES = (
    Wrong("03-branch", "the given kernel, unchanged", _ruled("i % 2 == 0", "int i = t;"), "budget", "Warps still run both sides"),
    Wrong("03-branch", "guards the thread instead of the element", _ruled("i % 2 == 0", _PAIRED, "if (t >= n) return;"), "results",
          "the element that the thread really handles"),
    Wrong("03-branch", "no guard", _ruled("i % 2 == 0", _PAIRED, ""), "results", "really handles"),
    Wrong("03-branch", "rule by warp, element unchanged", _ruled("t / 32 % 2 == 0", "int i = t;"), "results", ""),
    Wrong("03-branch", "only even elements", _ruled("i % 2 == 0", "int i = 2 * t;"), "results", "had no thread"),
    Wrong("03-branch", "both at the same place", _ruled("i % 2 == 0", "int i = t / 64 * 64 + t % 32 * 2;"), "results",
          "had no thread"),
    Wrong("03-branch", "pairs within a half warp", _ruled("i % 2 == 0", "int i = t / 32 * 32 + t % 16 * 2 + t / 16 % 2;"),
          "budget", "Warps still run both sides"),
    Wrong("03-branch", "the other rule", _ruled("i % 2 == 1", _PAIRED), "results", ""),
    Wrong("03-branch", "blocks of 64 only",
          _ruled("i % 2 == 0", "int i = blockIdx.x * 64 + threadIdx.x % 32 * 2 + threadIdx.x / 32;"), "results", ""),
    Wrong("03-branch", "one thread does all of the work",
          _rules("if (blockIdx.x + threadIdx.x == 0) for (int i = 0; i < n; ++i) { int v = x[i];"
                 f" if (i % 2) {{ {_ODD} }} else {{ {_EVEN} }} y[i] = v; }}"), "parallelism", "few threads"),
    Wrong("03-branch", "31 rounds",
          _ruled("i % 2 == 0", _PAIRED).replace("k < 32", "k < 31"), "results", ""),
    Wrong("03-branch", "both rules in every lane",
          _rules(f"{_I} if (i >= n) return; int v = x[i]; {_EVEN} int even = v; v = x[i]; {_ODD} y[i] = i % 2 ? v : even;"),
          "budget", "takes the time of both"),
    Wrong("03-branch", "chooses in every round",
          _rules(f"{_I} if (i >= n) return; int v = x[i]; for (int k = 0; k < 32; ++k) {{ int u = v; {_EVEN_ROUND} int e = v;"
                 f" v = u; {_ODD_ROUND} v = i % 2 ? v : e; }} y[i] = v;"), "budget", "takes the time of both"),
    Wrong("03-branch", "unrolled as it stands",
          _ruled("i % 2 == 0", "int i = t;").replace("for (int k", "\n#pragma unroll\nfor (int k"), "budget", "both sides"),
    Wrong("03-branch", "sorted in large launches only",
          _ruled("i % 2 == 0", f"int i; if (n > 1700) {{ {_PAIRED.replace('int i', 'i')} }} else i = t;"), "budget",
          "both sides"),
    Right("03-branch", "pairs of warps", _ruled("t / 32 % 2 == 0", _PAIRED)),
    Right("03-branch", "halves of a block",
          _ruled("i % 2 == 0", "int half = blockDim.x / 2, odd = threadIdx.x >= half;"
                 "int i = blockIdx.x * blockDim.x + 2 * (threadIdx.x - odd * half) + odd;")),
    Right("03-branch", "halves of the grid",
          _ruled("i % 2 == 0", "int half = gridDim.x * blockDim.x / 2; int i = t < half ? 2 * t : 2 * (t - half) + 1;")),
    Right("03-branch", "bits", _ruled("!(t & 32)", "int i = (t & ~63) | (t & 31) << 1 | (t >> 5 & 1); /* i % 2 */")),
    Right("03-branch", "loops kept as loops",
          _ruled("t / 32 % 2 == 0", _PAIRED).replace("for (int k", "\n#pragma unroll 1\nfor (int k")),
    Right("03-branch", "a grid-stride loop of tiles",
          _rules("for (int tile = blockIdx.x * (blockDim.x / 64) + threadIdx.x / 64; 64 * tile < n;"
                 " tile += gridDim.x * (blockDim.x / 64)) { bool odd = threadIdx.x & 32; int i = 64 * tile + 2 *"
                 f" (threadIdx.x & 31) + odd; if (i >= n) break; int v = x[i]; if (odd) {{ {_ODD} }} else {{ {_EVEN} }} y[i] = v; }}")),
    Right("03-branch", "two functions",
          _rules(f"int t = blockIdx.x * blockDim.x + threadIdx.x; {_PAIRED} if (i < n) y[i] = t & 32 ? odd(x[i]) : even(x[i]);",
                 f"__device__ int even(int v) {{ {_EVEN} return v; }}\n__device__ int odd(int v) {{ {_ODD} return v; }}")),
)

_LOAD = f"{_I} int v = i < n ? x[i] : 0;"
_TREE = "for (int o = 16; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o);"
_STORE = "if (threadIdx.x % 32 == 0) out[i / 32] = v;"
_SUMS = (
    Wrong("03-warp-sum", "returns early", _sum(f"{_I} if (i >= n) return; int v = x[i]; {_TREE} {_STORE}"), "results",
          ""),
    Wrong("03-warp-sum", "guard around the shuffles",
          _sum(f"{_I} if (i < n) {{ int v = x[i]; {_TREE} {_STORE} }}"), "results", ""),
    Wrong("03-warp-sum", "no guard", _sum(f"{_I} int v = x[i]; {_TREE} {_STORE}"), "results", "must not load"),
    Wrong("03-warp-sum", "the warp's number in 16 bits", _sum(f"{_LOAD} {_TREE} {_STORE.replace('i / 32', '(unsigned short)(i / 32)')}"),
          "results", "more warps than 16 bits can count"),
    Wrong("03-warp-sum", "four steps", _sum(f"{_LOAD} {_TREE.replace('o = 16', 'o = 8')} {_STORE}"), "results", ""),
    Wrong("03-warp-sum", "stops at 2", _sum(f"{_LOAD} {_TREE.replace('o > 0', 'o > 1')} {_STORE}"), "results", ""),
    Wrong("03-warp-sum", "only thread 0 of the block writes", _sum(f"{_LOAD} {_TREE} if (threadIdx.x == 0) out[i / 32] = v;"), "results",
          "lane 0 of every warp must write"),
    Wrong("03-warp-sum", "by block", _sum(f"{_LOAD} {_TREE} if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = v;"),
          "results", ""),
    Wrong("03-warp-sum", "all lanes write", _sum(f"{_LOAD} {_TREE} out[i / 32] = v;"), "results", ""),
    Wrong("03-warp-sum", "atomics", _sum("int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n)"
                                         " atomicAdd(&out[i / 32], x[i]);"), "results", ""),
    Wrong("03-warp-sum", "lane 0 adds in a loop",
          _sum(f"{_I} if (threadIdx.x % 32 == 0) {{ int s = 0; for (int k = i; k < i + 32 && k < n; ++k) s += x[k];"
               " out[i / 32] = s; }"), "parallelism", "one lane does what 32 could share"),
    Wrong("03-warp-sum", "shared memory",
          _sum(f"__shared__ int s[1024]; {_LOAD} s[threadIdx.x] = v; for (int o = 16; o > 0; o /= 2) {{ __syncwarp();"
               " int a = threadIdx.x % 32 < o ? s[threadIdx.x + o] : 0; __syncwarp(); s[threadIdx.x] += a; }"
               " v = s[threadIdx.x]; if (threadIdx.x % 32 == 0) out[i / 32] = v;"), "budget", "by shuffles"),
    Wrong("03-warp-sum", "every lane in a loop",
          _sum(f"{_I} int s = 0; for (int k = i / 32 * 32; k < i / 32 * 32 + 32 && k < n; ++k) s += x[k];"
               " s = __shfl_sync(0xffffffff, s, 0); if (threadIdx.x % 32 == 0) out[i / 32] = s;"), "budget", "loaded only once"),
    Wrong("03-warp-sum", "in floats", _sum(f"{_LOAD.replace('int v', 'float v')} {_TREE} {_STORE}"), "results", ""),
    Wrong("03-warp-sum", "asks all 32 lanes",
          _sum(f"{_LOAD} int s = 0; for (int k = 0; k < 32; ++k) s += __shfl_sync(0xffffffff, v, k); v = s; {_STORE}"),
          "budget", "in five steps"),
    Wrong("03-warp-sum", "two and a half trees",
          _sum(f"{_LOAD} int s = 0; for (int k = 0; k < 8; ++k) s += __shfl_down_sync(0xffffffff, v, 4 * k, 32) * (threadIdx.x % 32 < 4);"
               f" v = s; for (int o = 2; o > 0; o /= 2) v += __shfl_down_sync(0xffffffff, v, o); v = __shfl_sync(0xffffffff, v, 0); {_STORE}"),
          "budget", "in five steps"),
    Wrong("03-warp-sum", "half of the lanes shuffle",
          _sum(f"{_LOAD} for (int o = 16; o > 0; o /= 2) if (threadIdx.x % 32 < o)"
               f" v += __shfl_down_sync(0xffffffff, v, o); {_STORE}"), "hazards", "does not execute the shuffle"),
    Wrong("03-warp-sum", "the lanes that are here",
          _sum(f"{_I} if (i < n) {{ int v = x[i]; for (int o = 16; o > 0; o /= 2)"
               f" v += __shfl_down_sync(__activemask(), v, o); {_STORE} }}"), "results", ""),
    Wrong("03-warp-sum", "empty warps stay",
          _sum(f"{_LOAD} {_TREE} if (threadIdx.x % 32 == 0 && i < n) out[i / 32] = v;"), "results", ""),
    Wrong("03-warp-sum", "shared memory, and shuffles for show",
          _sum(f"__shared__ int s[1024]; {_LOAD} int t = threadIdx.x; s[t] = v; for (int o = 16; o > 0; o /= 2) {{ __syncwarp();"
               " int a = t % 32 < o ? s[t + o] : 0; __syncwarp(); s[t] += a; v ^= __shfl_xor_sync(~0u, v, o); }"
               f" v = v == 1 << 30 ? 0 : s[t]; {_STORE}"), "budget", "need no shared memory"),
    Right("03-warp-sum", "down", _sum(f"{_LOAD} {_TREE} {_STORE}")),
    Right("03-warp-sum", "xor",
          _sum(f"/* no atomicAdd */ {_LOAD}\n#pragma unroll\nfor (int b = 1; b < 32; b *= 2)"
               f" v += __shfl_xor_sync(~0u, v, b);\n{_STORE}")),
    Right("03-warp-sum", "redux",
          _sum(f"{_LOAD}\n#if __CUDA_ARCH__ >= 800\nv = __reduce_add_sync(0xffffffff, v);\n#else\n{_TREE}\n#endif\n"
               f"{_STORE}")),
    Right("03-warp-sum", "cooperative groups",
          _sum(f"auto w = cg::tiled_partition<32>(cg::this_thread_block()); {_LOAD}"
               "for (int o = w.size() / 2; o > 0; o /= 2) v += w.shfl_down(v, o); if (w.thread_rank() == 0) out[i / 32] = v;",
               _GROUPS)),
    Right("03-warp-sum", "in 64 bits",
          _sum(f"{_LOAD.replace('int v', 'long long v')} {_TREE} {_STORE}")),
    Right("03-warp-sum", "scan, last lane writes",
          _sum(f"{_LOAD} int lane = threadIdx.x & 31; for (int o = 1; o < 32; o <<= 1) {{ int u ="
               " __shfl_up_sync(0xffffffff, v, o); if (lane >= o) v += u; } if (lane == 31) out[i >> 5] = v;")),
)

_LEAST = "-2147483647 - 1"
_BEST = "for (int o = 16; o > 0; o /= 2) v = max(v, __shfl_down_sync(0xffffffff, v, o));"
_SOME = _BEST.replace("v = max", "if (threadIdx.x % 32 < o) v = max")
_WRITES = "if (threadIdx.x % 32 == 0 && i < n) out[i / 32] = v;"
_MAXIMA = (
    Wrong("03-repair", "the given kernel, unchanged", _max(f"{_I} int v = i < n ? x[i] : 0; {_SOME} if (threadIdx.x == 0) out[i / 32] = v;"),
          "results", "lane 0 of every warp must write"),
    Wrong("03-repair", "only the store is repaired", _max(f"{_I} int v = i < n ? x[i] : 0; {_SOME} {_WRITES}"), "results",
          "0 can be larger"),
    Wrong("03-repair", "shuffles repaired",
          _max(f"{_I} int v = i < n ? x[i] : 0; {_BEST} {_WRITES}"), "results", "0 can be larger"),
    Wrong("03-repair", "only the store and the start value are repaired", _max(f"{_I} int v = i < n ? x[i] : {_LEAST}; {_SOME} {_WRITES}"),
          "hazards", "does not execute the shuffle"),
    Wrong("03-repair", "returns early", _max(f"{_I} if (i >= n) return; int v = x[i]; {_BEST} {_WRITES}"), "results", ""),
    Wrong("03-repair", "no guard for the store",
          _max(f"{_I} int v = i < n ? x[i] : {_LEAST}; {_BEST} if (threadIdx.x % 32 == 0) out[i / 32] = v;"), "results",
          "other warps must not write"),
    Wrong("03-repair", "thread 0 writes",
          _max(f"{_I} int v = i < n ? x[i] : {_LEAST}; {_BEST} if (threadIdx.x == 0 && i < n) out[i / 32] = v;"),
          "results", "lane 0 of every warp must write"),
    Wrong("03-repair", "the start value is -1", _max(f"{_I} int v = i < n ? x[i] : -1; {_BEST} {_WRITES}"), "results", ""),
    Wrong("03-repair", "absolute values", _max(f"{_I} int v = i < n ? abs(x[i]) : 0; {_BEST} {_WRITES}"), "results", ""),
    Wrong("03-repair", "active lanes as mask",
          _max(f"{_I} if (i >= n) return; int v = x[i]; for (int o = 16; o > 0; o /= 2)"
               f" v = max(v, __shfl_down_sync(__activemask(), v, o)); {_WRITES}"), "results", ""),
    Wrong("03-repair", "lane 0 in a loop",
          _max(f"{_I} if (threadIdx.x % 32 == 0 && i < n) {{ int v = x[i]; for (int k = i; k < i + 32 && k < n; ++k)"
               " v = max(v, x[k]); out[i / 32] = v; }"), "parallelism", ""),
    Right("03-repair", "repaired", _max(f"{_I} int v = i < n ? x[i] : {_LEAST}; {_BEST} {_WRITES}")),
    Right("03-repair", "xor", _max(f"{_I} int v = i < n ? x[i] : 1 << 31; for (int o = 1; o < 32; o *= 2)"
                                   f" v = max(v, __shfl_xor_sync(0xffffffff, v, o)); {_WRITES}")),
    Right("03-repair", "the last element instead of a constant",
          _max(f"{_I} int v = x[min(i, n - 1)]; {_BEST} // i >= n repeats the last one: it belongs to the same warp\n"
               f"{_WRITES}")),
    Right("03-repair", "a mask voted for",
          _max(f"{_I} unsigned here = __ballot_sync(0xffffffff, i < n); if (i < n) {{ int v = x[i], lane = threadIdx.x % 32;"
               " for (int o = 16; o > 0; o /= 2) { int from = lane + o < 32 && here >> (lane + o) & 1 ? lane + o : lane;"
               f" v = max(v, __shfl_sync(here, v, from)); }} {_WRITES} }}")),
)

_KEY = f"{_I} int key = i < n ? keys[i] : -1; unsigned peers = __match_any_sync(0xffffffff, key);"
_SPEAKER = "bool speaker = threadIdx.x % 32 == __ffs(peers) - 1;"
_COUNTS = (
    Wrong("03-bins", "one atomic for each lane", _bins(f"{_I} if (i < n) atomicAdd(&bins[keys[i]], 1);"), "budget",
          "hold the same key"),
    Wrong("03-bins", "no atomic", _bins(f"{_I} if (i < n) bins[keys[i]] += 1;"), "results", ""),
    Wrong("03-bins", "speakers without an atomic",
          _bins(f"{_KEY} {_SPEAKER} if (speaker && key >= 0) bins[key] += __popc(peers);"), "hazards", "right only by chance"),
    Wrong("03-bins", "every lane adds for its group", _bins(f"{_KEY} if (key >= 0) atomicAdd(&bins[key], __popc(peers));"), "results",
          "counts are too high"),
    Wrong("03-bins", "the speaker adds one", _bins(f"{_KEY} {_SPEAKER} if (speaker && key >= 0) atomicAdd(&bins[key], 1);"),
          "results", ""),
    Wrong("03-bins", "tail counts as key 0",
          _bins(f"{_I} int key = i < n ? keys[i] : 0; unsigned peers = __match_any_sync(0xffffffff, key); {_SPEAKER}"
                " if (speaker) atomicAdd(&bins[key], __popc(peers));"), "results", "counts are too high"),
    Wrong("03-bins", "no guard for the addition", _bins(f"{_KEY} {_SPEAKER} if (speaker) atomicAdd(&bins[key], __popc(peers));"),
          "results", "neither load nor add"),
    Wrong("03-bins", "no guard on loading",
          _bins(f"{_I} int key = keys[i]; unsigned peers = __match_any_sync(0xffffffff, key); {_SPEAKER}"
                " if (speaker) atomicAdd(&bins[key], __popc(peers));"), "results", "neither load nor add"),
    Wrong("03-bins", "speaker by thread", _bins(f"{_KEY} if (threadIdx.x == __ffs(peers) - 1 && key >= 0)"
                                                " atomicAdd(&bins[key], __popc(peers));"), "results", ""),
    Wrong("03-bins", "sets instead of adding",
          _bins(f"{_KEY} {_SPEAKER} if (speaker && key >= 0) atomicExch(&bins[key], __popc(peers));"), "results", ""),
    Wrong("03-bins", "one thread counts all keys",
          _bins("if (blockIdx.x + threadIdx.x == 0) for (int k = 0; k < n; ++k) bins[keys[k]]++;"), "parallelism", "few threads"),
    Wrong("03-bins", "a thread for each bin",
          _bins("if (blockIdx.x == 0) for (int b = threadIdx.x; b < 8; b += blockDim.x) { int s = 0;"
                " for (int k = 0; k < n; ++k) s += keys[k] == b; bins[b] += s; }"), "parallelism", "few threads"),
    Wrong("03-bins", "lanes 0 to 7 add",
          _bins(f"{_I} int lane = threadIdx.x % 32, key = i < n ? keys[i] : -1, c = 0; for (int k = 0; k < 8; ++k) {{"
                " unsigned b = __ballot_sync(0xffffffff, key == k); if (lane == k) c = __popc(b); }"
                " if (lane < 8 && c) atomicAdd(&bins[lane], c);"), "results", ""),
    Wrong("03-bins", "the match is inside the guard",
          _bins(f"{_I} if (i < n) {{ int key = keys[i]; unsigned peers = __match_any_sync(0xffffffff, key); {_SPEAKER}"
                " if (speaker) atomicAdd(&bins[key], __popc(peers)); }"), "hazards", "does not execute the call"),
    Wrong("03-bins", "votes of those who have not returned",
          _bins(f"{_I} if (i >= n) return; for (int k = 0; k < 8; ++k) {{"
                " unsigned b = __ballot_sync(0xffffffff, keys[i] == k);"
                " if (b && threadIdx.x % 32 == __ffs(b) - 1) atomicAdd(&bins[k], __popc(b)); }"),
          "hazards", "Lanes beyond n must take part"),
    Wrong("03-bins", "eight threads clear",
          _bins("__shared__ int own[8]; if (threadIdx.x < 8) own[threadIdx.x] = 0; __syncthreads();"
                f"{_I} if (i < n) atomicAdd(&own[keys[i]], 1); __syncthreads();"
                "for (int k = threadIdx.x; k < 8; k += blockDim.x) if (own[k]) atomicAdd(&bins[k], own[k]);"), "results", ""),
    Wrong("03-bins", "bytes count",
          _bins("__shared__ unsigned own[2]; if (threadIdx.x == 0) own[0] = own[1] = 0; __syncthreads();"
                f"{_I} if (i < n) atomicAdd(&own[keys[i] / 4], 1u << 8 * (keys[i] % 4)); __syncthreads();"
                "for (int k = threadIdx.x; k < 8; k += blockDim.x) { int c = own[k / 4] >> 8 * (k % 4) & 255;"
                " if (c) atomicAdd(&bins[k], c); }"), "results", ""),
    Right("03-bins", "drops what an absent lane gives",
          _bins(f"{_I} int lane = threadIdx.x % 32, lanes = min(32, blockDim.x - (threadIdx.x - lane));"
                "int key = i < n ? keys[i] : -1; unsigned all = lanes == 32 ? ~0u : (1u << lanes) - 1;"
                "unsigned low = key >= 0 && key < 4 ? 1u << 8 * key : 0, high = key >= 4 ? 1u << 8 * (key - 4) : 0;"
                "for (int o = 16; o > 0; o /= 2) { unsigned a = __shfl_down_sync(all, low, o), b ="
                " __shfl_down_sync(all, high, o); if (lane + o < lanes) { low += a; high += b; } }"
                "if (lane == 0) for (int k = 0; k < 8; ++k) { int c = (k < 4 ? low : high) >> 8 * (k % 4) & 255;"
                " if (c) atomicAdd(&bins[k], c); }")),
    Right("03-bins", "match among those who are here",
          _bins(f"{_I} unsigned here = __ballot_sync(__activemask(), i < n); if (i >= n) return;"
                f" int key = keys[i]; unsigned peers = __match_any_sync(here, key); {_SPEAKER}"
                " if (speaker) atomicAdd(&bins[key], __popc(peers));")),
    Right("03-bins", "bins of each warp",
          _bins("__shared__ int own[32][8]; for (int k = threadIdx.x; k < 256; k += blockDim.x) own[k / 8][k % 8] = 0;"
                f" __syncthreads(); {_I} if (i < n) atomicAdd(&own[threadIdx.x / 32][keys[i]], 1); __syncthreads();"
                "for (int k = threadIdx.x; k < 8; k += blockDim.x) { int c = 0; for (int w = 0; w < 32; ++w) c += own[w][k];"
                " if (c) atomicAdd(&bins[k], c); }")),
    Right("03-bins", "match", _bins(f"{_KEY} {_SPEAKER} if (speaker && key >= 0) atomicAdd(&bins[key], __popc(peers));")),
    Right("03-bins", "the highest peer speaks",
          _bins(f"/* atomicAdd once */ {_KEY}\nif (key != -1)\n  if ((threadIdx.x & 31) == 31 - __clz(peers))\n"
                "    atomicAdd(bins + key, __popc(peers));")),
    Right("03-bins", "bins in shared memory",
          _bins("__shared__ int own[8]; for (int k = threadIdx.x; k < 8; k += blockDim.x) own[k] = 0; __syncthreads();"
                f"{_I} if (i < n) atomicAdd(&own[keys[i]], 1); __syncthreads();"
                "for (int k = threadIdx.x; k < 8; k += blockDim.x) if (own[k]) atomicAdd(&bins[k], own[k]);")),
    Right("03-bins", "grid stride",
          _bins("int all = gridDim.x * blockDim.x, rounds = (n + all - 1) / all; for (int k = 0; k < rounds; ++k) {"
                "int i = k * all + blockIdx.x * blockDim.x + threadIdx.x; int key = i < n ? keys[i] : -1;"
                f"unsigned peers = __match_any_sync(0xffffffff, key); {_SPEAKER}"
                " if (speaker && key >= 0) atomicAdd(&bins[key], __popc(peers)); }")),
    Right("03-bins", "a vote for each key",
          _bins(f"{_I} int key = i < n ? keys[i] : -1; for (int k = 0; k < 8; ++k) {{"
                " unsigned b = __ballot_sync(0xffffffff, key == k);"
                " if (b && threadIdx.x % 32 == 0) atomicAdd(&bins[k], __popc(b)); }")),
    Right("03-bins", "a round for each key that is there",
          _bins("int i = blockIdx.x * blockDim.x + threadIdx.x; bool todo = i < n; int key = todo ? keys[i] : 0;"
                 " unsigned all = __ballot_sync(__activemask(), true), left; while ((left = __ballot_sync(all, todo)) != 0) {"
                 " int first = __ffs(left) - 1, k = __shfl_sync(all, key, first); unsigned same = __ballot_sync(all, todo && key == k);"
                 " if (threadIdx.x % 32 == first) atomicAdd(bins + k, __popc(same)); if (key == k) todo = false; }")),
    Right("03-bins", "labeled groups",
          _bins(f"{_I} auto w = cg::tiled_partition<32>(cg::this_thread_block()); int key = i < n ? keys[i] : -1;"
                "auto g = cg::labeled_partition(w, key); if (key >= 0 && g.thread_rank() == 0)"
                " atomicAdd(&bins[key], (int)g.size());", _GROUPS)),
)

_VOTE = (
    f"{_I} int lane = threadIdx.x % 32, w = i / 32; bool keep = i < n && x[i] > 0;"
    " unsigned b = __ballot_sync(0xffffffff, keep);"
)
_PLACE = "if (keep) out[32 * w + __popc(b & ((1u << lane) - 1))] = x[i];"
_COUNT = "if (lane == 0) counts[w] = __popc(b);"
_KEPT = (
    Wrong("03-compact", "vote inside the guard",
          _compact(f"{_I} int lane = threadIdx.x % 32, w = i / 32; if (i < n) {{ bool keep = x[i] > 0;"
                   f" unsigned b = __ballot_sync(0xffffffff, keep); {_PLACE} {_COUNT} }}"), "results", ""),
    Wrong("03-compact", "counts itself, too", _compact(f"{_VOTE} if (keep) out[32 * w + __popc(b & ((2u << lane) - 1))]"
                                                       f" = x[i]; {_COUNT}"), "results", ""),
    Wrong("03-compact", "counts the higher lanes", _compact(f"{_VOTE} if (keep) out[32 * w + __popc(b >> lane) - 1] = x[i]; {_COUNT}"),
          "results", "in another order"),
    Wrong("03-compact", "positions by an atomic counter",
          _compact(f"__shared__ int next[32]; {_VOTE} if (lane == 0) next[threadIdx.x / 32] = 0; __syncwarp();"
                   f" if (keep) out[32 * w + atomicAdd(&next[threadIdx.x / 32], 1)] = x[i]; {_COUNT}"), "budget",
          "order of the lanes' atomics"),
    Wrong("03-compact", "keeps zeros", _compact(f"{_VOTE.replace('x[i] > 0', 'x[i] >= 0')} {_PLACE} {_COUNT}"), "results",
          ""),
    Wrong("03-compact", "next to nothing is nothing", _compact(f"{_VOTE.replace('x[i] > 0', 'x[i] > 1e-20f')} {_PLACE} {_COUNT}"), "results", ""),
    Wrong("03-compact", "keeps NaN", _compact(f"{_VOTE.replace('x[i] > 0', '!(x[i] <= 0)')} {_PLACE} {_COUNT}"), "results",
          ""),
    Wrong("03-compact", "clears the rest",
          _compact(f"{_VOTE} if (i < n) out[i] = 0; __syncwarp(); {_PLACE} {_COUNT}"), "results", ""),
    Wrong("03-compact", "warp within the block",
          _compact(f"{_VOTE.replace('w = i / 32', 'w = threadIdx.x / 32')} {_PLACE} {_COUNT}"), "results", ""),
    Wrong("03-compact", "lanes above 31 in the shift",
          _compact(f"{_VOTE} if (keep) out[32 * w + __popc(b & ((1u << threadIdx.x) - 1))] = x[i]; {_COUNT}"), "results", ""),
    Wrong("03-compact", "thread 0 counts", _compact(f"{_VOTE} {_PLACE} if (threadIdx.x == 0) counts[w] = __popc(b);"),
          "results", ""),
    Wrong("03-compact", "no guard", _compact(f"{_VOTE.replace('i < n && ', '')} {_PLACE} {_COUNT}"), "results",
          "vote no"),
    Wrong("03-compact", "lane 0 does all of the work",
          _compact(f"{_I} if (threadIdx.x % 32 == 0) {{ int w = i / 32, c = 0; for (int k = i; k < i + 32 && k < n; ++k)"
                   " if (x[k] > 0) out[32 * w + c++] = x[k]; counts[w] = c; }"), "parallelism", ""),
    Wrong("03-compact", "empty warps stay",
          _compact(f"{_VOTE} {_PLACE} if (lane == 0 && i < n) counts[w] = __popc(b);"), "results", ""),
    Wrong("03-compact", "counts in five bits", _compact(f"{_VOTE} {_PLACE} if (lane == 0) counts[w] = __popc(b) & 31;"), "results", ""),
    Wrong("03-compact", "whole numbers above 0", _compact(f"{_VOTE.replace('x[i] > 0', '(int)x[i] > 0')} {_PLACE} {_COUNT}"), "results", ""),
    Right("03-compact", "ballot", _compact(f"{_VOTE} {_PLACE} {_COUNT}")),
    Right("03-compact", "a special register", _compact(
        f"{_VOTE} unsigned below; asm(\"mov.u32 %0, %%lanemask_lt;\" : \"=r\"(below));"
        f" if (keep) out[32 * w + __popc(b & below)] = x[i]; {_COUNT}")),
    Right("03-compact", "scan by shuffles",
          _compact(f"{_I} int lane = threadIdx.x % 32, w = i / 32; int keep = i < n && x[i] > 0, before = keep;"
                   "for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, before, o); if (lane >= o) before += u; }"
                   "if (keep) out[w * 32 + before - 1] = x[i]; if (lane == 31) counts[w] = before;")),
    Right("03-compact", "cooperative groups",
          _compact(f"{_I} auto w = cg::tiled_partition<32>(cg::this_thread_block()); bool keep = i < n && x[i] > 0;"
                   "unsigned b = w.ballot(keep); // every lane votes\n"
                   "if (keep) out[i / 32 * 32 + __popc(b << (31 - w.thread_rank()) << 1)] = x[i];"
                   "if (w.thread_rank() == 0) counts[i / 32] = __popc(b);", _GROUPS)),
)

_ALL: tuple[Wrong | Right, ...] = (*_BRANCHES, *_SUMS, *_MAXIMA, *_COUNTS, *_KEPT)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
