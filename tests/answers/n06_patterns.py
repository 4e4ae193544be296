"""Wrong and right answers to the exercises of notebooks 06a and 06b."""

from __future__ import annotations

from tests.answers import Right, Wrong, kernel_text

_stats = kernel_text("block_stats(const int* x, int* sums, int* largest, int n)")

_GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"
_I = "int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;"
_LEAST = "-2147483647 - 1"

_BOXES = f"__shared__ int sum[1024], most[1024]; {_I}"
_STORE = f"sum[t] = i < n ? x[i] : 0; most[t] = i < n ? x[i] : {_LEAST}; __syncthreads();"
_ADD = "sum[t] += sum[t + half]; most[t] = max(most[t], most[t + half]);"
_FOLD = (
    "for (int left = blockDim.x; left > 1;) { int half = (left + 1) / 2;"
    f" if (t < left / 2) {{ {_ADD} }} __syncthreads(); left = half; }}"
)
_WRITE = "if (t == 0) { sums[blockIdx.x] = sum[0]; largest[blockIdx.x] = most[0]; }"
_GIVEN = (
    "for (int half = blockDim.x / 2; half > 0; half /= 2) {"
    f" if (t < half) {{ {_ADD} }} if (half > 32) __syncthreads(); }}"
)
_HALVES = (
    f"for (int half = blockDim.x / 2; half > 0; half /= 2) {{ if (t < half) {{ {_ADD} }} __syncthreads(); }}"
)
_STEPS = (
    "int s = i < n ? x[i] : 0, m = i < n ? x[i] : -2147483647 - 1, lane = t % 32, w = t / 32;"
    "for (int o = 16; o > 0; o /= 2) { int a = __shfl_down_sync(~0u, s, o), b = __shfl_down_sync(~0u, m, o);"
    " if (lane + o < 32 && t + o < blockDim.x) { s += a; m = max(m, b); } }"
)
_WARPS = (
    "__shared__ int ws[32], wm[32];" + _I + _STEPS + " if (lane == 0) { ws[w] = s; wm[w] = m; } BARRIER"
    " if (t == 0) { for (int k = 1; k < (blockDim.x + 31) / 32; ++k) { s += ws[k]; m = max(m, wm[k]); }"
    " sums[blockIdx.x] = s; largest[blockIdx.x] = m; }"
)
_BLOCKS = (
    Wrong("06-block", "as given", _stats(f"{_BOXES} {_STORE.replace(_LEAST, '0')} {_GIVEN} {_WRITE}"), "results", ""),
    Wrong("06-block", "barriers and identity mended", _stats(f"{_BOXES} {_STORE} {_HALVES} {_WRITE}"), "results",
          "halving leaves one out"),
    Wrong("06-block", "barriers and halving mended", _stats(f"{_BOXES} {_STORE.replace(_LEAST, '0')} {_FOLD} {_WRITE}"),
          "results", "0 can be larger"),
    Wrong("06-block", "identity and halving mended",
          _stats(f"{_BOXES} {_STORE} {_FOLD.replace('__syncthreads();', 'if (half > 32) __syncthreads();')} {_WRITE}"),
          "hazards", "A warp is not a barrier"),
    Wrong("06-block", "volatile instead of barriers in the last warp",
          _stats(f"{_BOXES.replace('int sum', 'volatile int sum')} {_STORE}"
                 f" {_FOLD.replace('__syncthreads();', 'if (half > 32) __syncthreads();')} {_WRITE}"),
          "hazards", "A warp is not a barrier"),
    Wrong("06-block", "no barrier after storing",
          _stats(f"{_BOXES} {_STORE.replace('__syncthreads();', '')} {_FOLD} {_WRITE}"), "results", "after storing"),
    Wrong("06-block", "a barrier of the warp only", _stats(f"{_BOXES} {_STORE} {_FOLD} {_WRITE}").replace("syncthreads", "syncwarp"),
          "results", "after each step"),
    Wrong("06-block", "identity -1", _stats(f"{_BOXES} {_STORE.replace(_LEAST, '-1')} {_FOLD} {_WRITE}"), "results", ""),
    Wrong("06-block", "identity of a million", _stats(f"{_BOXES} {_STORE.replace(_LEAST, '-1000000')} {_FOLD} {_WRITE}"), "results", ""),
    Wrong("06-block", "identity of the sum is the element 0", _stats(f"{_BOXES} {_STORE.replace('x[i] : 0', 'x[i] : 1')} {_FOLD} {_WRITE}"),
          "results", ""),
    Wrong("06-block", "sums in floats", _stats(f"{_BOXES.replace('int sum[1024],', 'float sum[1024]; __shared__ int')} {_STORE} {_FOLD} {_WRITE}"),
          "results", ""),
    Wrong("06-block", "the larger as floats", _stats(f"{_BOXES} {_STORE} {_FOLD.replace('max(most', '(int)fmaxf(most')} {_WRITE}"), "results", ""),
    Wrong("06-block", "no guard", _stats(f"{_BOXES} sum[t] = most[t] = x[i]; __syncthreads(); {_FOLD} {_WRITE}"), "results",
          "must not load"),
    Wrong("06-block", "early return", _stats(f"{_BOXES} if (i >= n) return; sum[t] = most[t] = x[i]; __syncthreads(); {_FOLD} {_WRITE}"),
          "results", ""),
    Wrong("06-block", "boxes of 512", _stats(f"{_BOXES} {_STORE} {_FOLD} {_WRITE}".replace("1024", "512")), "results", ""),
    Wrong("06-block", "every thread writes", _stats(f"{_BOXES} {_STORE} {_FOLD} {_WRITE.replace('if (t == 0)', '')}"), "hazards",
          "One thread of each block"),
    Wrong("06-block", "no barrier between the warps", _stats(_WARPS.replace("BARRIER", "")), "results", "__syncthreads()"),
    Wrong("06-block", "eight warps", _stats(_WARPS.replace("BARRIER", "__syncthreads();").replace("(blockDim.x + 31) / 32", "min(8, blockDim.x / 32)")),
          "results", ""),
    Wrong("06-block", "thread 0 adds all elements", _stats(f"{_BOXES} {_STORE} if (t == 0) for (int k = 1; k < blockDim.x; ++k)"
                                              f" {{ sum[0] += sum[k]; most[0] = max(most[0], most[k]); }} {_WRITE}"),
          "parallelism", "few threads"),
    Wrong("06-block", "every second thread, every fourth",
          _stats(f"{_BOXES} {_STORE} for (int half = 1; half < blockDim.x; half *= 2) {{ if (t % (2 * half) == 0 && t + half < blockDim.x)"
                 f" {{ {_ADD} }} __syncthreads(); }} {_WRITE}"), "budget", "whole warps are done early"),
    Wrong("06-block", "atomics in shared memory",
          _stats(f"__shared__ int s, m; {_I} if (t == 0) {{ s = 0; m = {_LEAST}; }} __syncthreads();"
                 " if (i < n) { atomicAdd(&s, x[i]); atomicMax(&m, x[i]); } __syncthreads();"
                 " if (t == 0) { sums[blockIdx.x] = s; largest[blockIdx.x] = m; }"), "budget", "needs no atomics"),
    Wrong("06-block", "each thread reads the block's elements",
          _stats(f"{_I} if (t == 0) {{ int s = 0, m = {_LEAST}; for (int k = i; k < i + blockDim.x && k < n; ++k)"
                 " { s += x[k]; m = max(m, x[k]); } sums[blockIdx.x] = s; largest[blockIdx.x] = m; }"), "parallelism", ""),
    Right("06-block", "coalesced groups reduce",
          _stats("__shared__ int s[32], m[32];" + _I + f" auto w = cg::coalesced_threads(); int a = cg::reduce(w, i < n ? x[i] : 0, cg::plus<int>()),"
                 f" b = cg::reduce(w, i < n ? x[i] : {_LEAST}, cg::greater<int>()); if (t % 32 == 0) {{ s[t / 32] = a; m[t / 32] = b; }}"
                 " __syncthreads(); if (t == 0) { for (int k = 1; k < (blockDim.x + 31) / 32; ++k) { a += s[k]; b = max(b, m[k]); }"
                 " sums[blockIdx.x] = a; largest[blockIdx.x] = b; }",
                 _GROUPS.replace("\n", "\n#include <cooperative_groups/reduce.h>\n"))),
    Right("06-block", "halves, rounded up", _stats(f"{_BOXES} {_STORE} {_FOLD} {_WRITE}")),
    Right("06-block", "filled up to a power of two",
          _stats(f"{_BOXES} int p = 1; while (p < blockDim.x) p *= 2; {_STORE}"
                 f" for (int half = p / 2; half > 0; half /= 2) {{ if (t < half && t + half < blockDim.x) {{ {_ADD} }} __syncthreads(); }} {_WRITE}")),
    Right("06-block", "warps, then thread 0", _stats(_WARPS.replace("BARRIER", "__syncthreads();"))),
    Right("06-block", "two elements before the tree",
          _stats(f"/* no atomicAdd */ {_BOXES} {_STORE} int left = blockDim.x;\nwhile (left > 1) {{\n  int half = left - left / 2;\n"
                 f"  bool mine = t < left / 2;\n  int a = mine ? sum[t + half] : 0, b = mine ? most[t + half] : {_LEAST};\n"
                 "  __syncthreads();\n  if (mine) { sum[t] += a; if (b > most[t]) most[t] = b; }\n  __syncthreads();\n"
                 f"  left = half;\n}}\n{_WRITE}")),
    Right("06-block", "cooperative groups' barrier",
          _stats(f"auto block = cg::this_thread_block(); {_BOXES} {_STORE} {_FOLD} {_WRITE}".replace("__syncthreads()", "block.sync()"), _GROUPS)),
    Right("06-block", "boxes side by side",
          _stats(f"__shared__ int2 box[1024]; {_I} box[t] = i < n ? make_int2(x[i], x[i]) : make_int2(0, 1 << 31); __syncthreads();"
                 " for (unsigned left = blockDim.x; left > 1; left = (left + 1) >> 1) { unsigned half = (left + 1) >> 1;"
                 " if (t + half < left) { box[t].x += box[t + half].x; box[t].y = max(box[t].y, box[t + half].y); } __syncthreads(); }"
                 " if (!t) { sums[blockIdx.x] = box->x; largest[blockIdx.x] = box->y; }")),
)

