"""Exercises of notebook 13 about libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from gpulab_course.content.n13_libraries.libraries.blas import gemm
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise

# 13-columns

Shape = tuple[int, int, int]
_PARAMETERS = ("trans_a", "trans_b", "m", "n", "k", "a", "lda", "b", "ldb", "c", "ldc")
_ASKED = "product(gemm, a, b, c, m, n, k, lda, ldb, ldc)"


def multiply(product: Any, given: Sequence[Any], shape: Shape, leading: Shape) -> tuple[Any, list[Any]]:
    """Run the answer in its own process; return the memory that it left and its calls of the library."""
    a, b, c = (np.array(each) for each in given)
    named: dict[str, Any] = {"a": a, "b": b, "c": c}
    calls: list[Any] = []

    def watched(*args: Any, **kwargs: Any) -> None:
        told: dict[str, Any] = {**dict(zip(_PARAMETERS, args, strict=False)), **kwargs}
        for which in "abc":
            memory = told.get(which)
            told[which] = "", 0, 0
            for name, own in named.items():
                if isinstance(memory, np.ndarray) and np.shares_memory(own, memory):
                    start = (memory.ctypes.data - own.ctypes.data) // own.itemsize
                    told[which] = name, start, start + memory.size
        calls.append([told.get(name) for name in _PARAMETERS])
        gemm(*args, **kwargs)

    product(watched, a, b, c, *shape, *leading)
    unchanged = np.array_equal(a, given[0]) and np.array_equal(b, given[1])
    return [c, unchanged], calls


def judge_product(answer: Answer) -> str:
    """Square matrices, then others, with and without space behind their rows."""
    for shape, leading in _products(answer.rng):
        m, n, k = shape
        lda, ldb, ldc = leading
        given = [_memory(answer.rng, rows, ld) for rows, ld in ((m, lda), (k, ldb), (m, ldc))]
        a, b, c = (each.reshape(-1, ld) for each, ld in zip(given, leading, strict=True))
        wanted = c.copy()
        wanted[:, :n] = a[:, :k] @ b[:, :n]
        sizes = f"m={m}, n={n}, k={k}, lda={lda}, ldb={ldb}, ldc={ldc}"
        shown = _ASKED.replace("m, n, k, lda, ldb, ldc", sizes)
        (found, unchanged), calls = answer.ask(multiply, given, shape, leading, shown=shown)
        if not calls:
            raise NotYet(f"{shown} never called gemm: let the library compute the product.")
        if any(part[0] == "" for call in calls for part in call[5:10:2]):
            raise NotYet(
                f"{shown} gave gemm memory that is neither a nor b nor c. No copy is needed: read by "
                "columns, each of them is its own transpose already."
            )
        if not unchanged:
            raise NotYet(f"{shown} changed a or b, which are only read.")
        if len(calls) > 1:
            raise NotYet(f"{shown} called gemm {len(calls)} times; one call computes the whole product.")
        mine = np.asarray(found).reshape(-1, ldc)
        if not np.array_equal(mine, wanted):
            raise NotYet(f"{shown} {_wrong_product(mine, wanted, a[:, :k], b[:, :n], shape)}")
        again = dict(zip("abc", (np.array(each) for each in given), strict=True))
        args: Any = [again[p[0]][p[1] : p[2]] if isinstance(p, tuple) else p for p in calls[0]]
        gemm(*args)
        if not np.array_equal(again["c"].reshape(-1, ldc), wanted):
            raise NotYet(f"{shown}: gemm did not compute what is in c: let the library compute the product.")
    return "one call, no copy, for every shape and leading dimension."


def _wrong_product(mine: Any, wanted: Any, a: Any, b: Any, shape: Shape) -> str:
    m, n, k = shape
    if not np.array_equal(mine[:, n:], wanted[:, n:]):
        return "wrote into the space behind c's rows: from one row's begin to the next it is ldc elements."
    flat = mine[:, :n].ravel()
    right = a @ b
    if m == n and np.array_equal(mine[:, :n], right.T):
        return "left the transpose of a @ b in c: gemm writes columns where c has rows."
    if m == n == k and np.array_equal(mine[:, :n], b @ a):
        return (
            "left b @ a in c: to the library both are transposed, and so are what it takes first and second."
        )
    if np.isin(flat, right.ravel()).all() and m != n:
        return (
            "left the elements of a @ b in other places: which of m and n are the rows of what gemm writes?"
        )
    return (
        "left something else than a @ b in c: gemm sees a as a matrix of k rows and m columns, its transpose."
    )


def _products(rng: np.random.Generator) -> list[tuple[Shape, Shape]]:
    s = int(rng.integers(2, 7))
    found: list[tuple[Shape, Shape]] = [((s, s, s), (s, s, s))]
    some = [tuple(int(x) for x in rng.permutation(np.arange(2, 12))[:3]) for _ in range(4)]
    shapes = [*some, (1, some[0][0], some[0][1]), (some[1][0], 1, some[1][1]), (some[2][0], some[2][1], 1)]
    for m, n, k in (*shapes, (s, s, s + 1), (s, s, s)):
        found.append(((m, n, k), (k, n, n)))
        more = [int(x) for x in rng.integers(1, 6, 3)]
        found.append(((m, n, k), (k + more[0], n + more[1], n + more[2])))
    return found


def _memory(rng: np.random.Generator, rows: int, leading: int) -> Any:
    """Whole numbers, so that sums are exact in any order."""
    return rng.integers(-40, 40, rows * leading).astype(np.float32)


# 13-tuner


@dataclass(frozen=True)
class _Device:
    id: int


@dataclass(frozen=True, eq=False)
class Stand:
    """The properties of an array that a tuner may use."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    device: _Device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


