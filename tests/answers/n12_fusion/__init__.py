"""Wrong and right answers to the exercises of notebook 12."""

from __future__ import annotations

from importlib import resources
from typing import Any

from gpulab import session
from gpulab_course import content
from gpulab_course.content.n12_fusion import exercises, figures
from tests.answers import Right, Wrong
from tests.answers.n12_fusion import answers

_ONE = "One kernel"
_ELEMENTWISE = (
    Wrong("12-elementwise", "nine passes", exercises.affine_naive, "counts", _ONE),
    Wrong("12-elementwise", "two kernels, and a temporary", answers.two_kernels, "counts", _ONE),
    Wrong("12-elementwise", "two kernels in one array", answers.in_its_result, "counts", _ONE),
    Wrong("12-elementwise", "broadcast in memory", answers.spread, "counts", ""),
    Wrong("12-elementwise", "copies an array first", answers.copied, "counts", "copied"),
    Wrong("12-elementwise", "zeros first", answers.into_new, "counts", ""),
    Wrong("12-elementwise", "into x", answers.into_x, "results", ""),
    Wrong("12-elementwise", "by the element, not the column", answers.raw(flat=True), "results", ""),
    Wrong("12-elementwise", "a float64 result", answers.doubled, "results", "should be float32"),
    Wrong("12-elementwise", "on the host", answers.host, "counts", ""),
    Wrong("12-elementwise", "a factor is lost",
          answers.elementwise(code="float v = x * w + b; y = v / (1.0f + expf(v * -1.5957691f));"), "results", ""),
    Wrong("12-elementwise", "between -30 and 30", answers.elementwise(
          code=f"float v = fminf(fmaxf(x * w + b, -30.0f), 30.0f); y = {figures.GELU};"), "results", ""),
    Wrong("12-elementwise", "does not add b", answers.elementwise(code=f"float v = x * w; y = {figures.GELU};"), "results", ""),
    Wrong("12-elementwise", "v is an int", answers.elementwise(code=f"int v = x * w + b; y = {figures.GELU};"), "results", ""),
    Wrong("12-elementwise", "constants that are doubles", answers.elementwise(
          code="float v = x * w + b; y = v / (1.0 + exp(v * (v * v * -0.0713548 - 1.5957691)));"), "counts", "is a double"),
    Wrong("12-elementwise", "one constant is a double", answers.elementwise(
          code="float v = x * w + b; y = v / (1.0 + expf(v * (v * v * -0.0713548f - 1.5957691f)));"), "counts", "is a double"),
    Wrong("12-elementwise", "computes in double precision", answers.elementwise(
          code="double v = (double)x * w + b; y = v / (1 + exp(v * (v * v * -0.0713548 - 1.5957691)));"), "counts", "is a double"),
    Right("12-elementwise", "the reference", exercises.affine_gelu),
    Right("12-elementwise", "into an empty array", answers.into_empty),
    Right("12-elementwise", "raw arrays, by column", answers.raw(flat=False)),
    Right("12-elementwise", "cp.fuse", answers.by_fuse),
    Right("12-elementwise", "any type", answers.elementwise("T x, T w, T b", "T y",
          "// one pass, no float64\n T v = x * w + b;\n y = v / (T(1) + exp(v * (v * v * T(-0.0713548) - T(1.5957691))));")),
    Right("12-elementwise", "tanh", answers.elementwise(
          code="float v = x * w + b; y = 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));")),
)

_MAXABS = (
    Wrong("12-maxabs", "absolute values in memory", exercises.largest_naive, "counts", "Map and reduce"),
    Wrong("12-maxabs", "max() loses NaN", answers.reduction(reduced="max(a, b)"), "results", "NaN"),
    Wrong("12-maxabs", "NaN is lost: fmaxf", answers.reduction(reduced="fmaxf(a, b)"), "results", "NaN"),
    Wrong("12-maxabs", "NaN is lost: a > b", answers.reduction(reduced="a > b ? a : b"), "results", ""),
    Wrong("12-maxabs", "the largest element", answers.reduction(mapped="x"), "results", ""),
    Wrong("12-maxabs", "absolute values afterwards", answers.reduction(mapped="x", post="y = fabsf(a)"), "results", ""),
    Wrong("12-maxabs", "the identity is −∞", answers.reduction(identity="__int_as_float(0xff800000)"), "results", "begin there"),
    Wrong("12-maxabs", "no identity", answers.reduction(identity=None), "results", "identity"),
    Wrong("12-maxabs", "begins at 1", answers.reduction(identity="1"), "results", ""),
    Wrong("12-maxabs", "the root of squares", answers.reduction(mapped="x * x", post="y = sqrtf(a)"), "results", ""),
    Wrong("12-maxabs", "reads twice", answers.of_both_ends, "counts", ""),
    Wrong("12-maxabs", "a number", answers.as_number, "results", ""),
    Wrong("12-maxabs", "a dimension too many", answers.kept_dimension, "results", ""),
    Wrong("12-maxabs", "adds instead of taking the maximum", answers.reduction(reduced="a + b"), "results", ""),
    Wrong("12-maxabs", "nothing is left out, and empty", answers.by_fused, "results", ""),
    Right("12-maxabs", "the reference", exercises.largest),
    Right("12-maxabs", "NaN by isnan", answers.reduction(reduced="(isnan(a) || a > b) ? a : b")),
    Right("12-maxabs", "comparison turned round", answers.reduction(reduced="!(b >= a || b != b) ? a : (a != a ? a : b)")),
    Right("12-maxabs", "max, and NaN put back", answers.reduction(reduced="a != a ? a : b != b ? b : max(a, b)")),
    Right("12-maxabs", "squares would overflow; a choice of signs", answers.reduction(mapped="x < 0 ? -x : x")),
    Right("12-maxabs", "a kernel of its own", answers.by_raw),
)