_warp_scan = kernel_text("warp_scan(const int* x, int* y, int n)")
_LANE = "int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32; int v = i < n ? x[i] : 0;"
_UP = (
    "for (int d = 1; d < 32; d *= 2) { int other = __shfl_up_sync(0xffffffff, v, d); if (lane >= d) v += other; }"
)
_IF_ANY = "if (i < n) y[i] = v;"


def _lanes(*changes: tuple[str, str], before: str = "") -> str:
    text = f"{_LANE} {_UP} {_IF_ANY}"
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return str(_warp_scan(text, before))


_WARP_SCANS = (
    Wrong("06-warp-scan", "as given", _lanes((_UP, "")), "results", "only its own element"),
    Wrong("06-warp-scan", "every lane adds, also the lowest ones", _lanes(("if (lane >= d) ", "")), "results", "must not add it"),
    Wrong("06-warp-scan", "lanes from the second on add", _lanes(("lane >= d", "lane > 0")), "results", ""),
    Wrong("06-warp-scan", "one lane late", _lanes(("lane >= d", "lane > d")), "results", ""),
    Wrong("06-warp-scan", "an exclusive scan", _lanes(("y[i] = v", "y[i] = v - x[i]")), "results", "include the element itself"),
    Wrong("06-warp-scan", "from the right", _lanes(("shfl_up", "shfl_down"), ("lane >= d", "lane + d < 32")), "results",
          "right end of the warp"),
    Wrong("06-warp-scan", "four steps", _lanes(("d < 32", "d < 16")), "results", "up to 16"),
    Wrong("06-warp-scan", "passes the element instead of the sum",
          _lanes(("int v = i < n ? x[i] : 0;", "int v = i < n ? x[i] : 0, own = v;"), ("0xffffffff, v, d", "0xffffffff, own, d")),
          "results", "pass the sum so far"),
    Wrong("06-warp-scan", "the shuffle is inside the test",
          _lanes((_UP, "for (int d = 1; d < 32; d *= 2) if (lane >= d) v += __shfl_up_sync(0xffffffff, v, d);")),
          "hazards", "test the lane after it"),
    Wrong("06-warp-scan", "shuffle among the lanes that are here",
          _lanes((_UP, "for (int d = 1; d < 32; d *= 2) if (lane >= d) v += __shfl_up_sync(__activemask(), v, d);")),
          "hazards", "test the lane after it"),
    Wrong("06-warp-scan", "no guard", _lanes(("i < n ? x[i] : 0", "x[i]")), "results", "neither load nor store"),
    Wrong("06-warp-scan", "stores beyond n", _lanes((_IF_ANY, "y[i] = v;")), "results", "neither load nor store"),
    Wrong("06-warp-scan", "over the whole block",
          _warp_scan("__shared__ int s[1024]; int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; s[t] = i < n ? x[i] : 0; __syncthreads();"
                     " for (int d = 1; d < blockDim.x; d *= 2) { int o = t >= d ? s[t - d] : 0; __syncthreads(); s[t] += o; __syncthreads(); }"
                     f" int v = s[t]; {_IF_ANY}"), "results", "first lane of each warp"),
    Wrong("06-warp-scan", "over the whole array",
          _warp_scan("int i = blockIdx.x * blockDim.x + threadIdx.x, v = 0; for (int k = 0; k <= i && k < n; ++k) v += x[k];"
                     f" {_IF_ANY}"), "results", "first lane of each warp"),
    Wrong("06-warp-scan", "in floats", _lanes(("int v = i", "float v = i"), ("int other", "float other")), "results", ""),
    Wrong("06-warp-scan", "shared memory",
          _warp_scan(f"__shared__ int s[1024]; {_LANE} int t = threadIdx.x; s[t] = v; for (int d = 1; d < 32; d *= 2) {{ __syncwarp();"
                     f" int o = lane >= d ? s[t - d] : 0; __syncwarp(); s[t] += o; }} v = s[t]; {_IF_ANY}"),
          "budget", "without shared memory"),
    Wrong("06-warp-scan", "shared memory without a barrier",
          _warp_scan(f"__shared__ int s[1024]; {_LANE} int t = threadIdx.x; s[t] = v; for (int d = 1; d < 32; d *= 2) {{"
                     f" int o = lane >= d ? s[t - d] : 0; s[t] += o; }} v = s[t]; {_IF_ANY}"),
          "hazards", "Exchange registers instead"),
    Wrong("06-warp-scan", "through y",
          _warp_scan(f"{_LANE} if (i < n) y[i] = v; __syncwarp(); for (int d = 1; d < 32; d *= 2) {{ int o = i < n && lane >= d ? y[i - d] : 0;"
                     " __syncwarp(); if (i < n) y[i] += o; __syncwarp(); }"), "budget", ""),
    Wrong("06-warp-scan", "lane 0 adds in a loop",
          _warp_scan("int i = blockIdx.x * blockDim.x + threadIdx.x; if (threadIdx.x % 32 == 0) { int s = 0;"
                     " for (int k = i; k < i + 32 && k < n; ++k) { s += x[k]; y[k] = s; } }"), "parallelism",
          "one lane does what 32 could share"),
    Wrong("06-warp-scan", "each lane loads all before it",
          _warp_scan("int i = blockIdx.x * blockDim.x + threadIdx.x, v = 0; for (int k = i / 32 * 32; k <= i && k < n; ++k) v += x[k];"
                     f" v = __shfl_sync(0xffffffff, v, threadIdx.x % 32); {_IF_ANY}"), "budget", ""),
    Wrong("06-warp-scan", "asks each lane before it",
          _lanes((_UP, "int s = 0; for (int k = 0; k < 32; ++k) { int o = __shfl_sync(0xffffffff, v, k); if (k <= lane) s += o; } v = s;")),
          "budget", "Five steps"),
    Wrong("06-warp-scan", "atomics",
          _warp_scan(f"{_LANE} if (i < n) y[i] = 0; __syncwarp(); if (i < n) for (int k = i; k < (i / 32 + 1) * 32 && k < n; ++k) atomicAdd(y + k, v);"),
          "budget", "no atomic is needed"),
    Right("06-warp-scan", "up", _lanes()),
    Right("06-warp-scan", "returns early: all lanes that are left take part, and values come from the left",
          _lanes((_LANE, _LANE.replace("int v", "if (i >= n) return; int v")))),
    Right("06-warp-scan", "up, unrolled", _lanes(("for (int d", "\n#pragma unroll\nfor (int d"), ("if (lane >= d) v += other", "v += lane < d ? 0 : other"))),
    Right("06-warp-scan", "by the lane's number in shfl", _lanes(("__shfl_up_sync(0xffffffff, v, d)", "__shfl_sync(~0u, v, lane - d)"))),
    Right("06-warp-scan", "cooperative groups",
          _lanes(("__shfl_up_sync(0xffffffff, v, d)", "cg::tiled_partition<32>(cg::this_thread_block()).shfl_up(v, d)"), before=_GROUPS)),
    Right("06-warp-scan", "in 64 bits", _lanes(("int v = i", "long long v = i"), ("int other", "long long other"))),
    Right("06-warp-scan", "up and down a tree",
          _lanes((_UP, ("int own = v; for (int d = 1; d < 32; d *= 2) { int o = __shfl_up_sync(~0u, v, d); if (lane % (2 * d) == 2 * d - 1) v += o; }"
                       " if (lane == 31) v = 0; for (int d = 16; d > 0; d /= 2) { int o = __shfl_xor_sync(~0u, v, d);"
                       " if (lane % (2 * d) == 2 * d - 1) v += o; else if (lane % (2 * d) == d - 1) v = o; } v += own;")))),
)

