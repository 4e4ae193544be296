"""Work held back until something waits for it, to be run in another lawful order than it was given.

The virtual GPU runs each operation when it is given, so a program that lacks a wait still gets the right
result. A GPU may run what nothing orders in any order, and as late as the program lets it. Here an operation
waits until the host asks for it, or for one that follows it; then what has to run does so in a chosen order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

STREAM_ORDERS = ("last first", "random")
# In a random order, so often an operation runs though nobody has asked for it yet.
_EARLY = 0.3


@dataclass(frozen=True, slots=True)
class _Held:
    run: Callable[[], object]
    after: tuple[int, ...]
    keeps: bool


class Deferral:
    """Operations of a machine that have not run yet.

    Parameters
    ----------
    order
        ``"last first"`` runs, of what may run, what was given last; ``"random"`` draws by `seed`.

    Raises
    ------
    ValueError
        For any other order.
    """

    def __init__(self, order: str, seed: int = 0) -> None:
        if order not in STREAM_ORDERS:
            raise ValueError(f"The order of streams is 'last first' or 'random', not {order!r}.")
        self._random = random.Random(seed) if order == "random" else None
        self._held: dict[int, _Held] = {}
        self._lock = threading.RLock()
        self._running = False

    def hold(
        self,
        number: int,
        run: Callable[[], object],
        after: Iterable[int],
        keeps: bool = True,
        kernel: bool = False,
    ) -> None:
        """Keep operation `number`, which follows others, and which `keeps` the arrays alive that it uses.

        In this class it does not matter whether it is a `kernel`.
        """
        with self._lock:
            self._held[number] = _Held(run, tuple(n for n in after if n in self._held), keeps)

    def let_go(self) -> None:
        """An array dies: what may use it, and does not keep it, runs while there still is something.

        It may die on a thread of the operation that runs, which the lock's holder waits for.
        """
        if not self._running:
            self.require([number for number, held in list(self._held.items()) if not held.keeps])

    def require(self, numbers: Iterable[int] | None = None) -> None:
        """Run these operations (None: all) and what they follow, as far as they have not run yet.

        Nothing happens within an operation that runs: it has what it needs.
        """
        with self._lock:
            if self._running:
                return
            needed = set(self._held) if numbers is None else self._needed(numbers)
            if numbers is not None and self._random is not None and needed:
                drawn = [n for n in self._held if n not in needed and self._random.random() < _EARLY]
                needed |= self._needed(drawn)
            self._run(needed)

    def _needed(self, numbers: Iterable[int]) -> set[int]:
        todo = [n for n in numbers if n in self._held]
        needed = set[int]()
        while todo:
            number = todo.pop()
            if number not in needed:
                needed.add(number)
                todo += [n for n in self._held[number].after if n in self._held]
        return needed

    def _run(self, numbers: set[int]) -> None:
        followers: dict[int, list[int]] = {}
        missing: dict[int, int] = {}
        for number in numbers:
            before = [n for n in self._held[number].after if n in numbers]
            missing[number] = len(before)
            for n in before:
                followers.setdefault(n, []).append(number)
        ready = [(self._rank(n), n) for n, count in missing.items() if not count]
        heapify(ready)
        ended: list[_Held] = []  # what only they keep alive may be used by what runs after them
        self._running = True
        try:
            while ready:
                _, number = heappop(ready)
                ended.append(self._held.pop(number))
                ended[-1].run()
                for follower in followers.get(number, ()):
                    missing[follower] -= 1
                    if not missing[follower]:
                        heappush(ready, (self._rank(follower), follower))
        finally:
            self._running = False

    def _rank(self, number: int) -> float:
        return -number if self._random is None else self._random.random()
