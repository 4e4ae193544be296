"""Wrong and right answers to the exercises of notebook 19."""

from __future__ import annotations

from gpulab_course.content.n19_attention.exercises import EXERCISES
from tests.answers import Right, Wrong

_FILES = {exercise.exercise_id: exercise.source(exercise.reference) for exercise in EXERCISES}
_NAIVE = {exercise.exercise_id: exercise.source(exercise.naive) for exercise in EXERCISES}


def _changed(name: str, *changes: tuple[str, str]) -> str:
    """Return the reference of an exercise with some of its text replaced."""
    text = _FILES[name]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _tiled(*changes: tuple[str, str]) -> str:
    return _changed("19-attention", *changes)


def _masked(*changes: tuple[str, str]) -> str:
    return _changed("19-mask", *changes)


def _split(*changes: tuple[str, str]) -> str:
    return _changed("19-split", *changes)


def _paged(*changes: tuple[str, str]) -> str:
    return _changed("19-paged", *changes)


def _rotary(*changes: tuple[str, str]) -> str:
    return _changed("19-rotary", *changes)


_SUM = "sum = sum * scale + weight;"
_RESULT = "result[c] = result[c] * scale + weight * vs[j][c];"
_FILL = "        __syncthreads();\n        for (int j"
_REFILL = "        }\n        __syncthreads();\n    }\n    if (row <"
_UPDATE = "float larger = fmaxf(most, score), scale = expf(most - larger), weight = expf(score - larger);"
_ALONE = "float weight = expf(score), larger = 0, scale = 1;"
_TILE = "const int d = 64, tile = 16;"

