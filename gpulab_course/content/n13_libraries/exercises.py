"""Exercises of notebook 13 about numbers; those about libraries are in the folder of that name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.analysis.formats import BF16, FP32, TF32
from gpulab.processes.errors import spelt
from gpulab_course.content.n13_libraries.libraries import exercises as libraries
from gpulab_course.teach.judge import (
    Advice,
    Answer,
    Case,
    Draw,
    KernelExercise,
    Measured,
    Mistake,
    Near,
    NotYet,
    PythonExercise,
    Row,
    advice,
    as_float,
    draw,
    is_number,
)
from gpulab_course.teach.judge.python.functions import must_be_a_function
from virtualgpu.records import Dim3

Singles = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]

# 13-round

# NaN of either sign, whose fractions lie in the lower bits, in the upper ones, or in both.
_ODD = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0xFF800001, 0x7F80FFFF, 0xFFC00000], np.uint32)


def to_bf16(random_data: Draw, size: Any, block: Dim3) -> Case:
    """Numbers with any lower bits, exact ties of both kinds, those next to ties, and what rounds up to ∞."""
    x = random_data.floats(size, moved=True)
    bits = x.view(np.uint32)
    if random_data.kind in (draw.RANDOM, draw.EXTREME):
        chosen = random_data.rng.integers(0, 8, size)
        low = np.array([0x8000, 0x7FFF, 0x8001, 0xFFFF, 0, 1])
        tied = (bits & np.uint32(0xFFFF0000)) | low[np.minimum(chosen, 5)].astype(np.uint32)
        bits = np.where(chosen < 6, tied, bits)
        edge = random_data.rng.choice(
            np.array([0x7F7F7FFF, 0x7F7F8000, 0xFF7FC000, 0x007F8000, 0x00008000], np.uint32), size
        )
        bits = np.where(random_data.rng.random(size) < 0.05, edge, bits)
    if random_data.kind == draw.NAN:
        odd = random_data.rng.choice(_ODD, size)
        bits = np.where(np.isnan(x), odd, bits)
    return _rounded(random_data, bits.view(np.float32), block)


def bf16_edges(random_data: Draw, size: Any, block: Dim3) -> Case:
    """Both ends and the middle of every kind of number, with either sign, in an order that is drawn."""
    upper = np.array(
        [0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7E, 0x7F7F, 0x7F80, 0x7F81, 0x7FBF, 0x7FC0, 0x7FFF]
    )
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFF])
    bits = (upper[:, None] << 16 | lower).ravel()
    x = random_data.rng.permutation(np.r_[bits, bits | 1 << 31]).astype(np.uint32).view(np.float32)
    return _rounded(random_data, x, block)


def _rounded(random_data: Draw, x: Singles, block: Dim3) -> Case:
    size = x.size
    grid = int(random_data.rng.integers(1, draw.blocks_for(size, block[0]) + 2))
    wanted = BF16.round_all(x).astype(np.float32)
    return Case(grid, {"x": x, "n": size}, {"y": Near(wanted, 0.0, ulps=0, zero_bits=0xFFFF)})


def _low_bits(m: Mistake) -> bool:
    """Return whether a NaN has bits that BF16 lacks, and no number is wrong."""
    if m.found is None or (m.wrong & ~np.isnan(m["x"])).any():
        return False
    return bool((np.asarray(m.found).view(np.uint32) & 0xFFFF)[np.isnan(m["x"])].any())


def _rounded_as(rule: Callable[[npt.NDArray[np.uint32]], npt.NDArray[Any]]) -> Callable[[Mistake], bool]:
    """Return a predicate: whether finite numbers are wrong and were rounded by another rule."""

    def fits(m: Mistake) -> bool:
        if m.found is None or not m.wrong[np.isfinite(m["x"])].any():
            return False
        bits = m["x"].view(np.uint32)
        finite = np.isfinite(m["x"])
        made = (rule(bits.astype(np.uint64)) & 0xFFFF0000).astype(np.uint32)
        return bool((made == np.asarray(m.found).view(np.uint32))[finite].all())

    return fits


def _tiny(x: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(np.abs(x) < np.finfo(np.float32).smallest_normal)


def _wrong_at(m: Mistake, which: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]) -> bool:
    """Return whether only numbers that `which` selects are wrong."""
    if m.found is None or m.wanted is None:
        return False
    found = np.asarray(m.found)
    wanted = np.asarray(m.wanted)
    wrong = m.wrong | (np.signbit(found) != np.signbit(wanted)) & ~np.isnan(wanted)
    return bool(wrong.any()) and bool(which(m["x"])[wrong].all())


# 13-halfsum

UNIT = 24  # every half is a whole number of 2**-24


def exact_sum(x: Halves) -> float:
    """Return the sum of half-precision values, rounded once to FP32."""
    if not np.isfinite(x).all():
        with np.errstate(invalid="ignore"):
            return float(x.astype(np.float64).sum())
    units = int(np.ldexp(x.astype(np.float64), UNIT).astype(np.int64).sum()) if x.size else 0
    return FP32.round(Fraction(units, 1 << UNIT))


def halfs_of(units: int) -> Halves:
    """Return half-precision values whose sum is so many units: large values first, then smaller ones."""
    most = 65504 << UNIT
    many, left = divmod(abs(units), most)
    found = [65504.0] * many
    while left:
        below = max(0, left.bit_length() - 11)  # a half has 11 bits
        found.append(math.ldexp(left >> below, below - UNIT))
        left -= left >> below << below
    return np.array(found, np.float16) * np.float16(math.copysign(1, units))


def _between(rng: np.random.Generator, beside: int, sign: int, odd: int = 0) -> Halves:
    """Return half-precision values whose sum is halfway between two FP32 numbers, or `beside` units off.

    The lower of the two numbers is even, or odd if `odd` is 1.
    """
    # Beyond 2**54, where FP64 has every fourth number and FP32 every 2**31st.
    lower = 2 * int(rng.integers(1 << 22, (1 << 23) - 1)) + odd
    return rng.permutation(halfs_of(sign * ((lower << 31) + (1 << 30) + beside)))


def _sums(rng: np.random.Generator) -> list[tuple[str, Halves, str]]:
    """Draw data for sums: their name, the data, and the feedback for a wrong sum."""
    n = 100_000 - 2 * int(rng.integers(0, 500))
    ones = int(rng.integers(50_000, 65_000)) | 1
    tiny = np.full(n, 2.0**-UNIT, np.float16)
    big = np.full(n // 3, 65504, np.float16)
    most = np.full(100_000, 65504, np.float16)
    # An odd number of units beside 2**31: more bits than a double has, in whatever order it is added.
    small = np.float16((2 * int(rng.integers(0, 500)) + 1) * 2.0**-UNIT)
    lost = np.concatenate([big, [small], -big])
    mixed = (rng.standard_normal(n) * 2.0 ** rng.integers(-20, 12, n)).astype(np.float16)
    few = rng.standard_normal(int(rng.integers(2, 40))).astype(np.float16)
    wide = "The accumulator needs more bits than the numbers have."
    forgets = (
        "A float forgets a small number beside a large sum, and which ones depends on the order. Every "
        "FP16 number "
        "is a whole number of 2**-24: such units add up without rounding."
    )
    twice = (
        "It was rounded to FP64 first, and that to FP32: an np.int64 becomes FP32 in one step, "
        "units.astype(np.float32), and dividing that by a power of two rounds no more."
    )
    return [
        (
            f"{ones:,} ones",
            np.ones(ones, np.float16),
            f"FP16 cannot tell 2,048 + 1 from 2,048, nor hold this sum. {wide}",
        ),
        (
            f"{len(big):,} times 65,504",
            big,
            (
                "The sum is more than FP16 holds, and more than FP32 adds up exactly: do not clamp it, "
                "and round once."
            ),
        ),
        (
            f"{n:,} times 2**-24 after 1",
            np.concatenate([[np.float16(1)], tiny]).astype(np.float16),
            f"Each of them is lost beside 1 in a narrow sum. {wide}",
        ),
        ("a few halfs", few, "Add all of them, and round once, at the end."),
        ("no halfs", few[:0], "A sum of nothing is 0."),
        (f"{n:,} halfs of all sizes", mixed, forgets),
        ("the same halfs backwards", mixed[::-1].copy(), forgets),
        ("large ones, a small one, and the large ones with the other sign", lost, forgets),
        ("the same, in another order", rng.permutation(lost), forgets),
        (
            "halfs with an infinite one",
            np.append(few, np.float16(np.inf)),
            ("An infinity among them is the sum."),
        ),
        ("halfs with −∞", np.append(np.float16(-np.inf), few), "An infinity among them is the sum."),
        ("∞ and −∞", np.array([np.inf, 1, -np.inf], np.float16), "∞ − ∞ is NaN."),
        ("halfs with a NaN", np.append(few, np.float16(np.nan)), "With a NaN among them the sum is NaN."),
        (
            "halfs with ∞ and a NaN",
            rng.permutation(np.append(few, np.array([np.inf, np.nan], np.float16))),
            "With a NaN among them the sum is NaN.",
        ),
        ("halfs whose sum lies a little above the middle of two FP32 numbers", _between(rng, 1, 1), twice),
        (
            "halfs whose sum lies a little below the middle of two FP32 numbers",
            _between(rng, -1, 1, 1),
            twice,
        ),
        (
            "halfs whose sum, below 0, lies a little off the middle of two FP32 numbers",
            _between(rng, 1, -1),
            twice,
        ),
        *(
            (
                f"halfs whose sum lies in the middle of two FP32 numbers, {side}",
                _between(rng, 0, sign, odd),
                "In the middle of two numbers IEEE takes the one whose last bit is 0.",
            )
            for sign, odd, side in (
                (1, 0, "below it the even one"),
                (1, 1, "above it the even one"),
                (-1, 0, "negative"),
                (-1, 1, "negative"),
            )
        ),
        ("the most halfs, each the largest", most, f"The sum is more than FP16 holds. {wide}"),
        ("the most halfs, each the lowest", -most, f"The sum is more than FP16 holds. {wide}"),
        ("a single element", few[:1], "Add all of them, and round once, at the end."),
        ("a single element, next to zero", np.array([-(2.0**-UNIT)], np.float16), forgets),
    ]


def judge_halfsum(answer: Answer) -> str:
    """``half_sum(x)``: the exact sum of up to 100,000 halfs, rounded once to FP32."""
    must_be_a_function("half_sum", answer.is_function, answer.kind)
    for name, x, why in _sums(answer.rng):
        found = answer.calling(f"half_sum of {name}", x)
        if found is None:
            raise NotYet("half_sum returns nothing; replace the TODO and end with a return.")
        if not is_number(found):
            raise NotYet(f"half_sum of {name} gives {spelt(found)}: return one number.")
        wanted = exact_sum(x)
        with np.errstate(over="ignore"):
            got = float(np.float32(as_float(found)))
        if got != wanted and not (math.isnan(got) and math.isnan(wanted)):
            raise NotYet(
                f"half_sum of {name} gives {got:.9g}; the sum, rounded to FP32, is {wanted:.9g}. {why}"
            )
        if as_float(found) != got and not math.isnan(got):
            raise NotYet(
                f"half_sum of {name} gives {as_float(found):.17g}, which FP32 does not have: round the sum, "
                "np.float32(…)."
            )
    return "every order gives the same sum, to its last bit: it was rounded once."


# 13-tf32x3

MOST_PRODUCTS = 3
_HIGH = np.uint32(0xFFFFE000)


def on_tensor_cores(x: Any, y: Any) -> Singles:
    """Multiply FP32 matrices as tensor cores do with TF32: without the lower 13 bits of x and y."""
    cut = [(np.ascontiguousarray(m, np.float32).view(np.uint32) & _HIGH).view(np.float32) for m in (x, y)]
    with np.errstate(over="ignore", invalid="ignore"):
        return (cut[0].astype(np.float64) @ cut[1].astype(np.float64)).astype(np.float32)


def in_three(a: Singles, b: Singles, product: Callable[[Any, Any], Singles] = on_tensor_cores) -> Singles:
    """The reference: each matrix as a TF32 part and what is left of it, three products, small ones first."""

    def parts(x: Singles) -> tuple[Singles, Singles]:
        big = TF32.round_all(x).astype(np.float32)
        return big, TF32.round_all(x - big).astype(np.float32)

    (big_a, small_a), (big_b, small_b) = parts(a), parts(b)
    result: Singles = product(small_a, big_b) + product(big_a, small_b) + product(big_a, big_b)
    return result


def _three(answer: Any, asks: Callable[..., Any], a: Singles, b: Singles) -> Any:
    """Run the answer in its own process; return its result, and whether a and b are unchanged."""
    given = a.copy(), b.copy()
    found = answer(*given, lambda x, y: asks(np.asarray(x), np.asarray(y)))
    return [found, np.array_equal(given[0], a), np.array_equal(given[1], b)]


def _of_products(found: Singles, products: Sequence[Singles], size: Any) -> bool:
    """Return whether a result is, but for rounding, a sum of multiples of the products or their blocks."""
    m, n = found.shape
    terms = []
    for made in (turned for each in products for turned in (each, each.T)):
        rows, columns = made.shape
        if rows and columns and rows % m == columns % n == 0:
            blocks = made.reshape(rows // m, m, columns // n, n).transpose(0, 2, 1, 3)
            terms += list(blocks.reshape(-1, m * n).astype(np.float64))
    if not terms:
        return False
    weights = 1 / size.ravel()
    known = np.array(terms[:12])
    factors = np.linalg.lstsq((known * weights).T, found.ravel() * weights, rcond=None)[0]
    return bool((np.abs(factors @ known - found.ravel()) * weights <= 8 * FP32.roundoff).all())


def error_in_u(found: Any, a: Singles, b: Singles) -> float:
    """The RMS error of a product over its largest possible size, |a| |b|, in units of FP32's u."""
    a = a.astype(np.float64)
    b = b.astype(np.float64)
    share = (found.astype(np.float64) - a @ b) / (np.abs(a) @ np.abs(b))
    return float(np.sqrt(np.mean(share**2)) / FP32.roundoff)