_scan = kernel_text("scan(const int* x, int* y, int* state, int n)")
_TICKET = (
    "__shared__ int part[1024], tile, before; int t = threadIdx.x; if (t == 0) tile = atomicAdd(state, 1); __syncthreads();"
    " int i = tile * blockDim.x + t; int own = i < n ? x[i] : 0; part[t] = own; __syncthreads();"
)
_BLOCKWISE = (
    "for (int step = 1; step < blockDim.x; step *= 2) { int other = t >= step ? part[t - step] : 0; __syncthreads();"
    " part[t] += other; __syncthreads(); }"
)
_FLAGS = "int* sums = state + 1; int* ready = state + 1 + gridDim.x;"
_CHAIN = (
    "if (t == 0) { int sum = 0; if (tile > 0) { while (atomicAdd(&ready[tile - 1], 0) == 0) { } __threadfence();"
    " sum = sums[tile - 1]; } sums[tile] = sum + part[blockDim.x - 1]; __threadfence(); atomicExch(&ready[tile], 1);"
    " before = sum; } __syncthreads();"
)
_PUT = "if (i < n) y[i] = before + part[t] - own;"
_ALL_OF_IT = f"{_TICKET} {_BLOCKWISE} {_FLAGS} {_CHAIN} {_PUT}"


def _scanned(*changes: tuple[str, str], before: str = "") -> str:
    text = _ALL_OF_IT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return str(_scan(text, before))


def _summed_flag(waits: str, told: str) -> str:
    """A chain without flags: `waits` for the sum alone, and passes on what is `told`."""
    return _scanned(
        ("while (atomicAdd(&ready[tile - 1], 0) == 0) { } __threadfence(); sum = sums[tile - 1];", waits),
        ("sums[tile] = sum + part[blockDim.x - 1]; __threadfence(); atomicExch(&ready[tile], 1);",
         f"atomicExch(&sums[tile], {told});"),
    )


