"""Right and wrong answers to 12-elementwise, 12-maxabs, 12-guards and 12-fuses, as learners write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpulab import session
from gpulab_course.content.n12_fusion.exercises import Step, kernels_of
from gpulab_course.content.n12_fusion.figures import GELU

_V = "float v = x * w + b;"


def elementwise(
    takes: str = "float32 x, float32 w, float32 b", gives: str = "float32 y", code: str = f"{_V} y = {GELU};"
) -> Callable[..., Any]:
    """One ElementwiseKernel."""

    def affine_gelu(x: Any, w: Any, b: Any) -> Any:
        return session.cp().ElementwiseKernel(takes, gives, code, "affine_gelu")(x, w, b)

    return affine_gelu


def two_kernels(x: Any, w: Any, b: Any) -> Any:
    """Product and sum first, GELU second."""
    cp = session.cp()
    v = cp.ElementwiseKernel("float32 x, float32 w, float32 b", "float32 v", "v = x * w + b", "affine")(
        x, w, b
    )
    return cp.ElementwiseKernel("float32 v", "float32 y", f"y = {GELU}", "gelu")(v)


def in_its_result(x: Any, w: Any, b: Any) -> Any:
    """Two kernels in the memory of one array."""
    cp = session.cp()
    v = cp.ElementwiseKernel("float32 x, float32 w, float32 b", "float32 v", "v = x * w + b", "affine")(
        x, w, b
    )
    return cp.ElementwiseKernel("float32 v", "float32 y", f"y = {GELU}", "gelu")(v, v)


def spread(x: Any, w: Any, b: Any) -> Any:
    """Broadcast by hand, in memory."""
    cp = session.cp()
    wide = [cp.ascontiguousarray(cp.broadcast_to(one, x.shape)) for one in (w, b)]
    return elementwise()(x, *wide)


def copied(x: Any, w: Any, b: Any) -> Any:
    """A copy of x first."""
    return elementwise()(x.copy(), w, b)


def into_new(x: Any, w: Any, b: Any) -> Any:
    """A result that is filled with zeros first."""
    cp = session.cp()
    kernel = cp.ElementwiseKernel(
        "float32 x, float32 w, float32 b", "float32 y", f"{_V} y = {GELU};", "affine_gelu"
    )
    return kernel(x, w, b, cp.zeros_like(x))


def into_empty(x: Any, w: Any, b: Any) -> Any:
    """A result of its own making."""
    cp = session.cp()
    kernel = cp.ElementwiseKernel(
        "float32 x, float32 w, float32 b", "float32 y", f"{_V} y = {GELU};", "affine_gelu"
    )
    return kernel(x, w, b, cp.empty_like(x))


def into_x(x: Any, w: Any, b: Any) -> Any:
    """Into its argument."""
    cp = session.cp()
    kernel = cp.ElementwiseKernel(
        "float32 x, float32 w, float32 b", "float32 y", f"{_V} y = {GELU};", "affine_gelu"
    )
    return kernel(x, w, b, x)


def raw(flat: bool) -> Callable[..., Any]:
    """`raw` arrays that are indexed by hand; `flat` forgets the columns."""
    at = "i" if flat else "i % w.size()"

    def affine_gelu(x: Any, w: Any, b: Any) -> Any:
        code = f"float v = x * w[{at}] + b[{at}]; y = {GELU};"
        kernel = session.cp().ElementwiseKernel(
            "float32 x, raw float32 w, raw float32 b", "float32 y", code, "raw_gelu"
        )
        return kernel(x, w, b)

    return affine_gelu


def by_fuse(x: Any, w: Any, b: Any) -> Any:
    """``cp.fuse`` makes the kernel."""
    cp = session.cp()

    def affine(x: Any, w: Any, b: Any) -> Any:
        v = x * w + b
        return v / (1 + cp.exp(v * (v * v * -0.0713548 - 1.5957691)))

    return cp.fuse(affine)(x, w, b)


def doubled(x: Any, w: Any, b: Any) -> Any:
    """A result of doubles."""
    return elementwise(gives="float64 y")(x, w, b)


def host(x: Any, w: Any, b: Any) -> Any:
    """By NumPy."""
    v = x.get() * w.get() + b.get()
    with np.errstate(over="ignore"):
        y = v / (1 + np.exp(v * (v * v * -0.0713548 - 1.5957691)))
    return session.cp().asarray(y, dtype="float32")


# --- 12-maxabs ---
NAN_WINS = "(a != a || a > b) ? a : b"


def reduction(
    mapped: str = "fabsf(x)", reduced: str = NAN_WINS, post: str = "y = a", identity: str | None = "0"
) -> Callable[..., Any]:
    """One ReductionKernel."""

    def largest(x: Any) -> Any:
        kernel = session.cp().ReductionKernel(
            "float32 x", "float32 y", mapped, reduced, post, identity, "largest"
        )
        return kernel(x)

    return largest


def of_both_ends(x: Any) -> Any:
    """Reads x twice."""
    cp = session.cp()
    if not x.size:
        return cp.zeros((), cp.float32)
    return cp.maximum(x.max(), -x.min())


def as_number(x: Any) -> Any:
    """A number of the host."""
    return float(reduction()(x))


def kept_dimension(x: Any) -> Any:
    """An array of one element."""
    return reduction()(x).reshape(1)


def by_fused(x: Any) -> Any:
    """``cp.fuse``; it has no identity."""
    cp = session.cp()

    def absolute(x: Any) -> Any:
        return cp.amax(cp.absolute(x))

    return cp.fuse(absolute)(x) if x.size else cp.empty((), cp.float32)


def by_raw(x: Any) -> Any:
    """A kernel of its own: bits of absolute values compare like integers, and NaN's are largest."""
    cp = session.cp()
    code = (
        'extern "C" __global__ void largest(const float* x, unsigned* y, int n) {'
        " __shared__ unsigned box[256]; unsigned most = 0;"
        " for (int i = threadIdx.x; i < n; i += 256) most = max(most, __float_as_uint(fabsf(x[i])));"
        " box[threadIdx.x] = most; __syncthreads();"
        " for (int half = 128; half > 0; half /= 2) {"
        " if (threadIdx.x < half) box[threadIdx.x] = max(box[threadIdx.x], box[threadIdx.x + half]);"
        " __syncthreads(); }"
        " if (threadIdx.x == 0) *y = box[0]; }"
    )
    y = cp.empty((), cp.uint32)
    cp.RawKernel(code, "largest")((1,), (256,), (x, y, np.int32(x.size)))
    return y.view(cp.float32)


