"""Exercises: values that describe what to compute, its allowed costs, and the messages for mistakes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gpulab.processes.errors import ProcessError
from gpulab_course.teach.judge import draw
from gpulab_course.teach.judge.compare import Array, Near
from gpulab_course.teach.judge.draw import Draw
from virtualgpu.records import Dim3

Level = Literal["warm-up", "core", "stretch"]
Kind = Literal["write", "repair"]
Stage = Literal["results", "orders", "hazards", "budget", "parallelism", "counts"]

_SCALARS = {
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "unsigned": np.uint32,
    "unsigned int": np.uint32,
    "long long": np.int64,
    "size_t": np.uint64,
    "unsigned char": np.uint8,
}


class NotYet(ProcessError):
    """The answer is not right yet; the message says why, in a sentence for the learner."""


class Unwritten(NotYet):
    """There is no answer yet: the TODO of the stub is still there."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel, such as ``const float* x``; ``type`` is that of a scalar or of elements."""

    name: str
    type: str
    pointer: bool
    read_only: bool

    @classmethod
    def read(cls, text: str) -> Parameter:
        """Return the parameter that a C++ declaration describes."""
        words = text.replace("*", " * ").replace("__restrict__", " ").split()
        kind = " ".join(word for word in words[:-1] if word not in ("const", "*"))
        return cls(words[-1], kind, "*" in words, "const" in words)

    def scalar(self, value: Any) -> Any:
        """Return a number in the type that the kernel takes."""
        return _SCALARS[self.type](value)


@dataclass(slots=True)
class Case:
    """A launch and its expected results.

    ``values`` holds inputs by parameter name, and the first contents of an output that is read, too; any
    other output starts as garbage. What is not ``const`` and not wanted is scratch, whose first contents
    are in ``values``. ``wanted`` holds what outputs must hold afterwards: integers exactly,
    floats within two roundings, or as `Near` says. ``label`` is for messages and is filled by the judge.
    """

    grid: int | tuple[int, ...]
    values: dict[str, Any]
    wanted: dict[str, Array | Near]
    shared_bytes: int = 0
    block: Dim3 = (1, 1, 1)
    label: str = ""
    size: Any = None
    shipped: Case | None = None

    @property
    def launch_grid(self) -> Dim3:
        """The grid as a tuple of three dimensions."""
        x, y, z = (*(self.grid if isinstance(self.grid, tuple) else (self.grid,)), 1, 1)[:3]
        return x, y, z

    @property
    def threads(self) -> int:
        """Number of threads of the whole launch."""
        return prod(self.launch_grid) * prod(self.block)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of an exercise's table: special input that every check tries, in addition to random input.

    Parameters
    ----------
    what
        What is special about it, for messages: ``all negative``.
    case
        Makes it, with the parameters of the exercise's own ``case``.
    sizes
        The sizes to make it with, each once; without any, a middling one.
    block
        The block of a kernel's launch; without one, of those that are drawn.
    """

    what: str
    case: Callable[..., Any]
    sizes: tuple[Any, ...] = ()
    block: Dim3 | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """The allowed costs of a solution, in one counter of a launch (`budget.COUNTERS`).

    A figure passes up to ``allowance`` times the reference's, up to ``most``, from ``least`` on, and from
    ``least_share`` times the reference's on, whichever are given; with none of them up to 1.25 times the
    reference's. ``spare`` comes on top of ``allowance``, for what a ragged end may cost. ``advice`` is the
    sentence for one that does not. A budget of a program holds for every size that is tried; one for
    ``large`` sizes for the last two only, where there is enough to do.
    """

    counter: str
    advice: str = ""
    allowance: float | None = None
    most: int | None = None
    least: int | None = None
    least_share: float | None = None
    spare: int = 0
    large: bool = False

    def floor(self, reference: int) -> int | None:
        """Return the lowest value that passes, or None."""
        return self.least if self.least_share is None else int(self.least_share * reference)

    def limit(self, reference: int) -> int | None:
        """Return the highest value that passes, or None."""
        if self.most is not None:
            return self.most
        if self.allowance is None and (self.least is not None or self.least_share is not None):
            return None
        factor = 1.25 if self.allowance is None else self.allowance
        return int(reference * factor) + self.spare


@dataclass(frozen=True, slots=True)
class Measured:
    """The launch in which the score is counted: a size, a block shape and the tolerance for parallelism.

    A solution passes with about ``slack`` times the reference's instructions at most, ``busiest`` times its
    busiest warp's share of them, and at least ``lanes`` times its lane efficiency. It has to do so, and to
    keep its budgets, in two more launches: what ``drawn(rng)`` makes, pairs of size and block, else a smaller
    and a larger one.
    """

    size: Any = 1 << 14
    block: Dim3 = (256, 1, 1)
    slack: float = 6.0
    busiest: float = 3.0
    lanes: float = 0.5
    drawn: Callable[[np.random.Generator], Sequence[tuple[Any, Dim3]]] | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A failure of an answer, which the matchers of `Advice` examine.

    ``fault`` names what stopped the kernel (``out of bounds``, ``endless``, ``lanes missing`` ...), with
    ``array`` the parameter it meant; empty where it ended and ``found`` differs from ``wanted`` in the output
    ``name``. ``hazard`` is what the sanitizer calls it (``RAW``, ``WAW``, ``lanes missing`` ...).
    ``said`` is the sentence without advice.
    """

    stage: Stage
    case: Case
    said: str
    name: str = ""
    found: Array | None = None
    wanted: Array | None = None
    start: Array | None = None
    differs: Array | None = None
    fault: str = ""
    array: str = ""
    hazard: str = ""

    @property
    def wrong(self) -> Array:
        """The elements in which `found` and `wanted` differ, by the judge's comparison if there is one."""
        if self.differs is not None:
            return self.differs
        assert self.found is not None
        assert self.wanted is not None
        with np.errstate(invalid="ignore"):
            return ~np.isclose(self.found, self.wanted, rtol=1e-4, atol=1e-30, equal_nan=True)

    def __getitem__(self, name: str) -> Any:
        return self.case.values[name]


