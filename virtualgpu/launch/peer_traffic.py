"""Traffic of a kernel with the memory of other devices, by the arrays that its instructions access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.observe.origin import find_base_pointer, find_register_writers
from virtualgpu.engine.observe.results import source_index
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records import SECTOR_BYTES, AccessCounters


def count_peer_bytes(
    device: VirtualDevice,
    entry: ir.Function,
    params: bytes,
    accesses: Iterable[AccessCounters],
    arrays: Mapping[int, int],
) -> dict[tuple[int, int], int]:
    """Return the number of bytes that a launch moved between each pair of devices (source, target).

    Parameters
    ----------
    device
        Device of the launch.
    entry, params
        The kernel, and its parameter buffer.
    accesses
        Counters of its memory instructions.
    arrays
        Address -> bytes of its array arguments. An array without a known access counts as read once.
    """
    moved_bytes: Counter[tuple[int, int]] = Counter()
    if not any(device.memory.peer_of(address) for address in arrays):
        return moved_bytes
    instructions = {source_index(i): i for i in entry.instructions}
    writers = find_register_writers(entry)
    accessed_pointers: set[int] = set()
    for access in accesses:
        i = instructions.get(access.pc)
        pointer = None if i is None else find_base_pointer(entry, i, params, {}, writers)
        if pointer is None or device.memory.peer_of(pointer) is None:
            continue
        accessed_pointers.add(pointer)
        peer = device.machine.device_at(pointer)
        assert peer is not None
        sectors = access.missed_sectors if access.kind == "load" else access.sectors
        device_pair = (peer.id, device.id) if access.kind == "load" else (device.id, peer.id)
        moved_bytes[device_pair] += SECTOR_BYTES * sectors
    for address in arrays.keys() - accessed_pointers:
        peer = device.machine.device_at(address)
        if peer is not None and device.memory.peer_of(address) is not None:
            moved_bytes[peer.id, device.id] += arrays[address]
    return moved_bytes