_ATTENTION = (
    Wrong("19-attention", "every thread loads all keys", _NAIVE["19-attention"], "budget", "load each row of k and v once"),
    Wrong("19-attention", "sum not rescaled", _tiled((_SUM, "sum += weight;")), "results", "its sum is wrong"),
    Wrong("19-attention", "does not rescale the result", _tiled((_RESULT, "result[c] += weight * vs[j][c];")), "results", "an older largest score"),
    Wrong("19-attention", "does not subtract the largest score", _tiled((_UPDATE, _ALONE)), "results", "subtract the largest score"),
    Wrong("19-attention", "scores not scaled", _tiled(("own[c] *= 0.125f", "own[c] *= 1")), "results", "without the factor 1 / 8"),
    Wrong("19-attention", "no barrier before reading", _tiled((_FILL, "        for (int j")), "results", "reach both barriers"),
    Wrong("19-attention", "no barrier after reading", _tiled((_REFILL, "        }\n    }\n    if (row <")), "results", "still read a tile"),
    Wrong("19-attention", "missing keys count as 0", _tiled(
        ("int count = min(tile, keys - first);", "int count = tile;"), ("= k[first * d + e];", "= first * d + e < keys * d ? k[first * d + e] : 0;"),
        ("= v[first * d + e];", "= first * d + e < keys * d ? v[first * d + e] : 0;")), "results", "existing keys only"),
    Wrong("19-attention", "reads whole tiles at the end", _tiled(("int count = min(tile, keys - first);", "int count = tile;")), "results", "the last tile fewer keys"),
    Wrong("19-attention", "whole tiles only", _tiled(("first < keys;", "first + tile <= keys;")), "results", "it has used no key"),
    Wrong("19-attention", "leaves before the barrier", _tiled(("    alignas", "    if (row >= rows) return;\n    alignas")), "results", ""),
    Wrong("19-attention", "no guard on out", _tiled(("    if (row < rows)\n", "")), "results", "guard rows of q and out"),
    Wrong("19-attention", "not divided by the sum", _tiled((" / sum", "")), "results", "divided by its sum"),
    Wrong("19-attention", "one pass for the largest, one for the sum", _tiled(
        ("    for (int first = 0; first < keys; first += tile) {", ("    for (int pass = 0; pass < 2; ++pass)\n"
         "    for (int first = 0; first < keys; first += tile) {")),
        (_UPDATE, ("if (pass == 0) { most = fmaxf(most, score); continue; }\n"
         "            float larger = most, scale = 1, weight = expf(score - most);"))), "budget", "One pass over the keys"),
    Wrong("19-attention", "tiles by columns", _tiled(
        ("ks[tile][d], vs[tile][d]", "ks[d][tile], vs[d][tile]"), ("ks[e / d][e % d]", "ks[e % d][e / d]"), ("vs[e / d][e % d]", "vs[e % d][e / d]"),
        ("ks[j][c]", "ks[c][j]"), ("vs[j][c]", "vs[c][j]")), "budget", "store neighbouring ones"),
    Wrong("19-attention", "row in local memory", _tiled(
        ("float score = 0;\n            for (int c = 0; c < d; ++c)", ("float score = 0;\n            #pragma unroll 1\n"
         "            for (int c = 0; c < d; ++c)"))), "budget", "known when the kernel"),
    Wrong("19-attention", "1,024 keys at most", _tiled(("first < keys;", "first < min(keys, 1024);")), "results", "many keys"),
    Wrong("19-attention", "values in half precision", "#include <cuda_fp16.h>\n" + _tiled(("weight * vs[j][c]", "weight * __half2float(__float2half(vs[j][c]))")),
          "results", ""),
    Right("19-attention", "a running mean instead of sums", _tiled(
        (_SUM, "float total = sum * scale + weight, share = weight / total;\n            sum = total;"),
        (_RESULT, "result[c] = result[c] * (1 - share) + share * vs[j][c];"), (" / sum", ""))),
    Right("19-attention", "from the last tile to the first", _tiled(
        ("int first = 0; first < keys; first += tile", "int first = (keys - 1) / tile * tile; first >= 0; first -= tile"))),
    Right("19-attention", "tiles of 16", _tiled()),
    Right("19-attention", "tiles of 32", _tiled((_TILE, "const int d = 64, tile = 32;"))),
    Right("19-attention", "rescales only if the largest changes", _tiled(
        (_UPDATE, ("if (score > most) {\n                float scale = expf(most - score);\n                sum *= scale;\n"
         "                for (int c = 0; c < d; ++c) result[c] *= scale;\n                most = score;\n            }\n"
         "            float weight = expf(score - most);")), ("            most = larger;\n", ""), (_SUM, "sum += weight;"),
        (_RESULT, "result[c] += weight * vs[j][c];"))),
    Right("19-attention", "powers of two, fast", _tiled(("own[c] *= 0.125f", "own[c] *= 0.125f * 1.44269504f"), ("expf(", "exp2f("))),
    Right("19-attention", "scores of a tile first", _tiled(
        (_TILE, "const int d = 64, tile = 4;"),
        ("        for (int j = 0; j < count; ++j) {\n            float score = 0;\n            for (int c = 0; c < d; ++c) score += own[c] * ks[j][c];\n",
         ("        float scores[tile];\n        #pragma unroll\n        for (int j = 0; j < tile; ++j) {\n            float score = 0;\n"
         "            if (j < count) for (int c = 0; c < d; ++c) score += own[c] * ks[j][c];\n            scores[j] = score;\n        }\n"
         "        #pragma unroll\n        for (int j = 0; j < tile; ++j) {\n            if (j >= count) break;\n            float score = scores[j];\n")))),
)

