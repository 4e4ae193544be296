"""Exercises of notebook 12."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpulab import session
from gpulab.session import on_device
from gpulab_course.content.n12_fusion.figures import GELU
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Budget,
    Case,
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    Near,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    Row,
    advice,
    call,
    draw,
    spelt,
)
from gpulab_course.teach.judge.python.functions import is_whole, must_be_a_function
from virtualgpu.records import Dim3

# 12-elementwise


def affine_sizes(rng: np.random.Generator) -> tuple[tuple[int, int], ...]:
    """Rows and columns."""
    a, b = (int(n) for n in rng.integers(3, 90, 2))
    return (1, 1), (1, 33), (a, 1), (a, b), (b, 257), (300, 128)


def affine_case(random_data: Draw, size: Any) -> ProgramCase:
    """Rows, and a factor and an offset for each column."""
    x = (random_data.rng.standard_normal(size) * 3).astype(np.float32)
    w, b = (random_data.rng.uniform(-2, 2, size[1]).astype(np.float32) for _ in range(2))
    return _affine(x, w, b)


def _affine(x: Any, w: Any, b: Any) -> ProgramCase:
    v = x.astype(np.float64) * w + b
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = v / (1 + np.exp(v * (v * v * -0.0713548 - 1.5957691)))
        near = Near(wanted.astype(np.float32), np.abs(x * w) + np.abs(b) + 1e-4, ulps=16)
    label = f"fused_gelu(x, w, b) with {x.shape[0]} × {x.shape[1]} elements"
    return ProgramCase((x, w, b), near, True, label, place="device", unchanged=True)


def affine_far(random_data: Draw, size: Any) -> ProgramCase:
    """Values of every size in each column, an infinity and NaN among them."""
    sizes = np.array([29, 31, 40, 87, 89, 130, 1e3, 1e4, 1e7, 1e15, 1e25])
    v = random_data.rng.permutation([*sizes, *-sizes, 0.0, -0.0, 1e-20, np.inf, np.nan])
    w = random_data.rng.choice((-2, -1, -0.5, 0.5, 1, 2), size[1]).astype(np.float32)
    return _affine((v[:, None] / w).astype(np.float32), w, np.zeros(size[1], np.float32))


def affine_flat(random_data: Draw, size: Any) -> ProgramCase:
    """Columns whose factor or offset, or both, are 0."""
    x = (random_data.rng.standard_normal(size) * 3).astype(np.float32)
    return _affine(x, np.array([0, 0, 1, -1], np.float32), np.array([0, -2, 0, 2], np.float32))


def affine_gelu(x: Any, w: Any, b: Any) -> Any:
    """The reference: one kernel with broadcasting."""
    kernel = session.cp().ElementwiseKernel(
        "float32 x, float32 w, float32 b", "float32 y", f"float v = x * w + b; y = {GELU};", "affine_gelu"
    )
    return kernel(x, w, b)


def affine_at_length(x: Any, w: Any, b: Any) -> Any:
    """The naive version: a pass for each operation."""
    cp = session.cp()
    v = x * w + b
    return v / (1 + cp.exp(v * (v * v * -0.0713548 - 1.5957691)))


# 12-maxabs


def largest_sizes(rng: np.random.Generator) -> tuple[int, ...]:
    """Elements, none among them."""
    return 0, 1, 2, 31, int(rng.integers(400, 900)), int(rng.integers(1100, 3000)), 20_000


def largest_case(random_data: Draw, n: Any) -> ProgramCase:
    """Numbers whose largest absolute value may belong to a negative number, an infinity or NaN."""
    # At times so large or small that squares are infinite, or 0.
    x = (random_data.rng.standard_normal(n) * 10.0 ** random_data.rng.choice((2, 36, -25))).astype(np.float32)
    if n > 1 and random_data.rng.random() < 0.3:
        x[int(random_data.rng.integers(n))] = -np.inf
    wanted: Any = np.float32(np.abs(x).max(initial=0))
    mistakes = []
    if n > 1:
        x = -np.abs(x) if random_data.rng.random() < 0.7 else x
        mistakes = [
            (
                np.asarray(x.max()),
                "It is the largest element; the largest absolute value may be a negative one's.",
            ),
            (np.asarray(np.abs(x.max())), "Take absolute values before they are compared, not after."),
        ]
    if n in (31,) or n > 1000:
        kept = float(np.abs(x).max())
        x[int(random_data.rng.integers(0, n - 1))] = np.nan
        wanted = np.float32(np.nan)
        mistakes = [
            (
                np.asarray(np.float32(kept)),
                "One element is NaN, and it was lost: a comparison with NaN is never true.",
            ),
        ]
    if n == 0:
        mistakes = [(np.asarray(np.float32(-np.inf)), "The largest of no absolute values is 0: begin there.")]
    return _largest(x, wanted, mistakes)


def _largest(x: Any, wanted: Any, mistakes: Sequence[tuple[Any, str]] = ()) -> ProgramCase:
    label = f"largest(x) with {x.size:,} elements"
    wanted = np.asarray(np.float32(wanted))
    return ProgramCase((x,), wanted, True, label, tuple(mistakes), place="device", unchanged=True)


def largest_of(*edges: float, at: int = 0, wanted: float) -> Callable[[Draw, Any], ProgramCase]:
    """Return a case of numbers between -1 and 1, with `edges` from index `at` on."""

    def case(random_data: Draw, n: Any) -> ProgramCase:
        x = random_data.rng.uniform(-1, 1, n).astype(np.float32)
        first = at % n
        x[first : first + len(edges)] = edges[: n - first]
        kept = np.asarray(np.nanmax(np.abs(x), initial=0))
        lost = kept, "One element is NaN, and it was lost: a comparison with NaN is never true."
        return _largest(x, wanted, [lost] if np.isnan(wanted) else ())

    return case


def largest_flat(value: float) -> Callable[[Draw, Any], ProgramCase]:
    """Return a case in which all numbers are equal."""
    return lambda random_data, n: _largest(np.full(n, value, np.float32), abs(value))


def largest(x: Any) -> Any:
    """The reference: one reduction that maps."""
    kernel = session.cp().ReductionKernel(
        "float32 x", "float32 y", "fabsf(x)", "(a != a || a > b) ? a : b", "y = a", "0", "largest"
    )
    return kernel(x)


def largest_at_length(x: Any) -> Any:
    """The naive version: absolute values in memory, then their largest."""
    cp = session.cp()
    return cp.abs(x).max() if x.size else cp.zeros((), cp.float32)


# 12-softmax


def softmax_case(random_data: Draw, size: Any, block: Dim3) -> Case:
    """Scaled and shifted scores, and the softmax of each row of them."""
    rows, cols = size
    x = random_data.rng.uniform(-3, 3, size) + random_data.rng.choice((0, 0, 60, -60, 900, -3000), (rows, 1))
    steep = random_data.rng.random(rows) < 0.3
    x[steep] += np.linspace(0, 150, cols)[:: random_data.rng.choice((1, -1))]
    x = np.rint(x).astype(np.float32) if random_data.kind == draw.DUPLICATES else x.astype(np.float32)
    scale = np.float32(random_data.rng.choice((0.125, 0.5, 1, 2)))
    bias = random_data.rng.uniform(-4, 4, cols).astype(np.float32)
    return _softmax(x, scale, bias)


def _softmax(x: Any, scale: Any, bias: Any) -> Case:
    rows, cols = x.shape
    wide = (x * np.float32(scale)).astype(np.float64) + bias
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    wanted = powers / powers.sum(axis=1, keepdims=True)
    error = np.abs(x * scale).max(axis=1, keepdims=True) + np.abs(bias).max() + 40
    near = Near(wanted.astype(np.float32), wanted * error + 1e-6, ulps=8)
    values = {"x": x, "bias": bias, "scale": scale, "rows": rows, "cols": cols}
    return Case(rows, values, {"y": near}, 4 * cols)


def softmax_like(scale: float, spread: float, biases: float) -> Callable[[Draw, Any, Dim3], Case]:
    """Return a case with this scale, and with scores and biases in these ranges on both sides of 0."""

    def case(random_data: Draw, size: Any, block: Dim3) -> Case:
        x, bias = (
            random_data.rng.uniform(-most, most, shape).astype(np.float32)
            for most, shape in ((spread, size), (biases, size[1]))
        )
        return _softmax(x, np.float32(scale), bias)

    return case


def softmax_level(random_data: Draw, size: Any, block: Dim3) -> Case:
    """Rows of equal scores, each further from 0 than the one before, on both sides."""
    x = (-2.0) ** np.arange(3, 3 + 9 * size[0], 9)[:, None] * np.ones(size)
    return _softmax(x.astype(np.float32), np.float32(1), np.zeros(size[1], np.float32))


def softmax_steep(random_data: Draw, size: Any, block: Dim3) -> Case:
    """The largest score in the first column, in the last one and in others, far above all others."""
    x = random_data.rng.uniform(-3, 3, size)
    at = np.r_[0, size[1] - 1, random_data.rng.integers(0, size[1], size[0] - 2)]
    x[np.arange(size[0]), at] += random_data.rng.choice((12, 200), size[0])
    return _softmax(x.astype(np.float32), np.float32(1), np.zeros(size[1], np.float32))


def _rows(rng: np.random.Generator, at_once: int) -> list[Any]:
    """(rows, columns): few and many columns, around a warp and a block, and long rows."""
    a, b = (int(n) for n in rng.integers(2, 40, 2))
    wide = int(rng.integers(1025, 2200))
    some, many, few = (int(rng.integers(*limits)) for limits in ((34, 300), (513, 1000), (73, 95)))
    short = [(6, 64), (1, 1), (3, 1), (a, 31), (5, 32), (b, 33), (7, some)]
    return [*short, (4, many), (2, wide), (3, 4 * 1024 + a), (900, few)]


def _unscaled(m: Mistake) -> Any:
    v = m["x"].astype(np.float64)
    powers = np.exp(v - v.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def _close(of: Callable[[Mistake], Any]) -> Callable[[Mistake], bool]:
    return lambda m: m.found is not None and np.allclose(m.found, of(m), rtol=1e-3, atol=1e-5)


def _overflows(m: Mistake) -> bool:
    """Return whether only rows are wrong whose exponentials overflow or are all 0 without a subtraction."""
    if m.found is None or not m.wrong.any():
        return False
    largest = (m["x"] * m["scale"] + m["bias"]).max(axis=1)[m.wrong.any(axis=1)]
    return advice.not_finite(m) and bool(((largest > 80) | (largest < -80)).all())


def _sums_to_one(m: Mistake) -> bool:
    """Return whether the wrong rows still add up to 1."""
    if m.found is None:
        return False
    rows = m.found[m.wrong.any(axis=1)].astype(np.float64)
    return bool(np.allclose(rows.sum(axis=1), 1, atol=5e-5))


# 12-guards


_DEVICES = 3
Told = tuple[Any, ...]  # ("array", dtype, shape, contiguous, device), or ("number", type, value)
_FIELDS = ("kind", "dtype", "shape", "contiguity", "device")
_LOST = {
    "dtype": "Code for one dtype reads wrong numbers from another: the dtype belongs in the key.",
    "shape": "The code has the shape in it, all of it: another shape needs other code.",
    "contiguity": "Code for a contiguous array computes other addresses: ask x.flags.c_contiguous.",
    "device": "A kernel is loaded into one device: ask x.device.id.",
    "number": "A number is a constant of the code: its value and its type belong in the key. To Python 1, "
    "1.0 and True are equal, and one key.",
    "count": "Another number of arguments is another program.",
    "kind": "A number in an array's place is another program.",
}


_NUMBERS = {"int": int, "float": float, "bool": bool}


def _argument(cp: Any, told: Told, turn: int) -> Any:
    """Return a new array or number like the one described; every second array has another layout."""
    if told[0] == "number":
        return _NUMBERS[told[1]](told[2])
    with cp.cuda.Device(told[4]):
        if told[3]:
            return cp.empty((2, *told[2]), told[1])[1] if turn % 2 else cp.empty(told[2], told[1])
        return cp.empty((*told[2], 2 + turn % 2), told[1])[..., 0]


def _told(values: Sequence[Any]) -> list[Told]:
    return [
        ("array", value.dtype.name, value.shape, value.flags.c_contiguous, value.device.id)
        if hasattr(value, "device")
        else ("number", type(value).__name__, value)
        for value in values
    ]


def play(cached: Any, asks: Callable[..., Any], calls: Sequence[Sequence[Told]]) -> list[Any]:
    """Run the answer in its own process: calls that use its cache, the last with another compiler."""

    def compiler(which: int) -> Any:
        def compile(*args: Any) -> Any:
            number = asks("compiled", which, _told(args))
            return lambda *later: asks("ran", number, _told(later))

        made = cached(compile)
        if not callable(made):
            raise NotYet("cached(compile) should return a function that calls what compile(*args) gives.")
        return made

    with on_device("virtual:T4", count=_DEVICES) as cp:
        caches = compiler(0), compiler(1)
        turns = Counter[Told]()
        found = []
        for each in calls:
            turns.update(each)
            found.append(caches[each is calls[-1]](*(_argument(cp, one, turns[one]) for one in each)))
        return found


class Compilers:
    """Record of the compilations of two compilers, and of the arguments with which their programs ran."""

    def __init__(self) -> None:
        self.made: list[tuple[int, list[Told]]] = []
        self.ran: list[tuple[int, list[Told]]] = []

    def __call__(self, what: str, number: int, args: list[Told]) -> int:
        """Note that a compiler compiled or a program ran; its number, or that of its run."""
        known = self.made if what == "compiled" else self.ran
        known.append((number, args))
        return len(known) - 1


def judge_cached(answer: Answer) -> str:
    """Pairs of calls that differ in one thing, and calls that come again."""
    must_be_a_function("cached", answer.is_function, answer.kind)
    calls = _calls(answer.rng)
    seen = Compilers()
    calls.append(list(calls[0]))  # of the other compiler
    found = answer.ask(play, calls, shown="cached(compile)", back=seen)
    for at, (each, run) in enumerate(zip(calls, found, strict=True)):
        if not is_whole(run) or not 0 <= run < len(seen.ran):
            raise NotYet(f"{_spelt(each)} returns {spelt(run)}: return what the program returns.")
        number, got = seen.ran[run]
        which, have = seen.made[number]
        if got != each:
            raise NotYet("The program was called with other arguments than the call: pass on all of them.")
        if which != (at == len(calls) - 1):
            raise NotYet(
                "cached(compile) was called for two compilers, and one ran the other's program: each cache "
                "has programs of its own."
            )
        if have != each:
            raise NotYet(
                f"{_spelt(each)} ran the program that was compiled for {_spelt(have)}. {_why(have, each)}"
            )
        if run < at:
            raise NotYet(
                f"{_spelt(each)} came again, and got what an earlier call had returned: keep programs, not "
                "their results; what is in the arrays may have changed."
            )
        if run > at:
            raise NotYet("A program ran more than once for one call.")
    made = sum(not which for which, _ in seen.made)
    distinct = len({tuple(each) for each in calls})
    if made > distinct:
        raise NotYet(
            f"{len(calls)} calls compiled {made} programs; {distinct} are enough: the same dtype, "
            "shape, layout and device are one key, whatever array it is, and earlier programs stay."
        )
    return f"{distinct} programs for {len(calls)} calls, and none ran what was not made for it."


def _calls(rng: np.random.Generator) -> list[list[Told]]:
    rows, cols = (int(n) for n in rng.integers(2, 40, 2))

    def array(*shape: int, dtype: str = "float32", contiguous: bool = True, device: int = 0) -> Told:
        return "array", dtype, shape, contiguous, device

    def number(value: float) -> Told:
        return "number", type(value).__name__, value

    base = array(rows, cols)
    other = array(cols)
    near = [
        array(rows, cols, dtype="float16"),
        array(rows + 1, cols),
        array(cols, rows + 2 * (rows == cols)),
        array(rows, cols, contiguous=False),
        array(rows, cols, device=1),
        array(rows * cols),
        array(rows, cols, device=2),
        array(rows, cols, dtype="int32"),
        array(1, 11),
        array(11, 1),
        array(),
        array(1),
        array(1, 1),
        array(rows, cols, dtype="uint32"),
        array(1, rows, cols),
    ]
    second = [array(cols, dtype="float16"), array(cols, contiguous=False), array(cols, device=1)]
    calls = [[base, other], [base, other]]
    for one in near:
        calls += [[one, other], [base, one], [base, other]]
    fraction = float(rng.uniform(1, 2))
    # Pairs that are equal, or become so in fewer digits or bits, or that have one hash.
    numbers = (
        1,
        1.0,
        True,
        0,
        0.0,
        False,
        2,
        2.5,
        2.25,
        -2,
        -1,
        -1.0,
        fraction,
        fraction + 1e-9,
        fraction + 4e-15,
        10**6,
        10**6 + 1,
        2**61 - 1,
        5,
        5 + 2**32,
        1e-9,
        2e-9,
    )
    calls += [[base, number(value)] for value in numbers]
    pairs = ((1, 2), (2, 1), (1, -1), (-1, 1), (-1, -2), (-2, -2), (1.0, 2), (12, 0), (1, 20))
    calls += [[number(a), number(b)] for a, b in pairs]
    calls += [[array(rows, cols, contiguous=False)], [array(rows, cols)]] * 2
    calls += [[base, one] for one in second] + [[base, other, one] for one in (base, *second, number(1))]
    calls += [[number(1), base], [base], [other, base], [base, number(1)], [base, other]]
    calls += [calls[int(k)] for k in rng.integers(0, len(calls), 12)]
    return calls


def _why(have: Sequence[Told], wanted: Sequence[Told]) -> str:
    if len(have) != len(wanted):
        return _LOST["count"]
    for mine, right in zip(have, wanted, strict=True):
        if mine[0] != right[0]:
            return _LOST["kind"]
        if mine != right and mine[0] == "number":
            return _LOST["number"]
        for field, a, b in zip(_FIELDS, mine, right, strict=False):
            if a != b:
                return _LOST[field]
    return ""


def _spelt(call: Sequence[Told]) -> str:
    def one(told: Told) -> str:
        if told[0] == "number":
            return repr(told[2])
        layout = "" if told[3] else ", not contiguous"
        device = f", device {told[4]}" if told[4] else ""
        return f"{told[1]} {tuple(told[2])}{layout}{device}"

    return f"({'; '.join(map(one, call))})"


# 12-fuses


@dataclass(frozen=True)
class Step:
    """A step of a program: what it is called and does (map, shift, reduce or product), and what it reads.

    A shift is a map that reads other elements than the one it writes; ``into`` is the array in whose memory a
    map stores, in place.
    """

    name: str
    does: str
    reads: tuple[str, ...]
    into: str | None = None


def kernels_of(steps: Sequence[Step]) -> list[list[str]]:
    """The reference: each step joins the kernel before it, unless the rules of the notebook forbid it.

    Rules: a product is alone. A kernel holds maps and at most one reduction. What a reduction gives is not
    there before the kernel's end, so that nothing in the same kernel reads it. What is reduced in a kernel,
    and needed outside, would have to be stored by it, and a reduction's kernel stores its result alone: in
    place neither. What a shift reads is no other thread's work of the same kernel, by whatever name.
    """
    return [[one.name for one in group] for group in _grouped(steps)]


def _grouped(steps: Sequence[Step]) -> list[list[Step]]:
    groups: list[list[Step]] = []
    memory = _memory(steps)
    for at, step in enumerate(steps):
        joined = [*groups[-1], step] if groups else [step]
        if groups and not _forbidden(joined, steps[at + 1 :], memory):
            groups[-1] = joined
        else:
            groups.append([step])
    return groups


def _memory(steps: Sequence[Step]) -> dict[str, str]:
    """Return for each name the array whose memory it uses."""
    found = {"x": "x"}
    for one in steps:
        found[one.name] = found[one.into] if one.into else one.name
    return found


def _forbidden(group: Sequence[Step], later: Sequence[Step], memory: dict[str, str]) -> str:
    """Return why these steps cannot be one kernel; empty if they can."""
    reduced = [one.name for one in group if one.does == "reduce"]
    if any(one.does == "product" for one in group):
        return "a product is a kernel of its own"
    if len(reduced) > 1:
        return "a kernel has one reduction at most"
    if any(name in one.reads for one in group for name in reduced):
        return "what a reduction gives is complete only at the kernel's end"
    names = {one.name for one in group} - {*reduced}
    if reduced and (group[-1].does != "reduce" or names & {name for one in later for name in one.reads}):
        return "a kernel that ends in a reduction stores its result alone, and other values are needed later"
    if reduced and any(one.into for one in group):
        return "a kernel that ends in a reduction stores its result alone, and nothing in place"
    shifted = {memory[name] for one in group if one.does == "shift" for name in one.reads}
    if any(one.into and memory[one.name] in shifted for one in group):
        return (
            "a shift reads other elements of memory that the same kernel changes in place: other threads "
            "have changed it already, or have not yet, whatever the array is called"
        )
    if any(memory[one.name] in shifted for one in group):
        return "a shift reads other elements than its own, which other threads of the same kernel make"
    return ""


def judge_kernels(answer: Answer) -> str:
    """Named programs first, then random ones."""
    rng = answer.rng
    programs = [*_NAMED.values(), *(_program(rng, int(rng.integers(2, 9))) for _ in range(60))]
    for steps in programs:
        given = [(one.name, one.does, one.reads, one.into) for one in steps]
        shown = f"kernels({'; '.join(map(_shown, steps))})"
        found = call(answer, given, name="kernels", shown=shown)
        groups = [[str(name) for name in group] for group in found] if _is_groups(found) else None
        if groups is None:
            raise NotYet(f"{shown} should return lists of names, a list for each kernel.")
        if [name for group in groups for name in group] != [one.name for one in steps]:
            raise NotYet(f"{shown} should name every step once, in the order of the program; it is {groups}.")
        wanted = kernels_of(steps)
        if groups != wanted:
            raise NotYet(f"{shown} is {wanted}, not {groups}: {_difference(steps, groups)}.")
    return "every kernel as long as it may be, and none longer."


def _shown(step: Step) -> str:
    return f"{step.name} = {step.does}({', '.join(step.reads)})" + (f" into {step.into}" if step.into else "")


def _is_groups(found: Any) -> bool:
    lists = (list, tuple)
    return isinstance(found, lists) and all(isinstance(one, lists) and one for one in found)


def _difference(steps: Sequence[Step], groups: Sequence[Sequence[str]]) -> str:
    by_name = {one.name: one for one in steps}
    memory = _memory(steps)
    for group in groups:
        last = max(at for at, one in enumerate(steps) if one.name in group)
        why = _forbidden([by_name[name] for name in group], steps[last + 1 :], memory)
        if why:
            return why
    return "more steps fit into one kernel"


def _program(rng: np.random.Generator, length: int) -> list[Step]:
    steps: list[Step] = []
    for at in range(length):
        does = str(rng.choice(("map", "map", "map", "shift", "reduce", "product")))
        known = ["x", *(one.name for one in steps)]
        latest = known[-1] if rng.random() < 0.8 else str(rng.choice(known))
        more = (str(rng.choice(known)),) if does == "map" and rng.random() < 0.4 else ()
        reads = tuple(dict.fromkeys((latest, *more)))
        whole = [name for name in reads if name not in {one.name for one in steps if one.does == "reduce"}]
        into = whole[-1] if does == "map" and whole and rng.random() < 0.4 else None
        steps.append(Step("abcdefghi"[at], does, reads, into))
    return steps


_NAMED = {
    "gelu": [Step("a", "map", ("x",)), Step("b", "map", ("a",)), Step("c", "map", ("a", "b"))],
    "mean square": [Step("a", "map", ("x",)), Step("b", "reduce", ("a",))],
    "centred": [Step("a", "reduce", ("x",)), Step("b", "map", ("x", "a"))],
    "softmax": [
        Step("a", "reduce", ("x",)),
        Step("b", "map", ("x", "a")),
        Step("c", "reduce", ("b",)),
        Step("d", "map", ("b", "c")),
    ],
    "twice": [Step("a", "map", ("x",)), Step("b", "reduce", ("a",)), Step("c", "map", ("a",))],
    "read much later": [
        Step("a", "map", ("x",)),
        Step("b", "reduce", ("a",)),
        Step("c", "map", ("b",)),
        Step("d", "product", ("c",)),
        Step("e", "map", ("a", "d")),
    ],
    "two sums": [Step("a", "reduce", ("x",)), Step("b", "reduce", ("x",))],
    "product": [Step("a", "map", ("x",)), Step("b", "product", ("a",)), Step("c", "map", ("b",))],
    "shifted": [Step("a", "shift", ("x",)), Step("b", "map", ("a", "x")), Step("c", "shift", ("b",))],
    "in place": [Step("a", "map", ("x",), "x"), Step("b", "map", ("a",), "a"), Step("c", "map", ("b",))],
    "in place, shifted": [Step("a", "map", ("x",), "x"), Step("b", "shift", ("x",))],
    "shifted, in place": [Step("a", "shift", ("x",)), Step("b", "map", ("a", "x"), "x")],
    "by its other name": [
        Step("a", "map", ("x",), "x"),
        Step("b", "product", ("x",)),
        Step("c", "shift", ("x",)),
        Step("d", "map", ("c", "a"), "a"),
    ],
    "in place, reduced": [Step("a", "map", ("x",), "x"), Step("b", "reduce", ("a",))],
}


_SHARED = (
    "What one warp leaves for others needs a __syncthreads() before it is read, and one before it is "
    "overwritten."
)
EXERCISES = (
    ProgramExercise(
        "12-elementwise",
        "Nine passes in one kernel",
        "fused_gelu",
        affine_case,
        affine_gelu,
        affine_at_length,
        level="warm-up",
        kind="repair",
        sizes=affine_sizes,
        table=(
            Row("values of every size, ∞ and NaN", affine_far, ((27, 5), (27, 70))),
            Row("factors and offsets of 0", affine_flat, ((9, 4),)),
            Row("no rows", affine_case, ((0, 7),)),
        ),
        budgets=(
            Budget("launches", "One kernel: put the whole expression into its operation.", most=1),
            Budget("memsets", "Let the kernel make its result; nothing needs to be filled before.", most=0),
            Budget("copies", "Nothing has to be copied: an ElementwiseKernel broadcasts by itself.", most=0),
            Budget(
                "peak_used_bytes",
                "Memory for the result and nothing else: no temporary.",
                allowance=1.05,
                large=True,
            ),
            Budget(
                "double_flop",
                "A constant without an f is a double, and so is all that it touches: write 1.5f, not 1.5.",
                most=0,
            ),
        ),
        advice=(
            ("is nan, it should be", "An exponential overflows: let it appear in the divisor alone."),
            ("it should be nan", "What is NaN must stay NaN: fminf and fmaxf return the other operand."),
        ),
        praise="one read, one write, and nothing in between.",
    ),
    ProgramExercise(
        "12-maxabs",
        "The largest absolute value in one pass",
        "largest",
        largest_case,
        largest,
        largest_at_length,
        sizes=largest_sizes,
        table=(
            Row("0 and −0 throughout", largest_flat(-0.0), (40,)),
            Row("all equal, below 0", largest_flat(-2.5), (1, 700)),
            Row("all tiny", largest_flat(1e-30), (300,)),
            Row("the largest float, below 0", largest_of(-3.4e38, wanted=3.4e38), (50, 1000)),
            Row("−∞", largest_of(-np.inf, at=-1, wanted=np.inf), (1, 33, 3000)),
            Row("∞", largest_of(np.inf, at=5, wanted=np.inf), (33,)),
            Row("NaN as its first element", largest_of(np.nan, wanted=np.nan), (1, 32, 2000)),
            Row("NaN as its last element", largest_of(np.nan, at=-1, wanted=np.nan), (31, 2000)),
            Row("NaN before ∞", largest_of(np.nan, np.inf, at=7, wanted=np.nan), (64, 1500)),
            Row("NaN after −∞", largest_of(-np.inf, np.nan, at=7, wanted=np.nan), (64, 1500)),
            Row("NaN below 0", largest_of(-np.nan, np.nan, at=3, wanted=np.nan), (64,)),
            Row("NaN throughout", largest_flat(np.nan), (40,)),
        ),
        budgets=(
            Budget("launches", "Map and reduce in one kernel: absolute values need no memory.", most=1),
            Budget("waits", "The result stays on the device: nothing has to wait for it.", most=0),
            Budget("copies", "Nothing has to be copied.", most=0),
        ),
        advice=(
            ("has no identity", "The largest of no absolute values is 0: give the reduction an identity."),
            ("zero-size", "The largest of no absolute values is 0: give the reduction an identity."),
        ),
        praise="one pass, right for nothing and for what is not a number.",
    ),
    KernelExercise(
        "12-softmax",
        "Scale, bias and softmax in one kernel",
        kernel="softmax",
        parameters="const float* x, const float* bias, float* y, float scale, int rows, int cols",
        once=True,
        case=softmax_case,
        reference="softmax_fused.cu",
        naive="softmax_passes.cu",
        level="stretch",
        sizes=_rows,
        table=(
            Row("a scale below 0", softmax_like(-1, 100, 4), ((5, 70), (2, 1300))),
            Row("a scale of 0", softmax_like(0, 100, 30), ((3, 200),)),
            Row("biases of hundreds", softmax_like(0.5, 3, 300), ((5, 70), (2, 1300))),
            Row("scores of thousands on both sides", softmax_like(1, 5000, 4), ((5, 33), (2, 700))),
            Row("rows of equal scores", softmax_level, ((5, 64), (5, 31))),
            Row("a long row", softmax_case, ((1, 11_000),)),
            Row("one score far above all others", softmax_steep, ((6, 40), (5, 900), (2, 2))),
        ),
        blocks=draw.whole_warps,
        budgets=(
            Budget(
                "load_sectors",
                "Read each score once: keep the row in shared memory meanwhile.",
                allowance=1.1,
            ),
        ),
        measured=Measured((24, 700), (128, 1, 1)),
        advice=(
            Advice(
                advice.both(advice.out_of_bounds, advice.fault("out of bounds", "x")),
                "A row has cols elements, more or fewer than the block has threads.",
            ),
            Advice(advice.out_of_bounds, "A row has cols elements, and so has its place in shared memory."),
            Advice(advice.written_twice, "Every element belongs to one thread."),
            Advice(advice.hazard("RAW", "WAR", "WAW"), _SHARED),
            Advice(_close(_unscaled), "This is the softmax of x: scale and bias come first."),
            Advice(_overflows, "expf overflows from 89 on: subtract the row's largest score first."),
            Advice(
                advice.partly_unwritten,
                "Some elements were never written: a row may be longer than the block.",
            ),
            Advice(
                advice.not_finite,
                "Is all of a row there before it is read, and do all threads of the "
                "block subtract the same largest score and divide by the same sum, behind a barrier?",
            ),
            Advice(
                _sums_to_one,
                "The row adds up to 1, with other weights: a score is x * scale + bias, "
                "with the bias of its own column.",
            ),
            Advice(
                lambda m: m.found is not None,
                "Each row's elements must add up to 1: is the sum that of all threads of the block?",
            ),
        ),
        praise="one read and one write a score: the row was complete before it left the block.",
    ),
    PythonExercise("12-guards", "A cache with guards", judge_cached),
    PythonExercise("12-fuses", "Which steps share a kernel?", judge_kernels),
)
