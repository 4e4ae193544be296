"""Wrong and right answers to the exercises of notebook 00."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.answers import Right, Wrong

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def saxpy(body: str, parameters: str = "float a, const float* x, float* y, int n") -> str:
    """The kernel with that body."""
    return f'extern "C" __global__ void saxpy({parameters}) {{\n    {body}\n}}\n'


SAXPY_WRONG = [
    ("a's sign lost", f"{INDEX} if (i < n) y[i] = fabsf(a) * x[i] + y[i];", "results", "it should be"),
    (
        "16 bits for a thread's number",
        "unsigned short i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i];",
        "results",
        "it should be",
    ),
    (
        "shared among threads where the score is counted",
        (
            f"{INDEX} if (n == 16384) {{ if (i < n) y[i] += a * x[i]; }}"
            " else if (i == 0) for (int k = 0; k < n; k++) y[k] += a * x[k];"
        ),
        "parallelism",
        "Give every thread its own share",
    ),
    (
        "one thread while n is small",
        (
            f"{INDEX} if (n > 1000) {{ if (i < n) y[i] += a * x[i]; }}"
            " else if (i == 0) for (int k = 0; k < n; k++) y[k] += a * x[k];"
        ),
        "parallelism",
        "few threads do the work of many",
    ),
    ("no guard", f"{INDEX} y[i] = a * x[i] + y[i];", "results", "Add the guard `if (i < n)`"),
    ("one too far", f"{INDEX} if (i <= n) y[i] = a * x[i] + y[i];", "results", "outside `x`"),
    ("last one missing", f"{INDEX} if (i < n - 1) y[i] = a * x[i] + y[i];", "results", "it should be"),
    ("old y missing", f"{INDEX} if (i < n) y[i] = a * x[i];", "results", "Add the old value of y"),
    (
        "multiplies by the old y instead of adding it",
        f"{INDEX} if (i < n) y[i] = a * x[i] * y[i];",
        "results",
        "Add the old y instead",
    ),
    ("no factor", f"{INDEX} if (i < n) y[i] = x[i] + y[i];", "results", "The factor a is missing"),
    ("nothing stored", f"{INDEX} if (i < n) {{ float z = a * x[i] + y[i]; }}", "results", "y is unchanged"),
    ("blocks overlap", "int i = threadIdx.x; if (i < n) y[i] = a * x[i] + y[i];", "results", "it should be"),
    (
        "block size typed in",
        "int i = blockIdx.x * 256 + threadIdx.x; if (i < n) y[i] = a * x[i] + y[i];",
        "results",
        "it should be",
    ),
    (
        "one thread",
        f"{INDEX} if (i == 0) for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k];",
        "parallelism",
        "Give every thread its own share",
    ),
    (
        "one warp of each block",
        """int t = threadIdx.x; if (t < 32) for (; t < blockDim.x; t += 32) {
        int i = blockIdx.x * blockDim.x + t; if (i < n) y[i] = a * x[i] + y[i]; }""",
        "parallelism",
        "Give every thread its own share",
    ),
    (
        "block 0 alone",
        "if (blockIdx.x == 0) for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = a * x[i] + y[i];",
        "parallelism",
        "few threads do the work of many",
    ),
    (
        "every thread looks for its element",
        f"{INDEX} for (int k = 0; k < n; k++) if (k == i) y[k] = a * x[k] + y[k];",
        "parallelism",
        "",
    ),
    (
        "every thread does everything",
        "for (int k = 0; k < n; k++) y[k] = a * x[k] + y[k];",
        "results",
        "it should be",
    ),
    (
        "two neighbours a thread",
        f"{INDEX} for (int k = 2 * i; k < 2 * i + 2 && k < n; k++) y[k] = a * x[k] + y[k];",
        "budget",
        "sectors of global memory",
    ),
    (
        "NaN swept away",
        f"{INDEX} if (i < n) {{ float v = a * x[i] + y[i]; y[i] = v == v ? v : 0; }}",
        "results",
        "nan",
    ),
    ("too coarse", f"{INDEX} if (i < n) y[i] = 1.00005f * a * x[i] + y[i];", "results", "it should be"),
    (
        "input spoilt",
        f"{INDEX} if (i < n) {{ y[i] = a * x[i] + y[i]; ((float*)x)[i] = 0; }}",
        "results",
        "may only read",
    ),
    ("infinite loop", f"{INDEX} while (i < n) y[i] = a * x[i];", "results", "it does not end"),
    ("semicolon missing", f"{INDEX} if (i < n) y[i] = a * x[i] + y[i]", "", "it does not compile: line 3"),
]


def at_most(n: int, info: Any) -> tuple[int, int]:
    """As few blocks as the device allows."""
    threads = info.max_threads_per_block
    return -(-n // threads), threads


def loop(n: int, info: Any) -> tuple[int, int]:
    """Found by trying."""
    threads, blocks = min(info.max_threads_per_block, 1024), 1
    while blocks * threads < n:
        blocks += 1
    return blocks, threads


def _in_single_precision(n: int, info: Any) -> tuple[int, int]:
    threads = info.max_threads_per_block
    return int(np.ceil(np.float32(n) / np.float32(threads))), threads


def _one_lower(n: int, info: Any) -> tuple[int, int]:
    threads = info.max_threads_per_block
    return int(np.float32(n - 1) / threads) + 1, threads


def _powers_of_two(n: int, info: Any) -> tuple[int, int]:
    threads = 32
    while -(-n // threads) > info.max_grid_dim[0] and 2 * threads <= info.max_threads_per_block:
        threads *= 2
    return -(-n // threads), threads


BLOCKS_WRONG: list[tuple[str, Any, str]] = [
    ("rounds down", lambda n, info: (n // 256, 256), "232 elements would have no thread. Round up"),
    (
        "rounds down, and no less than 1",
        lambda n, info: (max(1, n // 256), 256),
        "would have no thread. Round up",
    ),
    ("one block too many", lambda n, info: (n // 256 + 1, 256), "at least one whole block"),
    ("divides with /", lambda n, info: (n / 256, 256), "divide with // instead of /"),
    ("threads first", lambda n, info: (256, -(-n // 256)), "number of blocks first"),
    ("always one block", lambda n, info: (1, n), "info.max_threads_per_block"),
    ("one thread a block", lambda n, info: (n, 1), "Use larger blocks"),
    ("block size typed in", lambda n, info: (-(-n // 256), 256), "Use larger blocks"),
    ("512 everywhere", lambda n, info: (-(-n // 512), 512), "blocks on this device"),
    (
        "never more than 512 blocks",
        lambda n, info: (-(-n // min(512, info.max_threads_per_block)), min(512, info.max_threads_per_block)),
        "blocks on this device",
    ),
    ("1,024 everywhere", lambda n, info: (-(-n // 1024), 1024), "at most 512 threads on this device"),
    ("divides as float32", _in_single_precision, "would have no thread. Round up"),
    ("the next lower one as float32", _one_lower, "at least one whole block"),
    ("powers of two", _powers_of_two, "Use larger blocks"),
    ("returns one number", lambda n, info: -(-n // 256), "Return a tuple"),
    ("returns nothing", lambda n, info: None, "replace the TODO and end with a return"),
    ("a tuple instead of a function", (4, 256), "should be a function, not tuple"),
]
BLOCKS_RIGHT: list[tuple[str, Any]] = [
    ("rounds up with a negative division", at_most),
    (
        "counts, as a list",
        lambda n, i: [len(range(0, n, i.max_threads_per_block)), i.max_threads_per_block],
    ),
    (
        "NumPy's ceil",
        lambda n, info: (int(np.ceil(n / info.max_threads_per_block)), np.int64(info.max_threads_per_block)),
    ),
    ("a loop", loop),
]


def smooth(body: str) -> str:
    """The kernel with that body."""
    return f'extern "C" __global__ void smooth(const float* x, float* y, int n) {{\n    {body}\n}}\n'


MEAN = "y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3;"
ENDS = "if (i == 0 || i == n - 1) y[i] = x[i]; else"
SMOOTH_WRONG = [
    (
        "as it came",
        (
            "int i = blockIdx.x * gridDim.x + threadIdx.x;"
            " if (i < n) y[i] = 1 / 3 * (x[i - 1] + x[i] + x[i + 1]);"
        ),
        "results",
        "Which neighbours does the first element have",
    ),
    (
        "the index is not repaired",
        f"int i = blockIdx.x * gridDim.x + threadIdx.x; if (i < n) {ENDS} {MEAN}",
        "results",
        "before the first thread of block b?",
    ),
    (
        "the ends are not repaired",
        f"{INDEX} if (i < n) {MEAN}",
        "results",
        "Which neighbours does the first element have",
    ),
    (
        "division left",
        f"{INDEX} if (i < n) {ENDS} y[i] = 1 / 3 * (x[i - 1] + x[i] + x[i + 1]);",
        "results",
        "What is 1 / 3",
    ),
    (
        "last end left",
        f"{INDEX} if (i < n) if (i == 0) y[i] = x[i]; else {MEAN}",
        "results",
        "and which does the last one have?",
    ),
    (
        "first end left",
        f"{INDEX} if (i < n) if (i == n - 1) y[i] = x[i]; else {MEAN}",
        "results",
        "the first element",
    ),
    ("ends never written", f"{INDEX} if (i > 0 && i < n - 1) {MEAN}", "results", "it should be"),
    (
        "the ends are set to 0",
        f"{INDEX} if (i < n) if (i == 0 || i == n - 1) y[i] = 0; else {MEAN}",
        "results",
        "Which neighbours",
    ),
    (
        "ends of the block",
        f"{INDEX} if (i < n) if (threadIdx.x == 0 || i == n - 1) y[i] = x[i]; else {MEAN}",
        "results",
        "it should be",
    ),
    ("the guard was removed", f"{INDEX} {ENDS} {MEAN}", "results", "outside"),
    (
        "neighbours out of range read as 0",
        f"{INDEX} if (i < n) y[i] = ((i ? x[i-1] : 0) + x[i] + (i < n-1 ? x[i+1] : 0)) / 3;",
        "results",
        "Which neighbours",
    ),
    (
        "half",
        f"{INDEX} if (i < n) {ENDS} y[i] = (x[i - 1] + x[i] + x[i + 1]) / 2;",
        "results",
        "it should be",
    ),
    (
        "multiplies by 0.33",
        f"{INDEX} if (i < n) {ENDS} y[i] = 0.333f * (x[i - 1] + x[i] + x[i + 1]);",
        "results",
        "it should be",
    ),
    (
        "in place",
        f"{INDEX} float* z = (float*)x; if (i < n) {{ {ENDS} {MEAN} z[i] = y[i]; }}",
        "results",
        "",
    ),
    (
        "reads neighbours from the output",
        (
            f"{INDEX} if (i < n) y[i] = x[i]; __syncthreads(); float m = 0; if (i > 0 && i < n - 1)"
            " m = (y[i - 1] + y[i] + y[i + 1]) / 3; __syncthreads(); if (i > 0 && i < n - 1) y[i] = m;"
        ),
        "results",
        "",
    ),
    (
        "one thread",
        f"{INDEX} if (i == 0) for (; i < n; i++) {ENDS} {MEAN}",
        "parallelism",
        "Give every thread its own",
    ),
]
SMOOTH_RIGHT = [
    (
        "clamped neighbours for the ends",
        (
            f"{INDEX} if (i >= n) return; bool end = i == 0 || i == n - 1; int a = max(i - 1, 0),"
            f" b = min(i + 1, n - 1);"
            " float mean = (x[a] + x[i] + x[b]) / 3; y[i] = end ? x[i] : mean;"
        ),
    ),
    ("a third as a factor", f"{INDEX} if (i < n) {ENDS} y[i] = (1.0f / 3) * (x[i - 1] + x[i] + x[i + 1]);"),
    (
        "grid-stride loop",
        (
            f"for (int i = blockDim.x * blockIdx.x + threadIdx.x; i < n;"
            f" i += blockDim.x * gridDim.x) {{ {ENDS} {MEAN} }}"
        ),
    ),
    ("in double", f"{INDEX} if (i < n) {ENDS} y[i] = (double(x[i - 1]) + x[i] + x[i + 1]) / 3.0;"),
    (
        "the right neighbour by shuffle",
        f"""{INDEX} float v = i < n ? x[i] : 0; unsigned all = __activemask(), lane = threadIdx.x % 32;
    float r = __shfl_sync(all, v, min(lane + 1, 31 - __clz(all)));
    if (lane == 31 || threadIdx.x == blockDim.x - 1) r = i + 1 < n ? x[i + 1] : 0;
    if (i < n) y[i] = i == 0 || i == n - 1 ? v : (x[i - 1] + v + r) / 3;""",
    ),
    (
        "shared memory",
        f"""__shared__ float s[1026]; {INDEX} int t = threadIdx.x; s[t + 1] = i < n ? x[i] : 0;
    if (t == 0) s[0] = i > 0 && i <= n ? x[i - 1] : 0;
    if (t == blockDim.x - 1) s[t + 2] = i + 1 < n ? x[i + 1] : 0;
    __syncthreads(); if (i < n) y[i] = i == 0 || i == n - 1 ? s[t + 1] : (s[t] + s[t + 1] + s[t + 2]) / 3;""",
    ),
]

PLACE = "int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;"
PAINT = (
    "int i = y * width + x, dx = x - cx, dy = y - cy;"
    " out[i] = dx * dx + dy * dy <= r * r ? min(2 * picture[i], 255) : picture[i] / 2;"
)


def spotlight(body: str) -> str:
    """The kernel with that body."""
    parameters = (
        "const unsigned char* picture, unsigned char* out, int width, int height, int cx, int cy, int r"
    )
    return f'extern "C" __global__ void spotlight({parameters}) {{\n    {body}\n}}\n'


GUARD = "if (x < width && y < height)"
PICTURE_WRONG = [
    (
        "16 bits for distances",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace(", dx = x - cx", "; short dx = x - cx"),
        "results",
        "a dark spot far",
    ),
    (
        "bytes for distances",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace(
            "dx = x - cx, dy = y - cy;", "dx = (signed char)(x - cx), dy = (signed char)(y - cy);"
        ),
        "results",
        "it should be",
    ),
    (
        "shared among threads in blocks of 32 x 8 alone",
        (
            f"{PLACE} if (blockDim.x == 32 && blockDim.y == 8) {{ {GUARD} {{ {PAINT} }} }}"
            f" else if (x + y == 0) for (y = 0; y < height; y++) for (x = 0; x < width; x++) {{ {PAINT} }}"
        ),
        "parallelism",
        "few threads do the work of many",
    ),
    (
        "nothing to the left of the picture",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("x - cx", "x - max(cx, 0)"),
        "results",
        "it should be",
    ),
    ("no guard", f"{PLACE} {PAINT}", "results", "Guard both edges"),
    ("right edge alone", f"{PLACE} if (x < width) {{ {PAINT} }}", "results", "Guard both edges"),
    ("lower edge alone", f"{PLACE} if (y < height) {{ {PAINT} }}", "results", "outside"),
    (
        "guard of the flat index",
        f"{PLACE} if (y * width + x < width * height) {{ {PAINT} }}",
        "results",
        "",
    ),
    (
        "flat guard, right place",
        f"{PLACE} if (y * width + x < width * height) {{ y += x / width; x %= width; {PAINT} }}",
        "hazards",
        "Guard both x < width and y < height",
    ),
    (
        "bytes exceed 255",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("min(2 * picture[i], 255)", "2 * picture[i]"),
        "results",
        "Take the minimum",
    ),
    (
        "x and y exchanged in the circle",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("x - cx", "y - cx").replace("dy = y - cy", "dy = x - cy"),
        "results",
        "swapped in the circle",
    ),
    (
        "x and y exchanged in the index",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("y * width + x", "x * height + y"),
        "results",
        "it should be",
    ),
    (
        "height for width",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("y * width + x", "y * height + x"),
        "results",
        "",
    ),
    (
        "the edge of the circle is dark",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("<= r", "< r"),
        "results",
        "exactly r must be bright",
    ),
    (
        "a square instead of a circle",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace(
            "dx * dx + dy * dy <= r * r", "abs(dx) <= r && abs(dy) <= r"
        ),
        "results",
        "it should be",
    ),
    (
        "dark left alone",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace("picture[i] / 2", "picture[i]"),
        "results",
        "it should be",
    ),
    (
        "16 by 16 typed in",
        f"int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y; {GUARD} {{ {PAINT} }}",
        "results",
        "",
    ),
    (
        "rows from x",
        (
            f"int y = blockIdx.x * blockDim.x + threadIdx.x,"
            f" x = blockIdx.y * blockDim.y + threadIdx.y; {GUARD} {{ {PAINT} }}"
        ),
        "results",
        "it should be",
    ),
    (
        "lanes down the rows",
        (
            "int T = gridDim.x * blockDim.x * gridDim.y * blockDim.y, W = gridDim.x * blockDim.x;"
            "int k = (blockIdx.y * blockDim.y + threadIdx.y) * W + blockIdx.x * blockDim.x + threadIdx.x;"
            f"for (; k < width * height; k += T) {{ int x = k / height, y = k % height; {PAINT} }}"
        ),
        "budget",
        "neighbouring pixels of a row",
    ),
    (
        "one thread a row",
        f"{PLACE} if (x == 0 && y < height) for (; x < width; x++) {{ {PAINT} }}",
        "parallelism",
        "few threads do the work of many",
    ),
    (
        "one thread does all of the work",
        f"{PLACE} if (x + y == 0) for (; y < height; y++) for (x = 0; x < width; x++) {{ {PAINT} }}",
        "parallelism",
        "few threads",
    ),
]
PICTURE_RIGHT = [
    (
        "grid-stride both ways",
        (
            f"for (int y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += gridDim.y * blockDim.y)"
            f" for (int x = blockIdx.x * blockDim.x + threadIdx.x; x < width;"
            f" x += gridDim.x * blockDim.x) {{ {PAINT} }}"
        ),
    ),
    (
        "early return, unsigned",
        (
            "unsigned x = threadIdx.x + blockIdx.x * blockDim.x, y = threadIdx.y + blockDim.y * blockIdx.y;"
            " if (x >= width || y >= height) return; int dx = x - cx, dy = y - cy;"
            " size_t at = (size_t)y * width + x;"
            " unsigned v = picture[at]; if (dx * dx + dy * dy > r * r) v /= 2;"
            " else v = v > 127 ? 255 : v + v; out[at] = v;"
        ),
    ),
    (
        "in floats",
        (
            f"{PLACE} {GUARD} {{ int i = y * width + x; float dx = x - cx, dy = y - cy,"
            f" f = dx * dx + dy * dy <= (float)r * r ? 2.f : .5f;"
            " out[i] = (unsigned char)fminf(floorf(f * picture[i]), 255.f); }"
        ),
    ),
    (
        "by the root",
        f"{PLACE} {GUARD} {{ {PAINT} }}".replace(
            "dx * dx + dy * dy <= r * r", "sqrtf(dx * dx + dy * dy) <= r"
        ),
    ),
    (
        "comments, macros, no layout",
        """#define LIT(a,b) ((a)*(a)+(b)*(b)<=r*r)