_LOOK_BACK = (
    "if (t == 0) { unsigned long long* s = (unsigned long long*)(state + 2); int sum = 0, all = part[blockDim.x - 1];"
    " atomicExch(s + tile, 1ull << 32 | (unsigned)all); for (int at = tile - 1; at >= 0; --at) { unsigned long long seen;"
    " do seen = atomicAdd(s + at, 0ull); while (seen >> 32 == 0); sum += (int)(unsigned)seen; if (seen >> 32 == 2) break; }"
    " atomicExch(s + tile, 2ull << 32 | (unsigned)(sum + all)); before = sum; } __syncthreads();"
)
_SCANS = (
    Wrong("06-scan", "an inclusive scan", _scanned((" - own", "")), "results", "not include the element itself"),
    Wrong("06-scan", "scans each block separately", _scanned((_CHAIN, "if (t == 0) before = 0; __syncthreads();")), "results", "the sum of the blocks before is missing"),
    Wrong("06-scan", "only the block before", _scanned(("sums[tile] = sum + part", "sums[tile] = part")), "results", ""),
    Wrong("06-scan", "one short at the block's end", _scanned(("sum + part[blockDim.x - 1]", "sum + part[blockDim.x - 2 + (blockDim.x < 2)]")),
          "results", ""),
    Wrong("06-scan", "the block's number instead of a ticket", _scanned(("atomicAdd(state, 1)", "blockIdx.x")), "orders", "take a ticket"),
    Wrong("06-scan", "in place with one barrier", _scanned(("__syncthreads(); part[t] += other;", "part[t] += other;")), "results", ""),
    Wrong("06-scan", "no fence before the flag", _scanned(("__threadfence(); atomicExch", "atomicExch")), "hazards", "__threadfence()"),
    Wrong("06-scan", "volatile instead of fences",
          _scanned(("int* sums", "volatile int* sums"), ("__threadfence(); atomicExch", "atomicExch"), ("{ } __threadfence();", "{ }")), "hazards", "__threadfence()"),
    Wrong("06-scan", "volatile, and does not wait",
          _scanned(("int* sums", "volatile int* sums"), ("while (atomicAdd(&ready[tile - 1], 0) == 0) { }", "")), "orders", "__threadfence()"),
    Wrong("06-scan", "fences for the block only", _scanned(("__threadfence()", "__threadfence_block()")), "hazards", "on both sides"),
    Wrong("06-scan", "no fence behind the flag", _scanned(("{ } __threadfence();", "{ }")), "hazards", "on both sides"),
    Wrong("06-scan", "flag before the sum",
          _scanned(("sums[tile] = sum + part[blockDim.x - 1]; __threadfence(); atomicExch(&ready[tile], 1);",
                    "atomicExch(&ready[tile], 1); __threadfence(); sums[tile] = sum + part[blockDim.x - 1];")), "hazards", "__threadfence()"),
    Wrong("06-scan", "does not wait for the flag", _scanned(("while (atomicAdd(&ready[tile - 1], 0) == 0) { }", "")), "orders", "__threadfence()"),
    Wrong("06-scan", "the first block waits as well", _scanned(("if (tile > 0)", "if (tile >= 0)"), ("ready[tile - 1]", "ready[max(tile - 1, 0)]")),
          "results", "first block must not wait"),
    Wrong("06-scan", "no barrier before all use it", _scanned(("before = sum; } __syncthreads();", "before = sum; }")), "orders", "__syncthreads()"),
    Wrong("06-scan", "powers of two only",
          _scanned((_BLOCKWISE, ("for (int s = 1; s < blockDim.x; s *= 2) { int k = 2 * s * (t + 1) - 1; if (k < blockDim.x) part[k] += part[k - s];"
                    " __syncthreads(); } for (int s = blockDim.x / 4; s > 0; s /= 2) { int k = 2 * s * (t + 1) - 1; if (k + s < blockDim.x)"
                    " part[k + s] += part[k]; __syncthreads(); }"))), "results", ""),
    Wrong("06-scan", "sums in floats", _scanned(("int sum = 0;", "float sum = 0;")), "results", ""),
    Wrong("06-scan", "waits until the sum is not 0",
          _summed_flag("while ((sum = atomicAdd(&sums[tile - 1], 0)) == 0) { }", "sum + part[blockDim.x - 1]"), "results", ""),
    Wrong("06-scan", "waits until the sum and one are not 0",
          _summed_flag("while ((sum = atomicAdd(&sums[tile - 1], 0)) == 0) { } --sum;", "sum + part[blockDim.x - 1] + 1"),
          "results", "A sum alone is not a flag"),
    Wrong("06-scan", "the sum's sign is the flag",
          _summed_flag("while ((sum = atomicAdd(&sums[tile - 1], 0)) == 0) { } sum &= 0x7fffffff;",
                       "(sum + part[blockDim.x - 1]) | 0x80000000"), "results", ""),
    Wrong("06-scan", "the flag in bit 0, the sum in 31",
          _scanned(("while (atomicAdd(&ready[tile - 1], 0) == 0) { } __threadfence(); sum = sums[tile - 1];",
                    "int seen; while (((seen = atomicAdd(&ready[tile - 1], 0)) & 1) == 0) { } sum = seen >> 1;"),
                   ("sums[tile] = sum + part[blockDim.x - 1]; __threadfence(); atomicExch(&ready[tile], 1);",
                    "atomicExch(&ready[tile], (sum + part[blockDim.x - 1]) << 1 | 1);")), "results", "both ends of the range of an int"),
    Wrong("06-scan", "polls what is stored without an atomic", _scanned(("atomicExch(&ready[tile], 1);", "ready[tile] = 1;")),
          "hazards", "atomicExch sets a flag"),
    Wrong("06-scan", "another block's ticket",
          _scanned(("tile = atomicAdd(state, 1);", "atomicAdd(state, 1); __syncthreads(); if (t == 0) tile = atomicAdd(state, 0) - 1;")),
          "orders", "other blocks continue"),
    Wrong("06-scan", "the flag a barrier before the sum",
          _scanned(("if (t == 0) { int sum", "if (t == 0) atomicExch(&ready[tile], 1); __syncthreads(); if (t == 0) { int sum"),
                   ("sum = sums[tile - 1]", "sum = atomicAdd(&sums[tile - 1], 0)"),
                   ("sums[tile] = sum + part[blockDim.x - 1]; __threadfence(); atomicExch(&ready[tile], 1);",
                    "atomicExch(&sums[tile], sum + part[blockDim.x - 1]);")), "orders", "other blocks continue"),
    Wrong("06-scan", "no guard", _scanned(("i < n ? x[i] : 0", "x[i]")), "results", "neither load nor store"),
    Wrong("06-scan", "returns early", _scanned(("int own = i < n ?", "if (i >= n) return; int own = i < n ?")), "hazards", ""),
    Wrong("06-scan", "thread 0 adds the block up",
          _scanned((_BLOCKWISE, "if (t == 0) for (int k = 1; k < blockDim.x; ++k) part[k] += part[k - 1]; __syncthreads();")), "parallelism", "few threads"),
    Wrong("06-scan", "every block adds up all before it",
          _scan("__shared__ int part[1024]; int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; int own = i < n ? x[i] : 0, sum = 0;"
                " for (int k = t; k < blockIdx.x * blockDim.x; k += blockDim.x) sum += x[k]; part[t] = sum; __syncthreads();"
                " for (int left = blockDim.x; left > 1; left = (left + 1) / 2) { int half = (left + 1) / 2; if (t < left / 2) part[t] += part[t + half];"
                " __syncthreads(); } int before = part[0]; __syncthreads(); part[t] = own; __syncthreads();"
                f" {_BLOCKWISE} if (i < n) y[i] = before + part[t] - own;"), "parallelism", ""),
    Right("06-scan", "a chain of tickets", _scanned()),
    Right("06-scan", "the last thread passes on",
          _scanned(("if (t == 0) { int sum", "if (t == blockDim.x - 1) { int sum"), ("part[blockDim.x - 1]", "part[t]"))),
    Right("06-scan", "acquire and release",
          _scanned(("while (atomicAdd(&ready[tile - 1], 0) == 0) { } __threadfence();",
                    'int set; do asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(set) : "l"(&ready[tile - 1]) : "memory"); while (!set);'),
                   ("__threadfence(); atomicExch(&ready[tile], 1);",
                    'asm volatile("st.release.gpu.s32 [%0], %1;" :: "l"(&ready[tile]), "r"(1) : "memory");'))),
    Right("06-scan", "looks back, sum and state in one word", _scanned((_FLAGS, ""), (_CHAIN, _LOOK_BACK))),
    Right("06-scan", "warps scan by shuffles",
          _scanned((_BLOCKWISE, ("int lane = t % 32, v = own; for (int o = 1; o < 32; o *= 2) { int u = __shfl_up_sync(~0u, v, o); if (lane >= o) v += u; }"
                    " __shared__ int of_warp[33]; if (lane == 31 || t == blockDim.x - 1) of_warp[t / 32] = v; __syncthreads();"
                    " for (int w = 0; w < t / 32; ++w) v += of_warp[w]; part[t] = v; __syncthreads();")))),
    Right("06-scan", "the sum itself is the flag",
          _scanned((_CHAIN, ("if (t == 0) { int sum = 0; if (tile > 0) { unsigned long long v; do v = atomicAdd((unsigned long long*)(state + 2) + tile - 1, 0ull);"
                    " while (!(v >> 32)); sum = (int)(unsigned)v; } atomicExch((unsigned long long*)(state + 2) + tile,"
                    " 1ull << 32 | (unsigned)(sum + part[blockDim.x - 1])); before = sum; } __syncthreads();")), (_FLAGS, ""))),
)

