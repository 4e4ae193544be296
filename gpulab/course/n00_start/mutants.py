"""Wrong and right answers to the exercises of notebook 00."""

from __future__ import annotations

from gpulab.teach.judge import Right, Wrong

INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"


def saxpy(body: str, parameters: str = "float a, const float* x, float* y, int n") -> str:
    """The kernel with that body."""
    return f'extern "C" __global__ void saxpy({parameters}) {{\n    {body}\n}}\n'


SAXPY_WRONG = [
    ("no guard", f"{INDEX} y[i] = a * x[i] + y[i];", "results", "guard with `if (i < n)`"),
    ("one too far", f"{INDEX} if (i <= n) y[i] = a * x[i] + y[i];", "results", "outside `x`"),
    ("last one missing", f"{INDEX} if (i < n - 1) y[i] = a * x[i] + y[i];", "results", "it should be"),
    ("old y missing", f"{INDEX} if (i < n) y[i] = a * x[i];", "results", "the old y is missing"),
    ("product", f"{INDEX} if (i < n) y[i] = a * x[i] * y[i];", "results", "added, not multiplied"),
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
    ("too coarse", f"{INDEX} if (i < n) y[i] = __fdividef(x[i], 0.4001f) + y[i];", "results", "it should be"),
    (
        "input spoilt",
        f"{INDEX} if (i < n) {{ y[i] = a * x[i] + y[i]; ((float*)x)[i] = 0; }}",
        "results",
        "may only read",
    ),
    ("no end", f"{INDEX} while (i < n) y[i] = a * x[i];", "results", "it does not end"),
    ("semicolon missing", f"{INDEX} if (i < n) y[i] = a * x[i] + y[i]", "", "it does not compile: line 3"),
]

WRONG = (
    *(Wrong("00-saxpy", what, saxpy(body), stage, says) for what, body, stage, says in SAXPY_WRONG),
    Wrong("00-saxpy", "stub", saxpy(f"{INDEX}\n    // TODO"), "results", "the kernel still has its TODO"),
    Wrong("00-saxpy", "a number", 3, "", "an int is no kernel; pass the kernel itself"),
    Wrong("00-saxpy", "a sentence", "y = a * x + y", "", "this text has no kernel `saxpy`"),
    Wrong(
        "00-saxpy",
        "double",
        saxpy(f"{INDEX} if (i < n) y[i] = a * x[i] + y[i];", "double a, const float* x, float* y, int n"),
        "results",
        "parameter 1, `a`, is to be `float a`",
    ),
    Wrong(
        "00-saxpy",
        "a parameter missing",
        saxpy("", "float a, float* y, int n"),
        "results",
        "3 parameters instead of 4",
    ),
    Wrong(
        "00-saxpy", "mangled", saxpy("").replace('extern "C" ', ""), "", 'Put extern "C" before __global__'
    ),
    Wrong(
        "00-saxpy", "misspelt", saxpy("").replace("saxpy", "saxpi") + "// saxpy", "", "Did you mean 'saxpi'?"
    ),
    Wrong("00-blocks", "rounds down", lambda n, t: n // t, "", "threads leave"),
    Wrong("00-blocks", "one too many", lambda n, t: n // t + 1, "", "but 1 block is enough"),
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
    Right("00-blocks", "ceil", lambda n, t: (n + t - 1) // t),
)
