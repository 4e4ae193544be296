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
from gpulab_course.teach.judge.compare import Array, ExpectedFloats
from gpulab_course.teach.judge.draw import DataGenerator
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


class UnwrittenAnswerError(NotYet):
    """Error for an exercise's stub that still contains its TODO comment."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a CUDA kernel, such as ``const float* x``.

    The attribute ``type`` is the type of the scalar, or of an element of the array.
    """

    name: str
    type: str
    is_pointer: bool
    is_read_only: bool

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
    that the kernel reads, and of scratch arrays: arrays that are neither ``const`` nor in
    ``expected_outputs``. All other outputs start with random contents. ``expected_outputs`` maps outputs to
    their expected contents: integers are compared exactly, floats with a tolerance of two units in the last
    place or that of `ExpectedFloats`. The judge fills in ``label``, which names the launch in messages.
    """

    grid: int | tuple[int, ...]
    values: dict[str, Any]
    expected_outputs: dict[str, Array | ExpectedFloats]
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
class SpecialInput:
    """A special input that every check tests in addition to random input.

    Parameters
    ----------
    description
        The special property of the input, for messages: ``all negative``.
    case
        Function that makes the input; it has the parameters of the exercise's own ``case``.
    sizes
        The sizes to try; by default one medium size.
    block
        The block of the kernel's launch; by default one of the randomly drawn blocks.
    """

    description: str
    case: Callable[..., Any]
    sizes: tuple[Any, ...] = ()
    block: Dim3 | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit on one counter of an answer, usually relative to the count of the reference.

    A count must meet all given limits: at most ``max_reference_factor`` times the reference's count, at most
    ``max_count``, at least ``min_count``, and at least ``min_reference_share`` times the reference's count.
    Without any of them, the limit is 1.25 times the reference's count. ``extra_count`` is added to the limit
    of ``max_reference_factor``, for the cost of a ragged end. ``advice`` is added to the message if a count
    does not pass. The counters are those of `budget.COUNTERS` or, for programs, `counts.COUNTS`. A program
    must keep a budget at every size, or only at the last two sizes if ``large_sizes_only`` is true.
    """

    counter: str
    advice: str = ""
    max_reference_factor: float | None = None
    max_count: int | None = None
    min_count: int | None = None
    min_reference_share: float | None = None
    extra_count: int = 0
    large_sizes_only: bool = False

    def find_min_count(self, reference: int) -> int | None:
        """Return the lowest count within the budget, or None if there is no lower limit."""
        return (
            self.min_count if self.min_reference_share is None else int(self.min_reference_share * reference)
        )

    def find_max_count(self, reference: int) -> int | None:
        """Return the highest count within the budget, or None if there is no upper limit."""
        if self.max_count is not None:
            return self.max_count
        if self.max_reference_factor is None and (
            self.min_count is not None or self.min_reference_share is not None
        ):
            return None
        limit_factor = 1.25 if self.max_reference_factor is None else self.max_reference_factor
        return int(reference * limit_factor) + self.extra_count


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """The size and block of the launch that determines the score, and the limits of the stage
    ``parallelism``.

    A solution passes if it executes at most about ``max_instruction_factor`` times the reference's
    instructions, its busiest warp has at most ``max_busiest_share_factor`` times the share of the reference's
    busiest warp, and its lane efficiency is at least ``min_lane_efficiency_factor`` times the reference's.
    These limits and the budgets also apply to two more launches: ``draw_launches(rng)`` returns their pairs
    of size and block; by default one is smaller and one larger.
    """

    size: Any = 1 << 14
    block: Dim3 = (256, 1, 1)
    max_instruction_factor: float = 6.0
    max_busiest_share_factor: float = 3.0
    min_lane_efficiency_factor: float = 0.5
    draw_launches: Callable[[np.random.Generator], Sequence[tuple[Any, Dim3]]] | None = None


@dataclass(frozen=True, slots=True)
class Mistake:
    """A failure of an answer with its test data, from which `Advice` recognises the cause.

    If a fault stopped the kernel, ``fault_kind`` is its kind (``out of bounds``, ``endless``, ``lanes
    missing`` ...) and ``fault_array`` the parameter that was accessed. If the kernel ended, ``actual_values``
    differ from ``expected_values`` in the output ``name``. ``hazard_kind`` is the sanitizer's name for a
    hazard (``RAW``, ``WAW``, ``lanes missing`` ...). ``message`` is the message without advice.
    """

    stage: Stage
    case: Case
    message: str
    name: str = ""
    actual_values: Array | None = None
    expected_values: Array | None = None
    initial_contents: Array | None = None
    is_wrong: Array | None = None
    fault_kind: str = ""
    fault_array: str = ""
    hazard_kind: str = ""

    @property
    def wrong_elements(self) -> Array:
        """A bool array that marks the wrong elements of the output."""
        if self.is_wrong is not None:
            return self.is_wrong
        assert self.actual_values is not None
        assert self.expected_values is not None
        with np.errstate(invalid="ignore"):
            return ~np.isclose(
                self.actual_values, self.expected_values, rtol=1e-4, atol=1e-30, equal_nan=True
            )

    def __getitem__(self, parameter_name: str) -> Any:
        return self.case.values[parameter_name]


