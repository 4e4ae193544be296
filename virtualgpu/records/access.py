"""What one access of a warp costs: sectors of memory, and passes through the 32 banks of shared memory.

The counters of the virtual GPU follow the same rules in compiled code, and the access microscope's page in
its own. All are fitted to Nsight Compute's counts of single accesses on an H200 (``tests/counters``):

* global loads and stores touch the distinct 32-byte sectors of the active lanes;
* an atomic takes a sector as often as its most wanted word is wanted;
* shared loads and stores take as many passes as the busiest bank has distinct words. Accesses of 8
  and 16 bytes go a half- and a quarter-warp at a time. A load goes by twice as many lanes if all
  lanes agree with their neighbour, or all with their second neighbour, inactive lanes with anyone;
* shared atomics take as many passes as the busiest bank has lanes, same word or not, but adding 1
  with no use for the result combines lanes; compare-and-swap reads and writes: two wavefronts a pass.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from virtualgpu.records.counters import AccessCounters, KernelCounters, Space
from virtualgpu.records.kernel import LINE_BYTES, SECTOR_BYTES, WARP_SIZE, Dim3
from virtualgpu.records.origin import Provenance

# "count" is an atomic that adds 1 and drops the result, "swap" a compare-and-swap.
Rule = Literal["load", "store", "atomic", "count", "swap"]
ATOMIC_RULES = ("atomic", "count", "swap")
ELEMENT_BYTES = (1, 2, 4, 8, 16)
BANKS = 32
WORD_BYTES = 4
ROW_ELEMENTS = 32
"""Elements in a row of the tile that `AccessPattern` pads and swizzles."""
MOST_ELEMENTS = 4096
NOT_TAKING_PART = -1


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a warp: where each lane's bytes begin, -1 of a lane that takes no part.

    Addresses are multiples of the size. Those in shared memory are offsets; those in local memory are where
    the interleaved words lie.
    """

    addresses: tuple[int, ...]
    size_bytes: int = 4
    space: Space = "global"
    rule: Rule = "load"

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes that take part."""
        return tuple(lane for lane, address in enumerate(self.addresses) if address >= 0)

    def memory(self) -> MemoryCost:
        """What it costs in global memory (or in local, which lies there, too)."""
        lanes = self.lanes
        size = self.size_bytes
        places = [self.addresses[lane] for lane in lanes]
        touched = {place // SECTOR_BYTES for place in places}
        sectors = len(touched)
        if self.rule in ATOMIC_RULES:
            most: dict[int, int] = defaultdict(int)
            for place, wanted in Counter(places).items():
                most[place // SECTOR_BYTES] = max(most[place // SECTOR_BYTES], wanted)
            sectors = sum(most.values())
        asked = len(lanes) * size
        return MemoryCost(
            sectors=sectors,
            ideal_sectors=min(sectors, max(bool(lanes), -(-asked // SECTOR_BYTES))),
            lines=len({place // LINE_BYTES for place in places}),
            touched_sectors=len(touched),
            bytes_requested=asked,
            bytes_useful=len(set(places)) * size,
        )

    @property
    def constant_passes(self) -> int:
        """Passes through the constant cache, which serves one word at a time, to any number of lanes."""
        return len({self.addresses[lane] for lane in self.lanes})

    def banks(self) -> BankCost:
        """What it costs in shared memory."""
        passes = ideal = ways = 0
        words = self._words
        unit = self._units
        for part in self._parts():
            wanted = [unit[lane] for lane in part]
            if not self._one_by_one:
                wanted = list(set(wanted))
            here = max(Counter([place * words % BANKS for place in wanted]).values(), default=0)
            passes = passes + here
            ideal = ideal + bool(part)
            ways = max(ways, here)
        if self.rule == "swap":
            return BankCost(2 * passes, passes + ideal, ways, passes)
        return BankCost(passes, ideal, ways, passes)

    def pieces(self) -> tuple[BankPiece, ...]:
        """Where each lane's words are served: bank and pass. A bank serves its words in the lanes' order."""
        found: list[BankPiece] = []
        words = self._words
        unit = self._units
        passes = 0
        for part in self._parts():
            high: Counter[int] = Counter()
            row_of: dict[int, int] = {}
            for lane in part:
                bank = unit[lane] * words % BANKS
                key = lane if self._one_by_one else unit[lane]
                if key not in row_of:
                    row_of[key] = high[bank]
                    high[bank] += 1
                found.append(BankPiece(lane, passes + row_of[key], row_of[key], bank, words))
            passes += max(high.values(), default=0)
        return tuple(found)

    @property
    def _words(self) -> int:
        return max(1, self.size_bytes // WORD_BYTES)

    @property
    def _units(self) -> list[int]:
        size = max(self.size_bytes, WORD_BYTES)
        return [address // size for address in self.addresses]

    @property
    def _one_by_one(self) -> bool:
        return self.rule in ("atomic", "swap")

    def _parts(self) -> list[list[int]]:
        """The lanes that take part, those together that go at a time."""
        together = WARP_SIZE // self._words
        if self.rule == "load" and self._words > 1 and self._neighbours_agree(self._units):
            together *= 2
        lanes = self.lanes
        return [
            [lane for lane in lanes if start <= lane < start + together]
            for start in range(0, WARP_SIZE, together)
        ]

    def _neighbours_agree(self, unit: Sequence[int]) -> bool:
        active = set(self.lanes)
        return any(
            all(unit[lane] == unit[lane ^ step] for lane in active if lane ^ step in active)
            for step in (1, 2)
        )


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """What an access costs in global memory (`AccessCounters` has the same counts of a launch).

    ``touched_sectors`` differ from ``sectors`` for atomics only, which come back for a word that several
    lanes want. ``bytes_useful`` are the distinct bytes that lanes asked for.
    """

    sectors: int
    ideal_sectors: int
    lines: int
    touched_sectors: int
    bytes_requested: int
    bytes_useful: int

    @property
    def bytes_fetched(self) -> int:
        return self.touched_sectors * SECTOR_BYTES

    @property
    def useful(self) -> float:
        """Share of the fetched bytes that a lane asked for (0 to 1)."""
        return self.bytes_useful / self.bytes_fetched if self.touched_sectors else 0.0


@dataclass(frozen=True, slots=True)
class BankPiece:
    """One lane's words in the banks: in which pass, and how many of its bank come before (0: no conflict)."""

    lane: int
    row: int
    depth: int
    bank: int
    banks: int


