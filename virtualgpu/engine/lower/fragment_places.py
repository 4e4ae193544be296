"""Frame offsets of the registers of matrix fragments, which are adjacent in the warp's frame.

A kernel on tensor cores holds hundreds of fragments, of up to eight registers each, so its code passes
whole fragments by address (see `fragments`).
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

ROOTS = ("wmma", "mma", "ldmatrix", "stmatrix")
ROW_BYTES = 128  # one 32-bit register of a warp
KINDS = ("b32", "u32", "s32", "f32", "f16x2", "bf16x2")


def allocate(
    function: ir.Function, live_across_blocks: set[str], frame_end: int
) -> tuple[dict[str, int], int]:
    """Allocate space for matrix fragments in a function's frame. Return the offsets of the fragments and the
    new end of the frame.

    Fragments that no later basic block reads share offsets with fragments of other times.
    """
    register_groups = _fragment_groups(function)
    if not register_groups:
        return {}, frame_end
    spans = _use_spans(function, {name for register_group in register_groups for name in register_group})
    slots: dict[str, int] = {}

    def assign(group: tuple[str, ...], start: int) -> None:
        slots.update((name, start + ROW_BYTES * n) for n, name in enumerate(group))

    block_local = []
    for register_group in register_groups:
        if live_across_blocks.isdisjoint(register_group):
            block_local.append(
                (
                    min(spans[n][0] for n in register_group),
                    max(spans[n][1] for n in register_group),
                    register_group,
                )
            )
        else:
            assign(register_group, frame_end)
            frame_end += ROW_BYTES * len(register_group)
    free_starts_by_size: dict[int, list[int]] = {}
    used_ranges: list[tuple[int, int, int]] = []  # last use, registers, offset
    for first_use, last_use, register_group in sorted(block_local):
        free_ranges = [held_range for held_range in used_ranges if held_range[0] < first_use]
        used_ranges = [held_range for held_range in used_ranges if held_range[0] >= first_use]
        for _, size, start in free_ranges:
            free_starts_by_size.setdefault(size, []).append(start)
        free_starts = free_starts_by_size.get(len(register_group))
        start = free_starts.pop() if free_starts else frame_end
        frame_end += 0 if start < frame_end else ROW_BYTES * len(register_group)
        assign(register_group, start)
        used_ranges.append((last_use, len(register_group), start))
    return slots, frame_end


def _fragment_groups(function: ir.Function) -> list[tuple[str, ...]]:
    """Return the register groups that occur as fragments in a function; groups do not overlap."""
    group_of: dict[str, tuple[str, ...]] = {}
    for instruction in function.instructions:
        if instruction.root not in ROOTS:
            continue
        for operand in instruction.operands:
            names = names_of(operand)
            if not names or any(function.registers.get(name) not in KINDS for name in names):
                continue
            if len(set(names)) == len(names) and group_of.keys().isdisjoint(names):
                group_of.update(dict.fromkeys(names, names))
    return list(dict.fromkeys(group_of.values()))


def names_of(operand: ir.Operand | None) -> tuple[str, ...]:
    """Return the names of the registers in a matrix fragment. The result is empty if any element is not a
    register.
    """
    if not isinstance(operand, ir.Vector):
        return ()
    names = tuple(
        element.name for element in operand.items if isinstance(element, ir.Register) and not element.negated
    )
    return names if len(names) == len(operand.items) else ()


def _use_spans(function: ir.Function, names: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and the last instruction that uses each register."""
    spans: dict[str, tuple[int, int]] = {}
    for index, i in enumerate(function.instructions):
        for registers in cfg.find_definitions_and_uses(i):
            for name in names.intersection(registers):
                spans[name] = spans.get(name, (index, index))[0], index
    return spans
