"""Right and wrong answers to 13-columns and 13-tuner, as learners write them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Way = Callable[..., Any]

# --- 13-columns ---


def product(order: str = "nmk", swapped: bool = True, leading: str = "", flags: str = "NN") -> Way:
    """One call of gemm, with its arguments in some order."""

    def call(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
        sizes = {"m": m, "n": n, "k": k, "a": lda, "b": ldb, "c": ldc}
        lead = [sizes[one] for one in leading or ("bac" if swapped else "abc")]
        first, second = (b, a) if swapped else (a, b)
        gemm(*flags, *(sizes[one] for one in order), first, lead[0], second, lead[1], c, lead[2])

    return call


def by_names(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """The arguments by their names."""
    gemm(trans_a="N", trans_b="N", m=n, n=m, k=k, a=b, lda=ldb, b=a, ldb=lda, c=c, ldc=ldc)


def by_views(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> Any:
    """Views of the same memory, and a result that nobody needs."""
    rows = m
    columns = n
    gemm("N", "N", columns, rows, k, b[:], ldb, a[: m * lda], lda, c[:], ldc)
    return c


def guarded(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """Nothing to do is done first."""
    if 0 in (m, n):
        return
    if min(lda - k, ldb - n, ldc - n) < 0:
        raise ValueError("rows overlap")
    # C as the library sees it is the transpose: C' = B' A'
    gemm("N", "N", n, m, k, b, ldb, a, lda, c, ldc)


def transposed_after(
    gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int
) -> None:
    """A product by columns, and a copy that turns it."""
    turned = np.empty(m * n, a.dtype)
    gemm("T", "T", m, n, k, a, lda, b, ldb, turned, m)
    c.reshape(m, ldc)[:, :n] = turned.reshape(n, m).T


def copied_first(
    gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int
) -> None:
    """Both turned first, so that they are column-major; and so is the result."""
    left = a.reshape(m, lda)[:, :k].T.copy().ravel()
    right = b.reshape(k, ldb)[:, :n].T.copy().ravel()
    gemm("N", "N", m, n, k, left, m, right, k, c, ldc)


def by_numpy(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """Without the library."""
    c.reshape(m, ldc)[:, :n] = a.reshape(m, lda)[:, :k] @ b.reshape(k, ldb)[:, :n]


def for_show(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """A call that computes nothing, and NumPy."""
    gemm("N", "N", 0, 0, 0, b, ldb, a, lda, c, ldc)
    by_numpy(gemm, a, b, c, m, n, k, lda, ldb, ldc)


def row_by_row(
    gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int
) -> None:
    """A call for every row."""
    for row in range(m):
        gemm("N", "N", n, 1, k, b, ldb, a[row * lda :], lda, c[row * ldc :], ldc)


def spoils_a(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """Right, but a is scaled afterwards."""
    gemm("N", "N", n, m, k, b, ldb, a, lda, c, ldc)
    a[:1] += 1


def tidied(gemm: Way, a: Any, b: Any, c: Any, m: int, n: int, k: int, lda: int, ldb: int, ldc: int) -> None:
    """Zeros behind every row."""
    c[:] = 0
    gemm("N", "N", n, m, k, b, ldb, a, lda, c, ldc)


# --- 13-tuner ---
ALL = ("dtype", "shape", "device")


def key_by(*names: str) -> Callable[[Any], Any]:
    """What a choice is kept by."""
    return lambda x: tuple(x.device.id if name == "device" else getattr(x, name) for name in names)


def median(times: Sequence[float]) -> float:
    """The one in the middle."""
    return sorted(times)[len(times) // 2]


def close(found: Sequence[float], wanted: Sequence[float]) -> bool:
    """Whether all elements are close, and there are as many."""
    return len(found) == len(wanted) and all(
        math.isclose(a, b, rel_tol=1e-5) for a, b in zip(found, wanted, strict=True)
    )


def tuner(
    key: Callable[[Any], Any] | None = None,
    right: Callable[[Any, Any], bool] = close,
    warmup: int = 2,
    repeats: int = 7,
    of: Callable[[Sequence[float]], float] = median,
    keep: bool = True,
    check_once: bool = False,
    kept: dict[Any, str] | None = None,
) -> Way:
    """A tuner, whole or less one of its parts."""
    key = key or key_by(*ALL)

    def make(candidates: dict[str, Way], reference: Way, timed: Callable[[str, Any], float]) -> Way:
        chosen: dict[Any, str] = {} if kept is None else kept
        passed: list[str] = []

        def choose(x: Any) -> str:
            if keep and key(x) in chosen:
                return chosen[key(x)]
            if not (check_once and passed):
                wanted = reference(x)
                passed[:] = [name for name, run in candidates.items() if right(run(x), wanted)]
            times = {}
            for name in passed:
                for _ in range(warmup):
                    timed(name, x)
                times[name] = of([timed(name, x) for _ in range(repeats)])
            chosen[key(x)] = min(times, key=lambda name: times[name])
            return chosen[key(x)]

        return choose

    return make


def mean(times: Sequence[float]) -> float:
    """What one disturbed call spoils."""
    return sum(times) / len(times)


def not_off(found: Sequence[float], wanted: Sequence[float]) -> bool:
    """Says that NaN is right."""
    return len(found) == len(wanted) and not any(
        abs(a - b) > 1e-4 for a, b in zip(found, wanted, strict=True)
    )


def first_alone(found: Sequence[float], wanted: Sequence[float]) -> bool:
    """Looks at one element."""
    return close(found[:1], wanted[:1])


def exactly(found: Sequence[float], wanted: Sequence[float]) -> bool:
    """No other order of a sum is right."""
    return list(found) == list(wanted)


def by_numpy_close(found: Sequence[float], wanted: Sequence[float]) -> bool:
    """NumPy's comparison, of shapes first."""
    return np.shape(found) == np.shape(wanted) and bool(np.allclose(found, wanted, rtol=1e-4))


