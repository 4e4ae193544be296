"""Operations of streams that are delayed until something waits, and then run in another permitted order.

The virtual GPU runs each operation when it is submitted, so a program that lacks a wait still gets the right
result. A GPU can run unordered work in any order, and as late as the program permits. Here an operation is
delayed until the host waits for it, or for one that follows it; then the necessary operations run in a chosen
order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

STREAM_ORDERS = ("last first", "random")
# Probability that an operation runs in a random order before anything waits for it.
_EARLY_PROBABILITY = 0.3


@dataclass(frozen=True, slots=True)
class _DelayedOperation:
    run: Callable[[], object]
    after: tuple[int, ...]
    keeps_arrays: bool


class StreamDeferral:
    """The delayed operations of a machine, which run in a chosen order instead of the submission order.

    Parameters
    ----------
    order
        ``"last first"`` runs the last submitted of the operations that can run; ``"random"`` chooses by
        `seed`.

    Raises
    ------
    ValueError
        For any other order.
    """

    def __init__(self, order: str, seed: int = 0) -> None:
        if order not in STREAM_ORDERS:
            raise ValueError(f"The order of streams must be 'last first' or 'random', not {order!r}.")
        self._random = random.Random(seed) if order == "random" else None
        self._delayed_operations: dict[int, _DelayedOperation] = {}
        self._lock = threading.RLock()
        self._is_running = False

    def delay_operation(
        self,
        number: int,
        run: Callable[[], object],
        after: Iterable[int],
        keeps_arrays: bool = True,
        is_kernel: bool = False,
    ) -> None:
        """Delay an operation. The operation runs only after the operations with the numbers `after`.

        The flag `keeps_arrays` states whether the operation keeps its arrays alive. This class does not use
        `is_kernel`.
        """
        with self._lock:
            self._delayed_operations[number] = _DelayedOperation(
                run,
                tuple(predecessor for predecessor in after if predecessor in self._delayed_operations),
                keeps_arrays,
            )

    def run_before_free(self) -> None:
        """Run the delayed operations that may use the array that the program is about to free.

        Operations that keep their arrays alive remain delayed. The array may be freed on a thread of the
        running operation, for which the lock's holder waits.
        """
        if not self._is_running:
            self.run_required(
                [
                    operation_number
                    for operation_number, operation in list(self._delayed_operations.items())
                    if not operation.keeps_arrays
                ]
            )

    def run_required(self, numbers: Iterable[int] | None = None) -> None:
        """Run the delayed operations with the given numbers and those that they depend on. If ``numbers`` is
        None, all delayed operations are run.

        A call from within a running operation does nothing, because that operation has all it needs.
        """
        with self._lock:
            if self._is_running:
                return
            required_numbers = (
                set(self._delayed_operations) if numbers is None else self._find_needed_numbers(numbers)
            )
            if numbers is not None and self._random is not None and required_numbers:
                early_operations = [
                    delayed_number
                    for delayed_number in self._delayed_operations
                    if delayed_number not in required_numbers and self._random.random() < _EARLY_PROBABILITY
                ]
                required_numbers |= self._find_needed_numbers(early_operations)
            self._run_operations(required_numbers)

    def _find_needed_numbers(self, numbers: Iterable[int]) -> set[int]:
        pending_numbers = [candidate for candidate in numbers if candidate in self._delayed_operations]
        numbers_to_run = set[int]()
        while pending_numbers:
            operation_number = pending_numbers.pop()
            if operation_number not in numbers_to_run:
                numbers_to_run.add(operation_number)
                pending_numbers += [
                    candidate
                    for candidate in self._delayed_operations[operation_number].after
                    if candidate in self._delayed_operations
                ]
        return numbers_to_run

    def _run_operations(self, numbers: set[int]) -> None:
        followers: dict[int, list[int]] = {}
        open_predecessors: dict[int, int] = {}
        for operation_number in numbers:
            predecessors = [
                predecessor
                for predecessor in self._delayed_operations[operation_number].after
                if predecessor in numbers
            ]
            open_predecessors[operation_number] = len(predecessors)
            for predecessor in predecessors:
                followers.setdefault(predecessor, []).append(operation_number)
        ready_numbers = [
            (self._compute_rank(operation_number), operation_number)
            for operation_number, open_count in open_predecessors.items()
            if not open_count
        ]
        heapify(ready_numbers)
        finished_operations: list[
            _DelayedOperation
        ] = []  # keeps their arrays alive for the operations after them
        self._is_running = True
        try:
            while ready_numbers:
                _, operation_number = heappop(ready_numbers)
                finished_operations.append(self._delayed_operations.pop(operation_number))
                finished_operations[-1].run()
                for follower in followers.get(operation_number, ()):
                    open_predecessors[follower] -= 1
                    if not open_predecessors[follower]:
                        heappush(ready_numbers, (self._compute_rank(follower), follower))
        finally:
            self._is_running = False

    def _compute_rank(self, operation_number: int) -> float:
        return -operation_number if self._random is None else self._random.random()