_keep = kernel_text("compact(const int* x, const int* before, int* out, int* count, int n)")
_VOTED = (
    "__shared__ int of_warp[32]; int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, lane = t % 32, warp = t / 32;"
    " bool keep = i < n && x[i] > 0; unsigned votes = __ballot_sync(0xffffffff, keep);"
    " if (lane == 0) of_warp[warp] = __popc(votes); __syncthreads(); int place = before[blockIdx.x], kept = 0;"
    " for (int w = 0; w < blockDim.x / 32; ++w) { if (w < warp) place += of_warp[w]; kept += of_warp[w]; }"
)
_MOVE = "if (keep) out[place + __popc(votes & ((1u << lane) - 1))] = x[i];"
_TOTAL = "if (t == 0 && blockIdx.x == gridDim.x - 1) *count = before[blockIdx.x] + kept;"


def _kept(*changes: tuple[str, str], before: str = "") -> str:
    text = f"{_VOTED} {_MOVE} {_TOTAL}"
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return str(_keep(text, before))


_COMPACTIONS = (
    Wrong("06-compact", "an atomic counter in the block",
          _keep("__shared__ int next; int i = blockIdx.x * blockDim.x + threadIdx.x; if (threadIdx.x == 0) next = before[blockIdx.x]; __syncthreads();"
                " if (i < n && x[i] > 0) out[atomicAdd(&next, 1)] = x[i]; __syncthreads();"
                " if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) *count = next;"), "budget", "from votes and sums"),
    Wrong("06-compact", "warps take positions from an atomic counter",
          _kept(("if (lane == 0) of_warp[warp] = __popc(votes); __syncthreads();",
                 ("__shared__ int next; if (t == 0) next = 0; __syncthreads(); int at = 0; if (lane == 0) { at = atomicAdd(&next, __popc(votes));"
                 " of_warp[warp] = __popc(votes); } at = __shfl_sync(~0u, at, 0); __syncthreads();")),
                ("if (w < warp) place += of_warp[w];", ""), ("out[place", "out[place + at")), "budget", "from votes and sums"),
    Wrong("06-compact", "does not write count", _kept((_TOTAL, "")), "results", "only the last block can compute"),
    Wrong("06-compact", "count by the first block", _kept(("blockIdx.x == gridDim.x - 1", "blockIdx.x == 0")), "results", "only the last block can compute"),
    Wrong("06-compact", "count without the last block", _kept(("before[blockIdx.x] + kept", "before[blockIdx.x]")), "results", "only the last block can compute"),
    Wrong("06-compact", "every block writes the count", _kept((" && blockIdx.x == gridDim.x - 1", "")), "orders", "only the last block can compute"),
    Wrong("06-compact", "clears what lies behind", _kept((_MOVE, "if (i < n) out[i] = 0; __syncthreads();" + _MOVE)), "results", ""),
    Wrong("06-compact", "zeros behind the kept elements",
          _kept((_TOTAL, _TOTAL + " int all = before[gridDim.x - 1]; for (int k = (gridDim.x - 1) * blockDim.x; k < n; ++k) all += x[k] > 0;"
                          " if (i >= all && i < n) out[i] = 0;")), "results", "must not change"),
    Wrong("06-compact", "pads its block with zeros",
          _kept((_MOVE, _MOVE + " else if (i < n) out[before[blockIdx.x] + kept + t - (place - before[blockIdx.x]) - __popc(votes & ((1u << lane) - 1))] = 0;")),
          "results", ""),
    Wrong("06-compact", "lanes in reverse order", _kept(("(1u << lane) - 1", "~((2u << lane) - 1)")), "results", "in another order"),
    Wrong("06-compact", "the order of warps turned", _kept(("w < warp", "w > warp")), "results", "in another order"),
    Wrong("06-compact", "ignores the warps before", _kept(("if (w < warp) place += of_warp[w];", "")), "results", "in warps before"),
    Wrong("06-compact", "blocks before it left out", _kept(("place = before[blockIdx.x]", "place = 0")), "results", ""),
    Wrong("06-compact", "keeps zeros", _kept(("x[i] > 0", "x[i] >= 0")), "results", ""),
    Wrong("06-compact", "votes inside the guard",
          _kept(("bool keep = i < n && x[i] > 0; unsigned votes = __ballot_sync(0xffffffff, keep);",
                 "bool keep = false; unsigned votes = 0; if (i < n) { keep = x[i] > 0; votes = __ballot_sync(0xffffffff, keep); }")), "results", ""),
    Wrong("06-compact", "no barrier", _kept(("__popc(votes); __syncthreads();", "__popc(votes);")), "results", ""),
    Wrong("06-compact", "no barrier for two warps", _kept(("__popc(votes); __syncthreads();", "__popc(votes); if (blockDim.x > 64) __syncthreads();")),
          "results", ""),
    Wrong("06-compact", "eight warps", _kept(("w < blockDim.x / 32", "w < 8")), "results", ""),
    Wrong("06-compact", "lane shifted by the thread", _kept(("1u << lane", "1u << min(t, 31)")), "results", ""),
    Wrong("06-compact", "no guard", _kept(("i < n && ", "")), "results", "they vote no"),
    Wrong("06-compact", "thread 0 does it all",
          _keep("if (threadIdx.x == 0) { int first = blockIdx.x * blockDim.x, at = before[blockIdx.x]; for (int i = first; i < first + blockDim.x && i < n; ++i)"
                " if (x[i] > 0) out[at++] = x[i]; if (blockIdx.x == gridDim.x - 1) *count = at; }"), "parallelism", ""),
    Wrong("06-compact", "lane 0 writes for its warp",
          _kept((_MOVE, "if (lane == 0) for (int k = 0; k < 32; ++k) if (votes >> k & 1) out[place++] = x[i + k];")), "parallelism", ""),
    Right("06-compact", "votes", _kept()),
    Right("06-compact", "a special register",
          _kept((_MOVE, 'unsigned below; asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below)); if (keep) out[place + __popc(votes & below)] = x[i];'))),
    Right("06-compact", "the last thread counts",
          _kept((_TOTAL, "if (blockIdx.x == gridDim.x - 1 && t == blockDim.x - 1) *count = place + __popc(votes);"))),
    Right("06-compact", "a scan in shared memory",
          _keep("/* no atomicAdd */ __shared__ int s[1024]; int t = threadIdx.x, i = blockIdx.x * blockDim.x + t; int v = i < n ? x[i] : 0; int k = v > 0; s[t] = k;"
                " __syncthreads(); for (int o = 1; o < blockDim.x; o *= 2) { int u = t >= o ? s[t - o] : 0; __syncthreads(); s[t] += u; __syncthreads(); }"
                " int b = before[blockIdx.x]; if (k) out[b + s[t] - 1] = v;"
                " if (blockIdx.x == gridDim.x - 1 && t == 0) *count = b + s[blockDim.x - 1];")),
    Right("06-compact", "cooperative groups",
          _kept(("__ballot_sync(0xffffffff, keep)", "cg::tiled_partition<32>(cg::this_thread_block()).ballot(keep)"), before=_GROUPS)),
    Right("06-compact", "counted by the barrier",
          _kept(("__syncthreads(); int place = before[blockIdx.x], kept = 0;", "int kept = __syncthreads_count(keep); int place = before[blockIdx.x];"),
                (" kept += of_warp[w];", ""))),
)

