"""The reference pool, traces of requests to a pool, and a driver that records all calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpulab import session
from gpulab.processes.errors import unexpected
from gpulab_course.teach.judge import Draw

UNIT_BYTES = 512


class MyPool:
    """The reference: best fit, blocks split and joined within their segment, free blocks by stream."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.blocks: dict[int, list[Any]] = {}  # address -> [size, stream, segment, free]

    def malloc(self, size: int, stream: int) -> int:
        size = -(-size // UNIT_BYTES) * UNIT_BYTES
        fits = [
            (block[0], address)
            for address, block in self.blocks.items()
            if block[3] and block[1] == stream and block[0] >= size
        ]
        if not fits:
            address = int(self.driver.malloc(size))
            self.blocks[address] = [size, stream, address, False]
            return address
        whole, address = min(fits)
        segment = self.blocks[address][2]
        self.blocks[address] = [size, stream, segment, False]
        if whole > size:
            self.blocks[address + size] = [whole - size, stream, segment, True]
        return address

    def free(self, address: int) -> None:
        block = self.blocks.get(address)
        if block is None or block[3]:
            raise ValueError(f"no block in use starts at {address:#x}")
        block[3] = True
        after = self.blocks.get(address + block[0])
        if after is not None and after[3] and after[2] == block[2]:
            del self.blocks[address + block[0]]
            block[0] += after[0]
        for before, other in self.blocks.items():
            if other[3] and other[2] == block[2] and before + other[0] == address:
                other[0] += block[0]
                del self.blocks[address]
                break

    def empty_cache(self) -> None:
        starts = {block[2] for block in self.blocks.values()}
        for segment in starts:
            whole = [a for a, block in self.blocks.items() if block[2] == segment]
            if len(whole) == 1 and self.blocks[segment][3]:
                del self.blocks[segment]
                self.driver.free(segment)


class NoPool:
    """The naive version: every allocation and every release is a call of the driver."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.sizes: dict[int, int] = {}

    def malloc(self, size: int, stream: int) -> int:
        address = int(self.driver.malloc(size))
        self.sizes[address] = size
        return address

    def free(self, address: int) -> None:
        if address not in self.sizes:
            raise ValueError("not mine")
        del self.sizes[address]
        self.driver.free(address)

    def empty_cache(self) -> None:
        """Do nothing, because no memory is kept."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a trace.

    ``malloc`` of ``size`` bytes as number so and so; ``free`` of that number; ``refuse``: a free of what lies
    ``size`` bytes behind that number's start, which is to raise an error; ``empty``: `empty_cache`. ``pool``
    is the first or the second of two pools that know nothing of each other.
    """

    kind: str
    number: int = 0
    size: int = 0
    stream: int = 0
    pool: int = 0


def trace(drawn: Draw, count: int) -> tuple[Ask, ...]:
    """Draw requests to a pool: small puzzles of splitting, joining and choosing, then random requests."""
    rng = drawn.rng
    unit = UNIT_BYTES
    number = 0
    asks: list[Ask] = []
    # Streams are told apart as a whole, not by some of their bits.
    some = int(rng.integers(1, 9))
    streams = 0, some, some + (1 << int(rng.integers(2, 21)))
    other = streams[2]

    def malloc(size: int, stream: int = 0, pool: int = 0) -> int:
        nonlocal number
        asks.append(Ask("malloc", number, size, stream, pool))
        number += 1
        return number - 1

    def free(*numbers: int, pool: int = 0) -> None:
        asks.extend(Ask("free", each, pool=pool) for each in numbers)

    # Sizes are rounded: what was 100 bytes serves 500, and never 513.
    first = malloc(100)
    free(first)
    asks.append(Ask("refuse", first))
    free(malloc(500))
    asks += [Ask("empty"), Ask("refuse", first)]  # of which the driver has the segment back
    if count > 1:
        # Cut one segment into four, free them in the order of a puzzle, and ask for the whole again.
        free(malloc(64 * unit))
        four = [malloc(16 * unit) for _ in range(4)]
        asks.append(Ask("refuse", four[1], unit))
        free(*(four[k] for k in rng.permutation(4)))
        asks.append(Ask("refuse", four[2]))
        whole = malloc(64 * unit), malloc(64 * unit)
        free(*whole)
        # Two segments lie side by side: no block may reach from one into the other.
        free(malloc(65 * unit))
        # To the last multiple: what is left of a block serves what just fits.
        asks.append(Ask("empty"))
        free(malloc(64 * unit))
        for one, rest in (
            (1, 63 * unit),
            (unit + 1, 62 * unit),
            (3 * unit, 61 * unit - 1),
            (63 * unit, 1),
            (62 * unit - 1, 2 * unit),
        ):
            free(malloc(one), malloc(rest))
        asks.append(Ask("empty"))
        # The smallest that fits, whichever lies first and whichever was freed last.
        for _ in range(3):
            sizes = [int(n) * unit for n in rng.permutation([9, 14, 20, 31])]
            parts = [malloc(size) for size in sizes]
            free(*(parts[k] for k in rng.permutation(4)))
            free(*[malloc(int(n)) for n in rng.permutation([9 * unit - 7, 10 * unit, 15 * unit, 21 * unit])])
            asks.append(Ask("empty"))
        # The same within one segment, with blocks in use between.
        free(malloc(100 * unit))
        parts = [malloc(int(n) * unit) for n in (30, 1, 12, 1, 20, 1, 35)]
        free(*(parts[k] for k in rng.permutation([0, 2, 4, 6])))
        free(*[malloc(int(n) * unit) for n in rng.permutation([11, 19, 29])], parts[1], parts[3], parts[5])
        asks.append(Ask("empty"))
        # Neighbours on both sides, on the left, on the right.
        free(malloc(48 * unit))
        parts = [malloc(8 * unit) for _ in range(6)]
        free(parts[0], parts[2], parts[1])
        left = malloc(24 * unit)
        free(parts[5], parts[4])
        right = malloc(16 * unit)
        free(left, right, parts[3])
        # A segment with one block in use stays; one that is free as a whole does not.
        kept = malloc(20 * unit), malloc(20 * unit)
        large = malloc(90 * unit)
        free(kept[0], large)
        asks.append(Ask("empty"))
        free(kept[1])
        asks.append(Ask("empty"))
        # Streams apart, and two pools.
        free(malloc(16 * unit, other))
        free(malloc(16 * unit, 0))
        free(malloc(16 * unit, other))
        free(malloc(40 * unit, pool=1), pool=1)
        free(malloc(16 * unit, other, 1), malloc(40 * unit, pool=1), pool=1)
        free(malloc(40 * unit))
        asks += [Ask("empty", pool=1), Ask("empty")]
    alive: list[int] = []
    for _ in range(count if count > 1 else 0):
        if rng.random() < 0.02:
            asks.append(Ask("empty"))
        elif alive and rng.random() < 0.47:
            free(alive.pop(int(rng.integers(len(alive)))))
        else:
            size = int(rng.integers(1, 9)) * int(rng.choice([100, unit, 4 * unit, 40 * unit]))
            alive.append(malloc(size + int(rng.integers(-1, 2)), int(rng.choice(streams))))
    free(*alive)
    if alive:
        asks.append(Ask("refuse", alive[-1]))
    return (*asks, Ask("empty"))


class Driver:
    """The device's ``malloc(size)`` and ``free(address)`` for a pool, with a record of the calls.

    Segments lie side by side, as they may on a device.
    """

    def __init__(self, start: int) -> None:
        self._runtime = session.cp().cuda.runtime
        self._next = start
        self._at: dict[int, int] = {}  # address for the pool: the device's
        self.noted: list[tuple[Any, ...]] = []

    def malloc(self, size: int) -> int:
        """A segment of `size` bytes."""
        size = int(size)
        if size <= 0:
            raise ValueError(f"the driver is asked for {size} bytes")
        pointer = self._runtime.malloc(size)
        address = self._next
        self._next = self._next + -(-size // UNIT_BYTES) * UNIT_BYTES
        self._at[address] = pointer
        self.noted.append(("malloc", size, address))
        return address

    def free(self, address: int) -> None:
        """Give a segment back."""
        if address not in self._at:
            self.noted.append(("no segment",))
            raise ValueError("that address starts no segment, or was given back before")
        self._runtime.free(self._at.pop(address))
        self.noted.append(("free", int(address)))


def drive(make_pool: Callable[[Any], Any], asks: tuple[Ask, ...]) -> list[tuple[Any, ...]]:
    """Send the requests of a trace to two pools, until one raises.

    Returns
    -------
    list
        For the making of both, and then for each request: what was raised, or nothing; what was returned; and
        the calls of that pool's driver meanwhile. `pool_rules` looks at them.
    """
    drivers = Driver(1 << 40), Driver(1 << 44)
    log: list[tuple[Any, ...]] = []
    pools: list[Any] = []
    starts: dict[int, Any] = {}

    def did(driver: Driver, function: Any, *arguments: Any) -> Any:
        said = ""
        returned = None
        before = len(driver.noted)
        try:
            returned = function(*arguments)
        except Exception as error:
            said = unexpected(error)
        log.append((said, returned, driver.noted[before:]))
        return returned

    for driver in drivers:
        pools.append(did(driver, make_pool, driver))
        log[-1] = log[-1][0], None, log[-1][2]
    for ask in asks:
        if log[-1][0] and (len(log) <= len(drivers) or asks[len(log) - len(drivers) - 1].kind != "refuse"):
            break
        driver = drivers[ask.pool]
        pool = pools[ask.pool]
        if ask.kind == "empty":
            did(driver, lambda pool=pool: pool.empty_cache())
        elif ask.kind == "malloc":
            starts[ask.number] = did(driver, lambda *a, pool=pool: pool.malloc(*a), ask.size, ask.stream)
            if type(starts[ask.number]) is not int and not hasattr(starts[ask.number], "__index__"):
                break
        else:
            address = starts[ask.number] + (ask.size if ask.kind == "refuse" else 0)
            did(driver, lambda *a, pool=pool: pool.free(*a), address)
    return log
