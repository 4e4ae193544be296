"""Frame offsets of the registers of matrix fragments, which are adjacent in the warp's frame.

A kernel on tensor cores holds hundreds of fragments, of up to eight registers each, so its code passes
whole fragments by address (see `fragments`).
"""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg

FRAGMENT_ROOTS = ("wmma", "mma", "ldmatrix", "stmatrix")
ROW_BYTES = 128  # one 32-bit register of a warp
FRAGMENT_TYPES = ("b32", "u32", "s32", "f32", "f16x2", "bf16x2")


def allocate_fragments(
    function: ir.Function, live_across_blocks: set[str], frame_end: int
) -> tuple[dict[str, int], int]:
    """Allocate space for matrix fragments in a function's frame. Return the offsets of the fragments and the
    new end of the frame.

    Fragments that no later basic block reads share offsets with fragments of other times.
    """
    register_groups = _find_fragment_groups(function)
    if not register_groups:
        return {}, frame_end
    use_spans = _find_use_spans(
        function, {name for register_group in register_groups for name in register_group}
    )
    offset_by_name: dict[str, int] = {}

    def assign_offsets(group: tuple[str, ...], start: int) -> None:
        offset_by_name.update((name, start + ROW_BYTES * n) for n, name in enumerate(group))

    block_local_groups = []
    for register_group in register_groups:
        if live_across_blocks.isdisjoint(register_group):
            block_local_groups.append(
                (
                    min(use_spans[n][0] for n in register_group),
                    max(use_spans[n][1] for n in register_group),
                    register_group,
                )
            )
        else:
            assign_offsets(register_group, frame_end)
            frame_end += ROW_BYTES * len(register_group)
    free_starts_by_size: dict[int, list[int]] = {}
    used_ranges: list[tuple[int, int, int]] = []  # last use, registers, offset
    for first_use, last_use, register_group in sorted(block_local_groups):
        free_ranges = [held_range for held_range in used_ranges if held_range[0] < first_use]
        used_ranges = [held_range for held_range in used_ranges if held_range[0] >= first_use]
        for _, size, start in free_ranges:
            free_starts_by_size.setdefault(size, []).append(start)
        free_starts = free_starts_by_size.get(len(register_group))
        start = free_starts.pop() if free_starts else frame_end
        frame_end += 0 if start < frame_end else ROW_BYTES * len(register_group)
        assign_offsets(register_group, start)
        used_ranges.append((last_use, len(register_group), start))
    return offset_by_name, frame_end


def _find_fragment_groups(function: ir.Function) -> list[tuple[str, ...]]:
    """Return the register groups that occur as fragments in a function; groups do not overlap."""
    group_by_name: dict[str, tuple[str, ...]] = {}
    for instruction in function.instructions:
        if instruction.root not in FRAGMENT_ROOTS:
            continue
        for operand in instruction.operands:
            names = list_register_names(operand)
            if not names or any(function.registers.get(name) not in FRAGMENT_TYPES for name in names):
                continue
            if len(set(names)) == len(names) and group_by_name.keys().isdisjoint(names):
                group_by_name.update(dict.fromkeys(names, names))
    return list(dict.fromkeys(group_by_name.values()))


def list_register_names(operand: ir.Operand | None) -> tuple[str, ...]:
    """Return the names of the registers in a matrix fragment. The result is empty if any element is not a
    register.
    """
    if not isinstance(operand, ir.Vector):
        return ()
    names = tuple(
        element.name for element in operand.items if isinstance(element, ir.Register) and not element.negated
    )
    return names if len(names) == len(operand.items) else ()


def _find_use_spans(function: ir.Function, names: set[str]) -> dict[str, tuple[int, int]]:
    """Return the first and the last instruction that uses each register."""
    use_spans: dict[str, tuple[int, int]] = {}
    for index, instruction in enumerate(function.instructions):
        for registers in cfg.find_definitions_and_uses(instruction):
            for name in names.intersection(registers):
                use_spans[name] = use_spans.get(name, (index, index))[0], index
    return use_spans
