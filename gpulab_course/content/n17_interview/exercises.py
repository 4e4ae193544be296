"""Exercises of notebook 17."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpulab import session
from gpulab.lab.kernels import count
from gpulab.lab.why.diagnose import diagnose as diagnosis
from gpulab.processes.errors import spelt
from gpulab.words import count as plural
from gpulab_course.content.n17_interview.cards.laboratory import DEVICES, info, kernel, on
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
    PythonExercise,
    Row,
    advice,
    draw,
)
from gpulab_course.teach.judge.python.functions import equals, is_number, must_be_a_function
from virtualgpu.records import Dim3

# 17-estimate

_FIGURES = ("bytes", "operations", "memory_us", "compute_us", "us")


def napkin_of(work: Mapping[str, Any], card: Mapping[str, Any]) -> dict[str, float]:
    """Return the estimates that the exercise requires."""
    moved = (sum(map(math.prod, work["reads"])) + sum(map(math.prod, work["writes"]))) * work["bytes_each"]
    operations = 2 * work["multiply_adds"] + work["others"]
    memory_us = moved / card["gb_per_s"] / 1e3
    compute_us = operations / card["tflops"] / 1e6
    us = max(memory_us, compute_us)
    return dict(zip(_FIGURES, (moved, operations, memory_us, compute_us, us), strict=True))


def _works(rng: np.random.Generator, knee: float) -> list[dict[str, Any]]:
    """Work to estimate: an element-wise kernel, a product, a sum of rows, something drawn, and edges.

    `knee` are the operations a byte at which a card changes from one bound to the other: some works lie next
    to it, on either side.

    The first does more operations than it moves bytes, and is held by memory all the same; the third has more
    elements than 32 bits count.
    """
    m, n, k = (int(rng.integers(200, 5000)) for _ in range(3))
    long = (int(rng.integers(50_000, 90_000)), int(rng.integers(90_000, 200_000)))
    each = [2, 4, 8, 4]
    rng.shuffle(each)

    def beside(share: float) -> dict[str, Any]:
        operations = int(share * knee * 8 * m * n)
        return {
            "reads": [(m, n)],
            "writes": [(m, n)],
            "bytes_each": 4,
            "multiply_adds": operations // 3,
            "others": operations - operations // 3 * 2,
        }

    return [
        {
            "reads": [(m, n), (m, n)],
            "writes": [(m, n)],
            "bytes_each": each[0],
            "multiply_adds": 4 * each[0] * m * n,
            "others": m * n,
        },
        {
            "reads": [(m, k), (k, n)],
            "writes": [(m, n)],
            "bytes_each": each[1],
            "multiply_adds": m * n * k,
            "others": 0,
        },
        {
            "reads": [long],
            "writes": [long[:1]],
            "bytes_each": each[2],
            "multiply_adds": 0,
            "others": math.prod(long),
        },
        {
            "reads": [(k, 3, 7)],
            "writes": [(k,), (n, 2)],
            "bytes_each": 1,
            "multiply_adds": int(rng.integers(10**6, 10**9)),
            "others": int(rng.integers(10**6)),
        },
        *(beside(share) for share in (0.9, 1.1, 0.5, 2.0)),
        {"reads": [], "writes": [(m, n)], "bytes_each": 4, "multiply_adds": 0, "others": m * n},
        {"reads": [(n,)], "writes": [()], "bytes_each": 8, "multiply_adds": n, "others": 0},
    ]


_SLIPS = {
    "bytes": (
        (0.5, "Something is counted half, or twice: each array is moved once, in the bytes of its type."),
        (2.0, "Something is counted twice: each array is moved once, in the bytes of its type."),
        (8.0, "These are bits; bytes are asked for."),
    ),
    "operations": ((0.5, "A multiply-add is two operations."),),
    "memory_us": (
        (1e-3, "These are milliseconds: a microsecond is asked for."),
        (1e3, "These are nanoseconds: a microsecond is asked for."),
        (1e9 / 2**30, "GB/s on data sheets are 10⁹ bytes a second, not 2³⁰."),
    ),
    "compute_us": (
        (1e-3, "These are milliseconds: a microsecond is asked for."),
        (1e3, "These are nanoseconds: a microsecond is asked for."),
        (0.5, "A multiply-add is two operations."),
    ),
}


def judge_napkin(answer: Answer) -> str:
    """``napkin(work, card)``: bytes, operations, both times and the larger, each of them judged."""
    must_be_a_function("napkin", answer.is_function, answer.kind)
    cards = [info(str(name)) for name in answer.rng.permutation(DEVICES)[:3]]
    knees = [1e3 * one.fp32_tflops / one.memory_bandwidth_gbps for one in cards]
    works = [(card, _works(answer.rng, knee)) for card, knee in zip(cards, knees, strict=True)]
    for of, work in [(card, work) for card, all_of_it in works for work in all_of_it]:
        card = {"gb_per_s": of.memory_bandwidth_gbps, "tflops": of.fp32_tflops}
        shown = f"napkin(...) for reads {work['reads']}, writes {work['writes']} on {of.name}"
        found = answer.calling(shown, dict(work), dict(card))
        right = napkin_of(work, card)
        if not isinstance(found, dict):
            raise NotYet(f"{shown} gives {spelt(found)}: return a dict with {', '.join(_FIGURES)} and bound.")
        for name in _FIGURES:
            value: Any = found.get(name)
            if not is_number(value):
                raise NotYet(f"{shown}: {name} is {spelt(value)}, a number is asked for.")
            if math.isclose(float(value), right[name], rel_tol=1e-6):
                continue
            slip = next(
                (
                    says
                    for times, says in _SLIPS.get(name, ())
                    if math.isclose(float(value), times * right[name], rel_tol=1e-6)
                ),
                "",
            )
            if name == "us" and not slip:
                summed = math.isclose(float(value), right["memory_us"] + right["compute_us"], rel_tol=1e-6)
                slip = (
                    "Memory and arithmetic work at the same time: the larger bound counts, not the sum."
                    if summed
                    else ("Both bounds are right, and the larger of them is the estimate.")
                )
            if name == "bytes" and not slip:
                slip = "All that is read and all that is written, in the bytes of its type."
            raise NotYet(
                f"{shown}: {name} is {float(value):.6g}, it should be {right[name]:.6g}. {slip}".rstrip()
            )
        bound = "memory" if right["memory_us"] > right["compute_us"] else "arithmetic"
        if found.get("bound") != bound:
            raise NotYet(
                f"{shown}: bound is {spelt(found.get('bound'))}, it should be {bound!r}: the bound is "
                f"what takes longer."
            )
    return "every figure on the way is right, so nothing cancels."


# 17-diagnose

CAUSES = ("uncoalesced", "bank conflicts", "atomics", "divergence", "grid", "nothing")
SYMPTOMS = ("memory-bound", "compute-bound", "latency-bound", "slow", "DRAM", "issue", "load/store")


def launches(cp: Any, rng: random.Random) -> list[tuple[Any, ...]]:
    """Kernels with one flaw each, in an order that is drawn: kernel, grid, block, arguments, shared bytes.

    Each flaw is as slight as it may be and still be worth mending on every device: 12 sectors for a load,
    fewer than 4 wavefronts for a request, three branches, a block for half of the SMs. The one with 12
    sectors keeps DRAM busy for more than 0.7 of its time, the one with branches has hardly more blocks than
    there are SMs. Of those without a flaw one keeps DRAM busy, the other does not.
    """
    blocks = rng.randint(400, 700)
    n = 256 * blocks
    zeros = cp.zeros(n, "float32")
    bins = cp.zeros(64, "float32")
    sms = session.backend().device_info().sm_count
    few = rng.randint(2, 12)
    many = rng.randint(3500, 4500)
    scattered = 7 * many

    def strided(step: int) -> tuple[Any, ...]:
        x = cp.zeros(256 * scattered * step, "float32")
        y = cp.zeros(256 * scattered, "float32")
        return kernel(cp, "strided"), scattered, 256, (x, y, np.int32(step), np.int32(256 * scattered)), 0

    def tabled(step: int) -> tuple[Any, ...]:
        args = (cp.zeros(128 * step, "float32"), zeros, np.int32(step), np.int32(rng.randint(72, 100)))
        return kernel(cp, "tabled", 512 * step), 2 * blocks, 128, args, 512 * step

    def forked(ways: int, blocks: int) -> tuple[Any, ...]:
        return kernel(cp, "forked"), blocks, 256, (zeros, zeros, np.int32(ways), np.int32(32)), 0

    def scaled(grid: int, n: int) -> tuple[Any, ...]:
        x, y = (cp.zeros(n, "float32") for _ in range(2))
        return kernel(cp, "scaled"), grid, 256, (x, y, np.int32(n)), 0

    counts = cp.zeros(n, "int32"), bins, np.int32(rng.choice([1, 8, 64])), np.int32(n)
    made = [
        strided(3),
        tabled(4),
        (kernel(cp, "counted"), blocks, 256, counts, 0),
        scaled(few, n),
        forked(3, sms + rng.randint(1, 8)),
        scaled(sms // 2, n),
        forked(1, blocks),
        scaled(4 * many, 1024 * many),
    ]
    rng.shuffle(made)
    return made


def seen_of(launch: tuple[Any, ...]) -> tuple[dict[str, float], str]:
    """Counters of a launch as a learner's function gets them, and the cause that the laboratory finds."""
    made, grid, block, args, shared_bytes = launch
    counters = count(made, grid, block, args, shared_mem=shared_bytes)
    found = diagnosis(made, grid, block, args, shared_mem=shared_bytes)
    device = info(session.backend().device_info().name)
    caches = counters.caches
    assert caches is not None
    loads = counters.total("requests", "global", "load")
    banks = counters.total("requests", "shared")
    seen = {
        "sms": device.sm_count,
        "blocks": grid,
        "sectors_per_load": counters.total("sectors", "global", "load") / loads if loads else 0.0,
        "wavefronts_per_shared": counters.total("wavefronts", "shared") / banks if banks else 0.0,
        "atomics": counters.total("requests", "global", "atomic"),
        "active_lanes": counters.lane_efficiency,
        "dram_share": (caches.dram_read_bytes + caches.dram_write_bytes)
        / found.time_ns
        / device.memory_bandwidth_gbps,
        "us": found.time_ns / 1e3,
    }
    mended = [cause for cause in found.worth_mending if cause.kind != "launch"]
    return {name: round(float(value), 4) for name, value in seen.items()}, mended[
        0
    ].kind if mended else "nothing"