# --- 12-guards ---
def cached(key: Callable[..., Any], keep: int = 1 << 30) -> Callable[..., Any]:
    """A cache by a key of all arguments, of so many programs."""

    def answer(compile: Callable[..., Any]) -> Callable[..., Any]:
        programs: dict[Any, Any] = {}

        def call(*args: Any) -> Any:
            known = key(*args)
            if known not in programs:
                while len(programs) >= keep:
                    programs.pop(next(iter(programs)))
                programs[known] = compile(*args)
            return programs[known](*args)

        return call

    return answer


def guards(*fields: str, number: bool = True, kind: bool = True, first: bool = False) -> Callable[..., Any]:
    """A key of some fields of each array, or of the first argument alone."""
    reads: dict[str, Callable[[Any], Any]] = {
        "dtype": lambda a: str(a.dtype),
        "shape": lambda a: a.shape,
        "ndim": lambda a: a.ndim,
        "contiguous": lambda a: a.flags.c_contiguous,
        "device": lambda a: a.device.id,
        "size": lambda a: int(np.prod(a.shape)),
        "id": id,
    }

    def key(*args: Any) -> Any:
        args = args[:1] if first else args
        return tuple(
            tuple(reads[name](one) for name in fields)
            if hasattr(one, "shape")
            else ((type(one) if kind else None), one if number else None)
            for one in args
        )

    return key


ALL = ("dtype", "shape", "contiguous", "device")


def one_for_all(compile: Callable[..., Any], programs: dict[Any, Any] = {}) -> Callable[..., Any]:  # noqa: B006
    """A default that all caches share."""
    key = guards(*ALL)

    def call(*args: Any) -> Any:
        if key(*args) not in programs:
            programs[key(*args)] = compile(*args)
        return programs[key(*args)](*args)

    return call


def checked_one_by_one(compile: Callable[..., Any]) -> Callable[..., Any]:
    """A list of programs, each with its guards, as a tracing compiler has it."""
    programs: list[tuple[Any, Any]] = []
    key = guards(*ALL)

    def call(*args: Any) -> Any:
        for known, program in programs:
            if known == key(*args):
                return program(*args)
        programs.append((key(*args), compile(*args)))
        return programs[-1][1](*args)

    return call


def compiles_always(compile: Callable[..., Any]) -> Callable[..., Any]:
    """No cache at all."""
    return lambda *args: compile(*args)(*args)


def never_fails(compile: Callable[..., Any]) -> Callable[..., Any]:
    """One program for all."""
    programs: list[Any] = []

    def call(*args: Any) -> Any:
        if not programs:
            programs.append(compile(*args))
        return programs[0](*args)

    return call


