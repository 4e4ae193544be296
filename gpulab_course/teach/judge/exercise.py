"""Classes that describe an exercise: its task, its test data, its budgets, and advice for known mistakes."""

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

_SCALAR_TYPES = {
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
    """Error for an answer that is not right yet. The message tells the learner why."""


class Unwritten(NotYet):
    """Error for an exercise's stub that still contains its TODO comment."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a CUDA kernel, such as ``const float* x``.

    The attribute ``type`` is the type of the scalar, or of an element of the array.
    """

    name: str
    type: str
    pointer: bool
    read_only: bool

    @classmethod
    def read(cls, text: str) -> Parameter:
        """Parse the C++ declaration of a kernel parameter."""
        tokens = text.replace("*", " * ").replace("__restrict__", " ").split()
        type_name = " ".join(token for token in tokens[:-1] if token not in ("const", "*"))
        return cls(tokens[-1], type_name, "*" in tokens, "const" in tokens)

    def scalar(self, value: Any) -> Any:
        """Convert a number to the type of this scalar kernel parameter."""
        return _SCALAR_TYPES[self.type](value)


@dataclass(slots=True)
class Case:
    """One test launch of a kernel, with its grid, its inputs and the expected contents of its outputs.

    The dictionary ``values`` maps parameter names to inputs. It also contains the initial contents of outputs
    that the kernel reads, and of scratch arrays: arrays that are neither ``const`` nor in ``wanted``. All
    other outputs start with random contents. ``wanted`` maps outputs to their expected contents: integers are
    compared exactly, floats with a tolerance of two units in the last place or that of `Near`. The judge
    fills in ``label``, which names the launch in messages.
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
        """The grid of the launch as a tuple of three dimensions."""
        x, y, z = (*(self.grid if isinstance(self.grid, tuple) else (self.grid,)), 1, 1)[:3]
        return x, y, z

    @property
    def threads(self) -> int:
        """The number of threads of the whole launch."""
        return prod(self.launch_grid) * prod(self.block)


@dataclass(frozen=True, slots=True)
class Row:
    """A special input that every check tests in addition to random input.

    Parameters
    ----------
    what
        The special property of the input, for messages: ``all negative``.
    case
        Function that makes the input; it has the parameters of the exercise's own ``case``.
    sizes
        The sizes to try; by default one medium size.
    block
        The block of the kernel's launch; by default one of the randomly drawn blocks.
    """

    what: str
    case: Callable[..., Any]
    sizes: tuple[Any, ...] = ()
    block: Dim3 | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on one counter of an answer, usually relative to the count of the reference.

    A count must meet all given limits: at most ``allowance`` times the reference's count, at most ``most``,
    at least ``least``, and at least ``least_share`` times the reference's count. Without any of them, the
    limit is 1.25 times the reference's count. ``spare`` is added to the limit of ``allowance``, for the cost
    of a ragged end. ``advice`` is added to the message if a count does not pass. The counters are those of
    `budget.COUNTERS` or, for programs, `counts.COUNTS`. A program must keep a budget at every size, or only
    at the last two sizes if ``large`` is true.
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
        """Return the lowest count within the budget, or None if there is no lower limit."""
        return self.least if self.least_share is None else int(self.least_share * reference)

    def limit(self, reference: int) -> int | None:
        """Return the highest count within the budget, or None if there is no upper limit."""
        if self.most is not None:
            return self.most
        if self.allowance is None and (self.least is not None or self.least_share is not None):
            return None
        limit_factor = 1.25 if self.allowance is None else self.allowance
        return int(reference * limit_factor) + self.spare


@dataclass(frozen=True, slots=True)
class Measured:
    """The size and block of the launch that determines the score, and the limits of the stage
    ``parallelism``.

    A solution passes if it executes at most about ``slack`` times the reference's instructions, its busiest
    warp has at most ``busiest`` times the share of the reference's busiest warp, and its lane efficiency is
    at least ``lanes`` times the reference's. These limits and the budgets also apply to two more launches:
    ``drawn(rng)`` returns their pairs of size and block; by default one is smaller and one larger.
    """

    size: Any = 1 << 14
    block: Dim3 = (256, 1, 1)
    slack: float = 6.0
    busiest: float = 3.0
    lanes: float = 0.5
    drawn: Callable[[np.random.Generator], Sequence[tuple[Any, Dim3]]] | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A failure of an answer with its test data, from which `Advice` recognises the cause.

    If a fault stopped the kernel, ``fault`` is its kind (``out of bounds``, ``endless``, ``lanes missing``
    ...) and ``array`` the parameter that was accessed. If the kernel ended, ``found`` differs from ``wanted``
    in the output ``name``. ``hazard`` is the sanitizer's name for a hazard (``RAW``, ``WAW``, ``lanes
    missing`` ...). ``said`` is the message without advice.
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
        """A bool array that marks the wrong elements of the output."""
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
    """A sentence that is added to the message if the function `when` returns true for the mistake.

    Only the first advice that matches is shown. The module `advice` contains common conditions.
    """

    when: Matcher
    says: str


@dataclass(frozen=True)
class KernelExercise:
    """An exercise whose answer is a CUDA C++ kernel.

    Parameters
    ----------
    exercise_id, title
        The name, such as ``"00-saxpy"``, which starts with the notebook's number, and the title.
    level, kind
        The difficulty, and whether the learner writes a kernel or repairs a faulty one.
    kernel, parameters
        Name and parameter list as in CUDA C++. Pointers to ``const`` are inputs, other pointers outputs.
    case
        ``case(draw, size, block)`` returns one launch: random data, the grid, and the expected outputs.
    table
        Special inputs that every answer is tested with, in addition to random inputs.
    sizes, blocks
        ``sizes(rng, threads_at_once)`` and ``blocks(rng)`` draw what to test (see `draw`). The seed comes
        from the answer's text, so that an answer cannot hard-code them.
    reference, naive
        Files in the folder ``kernels``: a good solution, and a right solution with higher costs.
    budgets, measured
        The counters with their limits, and the launches in which they are counted.
    rules
        A version number. Raise it when an answer that has passed may fail now: older scores are dropped.
    once
        Whether it is a mistake if two threads write the same value to one element. This detects a missing
        guard at a ragged edge, which writes into the next row.
    crowded
        Whether blocks may wait for each other. If true, block orders are also tested with more blocks than
        fit on the device at once, where waiting for a block that has not started never ends.
    advice
        Sentences that are added to the message for known mistakes.
    praise
        The message for an answer that passes.
    capability
        The compute capability that the exercise needs. On a device with a lower one, the answer is judged on
        a virtual A100, and the verdict says so.
    adapt
        ``adapt(exercise, code)`` returns the exercise for one answer, for example with a grid that the answer
        chooses. It raises `NotYet` if the choice is not possible.
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
    sizes: Callable[[np.random.Generator, int], Sequence[Any]] = draw.draw_lengths
    blocks: Callable[[np.random.Generator], Sequence[Dim3]] = draw.draw_line_blocks
    budgets: tuple[Budget, ...] = ()
    measured: Measured = field(default_factory=Measured)
    rules: int = 3
    once: bool = False
    crowded: bool = False
    advice: tuple[Advice, ...] = ()
    praise: str = "the results are right for every size, block shape and order of blocks."
    capability: tuple[int, int] = (0, 0)
    adapt: Callable[[KernelExercise, str], KernelExercise] | None = None

    @cached_property
    def arguments(self) -> tuple[Parameter, ...]:
        """The parameters of the kernel as `Parameter` objects."""
        return tuple(Parameter.read(parameter_text) for parameter_text in self.parameters.split(","))

    @property
    def signature(self) -> str:
        """The name and the parameter list of the kernel as CUDA C++ text."""
        return f"{self.kernel}({self.parameters})"

    def source(self, file: str) -> str:
        """Return the text of a file in the folder ``kernels`` beside the module of this exercise."""
        folder = Path(inspect.getfile(inspect.unwrap(self.case))).parent / "kernels"
        return (folder / file).read_text(encoding="utf-8")


@dataclass(frozen=True)
class PythonExercise:
    """An exercise whose answer is a Python function or value.

    ``judge(answer)`` returns praise or raises `NotYet`. Its argument is an `answer.Answer`, which calls the
    learner's function in another process. That process is stopped after ``limit_s`` seconds of processor
    time.
    """

    exercise_id: str
    title: str
    judge: Callable[[Any], str]
    level: Level = "core"
    kind: Kind = "write"
    limit_s: float = 4.0


@dataclass(frozen=True)
class ProgramCase:
    """One test call of a learner's device program, with its expected result.

    The program receives ``arguments`` unchanged. With ``on_device``, they are device arrays that the current
    stream is still writing when the program begins. ``wanted`` is the expected result: an array, a number, or
    a tuple of them, compared in values, shape and dtype. It can also be a function that takes the returned
    plain data and raises `NotYet`. ``mistakes`` contains pairs of the result of a known mistake and the
    sentence that explains it. ``place`` requires that returned arrays are on the ``"device"`` or the
    ``"host"``. With ``unchanged``, the program must not write to its arguments.
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
    """An exercise whose answer is a Python function that uses the array module ``cp``.

    The function runs on a virtual GPU in a separate process, which is stopped after ``limit_s`` seconds of
    processor time. ``case`` and the expected results stay in the judge's process; ``calls`` runs in that of
    the program. Budgets limit the counts of `counts.COUNTS`: launches, copies, bytes, synchronizations.

    Parameters
    ----------
    case
        ``case(draw, size)`` returns the arguments of one call, and the expected result.
    table
        Special calls whose results are tested in addition to random ones.
    reference, naive
        Functions that solve the exercise at a low cost and at a high cost.
    name
        The function's name, for messages.
    sizes
        The sizes to test, or a function that draws them with a random generator. The last two sizes are
        large. The score is counted at the last one, which should be the same for all learners.
    checked
        Whether missing order between streams is a mistake. Memory uses are checked at all sizes except the
        last; results are tested with other orders of the streams at two sizes.
    returns
        Whether the program must return a value; if false, ``calls`` returns the result instead.
    rules
        As for `KernelExercise`.
    calls
        ``calls(bench, program, *arguments)`` calls the program with additional objects: a stream, pinned
        arrays, a busy host (`bench.Bench`). Its return value is compared with the expected result.
    advice
        Pairs (words, sentence): the sentence is added to a message that contains the words.
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
    praise: str = "the results are right, and the program is within its budget."
    limit_s: float = 10.0


Exercise = KernelExercise | PythonExercise | ProgramExercise