def judge_tf32x3(answer: Answer) -> str:
    """``three(a, b, product)``: FP32's accuracy from three products by TF32."""
    must_be_a_function("three", answer.is_function, answer.kind)
    rng = answer.rng
    m = n = k = 0
    for kind in ("random", "positive", "of many sizes", "large and small"):
        if kind != "of many sizes":  # as large as the ones before, so that nothing kept of them fits
            m, n = (int(v) for v in rng.permutation(np.arange(9, 40))[:2])
            k = 12 * int(rng.integers(9, 40))
        wide = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        if kind == "positive":
            wide = np.abs(wide[0]), np.abs(wide[1])
        if kind == "of many sizes":
            wide = (
                wide[0] * 2.0 ** rng.integers(-24, 24, (m, k)),
                wide[1] * 2.0 ** rng.integers(-24, 24, (k, n)),
            )
        if kind == "large and small":
            wide = wide[0] * 2.0**60, wide[1] * 2.0**-50
        a = wide[0].astype(np.float32)
        b = wide[1].astype(np.float32)
        shown = f"three(a, b, product) for {kind} numbers, {m} x {k} times {k} x {n}"
        products: list[Singles] = []

        def product(x: Any, y: Any, products: list[Singles] = products) -> Singles:
            if not x.ndim == y.ndim == 2 or x.shape[1] != y.shape[0]:
                raise ValueError(f"product takes two matrices that fit, not {x.shape} and {y.shape}.")
            products.append(on_tensor_cores(x, y))
            return products[-1]

        found, *kept = answer.ask(_three, a, b, shown=shown, back=product)
        if found is None:
            raise NotYet("three returns nothing; replace the TODO and end with a return.")
        if not isinstance(found, np.ndarray) or found.shape != (m, n):
            raise NotYet(f"{shown} gives {spelt(found)}: return the product, an array of {m} x {n}.")
        if not all(kept):
            raise NotYet(f"{shown} changes {'ab'[kept.index(False)]}, which belongs to its caller.")
        if not products:
            raise NotYet(f"{shown} never calls product: the tensor cores have to do the work.")
        if len(products) > MOST_PRODUCTS:
            raise NotYet(
                f"{shown} takes {len(products)} products; {MOST_PRODUCTS} are enough: small times small is "
                "lost."
            )
        if found.dtype != np.float32:
            raise NotYet(f"{shown} gives {found.dtype}: keep FP32 throughout, the GPU has little FP64.")
        size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        if np.isfinite(found).all() and not _of_products(found, products, size):
            raise NotYet(
                f"{shown} returns something else than a sum of what product gave: "
                "all of the multiplying is the tensor cores' work."
            )
        error = error_in_u(found, a, b)
        best = error_in_u(in_three(a, b), a, b)
        # Which of the three is added last shows where all are positive, which matrix was cut where none is.
        if not error <= (1.6 if kind == "positive" else 1.28) * best:
            raise NotYet(
                f"{shown} is off by {error:.2g} u (FP32's u, RMS); {best:.2g} u are possible. "
                f"{_why(found, a, b)}"
            )
    return "three products by TF32 are as good as one by FP32."


