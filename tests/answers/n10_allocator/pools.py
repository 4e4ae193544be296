"""Wrong and right pools that the exercise 10-pool is tried with."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np

from gpulab_course.content.n10_allocator.exercises import MIB, round_up
from gpulab_course.content.n10_allocator.pool import UNIT_BYTES, MyPool


class NeverJoins(MyPool):
    """Frees, and leaves the pieces as they are."""

    def free(self, address: int) -> None:
        block = self.blocks.get(address)
        if block is None or block[3]:
            raise ValueError(address)
        block[3] = True


class NeverSplits(MyPool):
    """Gives whole blocks, however large."""

    def malloc(self, size: int, stream: int) -> int:
        size = round_up(size, UNIT_BYTES)
        for address, block in self.blocks.items():
            if block[3] and block[1] == stream and block[0] >= size:
                block[3] = False
                return address
        address = int(self.driver.malloc(size))
        self.blocks[address] = [size, stream, address, False]
        return address


class JoinsAcrossSegments(MyPool):
    """Joins whatever is free and lies side by side."""

    def free(self, address: int) -> None:
        block = self.blocks.get(address)
        if block is None or block[3]:
            raise ValueError(address)
        block[3] = True
        after = self.blocks.pop(address + block[0], None)
        if after is not None and after[3] and after[1] == block[1]:
            block[0] += after[0]
        elif after is not None:
            self.blocks[address + block[0]] = after
        for before, other in self.blocks.items():
            if other[3] and before + other[0] == address and other[1] == block[1]:
                other[0] += block[0]
                del self.blocks[address]
                break


class IgnoresStreams(MyPool):
    """One arena for all."""

    def malloc(self, size: int, stream: int) -> int:
        return super().malloc(size, 0)


class FewStreams(MyPool):
    """Keeps lists for a few streams, by the last bits of their numbers."""

    def malloc(self, size: int, stream: int) -> int:
        return super().malloc(size, stream % 4)


class LeavesLittle(MyPool):
    """A rest of a single multiple is not worth a block of its own."""

    def malloc(self, size: int, stream: int) -> int:
        size = -(-size // UNIT_BYTES) * UNIT_BYTES
        fits = [
            (block[0], address)
            for address, block in self.blocks.items()
            if block[3] and block[1] == stream and block[0] >= size
        ]
        if fits and min(fits)[0] - size == UNIT_BYTES:
            address = min(fits)[1]
            self.blocks[address][3] = False
            return address
        return super().malloc(size, stream)


class Units:
    """Notes of each segment which of its multiples are in use: free neighbours need no joining."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.segments: dict[int, tuple[int, list[bool]]] = {}
        self.used: dict[int, tuple[list[bool], slice]] = {}

    def malloc(self, size: int, stream: int) -> int:
        many = -(-size // UNIT_BYTES)
        runs = []
        for start, (owner, units) in self.segments.items():
            text = "".join("x" if used else "." for used in units) if owner == stream else ""
            runs += [(len(run[0]), start, run.start()) for run in re.finditer(r"\.+", text)]
        fits = [run for run in runs if run[0] >= many]
        if not fits:
            address = int(self.driver.malloc(many * UNIT_BYTES))
            self.segments[address] = stream, [False] * many
            fits = [(many, address, 0)]
        _, start, first = min(fits)
        units = self.segments[start][1]
        taken = slice(first, first + many)
        units[taken] = [True] * many
        self.used[start + first * UNIT_BYTES] = units, taken
        return start + first * UNIT_BYTES

    def free(self, address: int) -> None:
        units, taken = self.used.pop(address)
        units[taken] = [False] * (taken.stop - taken.start)

    def empty_cache(self) -> None:
        for start in [start for start, (_, units) in self.segments.items() if not any(units)]:
            del self.segments[start]
            self.driver.free(start)


class TakesDoubleFrees(MyPool):
    """Says nothing to a second free."""

    def free(self, address: int) -> None:
        if address in self.blocks and not self.blocks[address][3]:
            super().free(address)


class TakesLateFrees(MyPool):
    """Says nothing to a free of what `empty_cache` has given back."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.gone: set[int] = set()

    def free(self, address: int) -> None:
        if address in self.blocks or address not in self.gone:
            super().free(address)

    def empty_cache(self) -> None:
        before = set(self.blocks)
        super().empty_cache()
        self.gone |= before - set(self.blocks)


class CrashesOnJoin(MyPool):
    """Joins with the next block even if that is in use."""

    def free(self, address: int) -> None:
        super().free(address)
        for start, block in list(self.blocks.items()):
            after = self.blocks.get(start + block[0])
            if block[3] and after is not None and after[2] == block[2]:
                block[0] += after[0]
                break


class NoRounding(MyPool):
    """Cuts blocks to the byte."""

    def malloc(self, size: int, stream: int) -> int:
        for address, block in self.blocks.items():
            if block[3] and block[1] == stream and block[0] >= size:
                segment = block[2]
                whole = block[0]
                self.blocks[address] = [size, stream, segment, False]
                if whole > size:
                    self.blocks[address + size] = [whole - size, stream, segment, True]
                return address
        address = int(self.driver.malloc(size))
        self.blocks[address] = [size, stream, address, False]
        return address


class KeepsAll(MyPool):
    """Gives nothing back."""

    def empty_cache(self) -> None:
        """Nothing."""


class GivesBackTooMuch(MyPool):
    """Gives segments back that have a block in use."""

    def empty_cache(self) -> None:
        for segment in {block[2] for block in self.blocks.values() if block[3]}:
            for address in [a for a, block in self.blocks.items() if block[2] == segment]:
                del self.blocks[address]
            self.driver.free(segment)


class GivesBackAtOnce(MyPool):
    """A pool that keeps nothing."""

    def free(self, address: int) -> None:
        super().free(address)
        self.empty_cache()


class OneHugeSegment(MyPool):
    """Takes far more than is asked for."""

    def malloc(self, size: int, stream: int) -> int:
        if not any(block[3] and block[1] == stream and block[0] >= size for block in self.blocks.values()):
            address = int(self.driver.malloc(64 * MIB))
            self.blocks[address] = [64 * MIB, stream, address, True]
        return super().malloc(size, stream)


class Lists:
    """Sorted lists of free blocks by stream, neighbours found by their ends: right, in another way."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.used: dict[int, tuple[int, int, int]] = {}
        self.idle: dict[int, list[tuple[int, int, int]]] = {}  # stream: (size, start, segment)
        self.sizes: dict[int, int] = {}

    def malloc(self, size: int, stream: int) -> int:
        size += -size % 512
        idle = self.idle.setdefault(stream, [])
        idle.sort()
        for i, (whole, start, segment) in enumerate(idle):
            if whole >= size:
                del idle[i]
                if whole > size:
                    idle.append((whole - size, start + size, segment))
                break
        else:
            start = segment = int(self.driver.malloc(size))
            self.sizes[segment] = size
        self.used[start] = size, stream, segment
        return start

    def free(self, address: int) -> None:
        size, stream, segment = self.used.pop(address)
        idle = self.idle[stream]
        start = address
        end = address + size
        for block in list(idle):
            whole, begins, of = block
            if of == segment and begins + whole == start:
                start = begins
                idle.remove(block)
            elif of == segment and begins == end:
                end += whole
                idle.remove(block)
        idle.append((end - start, start, segment))

    def empty_cache(self) -> None:
        for idle in self.idle.values():
            for block in list(idle):
                if block[0] == self.sizes[block[2]]:
                    idle.remove(block)
                    self.driver.free(block[1])


class FirstFit(MyPool):
    """The lowest address that fits."""

    def malloc(self, size: int, stream: int) -> int:
        size = round_up(size, UNIT_BYTES)
        for address in sorted(self.blocks):
            whole, of, segment, idle = self.blocks[address]
            if idle and of == stream and whole >= size:
                self.blocks[address] = [size, stream, segment, False]
                if whole > size:
                    self.blocks[address + size] = [whole - size, stream, segment, True]
                return address
        address = int(self.driver.malloc(size))
        self.blocks[address] = [size, stream, address, False]
        return address


class WorstFit(MyPool):
    """The largest block."""

    def malloc(self, size: int, stream: int) -> int:
        size = round_up(size, UNIT_BYTES)
        fits = [(b[0], a) for a, b in self.blocks.items() if b[3] and b[1] == stream and b[0] >= size]
        if not fits:
            return super().malloc(size, stream)
        whole, address = max(fits)
        segment = self.blocks[address][2]
        self.blocks[address] = [size, stream, segment, False]
        if whole > size:
            self.blocks[address + size] = [whole - size, stream, segment, True]
        return address


class SplitsLargeOnes(MyPool):
    """Leaves the rest where it is less than 2 KiB, as other pools do."""

    def malloc(self, size: int, stream: int) -> int:
        size = round_up(size, UNIT_BYTES)
        for block in sorted(self.blocks.values()):
            if block[3] and block[1] == stream and size <= block[0] < size + 2048:
                block[3] = False
                return next(a for a, b in self.blocks.items() if b is block)
        return super().malloc(size, stream)


class JoinsToTheRight(MyPool):
    """Forgets the neighbour on the left."""

    def free(self, address: int) -> None:
        block = self.blocks.get(address)
        if block is None or block[3]:
            raise ValueError(address)
        block[3] = True
        after = self.blocks.get(address + block[0])
        if after is not None and after[3] and after[2] == block[2]:
            block[0] += self.blocks.pop(address + block[0])[0]


def rounded_to(unit: int) -> type[MyPool]:
    """A pool whose blocks are multiples of that."""

    class Rounded(MyPool):
        def malloc(self, size: int, stream: int) -> int:
            size = round_up(size, unit)
            fits = [(b[0], a) for a, b in self.blocks.items() if b[3] and b[1] == stream and b[0] >= size]
            whole, address = min(fits) if fits else (size, int(self.driver.malloc(size)))
            segment = self.blocks[address][2] if fits else address
            self.blocks[address] = [size, stream, segment, False]
            if whole > size:
                self.blocks[address + size] = [whole - size, stream, segment, True]
            return address

    return Rounded


class Shared(MyPool):
    """What it knows belongs to the class."""

    shared: ClassVar[dict[int, list[Any]]] = {}

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.blocks = self.shared


class RemembersSegments(MyPool):
    """Gives a segment back, and goes on to use it."""

    def empty_cache(self) -> None:
        blocks = dict(self.blocks)
        super().empty_cache()
        self.blocks = blocks


class CutsFromTheEnd(MyPool):
    """Right: what is asked for is the end of the block."""

    def malloc(self, size: int, stream: int) -> int:
        size = round_up(size, UNIT_BYTES)
        fits = [(b[0], a) for a, b in self.blocks.items() if b[3] and b[1] == stream and b[0] > size]
        exact = any(b[3] and b[1] == stream and b[0] == size for b in self.blocks.values())
        if exact or not fits:
            return super().malloc(size, stream)
        whole, address = min(fits)
        self.blocks[address][0] = whole - size
        self.blocks[address + whole - size] = [size, stream, self.blocks[address][2], False]
        return int(address + whole - size)


class NumpyAddresses(MyPool):
    """Right: addresses as NumPy's whole numbers."""

    def malloc(self, size: int, stream: int) -> Any:  # an address all the same
        return np.int64(super().malloc(size, stream))


class JoinsWhenAsked(MyPool):
    """Leaves pieces as they are, and joins all neighbours before each request."""

    free = NeverJoins.free

    def _join(self) -> None:
        for address in sorted(self.blocks):
            block = self.blocks.get(address)
            while block is not None and block[3]:
                after = self.blocks.get(address + block[0])
                if after is None or not after[3] or after[2] != block[2]:
                    break
                del self.blocks[address + block[0]]
                block[0] += after[0]

    def malloc(self, size: int, stream: int) -> int:
        self._join()
        return super().malloc(size, stream)

    def empty_cache(self) -> None:
        self._join()
        super().empty_cache()