class Tuner:
    """The same as a class, whose key is a text."""

    def __init__(
        self, candidates: dict[str, Way], reference: Way, timed: Callable[[str, Any], float]
    ) -> None:
        self.ways = candidates
        self.reference = reference
        self.timed = timed
        self.kept: dict[str, str] = {}

    def __call__(self, x: Any) -> str:
        """The candidate for such arrays."""
        key = f"{x.device.id}/{x.dtype}/{x.shape}"
        if key not in self.kept:
            wanted = self.reference(x)
            best = math.inf
            for name, way in self.ways.items():
                if close(way(x), wanted):
                    self.timed(name, x)
                    time = min(self.timed(name, x) for _ in range(5))
                    if time < best:
                        best, self.kept[key] = time, name
        return self.kept[key]


def last_name(candidates: dict[str, Way], reference: Way, timed: Callable[[str, Any], float]) -> Way:
    """Chooses without looking."""
    return lambda x: next(iter(candidates))


def reads_the_table(candidates: dict[str, Way], reference: Way, timed: Any) -> Way:
    """Takes the times from where it believes them."""
    table = inspect.getclosurevars(timed).nonlocals["behaviour"]
    return lambda x: min(table, key=lambda name: table[name][x.dtype.name, x.shape, x.device.id][1])


def gives_the_function(candidates: dict[str, Way], reference: Way, timed: Callable[[str, Any], float]) -> Way:
    """Returns the candidate, not its name."""
    choose = tuner()(candidates, reference, timed)
    return lambda x: candidates[choose(x)]


def thousands(candidates: dict[str, Way], reference: Way, timed: Callable[[str, Any], float]) -> Any:
    """Times without bounds."""
    return tuner(repeats=1001)(candidates, reference, timed)


def one_alone(candidates: dict[str, Way], reference: Way, timed: Callable[[str, Any], float]) -> Any:
    """Times the first right candidate, and stops."""

    def choose(x: Any) -> str:
        wanted = reference(x)
        name = next(name for name, run in candidates.items() if close(run(x), wanted))
        median([timed(name, x) for _ in range(5)])
        return name

    return choose