_KERNELS = resources.files(content) / "n12_fusion" / "kernels"
_FUSED = (_KERNELS / "softmax_fused.cu").read_text(encoding="utf-8")
_THREE_READS = (_KERNELS / "softmax_passes.cu").read_text(encoding="utf-8")


def _soft(*changes: tuple[str, str]) -> Any:
    code = _FUSED
    for old, new in changes:
        assert old in code, old
        code = code.replace(old, new)
    return code


_LOAD = "row[i] = x[blockIdx.x * cols + i] * scale + bias[i];"
_BARRIER = "    for (int w = 0; w < warps; ++w) most = fmaxf(most, box[w]);\n    __syncthreads();\n"
_STORE = "y[blockIdx.x * cols + i] = row[i] / sum;"

_SOFTMAX = (
    Wrong("12-softmax", "three reads", _THREE_READS, "budget", "Read each score once"),
    Wrong("12-softmax", "does not subtract the largest score", _soft(("row[i] = expf(row[i] - most)", "row[i] = expf(row[i])")), "results", ""),
    Wrong("12-softmax", "the first instead of the largest", _soft(("expf(row[i] - most)", "expf(row[i] - first)"),
          ("    for (int i = t; i < cols; i += blockDim.x) {\n        row[i] = expf", "    float first = row[0]; __syncthreads();\n    for (int i = t; i < cols; i += blockDim.x) {\n        row[i] = expf")), "results", ""),
    Wrong("12-softmax", "as many columns as threads", _soft(("i += blockDim.x", "i += 1 << 20")), "results", ""),
    Wrong("12-softmax", "1,024 columns", _soft(("i < cols", "i < min(cols, 1024)")), "results", ""),
    Wrong("12-softmax", "scale forgotten", _soft((_LOAD, "row[i] = x[blockIdx.x * cols + i];")), "results", ""),
    Wrong("12-softmax", "bias of the row", _soft(("bias[i]", "bias[blockIdx.x % cols]")), "results", ""),
    Wrong("12-softmax", "no barrier before the sums", _soft((_BARRIER, _BARRIER.replace("    __syncthreads();\n", ""))), "results", ""),
    Wrong("12-softmax", "no barrier at all", _soft(("    __syncthreads();\n", "")), "results", ""),
    Wrong("12-softmax", "uses only the first warp's sum", _soft(("for (int w = 0; w < warps; ++w) sum += box[w];", "sum = box[0];")), "results", "add up to 1"),
    Wrong("12-softmax", "lane 0's sum", _soft(("for (int o = 16; o > 0; o /= 2) sum +=", "for (int o = 0; o > 0; o /= 2) sum +=")), "results", ""),
    Wrong("12-softmax", "not divided", _soft((_STORE, "y[blockIdx.x * cols + i] = row[i];")), "results", ""),
    Wrong("12-softmax", "largest begins at 0", _soft(("most = __int_as_float(0xff800000)", "most = 0")), "results", ""),
    Wrong("12-softmax", "largest begins at −1,000", _soft(("most = __int_as_float(0xff800000)", "most = -1000.0f")), "results", ""),
    Wrong("12-softmax", "long rows read again", _soft(("row[i] = expf(row[i] - most);",
          "row[i] = expf((cols > 3000 ? x[blockIdx.x * cols + i] * scale + bias[i] : row[i]) - most);")), "budget", "Read each score once"),
    Wrong("12-softmax", "thread 0 alone", _soft(("int i = t; i < cols; i += blockDim.x", "int i = 0; t == 0 && i < cols; ++i")), "parallelism", ""),
    Wrong("12-softmax", "largest begins at −99,999", _soft(("most = __int_as_float(0xff800000)", "most = -99999.0f")), "results", ""),
    Wrong("12-softmax", "takes the absolute value of scale", _soft(("* scale", "* fabsf(scale)")), "results", "but with other weights"),
    Wrong("12-softmax", "the bias is scaled, too", _soft(("+ bias[i]", "+ bias[i] * scale")), "results", "but with other weights"),
    Wrong("12-softmax", "shared memory for 8,192 columns only", _soft(("extern __shared__ float row[];", "__shared__ float row[8192];")), "results", "array in shared memory"),
    Wrong("12-softmax", "row too short", _soft(("extern __shared__ float row[];", "__shared__ float row[1024];")), "results", ""),
    Right("12-softmax", "the row in shared memory", _FUSED),
    Right("12-softmax", "fast exponentials", _soft(("expf(", "__expf("))),
    Right("12-softmax", "the reciprocal once", _soft((_STORE, "y[blockIdx.x * cols + i] = row[i] * (1.0f / sum);"))),
    Right("12-softmax", "a fused multiply-add", _soft((_LOAD, "row[i] = fmaf(x[blockIdx.x * cols + i], scale, bias[i]);"))),
    Right("12-softmax", "two boxes, one barrier less", _soft(("float box[32];", "float box[32], sums[32];"),
          (_BARRIER, _BARRIER.replace("    __syncthreads();\n", "")), ("if (lane == 0) box[warp] = sum;", "if (lane == 0) sums[warp] = sum;"),
          ("sum += box[w]", "sum += sums[w]"))),
    Right("12-softmax", "odd formatting", "// three reads? no\n" + _soft(("int t = threadIdx.x, lane", "int t=threadIdx . x,lane"))),
)