_SKIP = "if (first + j > row || first + j <= row - window) continue;"
_START = "max(0, start - window + 1)"
_MASKS = (
    Wrong("19-mask", "loads all tiles", _NAIVE["19-mask"], "budget", "begin and end the loop over tiles there"),
    Wrong("19-mask", "skips only the end", _masked((_START, "0")), "budget", "begin and end the loop over tiles there"),
    Wrong("19-mask", "skips only the beginning", _masked(("first < end;", "first < n;"), ("min(tile, end - first)", "min(tile, n - first)")),
          "budget", "begin and end the loop over tiles there"),
    Wrong("19-mask", "no mask", _masked((_SKIP, ""), (_START, "0"), ("first < end;", "first < n;"), ("min(tile, end - first)", "min(tile, n - first)")),
          "results", "No key is masked"),
    Wrong("19-mask", "no window", _masked((_SKIP, "if (first + j > row) continue;"), (_START, "0")), "results", "before the window count as well"),
    Wrong("19-mask", "a window with one key more", _masked(("<= row - window)", "< row - window)"), (_START, "max(0, start - window)")),
          "results", "here it sees one key more"),
    Wrong("19-mask", "window of one less", _masked(("<= row - window)", "<= row - window + 1)")), "results", ""),
    Wrong("19-mask", "masked scores are minus infinity", _masked(
        (_SKIP, ""), ("            float larger", ("            if (first + j > row || first + j <= row - window) score = __int_as_float(0xff800000);\n"
                      "            float larger"))), "results", "−∞ − (−∞)"),
    Wrong("19-mask", "index in the tile", _masked((_SKIP, "if (j > row || j <= row - window) continue;")), "results", ""),
    Wrong("19-mask", "begins before key 0", _masked((_START, "start - window + 1"), ("window)\n{", "window)\n{\n    window = min(window, n);")),
          "results", "must not begin before key 0"),
    Wrong("19-mask", "ends one tile early", _masked(("first < end;", "first < end - 1;")), "results", ""),
    Wrong("19-mask", "beyond the last key", _masked(("min(tile, end - first)", "tile")), "results", "no tile may go beyond"),
    Wrong("19-mask", "begins at the window of the last row", _masked((_START, "max(0, end - window)")), "results", ""),
    Wrong("19-mask", "barrier only for rows that need the tile", _masked(
        ("        int count = min(tile, end - first);", "        if (first + tile <= row - window + 1) continue;\n        int count = min(tile, end - first);")),
          "results", ""),
    Wrong("19-mask", "sum not rescaled", _masked((_SUM, "sum += weight;")), "results", ""),
    Wrong("19-mask", "512 keys at most", _masked((_SKIP, f"if (first + j >= 512) continue;\n            {_SKIP}")), "results", ""),
    Wrong("19-mask", "masked scores smaller by 100", _masked((_SKIP, ""), ("            float larger",
          "            if (first + j > row || first + j <= row - window) score -= 100;\n            float larger")), "results", ""),
    Right("19-mask", "an unsigned distance", _masked((_SKIP, "if ((unsigned)(row - first - j) >= (unsigned)window) continue;"))),
    Right("19-mask", "from the first key on", _masked()),
    Right("19-mask", "tiles at multiples of 16", _masked((_START, f"{_START} / tile * tile"))),
    Right("19-mask", "tiles of 8", _masked((_TILE, "const int d = 64, tile = 8;"))),
    Right("19-mask", "minus infinity, with care", _masked(
        (_SKIP, ""), ("            float larger", ("            if (first + j > row || first + j <= row - window) score = __int_as_float(0xff800000);\n"
                      "            float larger")), ("scale = expf(most - larger), weight = expf(score - larger);",
         "scale = most > -3e38f ? expf(most - larger) : 0, weight = score > -3e38f ? expf(score - larger) : 0;"))),
    Right("19-mask", "a loop over the row's own keys", _masked(
        ("for (int j = 0; j < count; ++j)", "for (int j = max(0, row - window + 1 - first); j < min(count, row + 1 - first); ++j)"), (_SKIP, ""))),
)

