"""The pool that learners write, and who asks it for memory: traces with a driver that keeps watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpulab import session
from gpulab.teach.judge import Draw, NotYet
from gpulab.teach.judge.python.functions import unexpected

UNIT_BYTES = 512


class MyPool:
    """The reference: best fit, blocks split and joined within their segment, free blocks by stream."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.blocks: dict[int, list[Any]] = {}  # address -> [size, stream, segment, free]

    def malloc(self, size: int, stream: int) -> int:
        size = -(-size // UNIT_BYTES) * UNIT_BYTES
        fits = [(block[0], address) for address, block in self.blocks.items()
                if block[3] and block[1] == stream and block[0] >= size]  # fmt: skip
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
    """The naive version: every array is a call of the driver, there and back."""

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
        """Nothing is kept."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a trace: ``malloc`` of ``size`` bytes as number so and so, ``free``, or ``empty``."""

    kind: str
    number: int = 0
    size: int = 0
    stream: int = 0


def trace(drawn: Draw, count: int) -> tuple[Ask, ...]:
    """A trace: first what has to be split and joined, then requests drawn at random on two streams."""
    unit = UNIT_BYTES
    asks = [Ask("malloc", 0, 64 * unit), Ask("free", 0)]
    if count > 1:
        # Cut one segment into four, free them in the order of a puzzle, and ask for the whole again.
        asks += [Ask("malloc", 1 + i, 16 * unit) for i in range(4)]
        asks += [Ask("free", 1 + i) for i in (0, 2, 3, 1)]
        asks += [Ask("malloc", 5, 64 * unit), Ask("malloc", 6, 64 * unit), Ask("free", 5), Ask("free", 6)]
        # Two segments lie side by side: no block may reach from one into the other.
        asks += [Ask("malloc", 7, 65 * unit), Ask("free", 7)]
        # A segment with one block in use stays.
        asks += [Ask("malloc", 8, 20 * unit), Ask("malloc", 9, 20 * unit), Ask("free", 8), Ask("empty")]
        asks += [Ask("free", 9), Ask("empty")]
    rng, number = drawn.rng, 10
    alive: list[int] = []
    for _ in range(count):
        if alive and rng.random() < 0.47:
            asks.append(Ask("free", alive.pop(int(rng.integers(len(alive))))))
            continue
        size = int(rng.integers(1, 9)) * int(rng.choice([100, unit, 4 * unit, 40 * unit]))
        asks.append(Ask("malloc", number, size, int(rng.integers(2))))
        alive.append(number)
        number += 1
    asks += [Ask("free", number) for number in alive]
    return (*asks, Ask("empty"))


class Driver:
    """What a pool gets to take memory from: the device's ``malloc(size)`` and ``free(address)``, watched."""

    def __init__(self) -> None:
        self._runtime = session.cp().cuda.runtime
        self.segments: dict[int, int] = {}
        self._at: dict[int, tuple[int, int]] = {}  # address for the pool: the device's, its size
        self._next = 1 << 40

    def malloc(self, size: int) -> int:
        """A segment of `size` bytes. It lies just behind the one before, as it may on a device."""
        size = int(size)
        if size <= 0:
            raise NotYet(f"your pool asks the driver for {size} bytes.")
        pointer = self._runtime.malloc(size)
        address, self._next = self._next, self._next + -(-size // UNIT_BYTES) * UNIT_BYTES
        self._at[address] = pointer, size
        self.segments[address] = size
        return address

    def free(self, address: int) -> None:
        """Give a segment back."""
        if address not in self.segments:
            raise NotYet("your pool gives the driver an address that starts no segment, or gives it twice.")
        del self.segments[address]
        self._runtime.free(self._at.pop(address)[0])

    def holds(self, address: int, size: int) -> bool:
        """Whether these bytes lie within one segment."""
        return any(start <= address and address + size <= start + n for start, n in self.segments.items())


def drive(make_pool: Callable[[Any], Any], asks: tuple[Ask, ...]) -> Any:
    """Ask a pool for what a trace says, and look at every answer; returns how many blocks it gave.

    Raises
    ------
    NotYet
        For what no pool may do.
    """
    driver = Driver()
    pool = _call("MyPool(driver)", make_pool, driver)
    alive: dict[int, tuple[int, int, int]] = {}  # number: address, size, stream
    last: dict[int, tuple[int, int]] = {}  # start of a freed block: its end, and the stream that had it
    # (the driver gives no address twice)
    given, dead = 0, None
    for ask in asks:
        if ask.kind == "empty":
            _call("empty_cache()", pool.empty_cache)
            _look_at_what_is_kept(driver, alive)
        elif ask.kind == "free":
            address, size, stream = alive.pop(ask.number)
            _call(f"free({address:#x})", pool.free, address)
            last[address] = address + size, stream
            dead = address
        else:
            said = f"malloc({ask.size:,}, stream {ask.stream})"
            address = _address(said, _call(said, pool.malloc, ask.size, ask.stream))
            _look_at_block(said, driver, alive, address, ask.size)
            _look_at_stream(said, last, address, ask)
            alive[ask.number] = address, ask.size, ask.stream
            given += 1
    _look_at_double_free(pool, dead)
    if driver.segments:
        left = f"{len(driver.segments)} segment" + ("s have" if len(driver.segments) > 1 else " has")
        raise NotYet(
            f"nothing is in use any more, and after empty_cache() {left} not gone back "
            "to the driver: join what is free, and give back each block that is a whole one."
        )
    return np.float32(given)


def _look_at_block(
    said: str, driver: Driver, alive: dict[int, tuple[int, int, int]], address: int, size: int
) -> None:
    if address % UNIT_BYTES and address % 256:
        raise NotYet(f"{said} is at {address:#x}: blocks start at multiples of 256 bytes; round sizes up.")
    if not driver.holds(address, size):
        raise NotYet(
            f"{said} does not lie within one segment of the driver: blocks of two segments must not be "
            "joined, even where they lie side by side."
        )
    for number, (start, length, _) in alive.items():
        if address < start + length and start < address + size:
            raise NotYet(f"{said} lies on top of allocation {number}, which is still in use.")


def _look_at_stream(said: str, last: dict[int, tuple[int, int]], address: int, ask: Ask) -> None:
    """What another stream had may still be read there."""
    for start in [s for s, (end, _) in last.items() if s < address + ask.size and address < end]:
        stream = last.pop(start)[1]
        if stream != ask.stream:
            raise NotYet(
                f"{said} is given a block that stream {stream} has used, and nothing says that its work is "
                "over: keep the free blocks of each stream apart."
            )


def _look_at_what_is_kept(driver: Driver, alive: dict[int, tuple[int, int, int]]) -> None:
    for number, (address, size, _) in alive.items():
        if not driver.holds(address, size):
            raise NotYet(f"empty_cache() gave back a segment with allocation {number} in it.")


def _look_at_double_free(pool: Any, address: int | None) -> None:
    if address is None:
        return
    for what, there in (("a block that was freed before", address), ("what is no block at all", 12345)):
        try:
            pool.free(there)
        except Exception:
            continue
        raise NotYet(f"free() of {what} should raise an error; your pool takes it.")


def _address(said: str, found: Any) -> int:
    if not isinstance(found, int | np.integer) or isinstance(found, bool):
        raise NotYet(f"{said} should return an address, a whole number, not {type(found).__name__}.")
    return int(found)


def _call(said: str, function: Any, *args: Any) -> Any:
    try:
        return function(*args)
    except NotYet:
        raise
    except Exception as error:
        raise NotYet(f"{said} raised {unexpected(error).removeprefix('it raised ')}") from error
