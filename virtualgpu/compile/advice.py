"""Advice on compiler errors: one or two sentences that are shown below the compiler's log."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

_CSTDINT_INCLUDE = "#include <cuda/std/cstdint>"
# Headers that learners include out of habit, and their replacement in device code.
_HOST_HEADERS = {
    "stdio.h": "printf needs no header in a kernel",
    "cstdio": "printf needs no header in a kernel",
    "iostream": "kernels print with printf, without a header",
    "math.h": "the mathematical functions need no header in a kernel",
    "cmath": "the mathematical functions need no header in a kernel",
    "stdlib.h": "malloc and free need no header in a kernel",
    "assert.h": "assert needs no header in a kernel",
    "cassert": "assert needs no header in a kernel",
    "stdint.h": f"{_CSTDINT_INCLUDE} has its types",
    "cstdint": f"{_CSTDINT_INCLUDE} has its types",
    "limits.h": "#include <cuda/std/climits> has its constants",
    "climits": "#include <cuda/std/climits> has its constants",
    "float.h": "#include <cuda/std/cfloat> has its constants",
    "cfloat": "#include <cuda/std/cfloat> has its constants",
    "algorithm": "min, max and cuda::std::swap (#include <cuda/std/utility>) work in a kernel",
    "vector": "kernels use arrays that are created with cp",
    "string": "kernels have no strings except the formats of printf",
}
_HOST_ADVICE = (
    "This function belongs to the host code of a CUDA program. Here Python is the host code, so call"
)
# Undeclared names, and the header or name that declares or replaces them.
_ADVICE_BY_NAME = {
    **dict.fromkeys(
        [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)],
        f"Add {_CSTDINT_INCLUDE} on top",
    ),
    **dict.fromkeys(["half", "__half", "half2", "__half2"], "Add #include <cuda_fp16.h> on top"),
    **dict.fromkeys(["__nv_bfloat16", "__nv_bfloat162"], "Add #include <cuda_bf16.h> on top"),
    **dict.fromkeys(
        ["FLT_MAX", "FLT_MIN", "FLT_EPSILON", "DBL_MAX"], "Add #include <cuda/std/cfloat> on top"
    ),
    **dict.fromkeys(["INT_MAX", "INT_MIN", "UINT_MAX"], "Add #include <cuda/std/climits> on top"),
    **dict.fromkeys(
        ["INFINITY", "NAN", "HUGE_VALF"],
        "Add #include <math_constants.h> on top and write CUDART_INF_F or CUDART_NAN_F",
    ),
    "M_PI": "Add #include <math_constants.h> on top and write CUDART_PI_F, or CUDART_PI for double",
    **{
        f"__{name}": f"Since CUDA 9, the first argument is a mask of lanes: __{name}_sync(0xffffffff, ...)"
        for name in ("shfl", "shfl_up", "shfl_down", "shfl_xor", "any", "all", "ballot")
    },
    **dict.fromkeys(
        ["rand", "srand", "drand48"], "Make random arrays with cp.random and pass them to the kernel"
    ),
    **dict.fromkeys(
        ["cudaMalloc", "cudaFree", "cudaMemcpy", "cudaMallocManaged"],
        f"{_HOST_ADVICE} cp.zeros or cp.asarray",
    ),
    **dict.fromkeys(
        ["cudaDeviceSynchronize", "cudaGetLastError"],
        f"{_HOST_ADVICE} cp.cuda.Device().synchronize()",
    ),
    "swap": "Write float t = a; a = b; b = t; or cuda::std::swap after #include <cuda/std/utility>",
    "def": "This is Python; a kernel is written in CUDA C++, as __global__ void name(float* x) { ... }",
}
# Unknown namespaces, and the header that is missing.
_NAMESPACE_REMEDIES = {
    "cooperative_groups": "Add #include <cooperative_groups.h> on top",
    "nvcuda": "Add #include <mma.h> on top",
    "wmma": "Add #include <mma.h> and `using namespace nvcuda;` on top",
    "cub": "Add #include <cub/cub.cuh> on top",
}
# Names of CUDA C++, for spelling suggestions.
_BUILT_IN_NAMES: list[str] = re.findall(
    r"\w+",
    """threadIdx blockIdx blockDim gridDim warpSize __syncthreads __syncwarp __global__ __device__ __shared__
    __shfl_sync __shfl_up_sync __shfl_down_sync __shfl_xor_sync __ballot_sync __any_sync __all_sync
    __activemask __popc __ffs __clz __ldg __restrict__ __threadfence __launch_bounds__
    atomicAdd atomicSub atomicMin atomicMax atomicCAS atomicExch atomicAnd atomicOr atomicXor
    sqrtf rsqrtf expf logf sinf cosf tanf powf fabsf fminf fmaxf floorf ceilf fmaf printf
    sqrt exp log sin cos pow fabs min max abs float double unsigned int void const""",
)
# The largest dynamic shared memory of a block on any GPU so far (compute capability 9.0 and 10.0).
_MAX_DYNAMIC_BYTES = 232_448
_MAIN_PATTERN = re.compile(r"\bint\s+main\s*\(")
_DYNAMIC_REMEDY = "`extern __shared__ float s[];`, and pass its size at the launch as shared_mem="


def make_advice(log: str, code: str) -> str:
    """Return at most two sentences that explain how to fix the errors in a compiler log.

    Parameters
    ----------
    log
        Log of NVRTC or ptxas.
    code
        The CUDA C++ source.
    """
    return "\n".join([*dict.fromkeys(_find_remedies(log, code))][:2])


def _find_remedies(log: str, code: str) -> Iterator[str]:
    missing_header = re.search(r'cannot open source file "([^"]+)"', log)
    if missing_header:
        replacement = _HOST_HEADERS.get(missing_header[1])
        if replacement:
            yield f"Leave out #include <{missing_header[1]}>: {replacement}."
        elif missing_header[1].startswith("curand"):
            yield (
                "cuRAND's headers are not installed. Run pip install nvidia-curand, or install gpulab's "
                "extra curand. cp.random creates random arrays without these headers."
            )
        elif missing_header[1].startswith("crt/"):
            yield "CUDA's headers are incomplete on this machine. Run pip install nvidia-cuda-crt."
    size_error = re.search(r"function '([^']+)' uses too much shared data \((\w+) bytes, (\w+) max\)", log)
    if size_error:
        used_bytes = int(size_error[2], 16)
        max_bytes = int(size_error[3], 16)
        yield (
            f"'{size_error[1]}' declares {used_bytes:,} bytes of __shared__ memory, more than the "
            f"{max_bytes:,} bytes that can be declared."
        )
        if used_bytes <= _MAX_DYNAMIC_BYTES:
            opt_in_line = f"kernel.max_dynamic_shared_size_bytes = {used_bytes}"
            yield f"For more shared memory, set {opt_in_line}. Then use {_DYNAMIC_REMEDY}{used_bytes}."
        else:
            yield f"No block has more than {_MAX_DYNAMIC_BYTES:,} bytes of shared memory: use smaller tiles."
    if _MAIN_PATTERN.search(code):
        yield (
            "Leave out main() and <<<...>>>: Python launches the kernel, with kernel((blocks,), (threads,), "
            "(arguments))."
        )
    elif "device-side kernel launch" in log:
        yield "A kernel cannot launch another kernel on the virtual GPU. Launch both from Python."
    first_name = next(iter(re.findall(r'identifier "(\w+)" is undefined', log)), "")
    for undefined_name in re.findall(r'identifier "(\w+)" is undefined', log):
        if undefined_name in _ADVICE_BY_NAME:
            yield f"{_ADVICE_BY_NAME[undefined_name]}."
        elif undefined_name == first_name and (suggestion := _find_similar_name(undefined_name, code)):
            yield f"Did you mean {suggestion!r}?"
    yield from _find_namespace_remedies(log, code)
    yield from _find_phrase_remedies(log)


def _find_similar_name(name: str, code: str) -> str:
    code_names: set[str] = set(re.findall(r"[A-Za-z_]\w*", code)) - {name}
    for candidates, cutoff in ((_BUILT_IN_NAMES, 0.75), (sorted(code_names), 0.8)):
        matches = difflib.get_close_matches(name, candidates, n=1, cutoff=cutoff)
        if matches:
            return matches[0]
    return {word.lower(): word for word in (*code_names, *_BUILT_IN_NAMES)}.get(name.lower(), "")


def _find_namespace_remedies(log: str, code: str) -> Iterator[str]:
    name_match = re.search(r'namespace "std" has no member "(\w+)"', log)
    if name_match and name_match[1] in ("cout", "cerr", "endl"):
        yield 'Kernels print with printf, such as printf("%d\\n", i).'
    elif name_match:
        function_name = name_match[1] if name_match[1] in _BUILT_IN_NAMES else "the function"
        yield (
            f"Device code cannot use the C++ standard library: write {function_name} without std::, or with "
            "cuda::std::."
        )
    if "must be a class or namespace name" in log or "must be a namespace name" in log:
        for name, remedy in _NAMESPACE_REMEDIES.items():
            if re.search(rf"\b{name}\b", re.sub(r"#include.*", "", code)):
                yield f"{remedy}."
                return


def _find_phrase_remedies(log: str) -> Iterator[str]:
    if "must have a void return type" in log:
        yield "A kernel cannot return a value: let it write its results to an array argument."
    if re.search(r'incomplete type "\w+ \[\]" is not allowed', log) and "__shared__" in log:
        yield f"Dynamic shared memory is declared with extern: {_DYNAMIC_REMEDY}bytes."
    if "expression must have a constant value" in log:
        yield "The compiler must know an array's size: use a number, a #define or a template parameter."
        if "__shared__" in log:
            yield f"For shared memory whose size is known only at the launch, use {_DYNAMIC_REMEDY}bytes."
    if re.search(r'more than one instance of overloaded function "(min|max)"', log):
        yield "Give both arguments the same type, such as x and 3.0f if x is a float."
    if "__host__ function is not allowed" in log:
        yield "Leave out __host__: a kernel can call only __device__ functions."