_blur = kernel_text("blur(const float* x, float* y, int rows, int cols)")
_SHAPE = (
    "extern __shared__ float tile[]; int width = blockDim.x + 4, height = blockDim.y + 4, threads = blockDim.x * blockDim.y;"
    " int t = threadIdx.y * blockDim.x + threadIdx.x; int left = blockIdx.x * blockDim.x - 2, col = blockIdx.x * blockDim.x + threadIdx.x;"
)
_FILL = (
    "for (int k = t; k < width * height; k += threads) { int r = min(max(top - 2 + k / width, 0), rows - 1);"
    " int c = min(max(left + k % width, 0), cols - 1); tile[k] = x[r * cols + c]; }"
)
_SUM = (
    "float sum = 0; for (int dy = 0; dy < 5; ++dy) for (int dx = 0; dx < 5; ++dx)"
    " sum += tile[(threadIdx.y + dy) * width + threadIdx.x + dx];"
)
_STORE_PIXEL = (
    f"int row = top + threadIdx.y; if (row < rows && col < cols) {{ {_SUM} y[row * cols + col] = sum / 25; }}"
)
_WALK = "for (int top = blockIdx.y * blockDim.y; top < rows; top += gridDim.y * blockDim.y)"
_BLURRED = f"{_SHAPE} {_WALK} {{ {_FILL} __syncthreads(); {_STORE_PIXEL} __syncthreads(); }}"


def _smoothed(*changes: tuple[str, str], before: str = "") -> str:
    text = _BLURRED
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return str(_blur(text, before))


_BLURS = (
    Wrong("06-blur", "columns not clamped", _smoothed(("min(max(left + k % width, 0), cols - 1)", "left + k % width")), "results", ""),
    Wrong("06-blur", "rows not clamped", _smoothed(("min(max(top - 2 + k / width, 0), rows - 1)", "top - 2 + k / width")), "results",
          "clamp row and column"),
    Wrong("06-blur", "zeros beyond the edges",
          _smoothed(("tile[k] = x[r * cols + c];", "bool in = r == top - 2 + k / width && c == left + k % width; tile[k] = in ? x[r * cols + c] : 0;")),
          "results", "the nearest pixel counts"),
    Wrong("06-blur", "zeros beyond the columns",
          _smoothed(("tile[k] = x[r * cols + c];", "tile[k] = c == left + k % width ? x[r * cols + c] : 0;")), "results", "the nearest pixel counts"),
    Wrong("06-blur", "the mean of those inside",
          _smoothed(("sum / 25", "sum / ((min(row + 2, rows - 1) - max(row - 2, 0) + 1) * (min(col + 2, cols - 1) - max(col - 2, 0) + 1))"),
                    ("tile[k] = x[r * cols + c];", "bool in = r == top - 2 + k / width && c == left + k % width; tile[k] = in ? x[r * cols + c] : 0;")),
          "results", ""),
    Wrong("06-blur", "mirrored at the edges", _smoothed(("min(max(left + k % width, 0), cols - 1)", "min(abs(left + k % width), cols - 1)")), "results", ""),
    Wrong("06-blur", "corners left out",
          _smoothed(("tile[k] = x[r * cols + c];",
                     "bool corner = (k / width < 2 || k / width >= height - 2) && (k % width < 2 || k % width >= width - 2); if (!corner) tile[k] = x[r * cols + c];")),
          "results", ""),
    Wrong("06-blur", "no barrier before reading", _smoothed(("} __syncthreads(); int row", "} int row")), "results", ""),
    Wrong("06-blur", "no barrier for two warps", _smoothed(("} __syncthreads(); int row", "} if (threads > 64) __syncthreads(); else __syncwarp(); int row")),
          "results", "fill all of it"),
    Wrong("06-blur", "no barrier before the next tile", _smoothed(("/ 25; } __syncthreads(); }", "/ 25; } }")), "results", ""),
    Wrong("06-blur", "barrier in the guard",
          _smoothed(("if (row < rows && col < cols) {", "if (row < rows && col < cols) { __syncthreads();"), ("} __syncthreads(); int row", "} int row")),
          "results", ""),
    Wrong("06-blur", "leaves at the right edge", _smoothed((_WALK, f"if (col >= cols) return; {_WALK}")), "results", ""),
    Wrong("06-blur", "only one tile per block", _smoothed((_WALK, "int top = blockIdx.y * blockDim.y;")), "results", "each block goes on"),
    Wrong("06-blur", "a tile for blocks of 32 × 8", _smoothed(("int width = blockDim.x + 4", "int width = 36")), "results", ""),
    Wrong("06-blur", "a tile of fixed size, 36 × 12", _smoothed(("extern __shared__ float tile[];", "__shared__ float tile[36 * 12];")), "results",
          "blockDim.x + 4"),
    Wrong("06-blur", "one halo pixel a thread",
          _smoothed((_FILL, ("int r = min(max(top - 2 + (int)threadIdx.y, 0), rows - 1), c = min(max(left + (int)threadIdx.x, 0), cols - 1);"
                     " tile[threadIdx.y * width + threadIdx.x] = x[r * cols + c];"))), "results", ""),
    Wrong("06-blur", "rows and columns taken for each other", _smoothed(("r * cols + c", "c * rows + r")), "results", ""),
    Wrong("06-blur", "rows of 1,024 at most", _smoothed(("x[r * cols + c]", "x[r * min(cols, 1024) + c]")), "results", ""),
    Wrong("06-blur", "3 × 3", _smoothed(("int dy = 0; dy < 5", "int dy = 1; dy < 4"), ("int dx = 0; dx < 5", "int dx = 1; dx < 4"), ("sum / 25", "sum / 9")),
          "results", ""),
    Wrong("06-blur", "whole numbers only", _smoothed(("float sum = 0", "int sum = 0"), ("sum / 25", "sum / 25.0f")), "results", ""),
    Wrong("06-blur", "25 loads per pixel",
          _smoothed((_FILL, ""), ("tile[(threadIdx.y + dy) * width + threadIdx.x + dx]",
                                  "x[min(max(row + dy - 2, 0), rows - 1) * cols + min(max(col + dx - 2, 0), cols - 1)]")), "budget", "load the tile and its halo once"),
    Wrong("06-blur", "a tile of the rows only",
          _smoothed((_FILL, "for (int k = threadIdx.x; k < width; k += blockDim.x) tile[threadIdx.y * width + k] = 0;"),
                    ("tile[(threadIdx.y + dy) * width + threadIdx.x + dx]",
                     "x[min(max(row + dy - 2, 0), rows - 1) * cols + min(max(col + dx - 2, 0), cols - 1)]")), "budget", ""),
    Wrong("06-blur", "thread 0 fills the tile", _smoothed(("int k = t; k < width * height; k += threads", "int k = 0; t == 0 && k < width * height; ++k")),
          "parallelism", ""),
    Right("06-blur", "tile and halo", _smoothed()),
    Right("06-blur", "row by row of the tile",
          _smoothed((_FILL, ("for (int j = threadIdx.y; j < height; j += blockDim.y) for (int i = threadIdx.x; i < width; i += blockDim.x)"
                     " tile[j * width + i] = x[min(max(top - 2 + j, 0), rows - 1) * cols + min(max(left + i, 0), cols - 1)];")))),
    Right("06-blur", "columns of the tile first", _smoothed(("for (int dy = 0; dy < 5; ++dy) for (int dx = 0; dx < 5; ++dx)",
                                                            "for (int dx = 4; dx >= 0; --dx)\n#pragma unroll\nfor (int dy = 0; dy < 5; ++dy)"))),
    Right("06-blur", "cooperative groups", _smoothed(("__syncthreads()", "cg::this_thread_block().sync()"), before=_GROUPS)),
    Right("06-blur", "asynchronous copies",
          _smoothed(("tile[k] = x[r * cols + c];", "__pipeline_memcpy_async(tile + k, x + r * cols + c, 4);"),
                    ("} __syncthreads(); int row", "} __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads(); int row"),
                    before="#include <cuda_pipeline.h>")),
    Right("06-blur", "a barrier at the top of the loop",
          _smoothed((f"{{ {_FILL}", f"{{ __syncthreads(); /* the last tile is read */ {_FILL}"), ("/ 25; } __syncthreads(); }", "/ 25; } }"))),
)