_TICKET = "last = atomicAdd(done, 1) == gridDim.x - 1;"
_SPLITS = (
    Wrong("19-split", "one warp does all of the work", _NAIVE["19-split"], "parallelism", "few threads do the work"),
    Wrong("19-split", "one thread block for all", _split(
        ("split = blockIdx.x * warps + threadIdx.x / 32, splits = gridDim.x * warps;", "split = threadIdx.x / 32, splits = blockIdx.x == 0 ? warps : 0;"),
        ("int size = (keys + splits - 1) / splits, end", "if (splits == 0) return;\n    int size = (keys + splits - 1) / splits, end"),
        (_TICKET, "last = true;")), "parallelism", "few threads do the work"),
    Wrong("19-split", "averages the parts", _split(
        ("            float scale = expf(mosts[s] - most);\n            total += scale * sums[s];\n            element += scale * parts[s * 64 + c];",
         "            if (sums[s] == 0) continue;\n            total += 1;\n            element += parts[s * 64 + c] / sums[s];")),
          "results", "its own largest score"),
    Wrong("19-split", "does not rescale the parts", _split(("float scale = expf(mosts[s] - most);", "float scale = 1;")), "results", "its own largest score"),
    Wrong("19-split", "sums not rescaled", _split(("total += scale * sums[s];", "total += sums[s];")), "results", "its sum is wrong"),
    Wrong("19-split", "keys left over", _split(("(keys + splits - 1) / splits", "keys / splits")), "results", ""),
    Wrong("19-split", "no limit for the last part", _split(("min((split + 1) * size, keys)", "(split + 1) * size")), "results", "limit their end"),
    Wrong("19-split", "an empty part becomes NaN", _split(
        ("float scale = expf(mosts[s] - most);", "float scale = expf(mosts[s] - most) * sums[s] / sums[s];")), "results", "must be 0, not NaN"),
    Wrong("19-split", "the last block is the one with the last number", _split((_TICKET, "last = blockIdx.x == gridDim.x - 1;")), "orders",
          "the block with the last ticket"),
    Wrong("19-split", "no fence", _split(("    __threadfence();\n", "")), "hazards", "__threadfence()"),
    Wrong("19-split", "ticket before the results", _split(("    __threadfence();\n    __syncthreads();\n", "")), "hazards", "__syncthreads()"),
    Wrong("19-split", "no largest score", _split((_UPDATE, _ALONE), ("mosts[s] - most", "0")), "results", "subtract the largest score"),
    Wrong("19-split", "a block of 64 threads at least", _split(("for (int c = threadIdx.x; c < 64; c += blockDim.x) {", "int c = threadIdx.x;\n    if (c < 64) {")),
          "results", ""),
    Wrong("19-split", "scores not scaled", _split((" * 0.125f", "")), "results", "without the factor 1 / 8"),
    Wrong("19-split", "lane 0 adds alone", _split(("if (lane == 0) { mosts[split] = most; sums[split] = sum; }", "if (lane == 0) { mosts[split] = most; sums[split] = 1; }")),
          "results", ""),
    Right("19-split", "parts one after another", _split()),
    Right("19-split", "keys in turn", _split(("int j = split * size; j < end; ++j", "int j = split; j < keys; j += splits"), ("int size = (keys + splits - 1) / splits, end = min((split + 1) * size, keys);", ""))),
    Right("19-split", "online over the parts", _split(
        ("    for (int s = 0; s < splits; ++s) most = fmaxf(most, mosts[s]);\n", ""),
        ("float total = 0, element = 0;", "float total = 0, element = 0, best = lowest;"),
        ("            float scale = expf(mosts[s] - most);\n            total += scale * sums[s];\n            element += scale * parts[s * 64 + c];",
         ("            float m = mosts[s], larger = fmaxf(best, m);\n            if (m == lowest) continue;\n"
         "            float old = expf(best - larger), now = expf(m - larger);\n            total = total * old + now * sums[s];\n"
         "            element = element * old + now * parts[s * 64 + c];\n            best = larger;")))),
    Right("19-split", "parts divided before", _split(
        ("((float2*)parts)[split * 32 + lane] = result;", ("float whole = sum > 0 ? sum : 1;\n"
         "    ((float2*)parts)[split * 32 + lane] = make_float2(result.x / whole, result.y / whole);")),
        ("element += scale * parts[s * 64 + c];", "element += scale * sums[s] * parts[s * 64 + c];"))),
    Right("19-split", "the largest of all by shuffles", _split(
        ("    for (int s = 0; s < splits; ++s) most = fmaxf(most, mosts[s]);\n",
         ("    most = lowest;\n    for (int s = lane; s < splits; s += 32) most = fmaxf(most, mosts[s]);\n"
         "    for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, o));\n")))),
)