Matcher = Callable[[Mistake], bool]


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence that is added to the message if the function `matches` returns true for the mistake.

    Only the first advice that matches is shown. The module `advice` contains common conditions.
    """

    matches: Matcher
    sentence: str


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
    budgets, measured_launch
        The counters with their limits, and the launches in which they are counted.
    rules
        A version number. Raise it when an answer that has passed may fail now: older scores are dropped.
    forbids_double_writes
        Whether it is a mistake if two threads write the same value to one element. This detects a missing
        guard at a ragged edge, which writes into the next row.
    waits_between_blocks
        Whether blocks may wait for each other. If true, block orders are also tested with more blocks than
        fit on the device at once, where waiting for a block that has not started never ends.
    advice
        Sentences that are added to the message for known mistakes.
    praise
        The message for an answer that passes.
    capability
        The compute capability that the exercise needs. On a device with a lower one, the answer is judged on
        a virtual A100, and the verdict says so.
    adapt_to_answer
        ``adapt_to_answer(exercise, code)`` returns the exercise for one answer, for example with a grid that
        the answer chooses. It raises `NotYet` if the choice is not possible.
    """

    exercise_id: str
    title: str
    kernel: str
    parameters: str
    case: Callable[[DataGenerator, Any, Dim3], Case]
    reference: str
    level: Level = "core"
    kind: Kind = "write"
    naive: str = ""
    table: tuple[SpecialInput, ...] = ()
    sizes: Callable[[np.random.Generator, int], Sequence[Any]] = draw.draw_lengths
    blocks: Callable[[np.random.Generator], Sequence[Dim3]] = draw.draw_line_blocks
    budgets: tuple[Budget, ...] = ()
    measured_launch: MeasuredLaunch = field(default_factory=MeasuredLaunch)
    rules: int = 3
    forbids_double_writes: bool = False
    waits_between_blocks: bool = False
    advice: tuple[Advice, ...] = ()
    praise: str = "the results are right for every size, block shape and order of blocks."
    capability: tuple[int, int] = (0, 0)
    adapt_to_answer: Callable[[KernelExercise, str], KernelExercise] | None = None

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
    stream is still writing when the program begins. ``expected_result`` is an array, a number, or
    a tuple of them, compared in values, shape and dtype. It can also be a function that takes the returned
    plain data and raises `NotYet`. ``known_mistakes`` contains pairs of the result of a known mistake and the
    sentence that explains it. ``required_place`` requires that returned arrays are on the ``"device"`` or the
    ``"host"``. With ``keeps_arguments``, the program must not write to its arguments.
    """

    arguments: tuple[Any, ...]
    expected_result: Any
    on_device: bool = False
    label: str = ""
    known_mistakes: tuple[tuple[Any, str], ...] = ()
    required_place: Literal["", "device", "host"] = ""
    keeps_arguments: bool = False


@dataclass(frozen=True)
class ProgramExercise:
    """An exercise whose answer is a Python function that uses the array module ``cp``.

    The function runs on a virtual GPU in a separate process, which is stopped after ``limit_s`` seconds of
    processor time. ``case`` and the expected results stay in the judge's process; ``call_program`` runs in
    that of the program. Budgets limit the counts of `counts.COUNTS`: launches, copies, bytes,
    synchronizations.

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
    checks_stream_order
        Whether missing order between streams is a mistake. Memory uses are checked at all sizes except the
        last; results are tested with other orders of the streams at two sizes.
    returns_result
        Whether the program must return a value; if false, ``call_program`` returns the result instead.
    rules
        As for `KernelExercise`.
    call_program
        ``call_program(bench, program, *arguments)`` calls the program with additional objects: a stream,
        pinned arrays, a busy host (`bench.Bench`). Its return value is compared with the expected result.
    advice
        Pairs (words, sentence): the sentence is added to a message that contains the words.
    """

    exercise_id: str
    title: str
    name: str
    case: Callable[[DataGenerator, Any], ProgramCase]
    reference: Callable[..., Any]
    naive: Callable[..., Any] | None = None
    level: Level = "core"
    kind: Kind = "write"
    sizes: tuple[Any, ...] | Callable[[np.random.Generator], tuple[Any, ...]] = (1, 33, 10_000)
    table: tuple[SpecialInput, ...] = ()
    budgets: tuple[Budget, ...] = ()
    checks_stream_order: bool = False
    returns_result: bool = True
    call_program: Callable[..., Any] = lambda bench, program, *arguments: program(*arguments)
    rules: int = 3
    advice: tuple[tuple[str, str], ...] = ()
    praise: str = "the results are right, and the program is within its budget."
    limit_s: float = 10.0


Exercise = KernelExercise | PythonExercise | ProgramExercise
