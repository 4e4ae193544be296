"""The test launches of one answer, and the messages for launches that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gpulab.words import count, noun
from gpulab_course.teach.judge import draw
from gpulab_course.teach.judge.advice import add_advice
from gpulab_course.teach.judge.budget import Costs, Score
from gpulab_course.teach.judge.compare import (
    Array,
    describe_first_wrong,
    find_wrong_elements,
    get_expected_values,
)
from gpulab_course.teach.judge.draw import DataGenerator
from gpulab_course.teach.judge.exercise import Case, KernelExercise, Mistake, NotYet, Stage
from gpulab_course.teach.judge.kernel.bench import (
    Bench,
    KernelFault,
    LaunchOutcome,
    has_todo,
    make_unwritten_error,
)
from gpulab_course.teach.judge.past import PastFailures
from virtualgpu.protocol import Counters
from virtualgpu.records import Dim3, KernelCounters, KernelSource

# Sizes up to this are small: tried with every block shape, and before any other.
MAX_SMALL_ELEMENTS = 5000
# About so many elements show every kind of data.
_MEDIUM_ELEMENTS = 1000
# Launches under checks have at most so many threads.
_MAX_HAZARD_THREADS = 4096
# Rows of a table are tried with so many blocks at most, where there is such a block.
_MAX_ROW_BLOCKS = 600


@dataclass(frozen=True, slots=True)
class CountedLaunch:
    """The costs of one test launch, for the answer's kernel, the reference and, if needed, the naive
    version.
    """

    case: Case
    yours: Costs
    reference: Costs
    naive: Costs | None = None


@dataclass
class Trial:
    """The state of a check of one kernel, with its test launches and the results of the stages so far.

    If the kernel executes many more instructions than the reference, ``hopeless_mistake`` contains the
    mistake to report, and large sizes are skipped. ``large_launches`` contains the large launches with their
    counters, and ``busiest_launch`` the small launch with the busiest warp. ``failed_case`` is the launch
    that failed.
    """

    exercise: KernelExercise
    source: KernelSource
    bench: Bench
    seed: int = 0
    past: PastFailures = field(default_factory=PastFailures)
    failed_case: Case | None = None
    scores: list[Score] = field(default_factory=list)
    hopeless_mistake: Mistake | None = None
    large_launches: list[tuple[Case, KernelCounters]] = field(default_factory=list)
    busiest_launch: tuple[Case, KernelCounters] | None = None
    counted_launches: list[CountedLaunch] = field(default_factory=list)

    @cached_property
    def size_block_pairs(self) -> list[tuple[Any, Dim3]]:
        """The pairs of size and block shape in the order in which they are tested."""
        rng = np.random.default_rng(self.seed)
        blocks = self.exercise.blocks(rng)
        return draw.pair_sizes_with_blocks(
            self.exercise.sizes(rng, self.bench.threads_at_once), blocks, MAX_SMALL_ELEMENTS
        )

    @cached_property
    def small_cases(self) -> list[Case]:
        """The small test launches with random data. A small launch on which the last answer failed comes
        first.
        """
        cases = [
            self.case(size, block)
            for size, block in self.size_block_pairs
            if np.prod(size) <= MAX_SMALL_ELEMENTS
        ]
        return [*self._list_failed_cases(True), *cases]

    def _list_failed_cases(self, is_small: bool, *stages: str) -> list[Case]:
        """Return a list with the launch on which the last answer failed, if its size and stage match."""
        case = self.past.get_failed_case(*stages) if stages else self.past.failed_case
        return [case] if case is not None and (np.prod(case.size) <= MAX_SMALL_ELEMENTS) == is_small else []

    def make_large_cases(self) -> Iterator[Case]:
        """Yield the large test launches, and create the data of each one only when it is needed."""
        yield from self._list_failed_cases(False)
        yield from (
            self.case(size, block)
            for size, block in self.size_block_pairs
            if np.prod(size) > MAX_SMALL_ELEMENTS
        )

    def make_data_cases(self) -> list[Case]:
        """Return test launches with special values. Each kind of value occurs with a medium size and with the
        largest block.
        """
        case_draw = DataGenerator(self.seed)
        size, block = min(
            self.size_block_pairs, key=lambda pair: abs(int(np.prod(pair[0])) - _MEDIUM_ELEMENTS)
        )
        self.exercise.case(case_draw, size, block)
        data_kinds = (
            draw.DATA_KINDS[1:]
            if case_draw.has_special_values
            else (draw.DUPLICATE_VALUES, draw.EXTREME_VALUES)
        )
        small_pairs = [
            size_and_block
            for size_and_block in self.size_block_pairs
            if np.prod(size_and_block[0]) <= MAX_SMALL_ELEMENTS
        ]
        largest_block_pair = max(small_pairs, key=lambda pair: (prod(pair[1]), np.prod(pair[0])))
        return [
            self.case(*size_and_block, kind)
            for kind in data_kinds
            for size_and_block in dict.fromkeys(((size, block), largest_block_pair))
        ]

    def make_table_cases(self) -> list[Case]:
        """Return test launches with the special inputs of the exercise."""
        medium_size, block = min(
            self.size_block_pairs, key=lambda pair: abs(int(np.prod(pair[0])) - _MEDIUM_ELEMENTS)
        )
        blocks = list(dict.fromkeys(size_and_block[1] for size_and_block in self.size_block_pairs))
        cases = []
        for row_index, row in enumerate(self.exercise.table):
            for size_index, size in enumerate(row.sizes or (medium_size,)):
                suitable_blocks = (
                    [b for b in blocks if np.prod(size) <= _MAX_ROW_BLOCKS * prod(b)]
                    if row.sizes
                    else [block]
                )
                row_block = (
                    row.block
                    or (suitable_blocks or blocks)[(row_index + size_index) % len(suitable_blocks or blocks)]
                )
                case_draw = DataGenerator([self.seed, row_index, size_index])
                cases.append(
                    make_labelled_case(self.exercise, case_draw, size, row_block, row.case, row.description)
                )
        return cases

    def choose_order_cases(self) -> list[Case]:
        """Return test launches of several blocks, which are repeated with other orders of the blocks.

        If blocks of the exercise may wait for each other, one launch has more blocks than fit on the device.
        """
        multi_block_cases = [case for case in self.small_cases if prod(case.launch_grid) > 1]
        multi_block_cases.sort(key=lambda case: prod(case.launch_grid))
        cases = self._list_failed_cases(True, "orders")
        cases += (
            [multi_block_cases[len(multi_block_cases) // 2], multi_block_cases[-1]]
            if multi_block_cases
            else []
        )
        if self.exercise.waits_between_blocks:
            cases.append(
                self.case(
                    *max(self.size_block_pairs, key=lambda size_and_block: int(np.prod(size_and_block[0])))
                )
            )
        return cases

    def choose_hazard_cases(self) -> list[Case]:
        """Return small test launches for the sanitizer, such as launches with many blocks or idle threads."""
        cases = self._list_failed_cases(True, "hazards")
        small_cases = [case for case in self.small_cases if case.threads <= _MAX_HAZARD_THREADS]
        for shape in dict.fromkeys(case.block for case in small_cases):
            same_shape_cases = [case for case in small_cases if case.block == shape]
            cases.append(max(same_shape_cases, key=lambda case: (prod(case.launch_grid), np.prod(case.size))))
            cases.append(
                max(
                    same_shape_cases,
                    key=lambda case: (case.threads - np.prod(case.size)) * (np.prod(case.size) > 1),
                )
            )
        cases += [case for case in small_cases if np.prod(case.size) == 1][:1]
        return list({id(case): case for case in cases}.values())

    def case(self, size: Any, block: Dim3, kind: str = draw.RANDOM_VALUES) -> Case:
        """Return a test launch whose random data depend on the answer, the size and the block."""
        seed = [self.seed, *(int(length) for length in np.atleast_1d(size)), *block]
        return make_labelled_case(self.exercise, DataGenerator(seed, kind), size, block)

    def run(self, case: Case, stage: Stage, seed: int = 0, counting: Counters | None = None) -> LaunchOutcome:
        """Launch the kernel, and check its outputs. Also check that its inputs are unchanged.

        Raises
        ------
        NotYet
            If an output is wrong or an input has changed. The message includes the exercise's advice.
        """
        try:
            launch_outcome = self.bench.run(self.exercise, self.source, case, seed, counting)
        except KernelFault as fault:
            raise self.make_fault_error(stage, case, fault) from None
        for name in launch_outcome.overwritten_inputs:
            raise NotYet(f"{case.label}: it writes to `{name}`, which it may only read.")
        try:
            self.compare(stage, case, launch_outcome.outputs, launch_outcome.initial_contents)
        except NotYet:
            if not seed:
                raise
            # A run with other initial contents gives a better message.
            self.run(case, stage)
            raise NotYet(
                f"{case.label}: the result depends on the old contents of the output, "
                "which can be anything. Write each element before you read it."
            ) from None
        return launch_outcome

    def make_fault_error(self, stage: Stage, case: Case, fault: KernelFault) -> NotYet:
        """Return the exception for a kernel that a fault stopped."""
        if fault.kind == "parameters":
            return NotYet(fault.message)
        mistake = Mistake(
            stage, case, f"{case.label}: {fault.message}", fault_kind=fault.kind, fault_array=fault.array
        )
        return self.record_mistake(mistake)

    def record_mistake(self, mistake: Mistake) -> NotYet:
        """Store a failed test launch, and return the exception with the message and the exercise's advice."""
        self.failed_case = mistake.case
        return NotYet(add_advice(self.exercise.advice, mistake))

    def compare(
        self, stage: Stage, case: Case, outputs: dict[str, Array], initial_contents: dict[str, Array]
    ) -> None:
        """Raise `NotYet` for the first output that differs from the expected one."""
        for name, expected in case.expected_outputs.items():
            is_wrong = find_wrong_elements(outputs[name], expected)
            if not is_wrong.any():
                continue
            if has_todo(self.source) and all(
                outputs[n].tobytes() == initial_contents[n].tobytes() for n in outputs
            ):
                raise make_unwritten_error()
            expected_values = get_expected_values(expected)
            message = f"{case.label}: {describe_first_wrong(name, outputs[name], expected_values, is_wrong)}."
            raise self.record_mistake(
                Mistake(
                    stage,
                    case,
                    message,
                    name,
                    outputs[name],
                    expected_values,
                    initial_contents[name],
                    is_wrong,
                )
            )


def make_labelled_case(
    exercise: KernelExercise,
    data_generator: DataGenerator,
    size: Any,
    block: Dim3,
    create_case: Callable[..., Case] | None = None,
    row_title: str = "",
) -> Case:
    """Create a test launch with a block and a size, and label it for messages.

    The function `create_case` makes the case; by default it is the exercise's own ``case``.
    """
    case = (create_case or exercise.case)(data_generator, size, block)
    case.block = block
    case.size = size
    threads_text = "×".join(str(n) for n in block if n > 1) or "1"
    shape_text = f"{count(prod(case.launch_grid), 'block')} of {threads_text} {noun(prod(block), 'thread')}"
    scalar_values = {p.name: case.values.get(p.name) for p in exercise.arguments if not p.is_pointer}
    integer_texts = [
        f"{name} = {n:,}" for name, n in scalar_values.items() if isinstance(n, int | np.integer)
    ]
    data_text = (
        f", data with {data_generator.kind}" if data_generator.kind else f", {row_title}" if row_title else ""
    )
    case.label = f"{', '.join([*integer_texts, shape_text])}{data_text}"
    return case
