"""Cost of one memory access of a warp: sectors of memory, and passes through the shared memory banks.

The counters of the virtual GPU follow the same rules in compiled code, and the page of the access microscope
in JavaScript. All are fitted to Nsight Compute's counts of single accesses on an H200 (``tests/counters``):

* global loads and stores touch the distinct 32-byte sectors of the active lanes;
* an atomic uses a sector as often as lanes use its most used word;
* shared loads and stores take as many passes as the busiest bank has distinct words. Accesses of 8
  and 16 bytes are done for a half- and a quarter-warp at a time. A load is done for twice as many lanes
  if all lanes agree with their neighbour, or all with their second neighbour (inactive lanes always agree);
* ``ldmatrix`` and ``stmatrix`` move each 8x8 matrix, 8 rows of 16 bytes, separately;
* shared atomics take as many passes as the busiest bank has lanes, same word or not, but adding 1
  without using the result combines lanes; compare-and-swap reads and writes: two wavefronts per pass.
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

# "count" is an atomic that adds 1 and ignores the result, "swap" a compare-and-swap, "matrix" is
# `ldmatrix` or `stmatrix`.
Rule = Literal["load", "store", "atomic", "count", "swap", "matrix"]
ATOMIC_RULES = ("atomic", "count", "swap")
ELEMENT_BYTES = (1, 2, 4, 8, 16)
BANKS = 32
WORD_BYTES = 4
ROW_ELEMENTS = 32
"""Elements in a row of the tile that `AccessPattern` pads and swizzles."""
MOST_ELEMENTS = 4096


@dataclass(frozen=True, slots=True)
class Access:
    """A memory access of one warp, with an address for each lane. Inactive lanes have the address -1.

    Addresses are multiples of the size. Those in shared memory are offsets; those in local memory are the
    addresses of the interleaved words.
    """

    addresses: tuple[int, ...]
    size_bytes: int = 4
    space: Space = "global"
    rule: Rule = "load"

    @property
    def lanes(self) -> tuple[int, ...]:
        """The numbers of the access's active lanes."""
        return tuple(lane for lane, address in enumerate(self.addresses) if address >= 0)

    def memory(self) -> MemoryCost:
        """Return the cost of the access in global or local memory."""
        lanes = self.lanes
        access_bytes = self.size_bytes
        addresses = [self.addresses[lane] for lane in lanes]
        sector_numbers = {address // SECTOR_BYTES for address in addresses}
        sector_count = len(sector_numbers)
        if self.rule in ATOMIC_RULES:
            passes_by_sector: dict[int, int] = defaultdict(int)
            for address, lane_count in Counter(addresses).items():
                sector = address // SECTOR_BYTES
                passes_by_sector[sector] = max(passes_by_sector[sector], lane_count)
            sector_count = sum(passes_by_sector.values())
        requested_bytes = len(lanes) * access_bytes
        return MemoryCost(
            sectors=sector_count,
            ideal_sectors=min(sector_count, max(bool(lanes), -(-requested_bytes // SECTOR_BYTES))),
            lines=len({address // LINE_BYTES for address in addresses}),
            touched_sectors=len(sector_numbers),
            bytes_requested=requested_bytes,
            bytes_useful=len(set(addresses)) * access_bytes,
        )

    @property
    def constant_passes(self) -> int:
        """Number of passes through the constant cache. Each pass reads one word for all lanes that need that
        word.
        """
        return len({self.addresses[lane] for lane in self.lanes})

    def banks(self) -> BankCost:
        """Return the cost of the access in shared memory."""
        passes = 0
        ideal_passes = 0
        max_words = 0
        access_words = self._words_per_lane
        unit_of_lane = self._unit_numbers
        for lane_group in self._lane_groups():
            group_units = [unit_of_lane[lane] for lane in lane_group]
            if not self._is_one_by_one:
                group_units = list(set(group_units))
            uses_by_bank = Counter([unit * access_words % BANKS for unit in group_units])
            group_passes = max(uses_by_bank.values(), default=0)
            passes = passes + group_passes
            ideal_passes = ideal_passes + bool(lane_group)
            max_words = max(max_words, group_passes)
        if self.rule == "swap":
            return BankCost(2 * passes, passes + ideal_passes, max_words, passes)
        return BankCost(passes, ideal_passes, max_words, passes)

    def pieces(self) -> tuple[BankPiece, ...]:
        """Return the bank and the pass in which the words of each lane are accessed. Each bank processes its
        words in the order of the lanes.
        """
        bank_pieces: list[BankPiece] = []
        access_words = self._words_per_lane
        unit_of_lane = self._unit_numbers
        passes = 0
        for lane_group in self._lane_groups():
            words_in_bank: Counter[int] = Counter()
            depth_by_unit: dict[int, int] = {}
            for lane in lane_group:
                bank = unit_of_lane[lane] * access_words % BANKS
                access_key = lane if self._is_one_by_one else unit_of_lane[lane]
                if access_key not in depth_by_unit:
                    depth_by_unit[access_key] = words_in_bank[bank]
                    words_in_bank[bank] += 1
                bank_pieces.append(
                    BankPiece(
                        lane,
                        passes + depth_by_unit[access_key],
                        depth_by_unit[access_key],
                        bank,
                        access_words,
                    )
                )
            passes += max(words_in_bank.values(), default=0)
        return tuple(bank_pieces)

    @property
    def _words_per_lane(self) -> int:
        return max(1, self.size_bytes // WORD_BYTES)

    @property
    def _unit_numbers(self) -> list[int]:
        unit_bytes = max(self.size_bytes, WORD_BYTES)
        return [address // unit_bytes for address in self.addresses]

    @property
    def _is_one_by_one(self) -> bool:
        return self.rule in ("atomic", "swap")

    def _lane_groups(self) -> list[list[int]]:
        """Return the active lanes in the groups that the hardware processes at the same time."""
        group_size = WARP_SIZE // self._words_per_lane
        if self.rule == "load" and self._words_per_lane > 1 and self._neighbours_agree(self._unit_numbers):
            group_size *= 2
        lanes = self.lanes
        return [
            [lane for lane in lanes if start <= lane < start + group_size]
            for start in range(0, WARP_SIZE, group_size)
        ]

    def _neighbours_agree(self, units: Sequence[int]) -> bool:
        active_lanes = set(self.lanes)
        return any(
            all(
                units[lane] == units[lane ^ lane_distance]
                for lane in active_lanes
                if lane ^ lane_distance in active_lanes
            )
            for lane_distance in (1, 2)
        )


@dataclass(frozen=True, slots=True)
class MemoryCost:
    """The cost of a memory access to global memory. The class `AccessCounters` has the same counts for a
    whole launch.

    ``touched_sectors`` differ from ``sectors`` for atomics only, which use a word once for every lane.
    ``bytes_useful`` are the distinct bytes that lanes requested.
    """

    sectors: int
    ideal_sectors: int
    lines: int
    touched_sectors: int
    bytes_requested: int
    bytes_useful: int

    @property
    def bytes_fetched(self) -> int:
        """Number of bytes in all sectors that the access touches."""
        return self.touched_sectors * SECTOR_BYTES

    @property
    def useful(self) -> float:
        """Fraction of the fetched bytes that the lanes requested, from 0 to 1."""
        return self.bytes_useful / self.bytes_fetched if self.touched_sectors else 0.0


@dataclass(frozen=True, slots=True)
class BankPiece:
    """The banks that one lane accesses, with the pass and the number of words processed before."""

    lane: int
    row: int
    depth: int
    bank: int
    banks: int


@dataclass(frozen=True, slots=True)
class BankCost:
    """The cost of a memory access to shared memory. The field ``ways`` is the largest number of words that
    one bank must process.
    """

    wavefronts: int
    ideal_wavefronts: int
    ways: int
    passes: int


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """A regular memory access pattern. Lane l accesses the element ``offset + stride * l`` of a tile.

    The rows of the tile have 32 elements.

    ``padding`` adds unused elements at the end of each row. ``swizzle`` exchanges the elements of a row: the
    element of column c is stored in column ``c ^ row``.

    Raises
    ------
    ValueError
        For an impossible pattern.
    """

    stride: int = 1
    offset: int = 0
    element_bytes: int = 4
    padding: int = 0
    swizzle: bool = False

    def __post_init__(self) -> None:
        if self.element_bytes not in ELEMENT_BYTES:
            raise ValueError(f"`element_bytes` must be 1, 2, 4, 8 or 16, not {self.element_bytes!r}.")
        for name, max_elements in (
            ("stride", MOST_ELEMENTS),
            ("offset", MOST_ELEMENTS),
            ("padding", ROW_ELEMENTS),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= max_elements:
                raise ValueError(
                    f"`{name}` must be an integer number of elements "
                    f"from 0 to {max_elements:,}, not {value!r}."
                )

    def find_lane_offsets(self) -> tuple[int, ...]:
        """Return the byte offset of each lane from the start of the tile."""
        offsets = []
        for lane in range(WARP_SIZE):
            row, column = divmod(self.offset + self.stride * lane, ROW_ELEMENTS)
            column ^= row % ROW_ELEMENTS if self.swizzle else 0
            offsets.append((row * (ROW_ELEMENTS + self.padding) + column) * self.element_bytes)
        return tuple(offsets)

    def access(self, space: Space = "global", rule: Rule = "load") -> Access:
        """Return the access of a warp with this pattern in which all lanes are active."""
        return Access(self.find_lane_offsets(), self.element_bytes, space, rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTrace:
    """The counters of the memory accesses of all warps, and the addresses that one warp accessed.

    Each column has one row for each request of the warp: ``site`` is an index into ``counters.accesses``,
    ``space`` is an index into `SPACES`, and ``address`` is -1 for inactive lanes. ``rules`` belong to
    ``counters.accesses``. ``truncated`` is true if more requests followed.
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
        """The provenance of the counters."""
        return self.counters.provenance

    def access(self, index: int) -> Access:
        """Return one memory request of the warp as an `Access`."""
        site_index = int(self.site[index])
        space = SPACES[self.space[index]]
        size = self.counters.accesses[site_index].size_bytes
        # In local memory lanes never share a word.
        rule = "load" if space == "local" else self.rules[site_index]
        return Access(tuple(self.address[index].tolist()), size, space, rule)


SPACES: tuple[Space, ...] = ("global", "shared", "local", "const")


def excess_bytes(access: AccessCounters) -> int:
    """Return the excess traffic of a memory instruction in bytes, computed from its sectors and bank
    conflicts.

    Accesses to constant memory have no excess traffic.
    """
    if access.space == "const":
        return 0
    sectors = access.sectors - access.ideal_sectors
    return sectors * SECTOR_BYTES + access.bank_conflicts * LINE_BYTES