Kind = tuple[str, tuple[int, ...], int]  # dtype, shape, device
Behaviour = tuple[
    float, float, tuple[float, ...], str
]  # first call's µs, later ones' µs, delays, how it is wrong
_NAMES = ("blocked", "naive", "split k", "tiles of 16", "tiles of 32", "vectorized")
_RIGHT = (1.0, -2.5, 3.25, 0.125, 12.0)
_WRONG = {
    "last": (*_RIGHT[:-1], 12.5),
    "first": (1.5, *_RIGHT[1:]),
    "nan": (*_RIGHT[:2], float("nan"), *_RIGHT[3:]),
    "scaled": _RIGHT,  # all of it by 1 %
    "short": _RIGHT[:-1],
    "exchanged": (_RIGHT[1], _RIGHT[0], *_RIGHT[2:]),
}
_MOST_TIMED = 60  # of one candidate and kind
_TUNER = "tuner(candidates, reference, timed)"


class Candidates:
    """The results and times of each candidate for each kind of array, and how often it was timed."""

    def __init__(self, calls: Sequence[Kind], behaviour: dict[str, dict[Kind, Behaviour]]) -> None:
        self._kinds = {kind: at for at, kind in enumerate(dict.fromkeys(calls))}
        self._behaviour = behaviour
        self._timed_so_far: dict[tuple[str, Kind], int] = {}
        self.timed: list[dict[str, int]] = []

    def __call__(self, asked: str, name: str, kind: Kind) -> Any:
        """Handle a request: begin a call, run a candidate or the reference, or time a candidate."""
        if asked == "begins":
            self.timed.append({})
            return None
        if name not in self._behaviour and asked != "reference":
            raise ValueError(f"There is no candidate {name!r}.")
        if kind not in self._kinds:
            raise ValueError(f"There is no array of {kind[0]} {kind[1]} on device {kind[2]} here.")
        at = self._kinds[kind]
        if asked == "reference":
            return [one + at for one in _RIGHT]
        cold, warm, delays, wrong = self._behaviour[name][kind]
        if asked == "runs":
            error = 1 + 1e-7 * (list(self._behaviour).index(name) + 1)  # another order of the same sums
            error *= 1.01 if wrong == "scaled" else 1
            return [error * (one + at) for one in _WRONG.get(wrong, _RIGHT)]
        number = self._timed_so_far.get((name, kind), 0)
        self._timed_so_far[name, kind] = number + 1
        self.timed[-1][name] = self.timed[-1].get(name, 0) + 1
        return cold if number == 0 else warm * delays[(number - 1) % len(delays)]