@dataclass(frozen=True, slots=True)
class BankCost:
    """What an access costs in shared memory; ``ways`` is how many words the busiest bank has at once."""

    wavefronts: int
    ideal_wavefronts: int
    ways: int
    passes: int


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """A regular access: lane l asks for element ``offset + stride * l`` of a tile with rows of 32 elements.

    ``padding`` puts unused elements at the end of each row, ``swizzle`` exchanges the elements of a row: that
    of column c stands in column ``c ^ row``.

    Raises
    ------
    ValueError
        For a pattern that no warp has.
    """

    stride: int = 1
    offset: int = 0
    element_bytes: int = 4
    padding: int = 0
    swizzle: bool = False

    def __post_init__(self) -> None:
        if self.element_bytes not in ELEMENT_BYTES:
            raise ValueError(f"`element_bytes` is 1, 2, 4, 8 or 16, not {self.element_bytes!r}.")
        for name, most in (("stride", MOST_ELEMENTS), ("offset", MOST_ELEMENTS), ("padding", ROW_ELEMENTS)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise ValueError(f"`{name}` is a whole number of elements from 0 to {most:,}, not {value!r}.")

    def places(self) -> tuple[int, ...]:
        """Where each lane's element lies, in bytes from the tile's first."""
        found = []
        for lane in range(WARP_SIZE):
            row, column = divmod(self.offset + self.stride * lane, ROW_ELEMENTS)
            column ^= row % ROW_ELEMENTS if self.swizzle else 0
            found.append((row * (ROW_ELEMENTS + self.padding) + column) * self.element_bytes)
        return tuple(found)

    def access(self, space: Space = "global", rule: Rule = "load") -> Access:
        """The access of a warp whose lanes all take part."""
        return Access(self.places(), self.element_bytes, space, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTrace:
    """Memory accesses of a launch: counters of all warps, and the addresses of one.

    Columns have one row for each request of the warp: ``site`` is an index into ``counters.accesses``,
    ``space`` into `SPACES` (a generic address is told by where it points), ``address`` has -1 for lanes that
    take no part. ``rules`` belong to ``counters.accesses``. ``truncated`` tells that the warp went on.
    """

    counters: KernelCounters
    rules: tuple[Rule, ...]
    code: str
    block_index: Dim3
    warp_index: int
    site: npt.NDArray[np.int32]
    space: npt.NDArray[np.int8]
    address: npt.NDArray[np.int64]
    truncated: bool = False

    def __len__(self) -> int:
        return int(self.site.size)

    @property
    def provenance(self) -> Provenance:
        return self.counters.provenance

    def access(self, at: int) -> Access:
        """One request of the warp."""
        site = int(self.site[at])
        space = SPACES[self.space[at]]
        size = self.counters.accesses[site].size_bytes
        # In local memory no two lanes meet.
        rule = "load" if space == "local" else self.rules[site]
        return Access(tuple(self.address[at].tolist()), size, space, rule)

    def worst_first(self) -> list[int]:
        """Places in ``counters.accesses`` of those that ran, by what they take beyond their best.

        A sector counts 32 bytes and a pass 128, so that the two can be compared.
        """

        def waste(at: int) -> tuple[int, int, int]:
            a = self.counters.accesses[at]
            return -excess_bytes(a), -(a.sectors * SECTOR_BYTES + a.wavefronts * LINE_BYTES), at

        return sorted((at for at, a in enumerate(self.counters.accesses) if a.requests), key=waste)


SPACES: tuple[Space, ...] = ("global", "shared", "local", "const")


def excess_bytes(access: AccessCounters) -> int:
    """What an instruction moved beyond its best: 32 bytes a sector, 128 a pass over the banks.

    Constant memory has neither.
    """
    if access.space == "const":
        return 0
    sectors = access.sectors - access.ideal_sectors
    return sectors * SECTOR_BYTES + access.bank_conflicts * LINE_BYTES