def keeps_results(compile: Callable[..., Any]) -> Callable[..., Any]:
    """Results by the key of a program."""
    results: dict[Any, Any] = {}
    key = guards(*ALL)

    def call(*args: Any) -> Any:
        if key(*args) not in results:
            results[key(*args)] = compile(*args)(*args)
        return results[key(*args)]

    return call


def tries_first(compile: Callable[..., Any]) -> Callable[..., Any]:
    """Runs what it has compiled, to see that it works, and then for its result."""
    programs: dict[Any, Any] = {}
    key = guards(*ALL)

    def call(*args: Any) -> Any:
        if key(*args) not in programs:
            programs[key(*args)] = compile(*args)
            programs[key(*args)](*args)
        return programs[key(*args)](*args)

    return call


def first_argument_only(compile: Callable[..., Any]) -> Callable[..., Any]:
    """Passes on what it was compiled with."""
    programs: dict[Any, Any] = {}
    key = guards(*ALL)

    def call(*args: Any) -> Any:
        if key(*args) not in programs:
            programs[key(*args)] = (compile(*args), args)
        program, first = programs[key(*args)]
        return program(*first[:1])

    return call


# --- 12-fuses ---
Steps = list[tuple[str, str, tuple[str, ...], str | None]]


def fused(
    *,
    products: bool = True,
    one: bool = True,
    complete: bool = True,
    stored: bool = True,
    ends: bool = True,
    shifts: bool = True,
    behind: bool = True,
    aliases: bool = True,
    in_place: bool = True,
    alone: bool = False,
) -> Callable[[Steps], list[list[str]]]:
    """The rules, less one; or with one too many."""

    def kernels(steps: Steps) -> list[list[str]]:
        groups: list[list[Any]] = []
        memory = {"x": "x"}
        for name, _, _, into in steps:
            memory[name] = memory[into] if into and aliases else name

        def torn(group: list[Any]) -> bool:
            for at, (_, does, reads, _) in enumerate(group):
                made = {memory[name] for name, *_ in (group if behind else group[:at])}
                if does == "shift" and any(memory[read] in made for read in reads):
                    return True
            return False

        for at, step in enumerate(steps):
            group = [*groups[-1], step] if groups else [step]
            reduced = [name for name, does, *_ in group if does == "reduce"]
            later = {name for _, _, reads, _ in steps[at + 1 :] for name in reads}
            inner = {name for name, *_ in group} - {*reduced}
            bad = (
                (products and any(does == "product" for _, does, *_ in group))
                or (one and len(reduced) > 1)
                or (complete and any(name in reads for name in reduced for _, _, reads, _ in group))
                or (ends and bool(reduced) and group[-1][1] != "reduce")
                or (stored and bool(reduced) and bool(inner & later))
                or (in_place and bool(reduced) and any(into for *_, into in group))
                or (shifts and torn(group))
                or (alone and any(into for *_, into in group))
            )
            if groups and not bad:
                groups[-1] = group
            else:
                groups.append([step])
        return [[name for name, *_ in group] for group in groups]

    return kernels


def reference(steps: Steps) -> list[list[str]]:
    """What the judge's own rules give."""
    return kernels_of([Step(*one) for one in steps])


def by_last(steps: Steps) -> list[list[str]]:
    """Looks at the steps backwards, and cuts in front of those that cannot join."""
    found = fused()(steps)
    return [list(group) for group in found]


def with_state(steps: Steps) -> tuple[tuple[str, ...], ...]:
    """The same rules, with a state instead of a search; tuples for lists."""
    groups: list[list[str]] = []
    lies_in = {"x": "x"}
    # memory that the last kernel stores, and reads elsewhere
    made = set[str]()
    shifted = set[str]()
    open_for_more = reducible = False
    for at, (name, does, reads, into) in enumerate(steps):
        lies_in[name] = lies_in[into] if into is not None else name
        later = {one for step in steps[at + 1 :] for one in step[2]}
        asked = {lies_in[one] for one in reads} if does == "shift" else set[str]()
        joins = open_for_more and does != "product" and not asked & made and lies_in[name] not in shifted
        if joins and does == "reduce":
            joins = reducible and not later & {*groups[-1]}
        if joins:
            groups[-1].append(name)
        else:
            groups.append([name])
            made = set()
            shifted = set()
            reducible = True
        made.add(lies_in[name])
        shifted |= asked
        reducible = reducible and into is None
        open_for_more = does in ("map", "shift")
    return tuple(map(tuple, groups))