_soft = kernel_text("softmax(const float* x, float* y, int rows, int cols)")
_ROW = (
    "__shared__ float mosts[32], sums[32]; const float lowest = __int_as_float(0xff800000); int t = threadIdx.x, lane = t % 32, warp = t / 32;"
    " const float* from = x + blockIdx.x * cols; float most = lowest, sum = 0;"
)
_ONLINE = (
    "for (int i = t; i < cols; i += blockDim.x) { float v = from[i]; if (v > most) { sum *= expf(most - v); most = v; }"
    " if (v > lowest) sum += expf(v - most); }"
)
_IN_WARP = (
    "for (int o = 16; o > 0; o /= 2) { float m = __shfl_xor_sync(0xffffffff, most, o), s = __shfl_xor_sync(0xffffffff, sum, o);"
    " float both = fmaxf(most, m); sum = (most > lowest ? sum * expf(most - both) : 0) + (m > lowest ? s * expf(m - both) : 0); most = both; }"
)
_IN_BLOCK = (
    "if (lane == 0) { mosts[warp] = most; sums[warp] = sum; } __syncthreads();"
    " for (int w = 0; w < blockDim.x / 32; ++w) most = fmaxf(most, mosts[w]); sum = 0;"
    " for (int w = 0; w < blockDim.x / 32; ++w) sum += mosts[w] > lowest ? sums[w] * expf(mosts[w] - most) : 0;"
)
_DIVIDE = "for (int i = t; i < cols; i += blockDim.x) y[blockIdx.x * cols + i] = sum > 0 ? expf(from[i] - most) / sum : 0;"


def _softened(*changes: tuple[str, str], before: str = "") -> str:
    text = f"{_ROW} {_ONLINE} {_IN_WARP} {_IN_BLOCK} {_DIVIDE}"
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return str(_soft(text, before))


