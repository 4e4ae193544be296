"""What a kernel reads and writes of other devices' memories, by the arrays that its addresses come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.observe.origin import base_pointer, find_writers
from virtualgpu.engine.observe.results import source_index
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records import SECTOR_BYTES, AccessCounters


def moved_between(
    device: VirtualDevice,
    entry: ir.Function,
    params: bytes,
    accesses: Iterable[AccessCounters],
    arrays: Mapping[int, int],
) -> dict[tuple[int, int], int]:
    """Bytes that a launch on a device moved, by source and target; empty where it reached for no peer.

    Parameters
    ----------
    device
        Where it ran.
    entry, params
        The kernel, and its parameter buffer.
    accesses
        What its memory instructions did.
    arrays
        Address -> bytes of the arrays that it was given. One that no instruction is known to touch counts as
        read once.
    """
    moved: Counter[tuple[int, int]] = Counter()
    if not any(device.memory.peer_of(address) for address in arrays):
        return moved
    instructions = {source_index(i): i for i in entry.instructions}
    known = find_writers(entry)
    touched: set[int] = set()
    for access in accesses:
        i = instructions.get(access.pc)
        pointer = None if i is None else base_pointer(entry, i, params, {}, known)
        if pointer is None or device.memory.peer_of(pointer) is None:
            continue
        touched.add(pointer)
        peer = device.machine.device_at(pointer)
        assert peer is not None
        sectors = access.missed_sectors if access.kind == "load" else access.sectors
        way = (peer.id, device.id) if access.kind == "load" else (device.id, peer.id)
        moved[way] += SECTOR_BYTES * sectors
    for address in arrays.keys() - touched:
        peer = device.machine.device_at(address)
        if peer is not None and device.memory.peer_of(address) is not None:
            moved[peer.id, device.id] += arrays[address]
    return moved