def _why(found: Singles, a: Singles, b: Singles) -> str:
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)

    def near(*results: Singles) -> bool:
        return any(bool(np.all(np.abs(found - each) <= 8 * FP32.roundoff * size)) for each in results)

    big_a, big_b = (TF32.round_all(x).astype(np.float32) for x in (a, b))
    one = on_tensor_cores(big_a, big_b)
    if near(one, on_tensor_cores(a, b)):
        return "That is one product's error: what the big parts leave over has to be multiplied, too."
    if near(one + on_tensor_cores(a - big_a, big_b), one + on_tensor_cores(big_a, b - big_b)):
        return "The lower part of one matrix is missing: both have one."
    if error_in_u(found, a, b) < 40:
        return (
            "Nearly: round to TF32, do not cut. What is cut off lies all on one side, and has more bits than "
            "product looks at."
        )
    return "Three products: small times big, big times small, big times big, and their sum."


# 13-lossscale


def _train(answer: Any, weights: Singles, grads: Sequence[Any], state: dict[str, Any]) -> list[Any]:
    """Run the answer in its own process; return the weights and the scale after each step."""
    told: list[Any] = []
    w = weights.copy()
    for true in grads:
        asked: list[float] = []

        def backward(scale: float, true: Any = true, asked: list[float] = asked) -> Halves:
            asked.append(float(scale))
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                return (np.asarray(true, np.float64) * scale).astype(np.float16)

        given = w
        before = w.copy()
        new = answer(w, backward, state)
        if isinstance(new, np.ndarray):
            w = new
        kept = np.array_equal(given, before)
        told.append([asked, before, w.copy(), dict(state), new is None, kept])
    return told