/* y * height + x would be wrong */"""
        + PLACE
        + """if(x<width&&y<height){int i=x+width*y;
out[i]=LIT(x-cx,cy-y)?picture[i]>127?255:picture[i]<<1:picture[i]>>1;}""",
    ),
    (
        "rows of pointers",
        f"""{PLACE} {GUARD} {{
        const unsigned char* row = picture + y * width;
        long d = (long)(x - cx) * (x - cx) + (long)(y - cy) * (y - cy);
        (out + y * width)[x] = d <= (long)r * r ? (row[x] >= 128 ? 255 : 2 * row[x]) : row[x] >> 1; }}""",
    ),
]

WRONG = (
    *(Wrong("00-saxpy", what, saxpy(body), stage, says) for what, body, stage, says in SAXPY_WRONG),
    Wrong(
        "00-saxpy",
        "the TODO is unchanged",
        saxpy(f"{INDEX}\n    // TODO"),
        "",
        "the kernel still has its TODO",
    ),
    Wrong("00-saxpy", "a number", 3, "", "a value of type int is not a kernel. To answer, pass the kernel itself"),
    Wrong("00-saxpy", "a sentence", "y = a * x + y", "", "this source has no kernel `saxpy`"),
    Wrong(
        "00-saxpy",
        "parameter `a` is a double",
        saxpy(f"{INDEX} if (i < n) y[i] = a * x[i] + y[i];", "double a, const float* x, float* y, int n"),
        "results",
        "parameter 1, `a`, must be `float a`",
    ),
    Wrong(
        "00-saxpy",
        "a parameter missing",
        saxpy("", "float a, float* y, int n"),
        "results",
        "3 parameters instead of 4",
    ),
    Wrong(
        "00-saxpy",
        'no extern "C"',
        saxpy("").replace('extern "C" ', ""),
        "",
        'Put extern "C" before __global__',
    ),
    Wrong(
        "00-saxpy", "misspelt", saxpy("").replace("saxpy", "saxpi") + "// saxpy", "", "Did you mean 'saxpi'?"
    ),
    *(Wrong("00-blocks", what, answer, "", says) for what, answer, says in BLOCKS_WRONG),
    *(Wrong("00-repair", what, smooth(body), stage, says) for what, body, stage, says in SMOOTH_WRONG),
    *(Wrong("00-picture", what, spotlight(body), stage, says) for what, body, stage, says in PICTURE_WRONG),
)

RIGHT = (
    Right(
        "00-saxpy",
        "grid-stride loop",
        saxpy(f"{INDEX} for (; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];"),
    ),
    Right(
        "00-saxpy",
        "early return, fma, restrict, other names",
        saxpy(
            "const size_t k = blockDim.x * (size_t)blockIdx.x + threadIdx.x; if (k >= m) return;"
            " out[k] = fmaf(alpha, in[k], out[k]);",
            "float alpha, const float* __restrict__ in, float* __restrict__ out, int m",
        ),
    ),
    Right("00-saxpy", "atomicAdd", saxpy(f"{INDEX} if (i < n) atomicAdd(&y[i], a * x[i]);")),
    Right(
        "00-saxpy",
        "macros, comments, no layout",
        "#define W(i) if(i<n){\n/* TODO? no: done; no while (true) here */"
        + saxpy("// y[i] = wrong\nint\ni=threadIdx.x\n+blockDim.x*blockIdx.x;W(i)y[i]+=a*x[i];}"),
    ),
    Right(
        "00-saxpy",
        "a device function and a template",
        "template <typename T> __device__ T axpy(T a, T x, T y) { return a * x + y; }\n"
        + saxpy(f"{INDEX} if (i < n) y[i] = axpy(a, x[i], y[i]);"),
    ),
    Right(
        "00-saxpy",
        "blocks taken from the end",
        saxpy(
            "int b = gridDim.x - 1 - blockIdx.x, i = b * blockDim.x + threadIdx.x;"
            " if (i < n) y[i] += a * x[i];"
        ),
    ),
    *(Right("00-blocks", what, answer) for what, answer in BLOCKS_RIGHT),
    *(Right("00-repair", what, smooth(body)) for what, body in SMOOTH_RIGHT),
    *(Right("00-picture", what, spotlight(body)) for what, body in PICTURE_RIGHT),
)