Matcher = Callable[[Mistake], bool]


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence for the failures that `when` recognises; the first that fits is shown. See `advice`."""

    when: Matcher
    says: str


@dataclass(frozen=True)
class KernelExercise:
    """An exercise whose answer is a CUDA C++ kernel.

    Parameters
    ----------
    exercise_id, title
        Such as ``"00-saxpy"``; the digits are the notebook's.
    level, kind
        How hard it is; whether the kernel is written or a faulty one is repaired.
    kernel, parameters
        Name and parameter list as in CUDA C++. Pointers to ``const`` are inputs, other pointers outputs.
    case
        ``case(draw, size, block)`` makes one launch: data from `draw`, the grid, and by NumPy what is wanted.
    table
        Launches that every answer is tried with beyond those that are drawn.
    sizes, blocks
        ``sizes(rng, threads_at_once)`` and ``blocks(rng)`` choose what to try (see `draw`); the seed comes
        from the answer's text, so that none of them can be hard-coded.
    reference, naive
        Files in the course folder's ``kernels``, of a good solution and of one that is right and costs more.
    budgets, measured
        What is counted, and for which launches.
    rules
        Raised whenever an answer that has passed may pass no longer: best scores of other rules are dropped.
    once
        Whether no two threads may write one element, not even the same value: a missing guard at a ragged
        edge writes into the next row, and may write there what belongs there.
    crowded
        Whether blocks may wait for each other: orders are then tried with more blocks than the device holds
        at once, too, where waiting for one that has not begun never ends.
    advice
        What to say of particular failures.
    praise
        One sentence for the answer that passes.
    """

    exercise_id: str
    title: str
    kernel: str
    parameters: str
    case: Callable[[Draw, Any, Dim3], Case]
    reference: str
    level: Level = "core"
    kind: Kind = "write"
    naive: str = ""
    table: tuple[Row, ...] = ()
    sizes: Callable[[np.random.Generator, int], Sequence[Any]] = draw.lengths
    blocks: Callable[[np.random.Generator], Sequence[Dim3]] = draw.lines
    budgets: tuple[Budget, ...] = ()
    measured: Measured = field(default_factory=Measured)
    rules: int = 3
    once: bool = False
    crowded: bool = False
    advice: tuple[Advice, ...] = ()
    praise: str = "right for every size, block shape and order of blocks."

    @cached_property
    def arguments(self) -> tuple[Parameter, ...]:
        """The parsed parameters of the kernel."""
        return tuple(Parameter.read(text) for text in self.parameters.split(","))

    @property
    def signature(self) -> str:
        """The text of the parameter list in CUDA C++."""
        return f"{self.kernel}({self.parameters})"

    def source(self, file: str) -> str:
        """Return the text of a file in the ``kernels`` folder of the notebook of this exercise."""
        folder = Path(inspect.getfile(inspect.unwrap(self.case))).parent / "kernels"
        return (folder / file).read_text(encoding="utf-8")


@dataclass(frozen=True)
class PythonExercise:
    """An exercise whose answer is a Python function or value.

    ``judge(answer)`` returns praise or raises `NotYet`. It gets an `answer.Answer`: the learner's own runs in
    another process, which is stopped after ``limit_s`` seconds of processor time.
    """

    exercise_id: str
    title: str
    judge: Callable[[Any], str]
    level: Level = "core"
    kind: Kind = "write"
    limit_s: float = 4.0


@dataclass(frozen=True)
class ProgramCase:
    """A call of a learner's device program, with its expected result.

    ``arguments`` are passed as they are, NumPy arrays included, or by ``on_device`` as device arrays, which
    are still being written then, in the current stream. ``wanted`` is compared with what is returned: an
    array or number, or a tuple of them, in values, shape and dtype; or it is a function that gets what is
    returned, as plain data, and raises `NotYet`. ``mistakes`` pairs what known mistakes would return instead
    with the sentence that each of them earns. ``place`` asks for arrays of the ``"device"`` or of the
    ``"host"``. ``unchanged`` arguments belong to the caller: nothing may write there at any time.
    """

    arguments: tuple[Any, ...]
    wanted: Any
    on_device: bool = False
    label: str = ""
    mistakes: tuple[tuple[Any, str], ...] = ()
    place: Literal["", "device", "host"] = ""
    unchanged: bool = False


@dataclass(frozen=True)
class ProgramExercise:
    """An exercise whose answer is a Python function that uses ``cp``.

    It runs on a virtual GPU in a process of its own, which is stopped after ``limit_s`` seconds of processor
    time. ``case`` and what is wanted stay with the judge; ``calls`` runs beside the program. Budgets are
    in the counts of `counts.COUNTS`: launches, copies, bytes, synchronisations.

    Parameters
    ----------
    case
        ``case(draw, size)`` makes the arguments of one call, and what is wanted.
    table
        Calls whose results are looked at beyond those of the `sizes`.
    reference, naive
        Functions that solve it, well and at a higher cost.
    name
        The function's name, for messages.
    sizes
        What to try, or a function of a generator that draws it: the seed comes from the answer. The last two
        are large, and the score is counted at the last, which should be the same for all.
    checked
        Whether the order between its streams is checked, too: at all sizes but the last, and there by trying
        other orders.
    returns
        Whether the program has to return something; where it does not, ``calls`` knows its result.
    rules
        As a kernel exercise's.
    calls
        ``calls(bench, program, *arguments)`` calls the program, where that needs more than its arguments: a
        stream, page-locked arrays, a host that is busy (`bench.Bench`). What it returns is compared.
    advice
        Pairs of words, that may occur in what went wrong, with the sentence to add then.
    """

    exercise_id: str
    title: str
    name: str
    case: Callable[[Draw, Any], ProgramCase]
    reference: Callable[..., Any]
    naive: Callable[..., Any] | None = None
    level: Level = "core"
    kind: Kind = "write"
    sizes: tuple[Any, ...] | Callable[[np.random.Generator], tuple[Any, ...]] = (1, 33, 10_000)
    table: tuple[Row, ...] = ()
    budgets: tuple[Budget, ...] = ()
    checked: bool = False
    returns: bool = True
    calls: Callable[..., Any] = lambda bench, program, *arguments: program(*arguments)
    rules: int = 3
    advice: tuple[tuple[str, str], ...] = ()
    praise: str = "right, and within its budget."
    limit_s: float = 10.0


Exercise = KernelExercise | PythonExercise | ProgramExercise