def scaled_step(weights: Any, backward: Any, state: dict[str, Any]) -> Any:
    """The reference: one step with a loss scale that adapts."""
    grads = backward(state["scale"]).astype(np.float32) / np.float32(state["scale"])
    if not np.isfinite(grads).all():
        state["scale"] /= 2
        state["good"] = 0
        return weights
    state["good"] += 1
    if state["good"] == state["interval"]:
        state["scale"] *= 2
        state["good"] = 0
    return weights - np.float32(state["rate"]) * grads


def judge_lossscale(answer: Answer) -> str:
    """``scaled_step(weights, backward, state)``: one step with gradients in half precision."""
    must_be_a_function("scaled_step", answer.is_function, answer.kind)
    rng = answer.rng
    # Scales below 1, far beyond 2**24 and in between; intervals of 1 and more.
    for low, interval in ((-7, 1), (31, 2), (10, int(rng.integers(3, 6))), (14, int(rng.integers(2, 6)))):
        n = int(rng.integers(4, 30))
        rate = float(2.0 ** rng.integers(-9, -3)) * 0.9
        # As small as what the steps change: a step that is a little wrong shows.
        scale = float(2.0 ** (low + rng.integers(0, 3)))
        weights = (rng.standard_normal(n) * 2.0**-12 / scale).astype(np.float32)
        state = {"scale": scale, "good": 0, "interval": interval, "rate": rate}
        grads: list[Any] = []
        for step in range(5 * interval + 12):
            # Of gradients as they leave backward: tiny, and so large that only the scale's halving helps.
            g = rng.standard_normal(n) * 2.0 ** rng.integers(-12, 0, n) / scale
            kind = {1: "bad", interval + 2: "inf", interval + 3: "nan", interval + 4: "-inf"}.get(step, "")
            if step > 2 * interval + 5 and rng.random() < 0.2:
                kind = "bad"
            last = 2 * interval + 5  # good steps that look bad, in halfs, or that count as good all the same
            kind = {last: "large", last + 1: "largest", last + 2: "zeros", last + 3: "both"}.get(step, kind)
            grads.append((kind or "good", g))
        true = _gradients(rng, grads, dict(state))
        found = answer.ask(_train, weights, true, dict(state), shown="scaled_step(weights, backward, state)")
        _same_training(found, true, state)
    return "what is tiny arrives, what overflows is skipped, and the scale finds its place by itself."