def play_tuner(
    tuner: Any, asks: Callable[..., Any], calls: Sequence[Kind], names: Sequence[str]
) -> list[str]:
    """Run the answer in its own process; return its choices, the last one from a new tuner."""

    def kind_of(x: Any) -> Kind:
        return np.dtype(x.dtype).name, tuple(map(int, x.shape)), int(x.device.id)

    def candidate(name: str) -> Any:
        return lambda x: asks("runs", name, kind_of(x))

    def made() -> Any:
        candidates = {name: candidate(name) for name in names}
        choose = tuner(
            candidates,
            lambda x: asks("reference", "", kind_of(x)),
            lambda name, x: asks("timed", str(name), kind_of(x)),
        )
        if not callable(choose):
            raise NotYet(f"{_TUNER} should return a function, choose(x).")
        return choose

    def chosen(choose: Any, kind: Kind) -> str:
        asks("begins", "", kind)
        name = choose(Stand(np.dtype(kind[0]), kind[1], _Device(kind[2])))
        return name if isinstance(name, str) else repr(name)

    choose = made()
    return [*(chosen(choose, kind) for kind in calls), chosen(made(), calls[0])]


def judge_tuner(answer: Answer) -> str:
    """Judge a tuner on kinds of arrays with different best candidates, and on the same kinds again."""
    rng = answer.rng
    kinds = _kinds(rng)
    behaviour, best = _behaviour(rng, kinds)
    calls = [*kinds, *(kinds[int(at)] for at in rng.integers(0, len(kinds), 10))]
    candidates = Candidates(calls, behaviour)
    found = answer.ask(play_tuner, calls, list(behaviour), shown=_TUNER, back=candidates)
    seen: list[Kind] = []
    for kind, chosen, timed in zip(calls, found[:-1], candidates.timed[:-1], strict=True):
        new = kind not in seen
        shown = f"for {_spelt(kind)} choose(x)"
        if chosen not in behaviour:
            raise NotYet(f"{shown} returns {chosen}; it should return the name of a candidate.")
        if chosen != best[kind] or (new and not timed):
            raise NotYet(f"{shown} is {chosen!r}: {_why(kind, chosen, timed, seen, behaviour, best)}")
        if not new and timed:
            raise NotYet(
                f"{shown} timed candidates again, although it has chosen for such an array: keep the choice."
            )
        if new and set(timed) < {name for name in behaviour if not behaviour[name][kind][3]}:
            raise NotYet(
                f"{shown} did not time every candidate whose result is right; another could be faster."
            )
        if max(timed.values(), default=0) > _MOST_TIMED:
            raise NotYet(
                f"{shown} timed one candidate {max(timed.values())} times: the median of a few calls will do."
            )
        seen.append(kind)
    if not candidates.timed[-1]:
        raise NotYet(f"{_TUNER} keeps choices for all tuners: each has candidates, and choices, of its own.")
    return "results first, medians of warm calls, and one choice for each device, dtype and shape."