_ROW = "table[s * width + j / 16] * 16 + j % 16"
_EMPTY = "if (sum > 0) result = make_float2(result.x / sum, result.y / sum);"
_PAGES = (
    Wrong("19-paged", "every lane computes all scores", _NAIVE["19-paged"], "parallelism", "repeat each other's work"),
    Wrong("19-paged", "ignores the page table", _paged((_ROW, "s * width * 16 + j")), "results", ""),
    Wrong("19-paged", "reads whole pages", _paged(("j < length[s]", "j < (length[s] + 15) / 16 * 16")), "results", "partly used"),
    Wrong("19-paged", "reads all entries of the table", _paged(("j < length[s]", "j < width * 16")), "results", ""),
    Wrong("19-paged", "0 / 0 without tokens", _paged((_EMPTY, "result = make_float2(result.x / sum, result.y / sum);")), "results", "its result must be 0"),
    Wrong("19-paged", "nothing written without tokens", _paged(("if (s >= sequences) return;", "if (s >= sequences || length[s] == 0) return;")), "results",
          "its result must be 0"),
    Wrong("19-paged", "no guard", _paged(("    if (s >= sequences) return;\n", "")), "results", "warps without a sequence"),
    Wrong("19-paged", "page of the next token", _paged((_ROW, "table[s * width + (j + 1) / 16] * 16 + j % 16")), "results", ""),
    Wrong("19-paged", "slot forgotten", _paged((_ROW, "table[s * width + j / 16] * 16")), "results", "Token j of sequence s"),
    Wrong("19-paged", "table without its width", _paged((_ROW, "table[s + j / 16] * 16 + j % 16")), "results", ""),
    Wrong("19-paged", "no largest score", _paged((_UPDATE, _ALONE)), "results", "subtract the largest score"),
    Wrong("19-paged", "values in half precision", "#include <cuda_fp16.h>\n" + _paged(
        ("result.x * scale + weight * value.x;", "result.x * scale + weight * __half2float(__float2half(value.x));")), "results", ""),
    Wrong("19-paged", "lanes down the rows", _paged(
        ("float2 key = ((const float2*)k)[row * 32 + lane], value = ((const float2*)v)[row * 32 + lane];",
         ("float2 key = ((const float2*)k)[row * 32 + lane], value = ((const float2*)v)[row * 32 + lane];\n"
         "        for (int other = 0; other < 64; other += 16) key.x += 0 * k[row * 64 + (other + lane * 33) % 64];"))), "budget", "load one row together"),
    Wrong("19-paged", "64 pages at most", _paged(("j < length[s]", "j < min(length[s], 1024)")), "results", ""),
    Right("19-paged", "from the last token back", _paged(("int j = 0; j < length[s]; ++j", "int j = length[s] - 1; j >= 0; --j"))),
    Right("19-paged", "token by token", _paged()),
    Right("19-paged", "page by page", _paged(
        (f"    for (int j = 0; j < length[s]; ++j) {{\n        int row = {_ROW};\n",
         ("    int tokens = length[s];\n    for (int page = 0; 16 * page < tokens; ++page)\n"
         "    for (int slot = 0; slot < min(16, tokens - 16 * page); ++slot) {\n        int row = table[s * width + page] * 16 + slot;\n")))),
    Right("19-paged", "the logarithm of the sum of exponentials", _paged(
        (_UPDATE, ("float larger = fmaxf(most, score);\n        larger += logf(expf(most - larger) + expf(score - larger));\n"
         "        float scale = expf(most - larger), weight = expf(score - larger);")),
        (f"        {_SUM}\n", ""), (_EMPTY, ""))),
    Right("19-paged", "shifts", _paged((_ROW, "(table[s * width + (j >> 4)] << 4) + (j & 15)"))),
    Right("19-paged", "two single numbers per lane", _paged(
        ("((const float2*)q)[s * 32 + lane]", "make_float2(q[s * 64 + lane], q[s * 64 + lane + 32])"),
        ("((const float2*)k)[row * 32 + lane]", "make_float2(k[row * 64 + lane], k[row * 64 + lane + 32])"),
        ("((const float2*)v)[row * 32 + lane]", "make_float2(v[row * 64 + lane], v[row * 64 + lane + 32])"),
        ("((float2*)out)[s * 32 + lane] = result;", "out[s * 64 + lane] = result.x;\n    out[s * 64 + lane + 32] = result.y;"))),
)