_PLAIN_SUM = (
    "for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o); if (lane == 0) sums[warp] = sum; __syncthreads();"
    " sum = 0; for (int w = 0; w < blockDim.x / 32; ++w) sum += sums[w];"
)
_PLAIN_MOST = (
    "for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, o)); if (lane == 0) mosts[warp] = most; __syncthreads();"
    " for (int w = 0; w < blockDim.x / 32; ++w) most = fmaxf(most, mosts[w]);"
)
_SOFTMAXES = (
    Wrong("06-softmax", "the maximum begins with a number", _softened(("__int_as_float(0xff800000)", "-1e30f")), "results", "begin with −∞"),
    Wrong("06-softmax", "begins with a lower number", _softened(("__int_as_float(0xff800000)", "-3.4e38f")), "results", "begin with −∞"),
    Wrong("06-softmax", "does not subtract the maximum",
          _soft(f"{_ROW} for (int i = t; i < cols; i += blockDim.x) sum += expf(from[i]); {_PLAIN_SUM}"
                " for (int i = t; i < cols; i += blockDim.x) y[blockIdx.x * cols + i] = sum > 0 ? expf(from[i]) / sum : 0;"), "results", "overflows"),
    Wrong("06-softmax", "the row's first element instead of the largest",
          _soft(f"{_ROW} most = from[0]; for (int i = t; i < cols; i += blockDim.x) sum += expf(from[i] - most); {_PLAIN_SUM} {_DIVIDE}"), "results", ""),
    Wrong("06-softmax", "does not rescale the sum", _softened(("sum *= expf(most - v); most = v;", "most = v;")), "results", "common one"),
    Wrong("06-softmax", "warps' sums not scaled", _softened(("sums[w] * expf(mosts[w] - most)", "sums[w]")), "results", ""),
    Wrong("06-softmax", "lanes' sums not scaled", _softened(("sum * expf(most - both)", "sum"), ("s * expf(m - both)", "s")), "results", "common one"),
    Wrong("06-softmax", "scaled the wrong way", _softened(("expf(most - v)", "expf(v - most)")), "results", ""),
    Wrong("06-softmax", "largest starts at 0", _softened(("most = lowest, sum = 0", "most = 0, sum = 0")), "results", ""),
    Wrong("06-softmax", "largest starts at −10,000", _softened(("most = lowest, sum = 0", "most = -1e4f, sum = 0")), "results", ""),
    Wrong("06-softmax", "masked scores weigh a little", _softened(("expf(from[i] - most)", "expf(fmaxf(from[i] - most, -80.0f))")), "results", ""),
    Wrong("06-softmax", "does not test for lanes with only −∞",
          _softened(("if (v > lowest) sum += expf(v - most);", "sum += expf(v - most);")), "results", "only −∞"),
    Wrong("06-softmax", "two lanes of −∞", _softened(("(most > lowest ? sum * expf(most - both) : 0)", "sum * expf(most - both)")), "results",
          "only −∞"),
    Wrong("06-softmax", "a row of −∞ is NaN", _softened(("sum > 0 ? expf(from[i] - most) / sum : 0", "expf(from[i] - most) / sum")), "results",
          "only −∞"),
    Wrong("06-softmax", "a row of −∞ is uniform", _softened(("/ sum : 0", "/ sum : 1.0f / cols")), "results", ""),
    Wrong("06-softmax", "−1e30 for −∞", _softened(("__int_as_float(0xff800000)", "-1e30f"), ("if (v > lowest) sum", "sum"),
                                                  ("sum > 0 ? expf(from[i] - most) / sum : 0", "expf(fmaxf(from[i], lowest) - most) / sum"),
                                                  ("float v = from[i];", "float v = fmaxf(from[i], lowest);")), "results", ""),
    Wrong("06-softmax", "32 columns only", _softened(("int i = t; i < cols; i += blockDim.x) { float", "int i = lane; i < min(cols, 32); i += 32) { float")),
          "results", ""),
    Wrong("06-softmax", "as many columns as threads", _softened(("i += blockDim.x", "i += 1 << 20")), "results", ""),
    Wrong("06-softmax", "columns of the grid", _softened(("x + blockIdx.x * cols", "x + blockIdx.x * gridDim.x")), "results", ""),
    Wrong("06-softmax", "places in 16 bits", _softened(("x + blockIdx.x * cols", "x + (unsigned short)(blockIdx.x * cols)")), "results", ""),
    Wrong("06-softmax", "no barrier", _softened(("sums[warp] = sum; } __syncthreads();", "sums[warp] = sum; }")), "results", ""),
    Wrong("06-softmax", "first warp only", _softened((_IN_BLOCK, "")), "results", ""),
    Wrong("06-softmax", "eight warps", _softened(("w < blockDim.x / 32; ++w) sum", "w < min(8, blockDim.x / 32); ++w) sum")), "results", ""),
    Wrong("06-softmax", "three passes",
          _soft(f"{_ROW} for (int i = t; i < cols; i += blockDim.x) most = fmaxf(most, from[i]); {_PLAIN_MOST} __syncthreads();"
                f" if (most > lowest) for (int i = t; i < cols; i += blockDim.x) sum += expf(from[i] - most); {_PLAIN_SUM} {_DIVIDE}"), "budget", "in one pass"),
    Wrong("06-softmax", "a third pass over long rows", _softened((_IN_WARP, "if (cols > 3000) { sum = 0; for (int i = t; i < cols; i += blockDim.x)"
          " if (from[i] > lowest) sum += expf(from[i] - most); } " + _IN_WARP)), "budget", "in one pass"),
    Wrong("06-softmax", "every warp reads the row", _softened(("int i = t; i < cols; i += blockDim.x) { float", "int i = lane; i < cols; i += 32) { float"),
                                                               (_IN_BLOCK, "")), "budget", ""),
    Wrong("06-softmax", "thread 0 alone", _soft(f"{_ROW} if (t == 0) {{ {_ONLINE.replace('int i = t', 'int i = 0').replace('i += blockDim.x', 'i += 1')}"
                                               " mosts[0] = most; sums[0] = sum; } __syncthreads(); most = mosts[0]; sum = sums[0]; " + _DIVIDE), "parallelism", ""),
    Wrong("06-softmax", "what weighs little is 0", _softened(("sum > 0 ? expf", "sum > 0 && from[i] - most > -30 ? expf")), "results", "it should be"),
    Wrong("06-softmax", "below −100,000 is −∞", _softened(("sum > 0 ? expf", "most > -1e5f ? expf")), "results", "it should be"),
    Wrong("06-softmax", "sums in half precision", _softened(("sum += expf(v - most); }", "sum = __half2float(__float2half(sum + expf(v - most))); }"),
                                                            before="#include <cuda_fp16.h>"), "results", "Only a few digits"),
    Wrong("06-softmax", "the logarithm of the sum added to the largest",
          _softened(("for (int i = t; i < cols; i += blockDim.x) y", "float l = sum > 0 ? most + logf(sum) : 0; for (int i = t; i < cols; i += blockDim.x) y"),
                    ("expf(from[i] - most) / sum", "expf(from[i] - l)")), "results", "it should be"),
    Right("06-softmax", "scaled only where the largest grows by much", _softened((
        "if (v > most) {", "if (v > most + (most > lowest ? 8 : 0)) {"))),
    Right("06-softmax", "atomics in shared memory",
          _soft("__shared__ float total; if (threadIdx.x == 0) total = 0;" + f" {_ROW} {_ONLINE} {_IN_WARP} if (lane == 0) mosts[warp] = most; __syncthreads();"
                " float m = lowest; for (int w = 0; w < blockDim.x / 32; ++w) m = fmaxf(m, mosts[w]);"
                f" if (lane == 0 && most > lowest) atomicAdd(&total, sum * expf(most - m)); __syncthreads(); most = m; sum = total; {_DIVIDE}")),
    Right("06-softmax", "online by lanes, warps and the block", _softened()),
    Right("06-softmax", "a warp of −∞ adds 0 times 0", _softened(("mosts[w] > lowest ? sums[w] * expf(mosts[w] - most) : 0", "sums[w] * expf(mosts[w] - most)"))),
    Right("06-softmax", "fast exponentials", _softened(("expf(", "__expf("))),
    Right("06-softmax", "powers of two", _softened(("sum > 0 ? expf(from[i] - most) / sum : 0", "sum > 0 ? exp2f((from[i] - most) * 1.44269504f) / sum : 0"))),
    Right("06-softmax", "the reciprocal once", _softened(("for (int i = t; i < cols; i += blockDim.x) y", "sum = sum > 0 ? 1 / sum : 0; for (int i = t; i < cols; i += blockDim.x) y"),
                                                         ("sum > 0 ? expf(from[i] - most) / sum : 0", "sum > 0 ? expf(from[i] - most) * sum : 0"))),
    Right("06-softmax", "a tree of pairs",
          _soft("__shared__ float2 box[1024]; const float lowest = -INFINITY; int t = threadIdx.x; const float* from = x + blockIdx.x * cols; float most = lowest, sum = 0;"
                f" {_ONLINE} box[t] = make_float2(most, sum); __syncthreads(); for (int left = blockDim.x; left > 1; left = (left + 1) / 2) {{"
                " int half = (left + 1) / 2; if (t < left / 2) { float2 a = box[t], b = box[t + half]; float m = fmaxf(a.x, b.x);"
                " if (m > lowest) box[t] = make_float2(m, a.y * expf(a.x - m) + b.y * expf(b.x - m)); } __syncthreads(); }"
                f" most = box[0].x; sum = box[0].y; {_DIVIDE}", "#ifndef INFINITY\n#define INFINITY __int_as_float(0x7f800000)\n#endif")),
)

_ALL: tuple[Wrong | Right, ...] = (*_BLOCKS, *_WARP_SCANS, *_SCANS, *_COMPACTIONS, *_BLURS, *_SOFTMAXES)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