def judge_cause(answer: Answer) -> str:
    """``cause(seen)``: names what hidden kernels suffer from, as the laboratory finds it."""
    must_be_a_function("cause", answer.is_function, answer.kind)
    rng = random.Random(answer.seed)
    device = rng.choice(["RTX 4090", "A100", "H100"])
    with on(device) as cp:
        found = [each for launch in launches(cp, rng) if (each := seen_of(launch))[1] in CAUSES]
    for seen, truth in found:
        said = answer.calling(f"cause({seen})", dict(seen))
        if equals(said, truth):
            continue
        shown = f"On {info(device).name}, for {seen}, cause says {spelt(said)}"
        if isinstance(said, str) and said in SYMPTOMS:
            raise NotYet(
                f"{shown}: that is a symptom, which unit is busy. Name the cause: one of {', '.join(CAUSES)}."
            )
        if not isinstance(said, str) or said not in CAUSES:
            raise NotYet(f"{shown}: name one of {', '.join(CAUSES)}.")
        raise NotYet(
            f"{shown}; without {_NAMED[truth]} it would gain most, so it is {truth!r}. {_TELLS[truth]}"
        )
    return f"{len(found)} hidden kernels on {info(device).name}, each for its own counter."


_NAMED = {
    "uncoalesced": "scattered loads",
    "bank conflicts": "bank conflicts",
    "atomics": "contended atomics",
    "divergence": "divergence",
    "grid": "its few blocks",
    "nothing": "none of them",
}
_TELLS = {
    "uncoalesced": "A load of 32 neighbouring floats needs 4 sectors.",
    "bank conflicts": "A shared request needs one wavefront.",
    "atomics": "Every lane of these adds to few words, one after another.",
    "divergence": "Most lanes wait while others of their warp work.",
    "grid": "There are fewer blocks than SMs; look at that before anything else.",
    "nothing": "A busy DRAM alone is no fault: that is the roof.",
}