def _why(
    kind: Kind,
    chosen: str,
    timed: dict[str, int],
    seen: Sequence[Kind],
    behaviour: dict[str, dict[Kind, Behaviour]],
    best: dict[Kind, str],
) -> str:
    if not timed and not seen:
        return "that was chosen without timing a candidate: time each whose result is right."
    if not timed and kind not in seen:
        for earlier in reversed(seen):
            differ = [
                name for name, a, b in zip(("dtype", "shape", "device"), earlier, kind, strict=True) if a != b
            ]
            if best[earlier] == chosen and len(differ) == 1:
                return f"the choice of {_spelt(earlier)}. The {differ[0]} belongs in the key."
        return "that was chosen for another kind of array. Device, dtype and shape belong in the key."
    wrong = behaviour[chosen][kind][3]
    if wrong == "nan":
        return "fast, and one element is NaN. No comparison with NaN is true: ask whether elements are close."
    if wrong:
        return (
            "fast, and wrong. Before it is timed, compare all of its result with the reference's, each time."
        )
    most = max(timed.values(), default=0)
    if most <= 1:
        return "by its first call. That one compiles: call once before you time."
    if most == 2:
        return "by one call after the first. Any single one may be disturbed: take the median of several."
    why = "Warm up first, then take the median: a disturbed call spoils a mean."
    return f"not the fastest; {best[kind]!r} is. {why}"


def _kinds(rng: np.random.Generator) -> list[Kind]:
    rows, columns = (64 * int(n) for n in rng.permutation(np.arange(1, 30))[:2])
    base: Kind = ("float32", (rows, columns), 0)
    near: list[Kind] = [
        ("float16", (rows, columns), 0),
        ("float64", (rows, columns), 0),
        ("float32", (rows, columns), 1),
        ("float32", (columns, rows), 0),
        ("float32", (rows, 2 * columns), 0),
        ("float32", (rows * columns,), 0),
        ("float16", (rows, columns), 1),
        ("float32", (1, rows, columns), 0),
        ("float32", (rows + 1, columns), 0),
        ("float32", (rows, columns - 1), 0),
    ]
    order = rng.permutation(len(near))
    return [base, *(near[int(at)] for at in order)]


def _behaviour(
    rng: np.random.Generator, kinds: Sequence[Kind]
) -> tuple[dict[str, dict[Kind, Behaviour]], dict[Kind, str]]:
    """Draw each candidate's behaviour for each kind of array; neighbouring kinds differ in the best one."""
    names = [str(name) for name in rng.permutation(_NAMES)[:4]]
    mistakes = cycle(str(name) for name in rng.permutation(list(_WRONG)))
    behaviour: dict[str, dict[Kind, Behaviour]] = {name: {} for name in names}
    best: dict[Kind, str] = {}
    for at, kind in enumerate(kinds):
        ranked = [names[(at + int(n)) % 4] for n in (0, *rng.permutation([1, 2, 3]))]
        best[kind] = ranked[0]
        wrong = dict.fromkeys(names, "")
        if at % 3 != 2:
            wrong[ranked[1]] = next(mistakes)
        for rank, name in enumerate(ranked):
            warm = float(rng.uniform(20, 400)) if rank == 0 else 0.0
            if rank:
                fastest = behaviour[ranked[0]][kind][1]
                warm = fastest * (0.5 if wrong[name] else 1.1 + 0.2 * rank)
            # The fastest one compiles longest.
            cold = float(40_000 * (1 - 0.2 * rank) * rng.uniform(0.95, 1.05))
            # Whichever single call of the fastest is looked at, for some kinds it is a disturbed one.
            behaviour[name][kind] = cold, warm, _delays(rng, at + rank, 3 if rank else 15), wrong[name]
    return behaviour, best


def _delays(rng: np.random.Generator, turn: int, least: float) -> tuple[float, ...]:
    """Return factors of a call's time: one of every four is disturbed, and never two of three in a row.

    Which one goes by turns, so that no call is undisturbed for all kinds. The fastest is delayed most.
    """
    found: list[float] = []
    for _ in range(20):
        group = rng.uniform(0.99, 1.01, 4)
        group[turn // 4 % 2] *= rng.uniform(least, 2 * least)
        found += [float(one) for one in group]
    return tuple(np.roll(found, turn % 4).tolist())


def _spelt(kind: Kind) -> str:
    return f"{kind[0]} {'×'.join(map(str, kind[1]))} on device {kind[2]}"


EXERCISES = (
    PythonExercise("13-columns", "Row-major through a column-major library", judge_product),
    PythonExercise("13-tuner", "A tuner with a cache", judge_tuner),
)