_TURNED = "q[lane] * (a * c - b * s) + q[lane + 32] * (a * s + b * c)"
_ROTARIES = (
    Wrong("19-rotary", "one thread for each key", _NAIVE["19-rotary"], "parallelism", "few threads do the work"),
    Wrong("19-rotary", "does not rotate the keys", _rotary((_TURNED, "q[lane] * a + q[lane + 32] * b")), "results", "not rotated"),
    Wrong("19-rotary", "rotates backwards", _rotary((_TURNED, "q[lane] * (a * c + b * s) + q[lane + 32] * (b * c - a * s)")), "results", "rotated backwards"),
    Wrong("19-rotary", "rotates neighbouring numbers", _rotary(
        ("a = k[j * 64 + lane], b = k[j * 64 + lane + 32]", "a = k[j * 64 + 2 * lane], b = k[j * 64 + 2 * lane + 1]"),
        (_TURNED, "q[2 * lane] * (a * c - b * s) + q[2 * lane + 1] * (a * s + b * c)")), "results", "number i with number i + 32"),
    Wrong("19-rotary", "the index instead of the position", _rotary(("position[j]", "j")), "results", "need not be j"),
    Wrong("19-rotary", "not scaled", _rotary(("0.125f * sum", "sum")), "results", "without the factor 1 / 8"),
    Wrong("19-rotary", "one lane only", _rotary(("    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);\n", "")), "results",
          "products of all its lanes"),
    Wrong("19-rotary", "half of the lanes", _rotary(("int o = 16", "int o = 8")), "results", "products of all its lanes"),
    Wrong("19-rotary", "no guard", _rotary(("    if (j >= keys) return;\n", "")), "results", "warps without a key"),
    Wrong("19-rotary", "64 numbers per position", _rotary(("position[j] * 32", "position[j] * 64")), "results", ""),
    Wrong("19-rotary", "only the first half", _rotary((_TURNED, "q[lane] * (a * c - b * s) + q[lane + 32] * b")), "results", "rotated together"),
    Wrong("19-rotary", "every lane all products", _rotary(
        (f"    float sum = {_TURNED};\n    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);\n",
         ("    float sum = 0;\n    for (int i = 0; i < 32; ++i) {\n        a = k[j * 64 + i], b = k[j * 64 + i + 32];\n"
         "        c = cosine[position[j] * 32 + i], s = sine[position[j] * 32 + i];\n"
         f"        sum += {_TURNED.replace('lane', 'i')};\n    }}\n"))), "parallelism", "repeat each other's work"),
    Wrong("19-rotary", "keys in half precision", "#include <cuda_fp16.h>\n" + _rotary(
        ("a = k[j * 64 + lane], b = k[j * 64 + lane + 32]", "a = __half2float(__float2half(k[j * 64 + lane])), b = __half2float(__float2half(k[j * 64 + lane + 32]))")),
          "results", ""),
    Right("19-rotary", "one key for each warp", _rotary()),
    Right("19-rotary", "the query is rotated back", _rotary(
        (_TURNED, "a * (q[lane] * c + q[lane + 32] * s) + b * (q[lane + 32] * c - q[lane] * s)"))),
    Right("19-rotary", "down to lane 0", _rotary(("__shfl_xor_sync", "__shfl_down_sync"))),
    Right("19-rotary", "read-only loads", _rotary(
        ("cosine[position[j] * 32 + lane]", "__ldg(cosine + position[j] * 32 + lane)"), ("k[j * 64 + lane],", "__ldg(k + j * 64 + lane),"))),
)

_ALL: tuple[Wrong | Right, ...] = (*_ATTENTION, *_MASKS, *_SPLITS, *_PAGES, *_ROTARIES)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