_KEY = answers.guards(*answers.ALL)
_GUARDS = (
    Wrong("12-guards", "a key without the dtype", answers.cached(answers.guards("shape", "contiguous", "device")), "", "dtype belongs"),
    Wrong("12-guards", "a key without the shape", answers.cached(answers.guards("dtype", "contiguous", "device")), "", "contains the whole shape"),
    Wrong("12-guards", "number of dimensions", answers.cached(answers.guards("dtype", "ndim", "contiguous", "device")), "", "contains the whole shape"),
    Wrong("12-guards", "number of elements", answers.cached(answers.guards("dtype", "size", "contiguous", "device")), "", "contains the whole shape"),
    Wrong("12-guards", "a key without the layout", answers.cached(answers.guards("dtype", "shape", "device")), "", "c_contiguous"),
    Wrong("12-guards", "a key without the device", answers.cached(answers.guards("dtype", "shape", "contiguous")), "", "one device"),
    Wrong("12-guards", "values of numbers forgotten", answers.cached(answers.guards(*answers.ALL, number=False)), "", "constant of the code"),
    Wrong("12-guards", "1, 1.0 and True alike", answers.cached(answers.guards(*answers.ALL, kind=False)), "", "1.0 and True are equal"),
    Wrong("12-guards", "the first argument alone", answers.cached(answers.guards(*answers.ALL, first=True)), "", ""),
    Wrong("12-guards", "whole parts of numbers", answers.cached(lambda *args: tuple(
          _KEY(a) if hasattr(a, "shape") else (type(a), int(a)) for a in args)), "", "constant of the code"),
    Wrong("12-guards", "one dictionary for all compilers", answers.one_for_all, "", "its own programs"),
    Wrong("12-guards", "a guard that never fails", answers.never_fails, "", ""),
    Wrong("12-guards", "compiles at every call", answers.compiles_always, "", "are enough"),
    Wrong("12-guards", "by the array, not its kind", answers.cached(answers.guards("id", *answers.ALL)), "", "are enough"),
    Wrong("12-guards", "remembers one program", answers.cached(_KEY, keep=1), "", "keep earlier programs"),
    Wrong("12-guards", "runs with other arguments", answers.first_argument_only, "", "Pass on all"),
    Wrong("12-guards", "returns nothing", lambda compile: None, "", "should return a function"),
    Wrong("12-guards", "hashes of numbers", answers.cached(lambda *args: hash(_KEY(*args))), "", "constant of the code"),
    Wrong("12-guards", "strides for the layout", answers.cached(lambda *args: tuple(
        (str(a.dtype), a.shape, a.strides, a.device.id) if hasattr(a, "shape") else (type(a), a) for a in args)), "", "are enough"),
    Wrong("12-guards", "shape as digits", answers.cached(lambda *args: _KEY(*args) if not hasattr(args[0], "shape") else (
        "".join(map(str, args[0].shape)), answers.guards("dtype", "contiguous", "device")(args[0]), _KEY(*args[1:]))), "", "contains the whole shape"),
    Wrong("12-guards", "bytes of an element for its dtype", answers.cached(lambda *args: tuple(
        (a.dtype.itemsize, a.shape, a.flags.c_contiguous, a.device.id) if hasattr(a, "shape") else (type(a), a) for a in args)), "", "dtype belongs"),
    Wrong("12-guards", "only the first array's layout", answers.cached(lambda *args: (
        _KEY(args[0]), answers.guards("dtype", "shape", "device")(*args[1:]))), "", "c_contiguous"),
    Wrong("12-guards", "two arguments at most", answers.cached(lambda *args: _KEY(*args[:2])), "", "Another number of arguments"),
    Wrong("12-guards", "results instead of programs", answers.keeps_results, "", "Keep programs"),
    Wrong("12-guards", "runs each program to try it", answers.tries_first, "", "more than once"),
    Wrong("12-guards", "the program, not its result", lambda compile: lambda *args: compile(*args), "", "Return what the program returns"),
    Right("12-guards", "a key", answers.cached(_KEY)),
    Right("12-guards", "another order", answers.cached(answers.guards("device", "contiguous", "shape", "dtype"))),
    Right("12-guards", "and the number of dimensions", answers.cached(answers.guards(*answers.ALL, "ndim"))),
    Right("12-guards", "guards one by one", answers.checked_one_by_one),
    Right("12-guards", "all that real arrays tell", answers.cached(lambda *args: tuple(
        (a.dtype.str, a.shape, a.size, a.flags["C_CONTIGUOUS"], a.device.id) if isinstance(a, session.cp().ndarray) else (type(a), a) for a in args))),
    Right("12-guards", "as text", answers.cached(lambda *args: repr(_KEY(*args)))),
)

