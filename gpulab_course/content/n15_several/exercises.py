"""Exercises of notebook 15."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.processes.errors import spelt
from gpulab.words import count, size
from gpulab_course.teach.judge import Answer, NotYet, PythonExercise
from gpulab_course.teach.judge.python.functions import is_whole, must_be_a_function, parts_of
from gpulab_course.teach.judge.python.several import RUN_MODES, Gpus, gpus, tried

Told = dict[str, Any]


def _fine(shown: str, told: Told, how: Any) -> None:
    """Raise what is wrong in the order of streams, or with a host that waits or carries data itself."""
    if told["said"]:
        raise NotYet(f"{shown}: {' '.join(str(told['said'][0]).split())}")
    if how == "as given":
        if told["host_bytes"]:
            raise NotYet(
                f"{shown} brings {size(told['host_bytes'])} through the host's memory. Copy from GPU to GPU: "
                "cp.copyto(there, here)."
            )
        if told["waits"]:
            raise NotYet(
                f"{shown} lets the host wait {count(told['waits'], 'time')}. Let streams wait for events "
                "instead: stream.wait_event(event)."
            )


def _elsewhere(how: Any) -> str:
    return "" if how in ("as given", "checked") else " in another order that the streams allow"


def _got(cp: Any, array: Any) -> Any:
    if not array.size:
        return np.empty(array.shape, array.dtype)
    with cp.cuda.Device(array.device.id):
        return array.get()


# 15-ring


def _rung(answer: Any, many: int, brought: list[Any], how: Any) -> Told:
    """Run the answer in its own process; return the contents of each GPU afterwards, and the costs."""
    with gpus(many) as made, tried(made, how) as said:
        parts = [made.put(gpu, array) for gpu, array in enumerate(brought)]
        _, told = made.called(lambda: answer(made.cp, list(parts), list(made.streams)))
        told["found"] = [made.read(gpu, part) for gpu, part in enumerate(parts)]
    return {**told, "said": said}


# Floats would round such integers; those of the floats are exact in any order, and no integers.
_SUMMED = {"int32": (2 * 10**8, 1), "int64": (10**17, 1), "float32": (10**5, 8), "float64": (10**13, 8)}


def _summed(rng: np.random.Generator, kind: str, length: int) -> npt.NDArray[Any]:
    most, parts = _SUMMED[kind]
    values = rng.integers(-most, most, length)
    return (values if parts == 1 else values / parts).astype(kind)


def judge_ring(answer: Answer) -> str:
    """``ring(cp, parts, streams)``: each GPU's array becomes the sum, along a ring."""
    must_be_a_function("ring", answer.is_function, answer.kind)
    rng = answer.rng
    cases = [
        (4, 64),
        (2, 7),
        (3, int(rng.integers(40, 90)) * 3 + 1),
        (5, 3),
        (8, int(rng.integers(300, 400)) * 8 + 5),
    ]
    kinds = [str(kind) for kind in rng.permutation(["int32", "int64", "float32", "float64"])]
    for (many, length), kind in zip(cases, [*kinds, str(rng.choice(kinds[:2]))], strict=True):
        brought = [_summed(rng, kind, length) for _ in range(many)]
        wanted = np.sum(brought, axis=0, dtype=kind)
        for how in RUN_MODES if many in (3, 4) else RUN_MODES[:2]:
            shown = f"ring on {many} GPUs with {count(length, 'element')}"
            told = answer.ask(_rung, many, brought, how, shown=shown)
            _fine(shown, told, how)
            right = [np.array_equal(found, wanted) for found in told["found"]]
            if not all(right):
                raise NotYet(_of_ring(f"{shown}{_elsewhere(how)}", right, told["found"], wanted, brought))
            most = 2 * (many - 1) * -(-length // many) * brought[0].itemsize
            if how == "as given":
                for way in ("out", "in"):
                    moved = max(told[way])
                    if moved > most:
                        raise NotYet(
                            f"{shown}: {size(moved)} {'go out of' if way == 'out' else 'come into'} GPU "
                            f"{told[way].index(moved)}, and a ring needs {size(most)} at each port at most: "
                            "2·(n − 1) chunks, to the next GPU."
                        )
    return "every GPU holds the sum, and no port passes more than 2·(n − 1)/n of the data, to within a chunk."


def _of_ring(
    shown: str, right: Sequence[bool], found: Sequence[Any], wanted: Any, brought: Sequence[Any]
) -> str:
    many = len(brought)
    length = len(wanted)
    rank = right.index(False)
    if right.count(True) == 1:
        alone = f"{shown}: GPU {right.index(True)} alone holds the sum."
        return f"{alone} Send finished chunks on, once more round."
    holds = np.asarray(found[rank])
    if holds.shape != wanted.shape:
        return f"{shown}: leave each array where it is, and write the sum into it."
    bad = np.flatnonzero(holds != wanted)
    whole = length - length % many
    if length % many and bad.size and bad[0] >= whole:
        return (
            f"{shown}: the last {count(length - whole, 'element')} of GPU {rank} are not the sum. "
            f"{many} does not "
            f"divide {length}: let chunk k reach from k * size // n to (k + 1) * size // n."
        )
    twice = any(np.array_equal(holds[bad], (wanted + own)[bad]) for own in brought)
    return (
        f"{shown}: GPU {rank} holds something else than the sum from element {bad[0]} on"
        + (", with a part that has come in before" if twice else "")
        + ". What comes in during the first n − 1 steps is added to a chunk before that chunk is sent on; "
        "after those it is put in a chunk's place."
    )


# 15-broadcast

_TYPES = ("float32", "float16", "int64", "uint8")
MOST_MESSAGES = 4


def _arrays(rng: Any, many: int) -> list[npt.NDArray[Any]]:
    """Small arrays of mixed types and shapes, an empty one and numbers among them; values of every bit.

    A few are of three types, and of the fourth one that is empty.
    """
    shapes: list[tuple[int, ...]] = [(), (0,), (3,), (1, 5), (7, 3), (2, 3, 4), (33,)]
    always = (("float32", (5,)), ("uint8", (0,)), ("int64", (7, 3)), ("float16", (2, 3, 4)), ("int64", ()))
    made = []
    for number in range(many):
        kind = np.dtype(_TYPES[int(rng.integers(len(_TYPES) - (many < 20)))])
        shape = shapes[int(rng.integers(len(shapes)))] if number % 5 else (int(rng.integers(1, 40)),)
        if number < len(always):
            kind = np.dtype(always[number][0])
            shape = always[number][1]
        wide = np.iinfo(np.int64)
        values = np.asarray(rng.integers(wide.min, wide.max, shape))
        made.append((values % 251 / 8 if kind.kind == "f" else values).astype(kind))
    return made


def _sent(answer: Any, arrays: list[Any], targets: list[int], turned: list[int], how: Any) -> Told:
    """Run the answer in its own process; return its arrays, their GPUs and alignment, and the messages."""
    with gpus(1 + max(targets)) as made, tried(made, how) as said:
        cp = made.cp
        with cp.cuda.Device(0):
            # A copy with the axes exchanged, seen the other way: its elements do not lie in its own order.
            given = [
                cp.asarray(np.ascontiguousarray(array.T)).T if k in turned else cp.asarray(array)
                for k, array in enumerate(arrays)
            ]
        made.quiet()
        result, told = made.called(lambda: answer(cp, list(given), list(targets)))
        lists = [list(each) for each in result] if isinstance(result, list | tuple) else None
        made.quiet()
        told["kept"] = all(
            here.shape == array.shape and np.array_equal(_got(cp, here), array)
            for here, array in zip(given, arrays, strict=True)
        )
        told["lists"] = None
        if lists is not None and all(isinstance(a, cp.ndarray) for each in lists for a in each):
            told["lists"] = [
                [[a.device.id, a.data.ptr % max(a.itemsize, 1), _got(cp, a)] for a in each] for each in lists
            ]
    return {**told, "said": said}


def judge_broadcast(answer: Answer) -> str:
    """``broadcast(cp, arrays, targets)``: GPU 0's arrays on other GPUs, in few messages."""
    must_be_a_function("broadcast", answer.is_function, answer.kind)
    rng = answer.rng
    cases: list[tuple[int, list[int], Any]] = [(1, [1], "checked"), (12, [2, 1], "as given")]
    cases += [(12, [1, 2], "checked"), (57, [1, 3], RUN_MODES[-1]), (400, [1], "as given")]
    for many, targets, how in cases:
        arrays = _arrays(rng, many)
        turned = [k for k, a in enumerate(arrays) if a.ndim > 1 and (k < 5 or rng.random() < 0.5)]
        shown = f"broadcast of {count(many, 'array')} to {count(len(targets), 'GPU')}"
        told = answer.ask(_sent, arrays, targets, turned, how, shown=shown)
        _fine(shown, {**told, "waits": 0}, "as given")  # the host may wait here
        lists = told["lists"]
        if lists is None or [len(each) for each in lists] != [many] * len(targets):
            raise NotYet(
                f"{shown} should return a list for each GPU of `targets`, with a device array for each."
            )
        for target, each in zip(targets, lists, strict=True):
            if _exchanged([found for *_, found in each], arrays):
                raise NotYet(
                    f"{shown}: the list of GPU {target} has the arrays in another order than `arrays`: put "
                    "each back in its own place."
                )
            for number, ((gpu, off, found), wanted) in enumerate(zip(each, arrays, strict=True)):
                at = f"{shown}{_elsewhere(how)}: array {number} of GPU {target}"
                _arrived(at, gpu, target, off, found, wanted)
        if not told["kept"]:
            raise NotYet(f"{shown} changes the arrays on GPU 0, which belong to the caller.")
        for target in targets:
            if told["messages"][target] > MOST_MESSAGES:
                raise NotYet(
                    f"{shown} sends GPU {target} {told['messages'][target]} messages; "
                    f"{MOST_MESSAGES} are enough. "
                    "Join the arrays on GPU 0, send that, and cut it up there."
                )
            most = sum(array.nbytes for array in arrays) + 256 * many
            if told["in"][target] > most:
                raise NotYet(
                    f"{shown}: {size(told['in'][target])} come into GPU {target}, and {size(most)} would do, "
                    "rounded up to 256 bytes each."
                )
    return f"400 arrays of four types arrive as they were, in at most {MOST_MESSAGES} messages."


def _exchanged(found: Sequence[npt.NDArray[Any]], arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Return whether these are the right arrays in the wrong order."""

    def told(given: Sequence[npt.NDArray[Any]]) -> list[tuple[str, tuple[int, ...], bytes]]:
        return [(array.dtype.name, array.shape, array.tobytes()) for array in given]

    return told(found) != told(arrays) and sorted(told(found)) == sorted(told(arrays))


def _arrived(shown: str, gpu: int, target: int, off: int, found: Any, wanted: Any) -> None:
    if gpu != target and wanted.size:
        raise NotYet(f"{shown} lies on GPU {gpu}.")
    if found.dtype != wanted.dtype:
        raise NotYet(
            f"{shown} is {found.dtype}, not {wanted.dtype}: joining arrays of mixed types converts "
            "them. Join those "
            "of each type, or bytes."
        )
    if off:
        raise NotYet(
            f"{shown} begins {off} bytes off a multiple of its element's size: a kernel that "
            "reads it faults. "
            "Begin each array at a multiple of 16 bytes, say, or join those of each type."
        )
    if found.shape != wanted.shape:
        raise NotYet(
            f"{shown} has shape {found.shape}, not {wanted.shape}: keep the order, and reshape "
            "what is cut out."
        )
    if not np.array_equal(found, wanted):
        with np.errstate(all="ignore"):
            rounded = [wanted.astype(kind).astype(wanted.dtype) for kind in ("float64", "float32", "float16")]
        if any(np.array_equal(found, other) for other in rounded):
            raise NotYet(
                f"{shown} holds {spelt(found.ravel()[:3].tolist())} …, not "
                f"{spelt(wanted.ravel()[:3].tolist())} …: it has been converted to another type and back, "
                "which rounds. Join those of each type, or bytes."
            )
        raise NotYet(
            f"{shown} holds {spelt(found.ravel()[:3].tolist())} …, not "
            f"{spelt(wanted.ravel()[:3].tolist())} …: "
            "each array goes back to its own place, in its own order of elements."
        )


# 15-halo


def _swapped(answer: Any, fields: list[list[Any]], how: Any) -> Told:
    """Run the answer in its own process; return all parts, and whether opposite directions overlap."""
    rows = len(fields)
    cols = len(fields[0])
    with gpus(rows * cols) as made, tried(made, how) as said:
        parts = [[made.put(i * cols + j, fields[i][j]) for j in range(cols)] for i in range(rows)]
        streams = [[made.streams[i * cols + j] for j in range(cols)] for i in range(rows)]
        _, told = made.called(lambda: answer(made.cp, [list(line) for line in parts], streams))
        told["bound"] = _bound(made, rows, cols) if how == "as given" else []
        told["found"] = [[made.read(i * cols + j, parts[i][j]) for j in range(cols)] for i in range(rows)]
    return {**told, "said": said}


def _bound(made: Gpus, rows: int, cols: int) -> list[int]:
    """Return a GPU whose transfers with two opposite neighbours are serialized, in a list; empty if none."""
    ways: list[tuple[Callable[[Any], int], Callable[[Any], int]]] = [
        (lambda c: int(c.source), lambda c: int(c.target)),
        (lambda c: int(c.target), lambda c: int(c.source)),
    ]
    for gpu in range(rows * cols):
        i, j = divmod(gpu, cols)
        for before, behind in (((i - 1, j), (i + 1, j)), ((i, j - 1), (i, j + 1))):
            if not all(0 <= a < rows and 0 <= b < cols for a, b in (before, behind)):
                continue
            ends = [a * cols + b for a, b in (before, behind)]
            for mine, others in ways:
                sent = [
                    [c.correlation_id for c in made.crossings if mine(c) == gpu and others(c) == end]
                    for end in ends
                ]
                pairs = [(a, b) for a in sent[0] for b in sent[1]]
                if pairs and all(made.follows(max(pair), min(pair)) for pair in pairs):
                    return [gpu]
    return []


def judge_exchange(answer: Answer) -> str:
    """``exchange(cp, parts, streams)``: each part's rim becomes its neighbours' edges, corners included."""
    must_be_a_function("exchange", answer.is_function, answer.kind)
    rng = answer.rng
    # Among them parts of a single row, or column: their first edge is their last one as well.
    drawn = [(int(a), int(b)) for a, b in rng.integers(2, 7, (3, 2))]
    flat = [(1, drawn[1][0]), (drawn[2][1], 1)]
    sizes = [(5, drawn[0][0]), *(([*flat, *drawn[1:]])[int(n)] for n in rng.permutation(4))]
    grids = ((3, 1), (1, 3), (2, 2), (3, 2), (3, 3))
    kinds = ("float32", "float64", "float32", "float64", "float32")
    for (rows, cols), (h, w), kind in zip(grids, sizes, kinds, strict=True):
        # No two are equal, no integer type and no shorter float holds them.
        whole = (rng.permutation(rows * h * cols * w).reshape(rows * h, cols * w) / 3 + 2048).astype(kind)
        rim = -2 - rng.permutation((rows * h + 2) * (cols * w + 2)).reshape(rows * h + 2, -1).astype(kind)
        rim[1:-1, 1:-1] = whole
        cuts = [
            [np.s_[i * h : i * h + h + 2, j * w : j * w + w + 2] for j in range(cols)] for i in range(rows)
        ]
        wanted = [[rim[cut] for cut in line] for line in cuts]
        # The rims' initial contents are of no use; beyond the edge of the whole they are below -1, and stay.
        fields = [[np.where(part < 0, part, -1).astype(kind) for part in line] for line in wanted]
        for old, new in zip(fields, wanted, strict=True):
            for a, b in zip(old, new, strict=True):
                a[1:-1, 1:-1] = b[1:-1, 1:-1]
        for how in RUN_MODES if (rows, cols) in ((3, 2), (1, 3)) else RUN_MODES[:2]:
            shown = f"exchange on {rows} × {cols} GPUs, parts of {h} × {w}"
            told = answer.ask(_swapped, fields, how, shown=shown)
            _fine(shown, told, how)
            for i in range(rows):
                for j in range(cols):
                    _rim(f"{shown}{_elsewhere(how)}: part ({i}, {j})", told["found"][i][j], wanted[i][j])
            if told["bound"]:
                raise NotYet(
                    f"{shown}: GPU {told['bound'][0]} deals with two opposite neighbours one "
                    "after the other, "
                    "though the links could serve both at once. Give each direction a stream of its own."
                )
            if how == "as given":
                most = 2 * (h + w + 6) * whole.itemsize * 2
                if max(told["out"]) > most:
                    raise NotYet(
                        f"{shown}: {size(max(told['out']))} go out of one GPU. Send edges, not whole parts: "
                        f"{size(most)} are enough."
                    )
    return (
        "rims and corners are the neighbours', in any order of streams, and both directions run side by side."
    )


def _rim(shown: str, found: Any, wanted: Any) -> None:
    if np.array_equal(found, wanted):
        return
    if found.shape != wanted.shape:
        raise NotYet(f"{shown} has another shape than before.")
    if not np.array_equal(found[1:-1, 1:-1], wanted[1:-1, 1:-1]):
        raise NotYet(f"{shown}: its own cells have changed. Write into rows 0 and −1, columns 0 and −1 only.")
    corners = (0, 0, -1, -1), (0, -1, 0, -1)
    sides = found.copy()
    sides[corners] = wanted[corners]
    if np.array_equal(sides, wanted):
        raise NotYet(
            f"{shown}: a corner is not the diagonal neighbour's. Exchange rows first, and then "
            "columns with the "
            "corners that came with the rows."
        )
    at = np.argwhere(found != wanted)[0].tolist()
    raise NotYet(
        f"{shown}: cell {tuple(at)} of the rim is {found[tuple(at)]:g}, not "
        f"{wanted[tuple(at)]:g}. A neighbour's "
        "edge is its row 1 or −2 (or column); its row 0 or −1 is a rim itself. What lies outside of "
        "the whole stays."
    )


# 15-place


def _topologies(rng: Any) -> list[tuple[str, int, set[tuple[int, ...]], list[list[int]]]]:
    """Draw machines: a description, the number of GPUs, joined pairs, and rings of ranks that communicate."""

    def islands(sizes: Sequence[int]) -> set[tuple[int, ...]]:
        order = rng.permutation(sum(sizes)).tolist()
        joined = set()
        at = 0
        for many in sizes:
            joined |= {tuple(sorted(pair)) for pair in combinations(order[at : at + many], 2)}
            at += many
        return joined

    def groups(sizes: Sequence[int]) -> list[list[int]]:
        order = rng.permutation(sum(sizes)).tolist()
        starts = np.cumsum([0, *sizes]).tolist()
        return [order[a:b] for a, b in pairwise(starts)]

    def cube() -> set[tuple[int, ...]]:
        number = rng.permutation(8).tolist()
        return {tuple(sorted((number[a], number[a ^ bit]))) for a in range(8) for bit in (1, 2, 4)}

    # Numbered along a ring, with a link that leads across: a row of 0 to 5 does not close.
    row = [0, 1, 2, 3, 4, 5]
    across: set[tuple[int, ...]] = {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (2, 5), (0, 3)}
    halves = [[0, 2, 4, 6], [1, 3, 5, 7]]
    near = {tuple(sorted(pair)) for k in range(2) for pair in combinations(range(4 * k, 4 * k + 4), 2)}
    return [
        ("4 GPUs in pairs", 4, {(0, 1), (2, 3)}, [[0, 2], [1, 3]]),
        ("4 GPUs in pairs", 4, islands([2, 2]), groups([2, 2])),
        ("8 GPUs in fours", 8, near, halves),
        ("8 GPUs in pairs", 8, islands([2] * 4), groups([2] * 4)),
        ("8 GPUs in fours", 8, islands([4, 4]), groups([2, 2, 4])),
        ("8 GPUs, 4 and 2 and 2", 8, islands([2, 4, 2]), groups([2, 2, 1, 3])),
        ("6 GPUs in a row that does not close", 6, across, [row]),
        *(("8 GPUs as a cube", 8, cube(), groups(sizes)) for sizes in ([8], [8], [4, 4], [6, 2], [8])),
        ("12 GPUs in fours", 12, islands([4, 4, 4]), groups([3, 1, 4, 2, 2])),
        ("6 GPUs in threes", 6, islands([3, 3]), groups([3, 3])),
    ]


def judge_place(answer: Answer) -> str:
    """``place(gpus, joined, rings)``: a GPU for each rank, such that ranks that communicate are joined."""
    must_be_a_function("place", answer.is_function, answer.kind)
    for words, many, joined, rings in _topologies(answer.rng):
        shown = f"place for {words}"
        given = sorted([list(pair) for pair in joined])
        found = parts_of(answer.calling(shown, many, given, [list(ring) for ring in rings]))
        if found is None or not all(map(is_whole, found)) or sorted(found) != list(range(many)):
            raise NotYet(
                f"{shown} should return a list with each GPU from 0 to {many - 1} once, in the ranks' order."
            )
        for ring in rings:
            for a, b in zip(ring, [*ring[1:], ring[0]], strict=True):
                pair = tuple(sorted((found[a], found[b])))
                if a != b and pair not in joined:
                    raise NotYet(
                        f"{shown}: ranks {a} and {b} talk, and are on GPUs {found[a]} and "
                        f"{found[b]}, which nothing "
                        f"joins: this goes over PCIe. Joined are {_pairs(given)}; the rings are {rings}."
                    )
    return "whoever talks is joined, on pairs, fours, mixed islands and a cube."


def _pairs(given: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"{a}-{b}" for a, b in given)


# 15-shard


def _room(h: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the error allowed for single precision: the effect of rounded scores on the weights."""
    wide = np.abs(h.astype(np.float64))
    scores = (wide @ wide.T).max(axis=1, keepdims=True) / np.sqrt(h.shape[1])
    room: npt.NDArray[Any] = 2.0**-24 * (16 + 6 * scores) * wide.max(axis=0)
    return room


def _attention(
    h: npt.NDArray[Any], root: float = 0, first: bool = False, between: bool = False, last: bool = True
) -> npt.NDArray[Any]:
    """Compute the formula, or a wrong variant with another root or with gelu in another place."""

    def gelu(x: npt.NDArray[Any], wanted: bool) -> npt.NDArray[Any]:
        return 0.5 * x * (1 + np.tanh(0.79788456 * (x + 0.044715 * x**3))) if wanted else x

    h = h.astype(np.float64)
    scores = h @ h.T / (root or np.sqrt(h.shape[1]))
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = gelu(powers / powers.sum(axis=1, keepdims=True), between)
    return gelu(weights @ gelu(h, first), last and not first and not between)


def _of_shards(out: Any, whole: npt.NDArray[Any], mine: slice) -> str:
    """Return the feedback for wrong rows: the cause if another formula explains them, else all steps."""
    if not np.isfinite(out).all():
        return "If exp overflows here, take it of a row's scores against all rows, less their maximum."
    rows, d = whole.shape
    right = _attention(whole)
    known = (
        (_attention(whole, root=1), f"The scores are not divided by √d, that is √{d}."),
        (_attention(whole, root=np.sqrt(rows)), f"d is the length of a row, {d}; this takes √{rows}."),
        (_attention(whole, root=d), f"The scores are divided by {d}, not by its root."),
        (_attention(whole, last=False), "The last step is missing, gelu."),
        (_attention(whole, first=True), "gelu comes last: of the product, not of what is multiplied."),
        (_attention(whole, between=True), "gelu comes last: of the product, not of what is multiplied."),
    )

    def near(other: npt.NDArray[Any]) -> bool:
        return np.allclose(out, other[mine], rtol=1e-3, atol=1e-3 * np.abs(whole).max())

    fitting = [] if near(right) else [says for other, says in known if near(other)]
    return (
        fitting[0]
        if fitting
        else (
            "Compare each step with NumPy's: a row's scores against all rows, over √d, less their maximum, "
            "exp, a sum over all of them, the product, gelu."
        )
    )


def _sharded(answer: Any, rows: list[Any], how: Any) -> Told:
    """Run the answer in its own process; return its results and their GPUs."""
    with gpus(len(rows)) as made, tried(made, how) as said:
        cp = made.cp
        parts = [made.put(gpu, array) for gpu, array in enumerate(rows)]
        made.quiet()
        result, told = made.called(lambda: answer(cp, list(parts)))
        outs = list(result) if isinstance(result, list | tuple) else [result]
        good = all(isinstance(out, cp.ndarray) for out in outs)
        # As a caller that continues in each GPU's default stream reads them.
        told["found"] = [[out.device.id, _got(cp, out)] for out in outs] if good else None
        made.quiet()
        told["kept"] = [np.array_equal(_got(cp, part), row) for part, row in zip(parts, rows, strict=True)]
    return {**told, "said": said}


def judge_shard(answer: Answer) -> str:
    """``shard(cp, parts)``: attention whose rows lie on several GPUs, with one gather."""
    must_be_a_function("shard", answer.is_function, answer.kind)
    rng = answer.rng
    drawn = [int(n) for n in rng.integers(2, 14, 3)]
    widths = [int(d) for d in rng.permutation([4, 5, 8, 12])]
    # The same shapes come twice, with other numbers.
    for number, lengths in enumerate(([8, 8], [5, 11], [7, 3, 9, 1], drawn, drawn)):
        d = widths[min(number, 3)]
        # Scores of the second and the last are so large that their powers overflow.
        whole = (rng.standard_normal((sum(lengths), d)) * (1, 12, 3, 12, 3)[number]).astype(np.float32)
        if number == 2:  # and here those of the first GPU's rows against a long one of the third
            whole[-2] = 40 * np.sign(whole[0])
        starts = np.cumsum([0, *lengths]).tolist()
        rows = [whole[a:b] for a, b in pairwise(starts)]
        shown = f"shard of {' + '.join(map(str, lengths))} rows of {d}"
        how = RUN_MODES[(0, 1, 3, 1, 0)[number]]
        told = answer.ask(_sharded, rows, how, shown=shown)
        _fine(shown, {**told, "waits": 0}, "as given")  # the host may wait here
        shown += _elsewhere(how)
        found = told["found"]
        if found is None or [gpu for gpu, _ in found] != list(range(len(rows))):
            raise NotYet(f"{shown} should return a list of device arrays, the k-th one on GPU k.")
        if not all(told["kept"]):
            raise NotYet(f"{shown} changes the parts, which belong to the caller.")
        wanted = _attention(whole)
        room = _room(whole)
        local = np.concatenate([_attention(part) for part in rows])
        for gpu, (_, out) in enumerate(found):
            a = starts[gpu]
            b = starts[gpu + 1]
            if out.shape != wanted[a:b].shape:
                raise NotYet(
                    f"{shown}: GPU {gpu} returns shape {out.shape}, and has rows of {wanted[a:b].shape}."
                )
            if out.dtype != whole.dtype:
                raise NotYet(
                    f"{shown}: GPU {gpu} returns {out.dtype}, and its rows are {whole.dtype}. A NumPy number "
                    "of another type, such as np.sqrt(d), makes everything that it meets that type."
                )
            off = ~(np.abs(out - wanted[a:b]) <= room[a:b])
            if not off.any():
                continue
            if np.allclose(out, local[a:b], rtol=2e-4, atol=2e-5):
                raise NotYet(
                    f"{shown}: GPU {gpu} attends to its own rows only. Softmax needs the scores "
                    "against all rows."
                )
            raise NotYet(
                f"{shown}: GPU {gpu} returns {out[off][0]:.7g} where {wanted[a:b][off][0]:.7g} is "
                f"right. {_of_shards(out, whole, slice(a, b))}"
            )
        for gpu, part in enumerate(rows):
            most = whole.nbytes - part.nbytes
            if told["in"][gpu] > most:
                raise NotYet(
                    f"{shown}: {size(told['in'][gpu])} come into GPU {gpu}; the others' rows are "
                    f"{size(most)}, and "
                    "have to come once. Gather rows once, keep them, and compute the rest there."
                )
            most = max(part.nbytes * (len(rows) - 1), whole.nbytes)
            if told["out"][gpu] > most:
                raise NotYet(
                    f"{shown}: {size(told['out'][gpu])} go out of GPU {gpu}. Let each send its own "
                    "rows, instead of "
                    "one that serves all."
                )
    return "rows stay where they are, and come to each GPU once."


EXERCISES = (
    PythonExercise("15-ring", "A ring all-reduce", judge_ring),
    PythonExercise("15-broadcast", "400 arrays in four messages", judge_broadcast),
    PythonExercise("15-place", "Who sits where", judge_place),
    PythonExercise("15-halo", "Halo exchange", judge_exchange, level="stretch"),
    PythonExercise("15-shard", "Attention over shards", judge_shard),
)