# 17-bug


def argmax_case(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
    """The index of each row's largest element, the first of several; -1 for an empty row."""
    rows, cols = size
    least = _LEAST
    most = _MOST
    x = data.integers((rows, cols), -40, 40)
    for row, kind in zip(x, data.rng.integers(0, 6, rows) if cols else (), strict=False):
        if kind == 1:
            row[:] = data.any_integers(cols)
        elif kind > 1:  # equals and neighbours, which floats do not tell apart, at one end or just above it
            row[:] = (
                least + data.rng.integers(0, 3, cols) if kind < 4 else most - data.rng.integers(0, 3, cols)
            )
        if kind == 3:  # whose difference to the others is no int
            row[int(data.rng.integers(cols))] = data.rng.integers(1, most)
    if rows and cols:
        x[int(data.rng.integers(rows))] = np.int32(data.rng.choice([-7, least]))  # a row of equals
        x[int(data.rng.integers(rows)), -1] = most
    return _argmax(data, x)


def _argmax(data: Draw, x: Any) -> Case:
    rows, cols = x.shape
    wanted = np.full(rows, -1, np.int32) if cols == 0 else x.argmax(axis=1).astype(np.int32)
    grid = max(1, rows) + int(data.rng.integers(0, 3))
    return Case(grid, {"x": x, "rows": rows, "cols": cols}, {"at": wanted})


_LEAST = -(2**31)
_MOST = 2**31 - 1


def one_above(*others: int) -> Callable[[Draw, Any, Dim3], Case]:
    """Rows of equal elements, one of them 1 larger: the last one, the first, and others."""

    def case(data: Draw, size: Any, block: Dim3) -> Case:
        rows, cols = size
        x = np.resize(np.array(others, np.int32), (rows, 1)) * np.ones(cols, np.int32)
        at = np.r_[cols - 1, 0, data.rng.integers(0, cols, rows)][:rows]
        x[np.arange(rows), at] += 1
        return _argmax(data, x)

    return case


def several_largest(data: Draw, size: Any, block: Dim3) -> Case:
    """Rows with their largest element in several places or everywhere, at both ends of an int and between."""
    rows, _ = size
    most = np.resize(np.array([_LEAST, -5, 0, _MOST, -1, 7], np.int32), (rows, 1))
    x = np.where(data.rng.random(size) < 0.5, most, _LEAST)
    x[:, -1] = most[:, 0]
    x[::2] = most[::2]
    return _argmax(data, x.astype(np.int32))


def several_large(data: Draw, size: Any, block: Dim3) -> Case:
    """Rows whose largest element is the largest int, or close to it, and whose others are the least ints."""
    rows, cols = size
    x = _LEAST + data.rng.integers(0, 3, size)
    x[np.arange(rows), data.rng.integers(0, cols, rows)] = _MOST - np.arange(rows) % 3
    return _argmax(data, x.astype(np.int32))


def _rows_and_empty_ones(rng: np.random.Generator, at_once: int) -> list[Any]:
    """`draw.matrices`, and one without columns."""
    return [*draw.matrices(rng, at_once), (int(rng.integers(2, 30)), 0)]


def _other_of_equals(m: Mistake) -> bool:
    """Return whether each answer points at an equally large element."""
    if m.found is None or m.wanted is None or m["cols"] == 0:
        return False
    x = np.asarray(m["x"])
    inside = (m.found >= 0) & (m.found < m["cols"])
    rows = np.arange(len(x))
    return bool(inside.all() and (x[rows, m.found] == x[rows, m.wanted]).all())


def _only_least(m: Mistake) -> bool:
    """Return whether only rows are wrong that contain nothing but the least int."""
    return m.found is not None and m["cols"] > 0 and bool((m["x"].max(axis=1) == _LEAST)[m.wrong].all())


def _negative_rows(m: Mistake) -> bool:
    """Return whether the wrong rows are those without a positive number and with several numbers."""
    if m.found is None or m["cols"] == 0:
        return False
    x = np.asarray(m["x"])
    below = x.max(axis=1) <= 0
    return bool(below[m.wrong].all() and m.wrong[below & (m.wanted != 0)].all())


def _equal_floats(m: Mistake) -> bool:
    """Return whether each answer points at an element that is the largest after conversion to float."""
    if m.found is None or m.wanted is None or m["cols"] == 0:
        return False
    x = np.asarray(m["x"], np.float32)
    inside = (m.found >= 0) & (m.found < m["cols"])
    rows = np.arange(len(x))
    return bool(inside.all() and (x[rows, m.found] == x[rows, m.wanted]).all())


# 17-refute

MOST_RUNS = 60
SETTING = {"n": 1 << 20, "block": 256, "pad": 0, "unroll": 1}
_CLOSE = 1.03


class Bench:
    """A model with hidden properties: the time of a program on a device, in µs, in a setting."""

    def __init__(
        self,
        seed: int,
        device: str,
        change: str,
        pair: tuple[int, int],
        setting: dict[str, int],
        gain: float,
        holds: bool,
        number: int,
    ) -> None:
        self._rng = random.Random(seed)
        self.runs = 0
        self._number = number
        self._claimed = device, change, pair, dict(setting), gain
        self._times: dict[Any, int] = {}
        self._slow: dict[Any, int] = {}
        self._misleading = pair[holds]  # what slow runs slow down more: it makes the verdict look false
        self.asked: set[tuple[str, tuple[tuple[str, int], ...]]] = set()

    def __call__(self, device: str, setting: dict[str, int]) -> float:
        """Return the time of one run.

        Parameters that are missing in the setting have their defaults: n = 2**20, block = 256 and so on.
        """
        unknown = set(setting) - set(SETTING)
        if unknown:
            raise TypeError(f"run() has no {sorted(unknown)[0]!r}; there are {', '.join(SETTING)}.")
        self.runs += 1
        if self.runs > 40 * MOST_RUNS:
            raise NotYet(f"settle runs on and on; {MOST_RUNS} runs are enough.")
        now = {**SETTING, **setting}
        key = device, tuple(sorted(now.items()))
        self.asked.add(key)
        change = self._claimed[1]
        us = 30.0 + now["n"] / 2**16
        us *= 1.0 + 0.35 * abs(math.log2(now["block"] / 128)) / 3 + 0.2 * (now["unroll"] - 1) / 7
        us *= 1.6 if device == "T4" else 1.0
        us *= self._factor(device, now)
        times = self._times[key] = self._times.get(key, 0) + 1
        # One of every six runs of a setting is slow, so that neither a single run nor a mean tells anything:
        # where a slow one misleads, it is another one for each claim, and each of them for one or two claims.
        if times % 6 == 1:
            at = self._number if now[change] == self._misleading else self._rng.randrange(30)
            self._slow[key] = times + (at % 6 if times > 1 else 1 + at % 5)
        first = self._rng.uniform(8.0, 20.0) if self.runs == 1 else self._rng.uniform(2.0, 5.0)
        us *= self._rng.uniform(1.0, 1.04) * (first if times == 1 else 1.0)
        slow = self._rng.uniform(7.0, 9.0) if now[change] == self._misleading else self._rng.uniform(1.5, 2.0)
        return us * (slow if times == self._slow[key] else 1.0)

    def _factor(self, device: str, now: dict[str, int]) -> float:
        """Return the claimed change's factor: the hidden gain in the claimed setting, or its inverse."""
        claimed, change, (_, to), setting, gain = self._claimed
        if now[change] != to:
            return 1.0
        here = device == claimed and all(
            now[name] == value for name, value in setting.items() if name != change
        )
        base = self._plain(now, change)
        return (1 / gain if here else gain) / base

    def _plain(self, now: dict[str, int], change: str) -> float:
        """Return the factor of the change without the hidden gain; `_factor` divides by it."""
        (start, to) = self._claimed[2]
        if change not in ("block", "unroll", "n"):
            return 1.0

        def shape(value: int) -> float:
            if change == "n":
                return 30.0 + value / 2**16
            if change == "block":
                return 1.0 + 0.35 * abs(math.log2(value / 128)) / 3 + 0.2 * (now["unroll"] - 1) / 7
            return 1.0 + 0.35 * abs(math.log2(now["block"] / 128)) / 3 + 0.2 * (value - 1) / 7

        return shape(to) / shape(start)


def _settled(answer: Any, asks: Callable[..., Any], claim: dict[str, Any]) -> Any:
    """Run the answer in its own process and return its result."""

    def run(device: str = "T4", **setting: int) -> Any:
        return asks(device, {name: int(value) for name, value in setting.items()})

    return answer(claim, run)


def _claims(rng: random.Random) -> list[tuple[dict[str, Any], float]]:
    """Draw claims and their hidden gains; as many claims are true as false."""
    made = []
    for at in range(8):
        change, pair = rng.choice(
            [("pad", (0, 1)), ("block", (64, 512)), ("unroll", (1, 4)), ("block", (1024, 256))]
        )
        setting = {
            "n": rng.choice([1 << 16, 1 << 18, 3 << 20]),
            "block": rng.choice([64, 128, 512]),
            "pad": rng.choice([2, 3]),
            "unroll": rng.choice([2, 8]),
        }
        del setting[change]
        # Not only true or upside down: some gain, and a little less than is claimed; and no number between
        # 1.5 and 3 tells those that hold from the others.
        least = (3.0, 1.5, 2.0, 3.0, 1.5, 2.0, 2.0, 1.5)[at]
        holds = (1.05, 1.4)
        refuted = (least / _CLOSE / 1.05, 1.1, 0.6, least / _CLOSE / 1.05)
        gain = least * _CLOSE * holds[at // 2 % 2] if at % 2 else refuted[at // 2]
        claim = {
            "device": rng.choice(["H100", "A100", "L40S"]),
            "change": change,
            "from": pair[0],
            "to": pair[1],
            "times_as_fast": least,
            "setting": setting,
        }
        made.append((claim, gain))
    rng.shuffle(made)
    return made


def judge_settle(answer: Answer) -> str:
    """``settle(claim, run)``: whether a claim ``holds`` or is ``refuted``, by an experiment that can tell."""
    must_be_a_function("settle", answer.is_function, answer.kind)
    rng = random.Random(answer.seed)
    verdicts = []
    for number, (claim, gain) in enumerate(_claims(rng), start=1):
        truth = "holds" if gain >= claim["times_as_fast"] else "refuted"
        changed = f"{claim['change']} {claim['from']} → {claim['to']}"
        shown = f"settle for claim {number}, {changed} on {claim['device']}"
        pair = claim["from"], claim["to"]
        bench = Bench(
            rng.randrange(10**6),
            claim["device"],
            claim["change"],
            pair,
            claim["setting"],
            gain,
            truth == "holds",
            number,
        )
        said = answer.ask(_settled, claim, shown=shown, back=bench)
        if not isinstance(said, str) or said not in ("holds", "refuted"):
            raise NotYet(f"{shown} gives {spelt(said)}: return 'holds' or 'refuted'.")
        if not bench.runs:
            raise NotYet(f"{shown} runs nothing: a verdict without an experiment cannot fail.")
        if not any(device == claim["device"] for device, _ in bench.asked):
            raise NotYet(f"{shown} measures on another device: the claim is about {claim['device']}.")
        compared = [{**SETTING, **claim["setting"], claim["change"]: value} for value in pair]
        if not {(claim["device"], tuple(sorted(one.items()))) for one in compared} <= bench.asked:
            raise NotYet(
                f"{shown} never runs the two settings that the claim compares, {claim['setting']} with "
                f"{claim['change']} "
                f"{claim['from']} and {claim['to']}: whatever else differs is confounded with it."
            )
        verdicts.append(said)
        if said != truth:
            least = claim["times_as_fast"]
            raise NotYet(
                f"{shown}: it is {gain:.2f} times as fast where at least {least:g} was claimed, so it "
                f"{_is(truth)}, and settle says "
                f"{said!r}. Compare from / to with what is claimed, by a statistic that a cold first run "
                f"and a "
                "few slow ones do not move."
            )
        if bench.runs > MOST_RUNS:
            raise NotYet(f"{shown} takes {plural(bench.runs, 'run')}; {MOST_RUNS} are enough.")
    return "claims that hold and claims that do not are told apart, each where it was made."


def _is(truth: str) -> str:
    return "holds" if truth == "holds" else "is refuted"


# 17-capstone


def decoding_step(data: Draw, size: tuple[int, int], block: Dim3) -> Case:
    """Attention of one query a head; scores are small, or so large that their exponentials overflow."""
    heads, tokens = size
    rng = data.rng
    shapes = (heads, 32), (heads, tokens, 32), (heads, tokens, 32)
    query, keys, values = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    scale = np.float32(rng.choice([rng.uniform(0.1, 0.3), 1.0, -1.5, rng.uniform(4, 7)]))
    if rng.random() < 0.4:  # whole scores, thousands above or below 0, which no order of adding rounds
        query = rng.integers(1, 4, shapes[0]).astype(np.float32)
        far = 40 * rng.choice([-1, 1], (heads, 1, 1))
        keys = (rng.integers(-3, 4, shapes[1]) + far).astype(np.float32)
        scale = np.float32(rng.choice([0.125, 0.5, 1]))
    values *= np.float32(rng.choice([1, 1000]))
    return _attended(data, query, keys, values, scale)


def attended_like(
    scale: float, far: float = 0, equal: bool = False, values: str = ""
) -> Callable[[Draw, Any, Dim3], Case]:
    """Attention with this scale, scores this far from 0, equal keys, or values of one kind."""

    def case(data: Draw, size: Any, block: Dim3) -> Case:
        heads, tokens = size
        query = data.rng.integers(1, 4, (heads, 32)).astype(np.float32)
        keys = data.rng.integers(-3, 4, (heads, 1 if equal else tokens, 32)) + far
        keys = np.ascontiguousarray(np.broadcast_to(keys, (heads, tokens, 32)), np.float32)
        held = data.rng.standard_normal((heads, tokens, 32)).astype(np.float32)
        held = {"": held, "negative": -np.abs(held) - 1, "far": held + 1000}[values]
        return _attended(data, query, keys, held, np.float32(scale))

    return case


def attended_peaks(data: Draw, size: Any, block: Dim3) -> Case:
    """One token of each head far above or below all others, at another place in each."""
    heads, tokens = size
    query = data.rng.integers(1, 4, (heads, 32)).astype(np.float32)
    keys = data.rng.integers(-3, 4, (heads, tokens, 32)).astype(np.float32)
    at = np.arange(heads) % tokens
    keys[np.arange(heads), at] += data.rng.choice((-40, 40, 40), (heads, 1))
    values = data.rng.standard_normal((heads, tokens, 32)).astype(np.float32)
    return _attended(data, query, keys, values, np.float32(0.25))


def _attended(data: Draw, query: Any, keys: Any, values: Any, scale: Any) -> Case:
    rng, (heads, tokens, _) = data.rng, keys.shape
    scores = np.einsum("hd,htd->ht", query.astype(float), keys.astype(float)) * float(scale)
    if tokens > 1000:  # where one alone may have all the weight, the last shares it
        best = scores.argmax(axis=1)
        keys[:, -1], scores[:, -1] = keys[range(heads), best], scores[range(heads), best]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    wanted, terms = (np.einsum("ht,htd->hd", weights, v) for v in (values, np.abs(values)))
    given = {"query": query, "keys": keys, "values": values, "scale": scale, "heads": heads, "tokens": tokens}
    # Roundings of a score are as large as its products; weights take them up.
    products = np.einsum("hd,htd->ht", np.abs(query).astype(float), np.abs(keys).astype(float))
    room = 16 + np.abs(float(scale)) * products.max(axis=1, keepdims=True)
    out = Near(wanted.astype(np.float32), terms * room, ulps=4)
    return Case(heads + int(rng.integers(0, 3)), given, {"out": out})


def _attends_as(m: Mistake, scale: Any = None, lanes: int = 32) -> bool:
    """Return whether another scale, or fewer of a score's products, lead to this result."""
    if m.found is None or m.wanted is None:
        return False
    scores = np.einsum(
        "hd,htd->ht", m["query"][:, :lanes].astype(float), m["keys"][..., :lanes].astype(float)
    )
    scores *= float(m["scale"] if scale is None else scale)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    made = np.einsum("ht,htd->hd", weights / weights.sum(axis=1, keepdims=True), m["values"])
    near = [
        np.allclose(held, made, rtol=1e-3, atol=1e-3 * np.abs(made).max()) for held in (m.found, m.wanted)
    ]
    return near == [True, False]


def _some_heads(rng: np.random.Generator, at_once: int) -> list[Any]:
    """(heads, tokens): one of each, fewer tokens than warps, whole and ragged, more than fit into a block."""
    drawn = [(int(rng.integers(2, 9)), int(rng.integers(2, 200))) for _ in range(3)]
    return [(1, 1), (2, 5), (3, 32), (5, 33), *drawn, (7, 300), (1, int(rng.integers(12_300, 13_000)))]


EXERCISES = (
    PythonExercise("17-estimate", "A napkin", judge_napkin, level="warm-up"),
    PythonExercise("17-diagnose", "Eight hidden kernels", judge_cause),
    KernelExercise(
        "17-bug",
        "Repair: where is the largest?",
        "row_argmax",
        "const int* x, int* at, int rows, int cols",
        argmax_case,
        reference="row_argmax.cu",
        kind="repair",
        sizes=_rows_and_empty_ones,
        table=(
            Row(
                "one element 1 above the others",
                one_above(_MOST - 1, _LEAST, 2**24, -(2**24) - 2, 0, -1, -2),
                ((7, 1500), (9, 70), (7, 1), (8, 2)),
            ),
            Row(
                "one large element, others that differ by more than an int holds",
                several_large,
                ((6, 1300), (6, 40)),
            ),
            Row("several largest elements", several_largest, ((12, 1400), (12, 33), (12, 2))),
        ),
        once=True,
        measured=Measured((40, 700), (256, 1, 1)),
        budgets=(Budget("atomics", "A tree in shared memory needs none.", most=0),),
        advice=(
            Advice(
                advice.out_of_bounds,
                "The grid may have more blocks than there are rows, and a row fewer columns than threads.",
            ),
            Advice(advice.fault("barrier"), "All threads of a block have to come to every barrier."),
            Advice(advice.hazard("WAW"), "One thread of one block writes a row's answer."),
            Advice(
                advice.hazard("RAW", "WAR"),
                "Other warps have written what is read: a barrier of the whole block after each step.",
            ),
            Advice(advice.written_twice, "One thread writes a row's answer."),
            Advice(lambda m: m["cols"] == 0, "Each row has an answer, an empty one -1."),
            Advice(
                _other_of_equals,
                "Of several equal ones the first is asked for: compare places where values are equal.",
            ),
            Advice(_equal_floats, "Two ints next to each other may be one float: compare them as ints."),
            Advice(
                _only_least,
                "A row may be negative throughout, or nothing but the least int: its first counts.",
            ),
            Advice(_negative_rows, "A row may be negative throughout: 0 is not the least there is."),
            Advice(advice.partly_unwritten, "Each row has an answer, an empty one -1."),
            Advice(
                lambda m: m.found is not None,
                "Does the tree lose an element where the number of threads is odd, does every thread see all "
                "its columns, and do all threads of the block come to each barrier?",
            ),
        ),
        praise="the first of the largest, for every row, block and sign.",
    ),
    PythonExercise("17-refute", "Settle a claim", judge_settle, level="stretch"),
    KernelExercise(
        "17-capstone",
        "One decoding step",
        "attend",
        "const float* query, const float* keys, const float* values, float* out, float scale, int heads, "
        "int tokens",
        decoding_step,
        reference="attend.cu",
        naive="attend_naive.cu",
        level="stretch",
        sizes=_some_heads,
        table=(
            Row("one token", attended_like(0.25), ((3, 1),)),
            Row("a scale of 0", attended_like(0), ((3, 40),)),
            Row("a scale below 0", attended_like(-0.5, 3), ((3, 40), (2, 400))),
            Row("equal keys", attended_like(0.5, equal=True), ((3, 5), (2, 300))),
            Row("scores of tens of thousands below 0", attended_like(1, -2000), ((3, 4), (3, 90))),
            Row("scores of tens of thousands above 0", attended_like(1, 2000), ((3, 4), (3, 90))),
            Row("one score far off", attended_peaks, ((33, 33), (34, 34), (35, 35), (40, 70), (9, 4))),
            Row("negative values", attended_like(0.125, values="negative"), ((3, 70),)),
            Row("values around 1,000", attended_like(0.125, values="far"), ((3, 70),)),
        ),
        blocks=draw.whole_warps,
        once=True,
        rules=4,
        measured=Measured((12, 256), (256, 1, 1), slack=3.0),
        budgets=(
            Budget("load_sectors", "Keys and values are read once, by neighbouring lanes.", allowance=1.3),
            Budget(
                "warp_instructions",
                "A score is a product of 32 numbers: all lanes of a warp share it.",
                allowance=1.6,
            ),
            Budget("atomics", "Warps meet in shared memory.", most=0),
        ),
        advice=(
            Advice(advice.out_of_bounds, "The grid may have more blocks than there are heads."),
            Advice(advice.fault("barrier"), "All warps of a block come to the barrier."),
            Advice(advice.hazard("RAW", "WAR"), "Warps meet in shared memory, and a barrier lies between."),
            Advice(advice.written_twice, "One warp writes a head's numbers."),
            Advice(
                lambda m: _attends_as(m, scale=np.float32(1)),
                "The scores are not scaled: each is the product of query and key, times scale.",
            ),
            Advice(
                lambda m: _attends_as(m, lanes=16) or _attends_as(m, lanes=1),
                "A score is the sum over all 32 lanes.",
            ),
            Advice(
                lambda m: m.found is not None and not np.isfinite(m.found).all(),
                "NaN and ∞ come from an exponential that overflows (take the largest score off), from a warp "
                "that has no token, or from what other warps have not written yet (a barrier).",
            ),
            Advice(
                advice.partly_unwritten,
                "Some numbers were never written: each head has 32.",
            ),
            Advice(
                lambda m: m.found is not None,
                "Compare with NumPy for one head: the score (all lanes, scale); a higher score, after which "
                "both the sum and the weights so far shrink, in each warp and where warps are joined; and "
                "whether all warps are joined, behind a barrier.",
            ),
        ),
        praise="every key and value read once, for any number of tokens and warps.",
    ),
)