_FUSES = (
    Wrong("12-fuses", "fuses a product with other steps", answers.fused(products=False), "", "a product must be alone"),
    Wrong("12-fuses", "two reductions", answers.fused(one=False), "", ""),
    Wrong("12-fuses", "a reduction and its consumer", answers.fused(complete=False, ends=False), "", "complete only at"),
    Wrong("12-fuses", "forgets a value that is needed later", answers.fused(stored=False), "", "needed later"),
    Wrong("12-fuses", "maps behind a reduction", answers.fused(ends=False), "", ""),
    Wrong("12-fuses", "all in one", lambda steps: [[name for name, *_ in steps]], "", ""),
    Wrong("12-fuses", "one kernel for each step", lambda steps: [[name] for name, *_ in steps], "", "more steps fit"),
    Wrong("12-fuses", "treats a shift as a map", answers.fused(shifts=False), "", "other elements"),
    Wrong("12-fuses", "memory behind a shift may change", answers.fused(behind=False), "", "changes in place"),
    Wrong("12-fuses", "an in-place alias is another array", answers.fused(aliases=False), "", "whatever the array is called"),
    Wrong("12-fuses", "a reduction's kernel stores in place", answers.fused(in_place=False), "", "cannot change an array in place"),
    Wrong("12-fuses", "what is in place is alone", answers.fused(alone=True), "", "more steps fit"),
    Wrong("12-fuses", "returns the number of steps", lambda steps: len(steps), "", "a list of the names of its steps"),
    Wrong("12-fuses", "last step missing", lambda steps: answers.reference(steps)[:-1], "", ""),
    Wrong("12-fuses", "sorted by what they do", lambda steps: [[n for n, d, *_ in steps if d == k] for k in ("map", "shift", "reduce", "product")
          if any(d == k for _, d, *_ in steps)], "", ""),
    Wrong("12-fuses", "no reduction joins", lambda steps: [g for group in answers.reference(steps) for g in
          ([group[:-1], group[-1:]] if len(group) > 1 and {n: d for n, d, *_ in steps}[group[-1]] == "reduce" else [group])], "", "more steps fit"),
    Right("12-fuses", "the reference", answers.reference),
    Right("12-fuses", "rule by rule", answers.fused()),
    Right("12-fuses", "with a state", answers.with_state),
    Right("12-fuses", "in other lists", answers.by_last),
)

_ALL: tuple[Wrong | Right, ...] = (*_ELEMENTWISE, *_MAXABS, *_SOFTMAX, *_GUARDS, *_FUSES)
WRONG = [one for one in _ALL if isinstance(one, Wrong)]
RIGHT = [one for one in _ALL if isinstance(one, Right)]