def _gradients(
    rng: np.random.Generator, drawn: Sequence[tuple[str, Any]], state: dict[str, Any]
) -> list[Any]:
    """Return gradients that become, at the scale of their step, what their kinds name."""
    made = []
    for kind, g in drawn:
        at = int(rng.integers(len(g)))
        n = len(g)
        if kind == "bad":
            kind = str(rng.choice(("inf", "-inf", "nan")))
        if kind == "both":
            g[:2] = np.inf, -np.inf
        elif kind == "large":  # each is finite, their sum is not in halfs
            g[:] = rng.uniform(30_000, 60_000, n) / state["scale"]
        elif kind == "largest":  # the largest halfs of either sign
            g[[at, at - 1]] = np.array([65504, -65504]) / state["scale"]
        elif kind == "zeros":
            g[:] = 0
        elif kind != "good":
            g[at] = {"inf": 1e30, "-inf": -1e30, "nan": np.nan}[kind]
        made.append(g)
        with np.errstate(all="ignore"):
            raw = (g * state["scale"]).astype(np.float16)
        scaled_step(np.zeros(n, np.float32), lambda _scale, raw=raw: raw, state)
    return made


def _same_training(found: Any, grads: Sequence[Any], state: dict[str, Any]) -> None:
    expected = dict(state)
    for at, (true, told) in enumerate(zip(grads, found, strict=True), 1):
        asked, before, after, now, nothing, kept = told
        where = f"Step {at} with scale {expected['scale']:,g}"
        if nothing:
            raise NotYet("scaled_step returns nothing: return the weights, in a skipped step the old ones.")
        if asked != [expected["scale"]]:
            if len(asked) == 1:
                raise NotYet(
                    f"{where} calls backward with {asked[0]:,g}: the loss is multiplied by state['scale']."
                )
            raise NotYet(f"{where} calls backward {len(asked)} times, not once: it is the expensive part.")
        if not isinstance(after, np.ndarray) or after.shape != before.shape:
            raise NotYet(f"{where} returns {spelt(after)}: return the weights, as many as there were.")
        if after.dtype != np.float32:
            raise NotYet(f"{where} returns weights in {after.dtype}: the master weights stay in float32.")
        with np.errstate(all="ignore"):
            raw = (np.asarray(true, np.float64) * expected["scale"]).astype(np.float16)
        scale = expected["scale"]
        good = expected["good"]
        wanted = scaled_step(before, lambda _scale, raw=raw: raw, expected)
        skipped = not np.isfinite(raw).all()
        what = (
            f"{where}, whose gradients hold {'NaN' if np.isnan(raw).any() else 'an infinity'},"
            if skipped
            else where
        )
        slack = 4 * FP32.roundoff * (np.abs(before) + np.abs(wanted))
        if not (np.abs(after - wanted) <= slack).all():
            raise NotYet(f"{what} {_weights_why(skipped, raw, before, after, scale, state['rate'])}")
        if not kept:
            raise NotYet(f"{where} changes weights, which belongs to its caller: return a new array.")
        if now.get("scale") != expected["scale"]:
            raise NotYet(
                f"{what} leaves the scale at {now.get('scale', 'nothing')}, not "
                f"{expected['scale']:,g}. "
                f"{_scale_why(skipped, good, state['interval'])}"
            )
        if now.get("good") != expected["good"]:
            raise NotYet(
                f"{what} leaves state['good'] at {now.get('good', 'nothing')}, not "
                f"{expected['good']}: it counts "
                "steps since the scale last changed."
            )


def _weights_why(
    skipped: bool, raw: Halves, before: Singles, after: Singles, scale: float, rate: float
) -> str:
    if skipped:
        return "changes weights: one bad gradient spoils them for good, so the whole step is skipped."
    large = before - np.float32(rate) * raw.astype(np.float32)
    if np.allclose(after, large, rtol=1e-5, atol=0):
        return "uses gradients that are still scaled: divide by the scale before the step."
    if np.array_equal(after, before):
        return "leaves the weights as they were, with good gradients."
    return (
        "has other weights than weights - rate * gradients / scale, computed in float32: "
        "halfs would lose tiny ones."
    )


def _scale_why(skipped: bool, good: int, interval: int) -> str:
    if skipped:
        return "It was too large: halve it."
    if good + 1 == interval:
        return "After `interval` good steps in a row it doubles: otherwise it only ever shrinks."
    return "It changes after `interval` good steps in a row, and where something overflowed, only."


_TIES = "Exactly half-way goes to the even one: add 0x7FFF, and 1 more where bit 16 is set."

EXERCISES = (
    KernelExercise(
        "13-round",
        "Round to BF16",
        kernel="to_bf16",
        parameters="const float* x, float* y, int n",
        case=to_bf16,
        table=(Row("both ends and the middle of each kind of number", bf16_edges, (182,)),),
        reference="to_bf16.cu",
        level="warm-up",
        once=True,
        measured=Measured(1 << 14, (256, 1, 1), slack=6.0),
        advice=(
            Advice(advice.out_of_bounds, "Guard the end: i < n."),
            Advice(advice.written_twice, "Each element belongs to one thread."),
            Advice(_low_bits, "The lower 16 bits are 0 in a NaN, too: no BF16 number has them."),
            Advice(
                lambda m: _wrong_at(m, np.isnan),
                "NaN has to stay NaN: neither carry into its sign, nor clear all of its fraction.",
            ),
            Advice(lambda m: _wrong_at(m, np.isinf), "An infinity is no NaN, and stays as it is."),
            Advice(
                lambda m: _wrong_at(m, _tiny),
                "Subnormal numbers and zeros round like all others, and keep their sign: what computes with "
                "floats, or compares them, may take them for 0.",
            ),
            Advice(_rounded_as(lambda u: u), "That cuts the lower 16 bits off: it is rounding towards 0."),
            Advice(_rounded_as(lambda u: u + 0x8000), f"Ties go up here, always. {_TIES}"),
            Advice(_rounded_as(lambda u: u + 0x7FFF), f"Ties go down here, always. {_TIES}"),
            Advice(
                _rounded_as(lambda u: u + 0x7FFF + (~u >> 16 & 1)), f"Ties go to the odd one here. {_TIES}"
            ),
            Advice(
                lambda m: m.found is not None and bool((np.abs(m["x"]) > 3.38e38)[m.wrong].all()),
                "What is nearer to ∞'s place than to the largest number becomes ∞.",
            ),
            Advice(advice.partly_unwritten, "Some were never written: the grid may be smaller than n."),
            Advice(
                lambda m: m.found is not None,
                "BF16 is the upper 16 bits of a float: add to its bits so that a carry rounds up, then "
                "clear the lower 16.",
            ),
        ),
        praise="the nearest BF16, ties to even, for zeros, subnormal numbers, infinities and NaN as well.",
    ),
    PythonExercise("13-halfsum", "A sum of halfs that never stops", judge_halfsum),
    PythonExercise("13-tf32x3", "FP32 from three times TF32", judge_tf32x3),
    PythonExercise("13-lossscale", "A scale for the loss", judge_lossscale, level="stretch"),
    *libraries.EXERCISES,
)
