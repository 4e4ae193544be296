"""Conversion of counts per PTX instruction to counts per machine instruction.

ptxas merges and widens memory accesses and removes branches, so the instructions that run differ from PTX.

Every machine instruction contains the PTX line from which it was generated (`virtualgpu.compile.sass`). A PTX
access whose line has machine accesses of the same width runs as written, even if a loop's body was copied:
each execution of the PTX executes one copy. A wider machine access also replaces its neighbours in the same
basic block, at the following offsets from the same base. A conditional branch whose line has no machine
branch was predicated: every warp that reaches it executes its body.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from virtualgpu.compile import nvrtc, sass
from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.entry_text import find_instructions
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.flow.regions import find_regions
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.compile.sass import SassInstruction
from virtualgpu.records import AccessCounters, BranchCounters, KernelCounters, KernelSource, Provenance
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun

_PREDICATED_NOTE = (
    "ptxas removed a short branch: its body is predicated, so all warps that reach it execute it."
)
_EARLY_ACCESS_NOTE = "ptxas removed a short branch: all lanes make the access before the condition is tested."
_NO_DIVERGENCE_NOTE = "ptxas removed a short branch: its body is predicated, so warps do not diverge."
_EXIT_NOTE = "Lanes that have finished execute EXIT, which is not a divergent branch."
_COPIES_NOTE = "ptxas has copied the loop's body: the branch appears {} times in machine code."
_SWAP_LOOP_NOTE = (
    "Machine code lacks this atomic: a compare-and-swap loop replaces it and repeats if lanes collide."
)
_COMBINING_NOTE = "The warp combines its lanes' values first ({}); one lane updates memory with the result."
_LANE_COUNT_NOTE = "The warp counts its lanes first (POPC); one lane adds their number to memory."
_PREFIX_SUM_NOTE = (
    "A whole warp adds up its lanes' values first (SHFL); one lane updates memory with the result."
)
_POPC_INC_NOTE = "One instruction (ATOMS.POPC.INC) adds to an address for all lanes of a warp that access it."
_RED_NOTE = "The old value is not used: RED updates memory and returns no value."
_REMOVED_NOTE = "ptxas removed this access, because its value is known or not used."
_ITERATIONS_NOTE = "ptxas has copied the loop's body and loads the bytes of several iterations at once."
_PARTIAL_MERGE_NOTE = (
    "ptxas merges this access with adjacent accesses, but only in some copies of the loop's body."
)

_ACCESS_MNEMONICS = ("ld", "ldu", "st", "atom", "red")
# PTX instructions whose machine code has its own branches; helper functions for slow cases are listed under
# ``ret``.
_MNEMONIC_PATTERN = re.compile(r"\s*(?:@!?%?[\w$]+\s+)?([a-z]\w*)")
_SLOW_PATH_MNEMONICS = ("div", "rcp", "sqrt", "rsqrt", "rem", "call", "ret", "atom")


@dataclass(slots=True)
class _CountedSite:
    """A counted access or branch of the PTX, with the machine instructions generated from its line."""

    function: str
    instruction: ir.Instruction
    block_number: int
    machine_instructions: list[SassInstruction] = field(default_factory=list)
    line_opcodes: dict[str, str] = field(default_factory=dict)  # opcodes of the same line, by mnemonic
    access: AccessCounters | None = None
    branch: BranchCounters | None = None


def count_machine_code(counters: KernelCounters, source: KernelSource, target: int) -> AsRun:
    """Compile a kernel, and convert its PTX instruction counts to counts of machine instructions.

    Parameters
    ----------
    counters
        Counts of the launch by PTX instruction.
    source
        The kernel.
    target
        Compute capability to compile for, such as 90.

    Raises
    ------
    NvdisasmMissingError
        If ``nvdisasm`` is not installed.
    NvrtcMissingError
        If NVRTC is not installed: machine code is compiled here, not shipped.
    """
    ptx_image, cubin_image = nvrtc.compile_both(
        source.code,
        target=target,
        options=(*source.options, *nvrtc.CUPY_OPTIONS),
        name_expressions=source.name_expressions,
    )
    if cubin_image is None:
        raise nvrtc.NvrtcMissingError
    entry_name = ptx_image.lowered_names.get(source.name, source.name)
    return convert_counts(counters, ptx_image.ptx, sass.disassemble(cubin_image.cubin), target, entry_name)


def convert_counts(
    counters: KernelCounters,
    ptx: str,
    machine_code_by_function: dict[str, tuple[SassInstruction, ...]],
    target: int,
    entry_name: str = "",
) -> AsRun:
    """Convert the PTX instruction counts of a launch to counts of machine instructions.

    Parameters
    ----------
    counters
        Counts of the launch by PTX instruction.
    ptx
        The PTX of the counters.
    machine_code_by_function
        The machine code of the same source, compiled with ``-lineinfo``, from `sass.disassemble`.
    target
        Compute capability of the machine code, such as 90.
    entry_name
        The kernel's (mangled) name in both; by default the counters' name.
    """
    module = parse(ptx)
    function_names = [
        entry_name or counters.kernel_name,
        *(n for n, f in module.functions.items() if not f.is_entry),
    ]
    machine_code = [i for name in function_names for i in machine_code_by_function.get(name, ())]
    sites, sites_by_line = _find_sites(counters, module, ptx, function_names)
    extra_counts: Counter[str] = Counter()
    has_divergent_loop = _has_divergent_loop(sites)
    ptx_lines = ptx.split("\n")
    for i in machine_code:
        site = sites_by_line.get(i.ptx_line)
        if site is not None:
            site.line_opcodes.setdefault(i.root, i.opcode)
        if not (i.space or i.is_conditional_branch):
            continue
        if site is not None and _belongs_to_site(i, site):
            site.machine_instructions.append(i)
        elif i.space:
            extra_counts[f"{i.space} {i.kind} {i.opcode}"] += 1
        elif i.root != "EXIT":
            mnemonic_match = _MNEMONIC_PATTERN.match(ptx_lines[i.ptx_line - 1]) if i.ptx_line else None
            if mnemonic_match and mnemonic_match[1] in _SLOW_PATH_MNEMONICS:
                extra_counts["branch of a slow path"] += 1
            elif has_divergent_loop:
                extra_counts["branch of a copied loop"] += 1
    warps_by_block = _find_predicated_blocks(module, function_names, sites)
    access_rows = [
        _convert_access(site, warps_by_block[site.function].get(site.block_number, 0))
        for site in sites
        if site.access
    ]
    access_rows = _merge_accesses([site for site in sites if site.access], access_rows)
    provenance = counters.provenance
    provenance_detail = f"machine code by NVRTC for sm_{target}"
    return AsRun(
        provenance=Provenance(provenance.source, provenance.device, provenance_detail),
        kernel_name=counters.kernel_name,
        target=f"sm_{target}",
        grid=counters.grid,
        block=counters.block,
        accesses=tuple(access_rows),
        branches=tuple(_convert_branch(site) for site in sites if site.branch),
        extra=tuple(sorted(extra_counts.items())),
    )


def _has_divergent_loop(sites: Sequence[_CountedSite]) -> bool:
    """Return whether lanes of a warp leave some loop in different iterations.

    If not, all copies of a loop's body are executed the same number of times.
    """
    return any(
        site.branch.divergent and site.instruction.target <= site.instruction.pc
        for site in sites
        if site.branch is not None
    )


def _find_sites(
    counters: KernelCounters, module: ir.Module, ptx: str, function_names: Sequence[str]
) -> tuple[list[_CountedSite], dict[int, _CountedSite]]:
    """Return the counted accesses and branches in the order of the counters, and by line of the PTX text."""
    functions_by_access: dict[tuple[int, str], list[str]] = defaultdict(list)
    line_numbers: dict[str, list[int]] = {}
    block_numbers: dict[str, dict[int, int]] = {}
    line_starts = [0, *(k + 1 for k, c in enumerate(ptx) if c == "\n")]
    for name in function_names:
        function = module.functions[name]
        block_numbers[name] = {
            pc: block.number
            for block in cfg.build_flow(function).blocks
            for pc in range(block.first, block.end)
        }
        line_numbers[name] = [
            bisect_right(line_starts, statement.start) for statement in find_instructions(ptx, name)
        ]
        for instruction in function.instructions:
            if instruction.root in ("bra", "brx") or instruction.root in _ACCESS_MNEMONICS:
                functions_by_access[instruction.pc, instruction.text].append(name)
    sites: list[_CountedSite] = []
    sites_by_line: dict[int, _CountedSite] = {}
    counter_rows: list[AccessCounters | BranchCounters] = [*counters.accesses, *counters.branches]
    for counter_row in counter_rows:
        if isinstance(counter_row, AccessCounters) and counter_row.space == "const":
            continue  # an operand of machine instructions
        candidate_functions = functions_by_access.get((counter_row.pc, counter_row.text))
        if not candidate_functions:
            continue
        name = candidate_functions.pop(0)
        instructions = module.functions[name].instructions
        site = _CountedSite(name, instructions[counter_row.pc], block_numbers[name].get(counter_row.pc, -1))
        sites_by_line[line_numbers[name][counter_row.pc]] = site
        if isinstance(counter_row, AccessCounters):
            site.access = counter_row
        else:
            site.branch = counter_row
            next_instruction = (
                instructions[counter_row.pc + 1] if counter_row.pc + 1 < len(instructions) else None
            )
            if (
                next_instruction is not None
                and next_instruction.root == "bra"
                and next_instruction.guard is None
            ):
                sites_by_line.setdefault(line_numbers[name][next_instruction.pc], site)  # the two become one
        sites.append(site)
    return sites, sites_by_line


def _belongs_to_site(instruction: SassInstruction, site: _CountedSite) -> bool:
    if site.branch is not None:
        return instruction.is_conditional_branch
    return bool(instruction.space) and site.access is not None and instruction.kind == site.access.kind


def _find_predicated_blocks(
    module: ir.Module, function_names: Iterable[str], sites: Sequence[_CountedSite]
) -> dict[str, dict[int, int]]:
    """Return, for each function, the blocks that are predicated because the compiler removed their branch.

    The blocks are mapped to the number of warps that reach the branch.
    """
    warps_by_function: dict[str, dict[int, int]] = {name: {} for name in function_names}
    regions_by_function = {name: find_regions(module.functions[name]) for name in warps_by_function}
    for site in sites:
        if site.branch is None or site.machine_instructions:
            continue
        warps_of_block = warps_by_function[site.function]
        for block in regions_by_function[site.function].get(site.block_number, ()):
            warps_of_block[block] = max(warps_of_block.get(block, 0), site.branch.executed)
    return warps_by_function


def _convert_access(site: _CountedSite, branch_warps: int) -> AccessAsRun:
    access_counters = site.access
    assert access_counters is not None
    access_row = AccessAsRun(
        pc=access_counters.pc,
        line=access_counters.line,
        text=access_counters.text,
        space=access_counters.space,
        kind=access_counters.kind,
        opcode="",
        size_bytes=access_counters.size_bytes,
        written=access_counters.requests,
        requests=0,
        executions=0,
        column=access_counters.column,
    )
    if not site.machine_instructions:
        return access_row
    access_row = replace(
        access_row,
        opcode=site.machine_instructions[0].opcode,
        size_bytes=site.machine_instructions[0].size_bytes,
        requests=access_counters.requests,
        executions=access_counters.requests,
    )
    if branch_warps > access_counters.requests:
        if all(instruction.guarded for instruction in site.machine_instructions):
            access_row = replace(access_row, executions=branch_warps, note=_PREDICATED_NOTE)
        else:
            access_row = replace(
                access_row, executions=branch_warps, requests=branch_warps, note=_EARLY_ACCESS_NOTE
            )
    if "CAS" in access_row.opcode and ".cas" not in access_counters.text:
        return replace(access_row, requests=None, executions=None, note=_SWAP_LOOP_NOTE)
    if access_row.kind == "atomic":
        access_row = replace(
            access_row, note=" ".join(filter(None, (access_row.note, _make_atomic_note(site))))
        )
    return access_row


def _make_atomic_note(site: _CountedSite) -> str:
    """Return a note on machine code that replaces an atomic; empty if every lane executes the atomic."""
    atomic_instructions = [
        instruction for instruction in site.machine_instructions if instruction.kind == "atomic"
    ]
    if any(instruction.guarded for instruction in atomic_instructions):  # one lane acts for its warp
        for helper_mnemonic, note_template in (
            ("REDUX", _COMBINING_NOTE),
            ("SHFL", _PREFIX_SUM_NOTE),
            ("POPC", _LANE_COUNT_NOTE),
        ):
            if helper_mnemonic == "SHFL" and len(atomic_instructions) == 1:
                continue  # it passes the old value to the other lanes
            if helper_mnemonic in site.line_opcodes:
                return note_template.format(site.line_opcodes[helper_mnemonic])
    if any(".POPC" in instruction.opcode for instruction in atomic_instructions):
        return _POPC_INC_NOTE
    is_atom = site.instruction.root == "atom"
    return (
        _RED_NOTE
        if is_atom and all(instruction.root in ("RED", "REDG") for instruction in atomic_instructions)
        else ""
    )


def _merge_accesses(sites: Sequence[_CountedSite], access_rows: Sequence[AccessAsRun]) -> list[AccessAsRun]:
    """Assign each wide machine access to the PTX accesses that it replaces, and add a note to each access
    that was removed.
    """
    merged_rows = list(access_rows)
    site_groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for n, site in enumerate(sites):
        address = site.instruction.operands[0 if site.instruction.root == "st" else -1]
        if isinstance(address, ir.Address) and site.instruction.root in ("ld", "st"):
            unmerged_row = access_rows[n]
            site_groups[
                site.function,
                site.block_number,
                unmerged_row.space,
                unmerged_row.kind,
                address.base,
                access_size_bytes(site),
            ].append(n)
    for site_indices in site_groups.values():
        site_indices.sort(key=lambda n: _address_offset(sites[n]))
        for merged_bytes in sorted(
            {instruction.size_bytes for n in site_indices for instruction in sites[n].machine_instructions},
            reverse=True,
        ):
            if merged_bytes > access_size_bytes(sites[site_indices[0]]):
                _merge_group(sites, merged_rows, site_indices, merged_bytes)
    return [
        _add_removed_note(row) if not row.opcode and row.merged_into is None else row for row in merged_rows
    ]


def access_size_bytes(site: _CountedSite) -> int:
    """Return the number of bytes that each lane accesses with a PTX instruction."""
    assert site.access is not None
    return site.access.size_bytes


def _address_offset(site: _CountedSite) -> int:
    address = site.instruction.operands[0 if site.instruction.root == "st" else -1]
    assert isinstance(address, ir.Address)
    return address.offset


def _merge_group(
    sites: Sequence[_CountedSite], access_rows: list[AccessAsRun], site_indices: list[int], merged_bytes: int
) -> None:
    """Find neighbouring PTX accesses that one machine access of `merged_bytes` bytes replaces, and update
    their rows.


    `site_indices` are indices of accesses with the same base address, in the order of their offsets.
    """
    access_bytes = access_size_bytes(sites[site_indices[0]])
    site_at_offset = {_address_offset(sites[n]): n for n in site_indices}
    for first_offset in range(0, merged_bytes, access_bytes):
        members_by_window: dict[int, list[int]] = defaultdict(list)
        for n in site_indices:
            members_by_window[(_address_offset(sites[n]) - first_offset) // merged_bytes].append(n)
        complete_windows = [
            members
            for members in members_by_window.values()
            if any(
                instruction.size_bytes == merged_bytes
                for n in members
                for instruction in sites[n].machine_instructions
            )
        ]
        if complete_windows and all(
            len(members) * access_bytes == merged_bytes for members in complete_windows
        ):
            break
    else:
        for n in site_at_offset.values():
            if any(instruction.size_bytes == merged_bytes for instruction in sites[n].machine_instructions):
                access_rows[n] = replace(
                    access_rows[n], requests=None, executions=None, note=_ITERATIONS_NOTE
                )
        return
    for window_members in complete_windows:
        machine_members = [n for n in window_members if sites[n].machine_instructions]
        machine_sizes_bytes = {
            instruction.size_bytes for n in machine_members for instruction in sites[n].machine_instructions
        }
        first_member = machine_members[0]
        if len(machine_sizes_bytes) > 1:
            for n in machine_members:
                access_rows[n] = replace(
                    access_rows[n], requests=None, executions=None, note=_PARTIAL_MERGE_NOTE
                )
            continue
        merge_note = _make_merge_note(
            len(window_members), access_bytes, access_rows[first_member], merged_bytes
        )
        for n in window_members:
            if n == first_member:
                access_rows[n] = replace(access_rows[n], note=merge_note)
            else:
                access_rows[n] = replace(
                    access_rows[n],
                    opcode="",
                    requests=0,
                    executions=0,
                    merged_into=access_rows[first_member].pc,
                    note=merge_note,
                )


def _make_merge_note(access_count: int, access_bytes: int, access_row: AccessAsRun, merged_bytes: int) -> str:
    count_word = {2: "Two", 4: "Four", 8: "Eight", 16: "Sixteen"}.get(access_count, f"{access_count:,}")
    access_plural = {"load": "loads", "store": "stores"}.get(access_row.kind, "atomics")
    accesses_text = (
        f"{count_word} {access_row.space} {access_plural} of {access_bytes} bytes at adjacent addresses"
    )
    return f"{accesses_text} run as one {access_row.opcode} of {merged_bytes} bytes."


def _add_removed_note(access_row: AccessAsRun) -> AccessAsRun:
    return replace(access_row, note=_REMOVED_NOTE) if access_row.written else access_row


def _convert_branch(site: _CountedSite) -> BranchAsRun:
    branch_counters = site.branch
    assert branch_counters is not None
    branch_row = BranchAsRun(
        pc=branch_counters.pc,
        line=branch_counters.line,
        text=branch_counters.text,
        opcode="",
        written=branch_counters.divergent,
        divergent=0,
        column=branch_counters.column,
    )
    if not site.machine_instructions:
        return replace(branch_row, note=_NO_DIVERGENCE_NOTE if branch_counters.divergent else "")
    branch_instructions = [
        instruction for instruction in site.machine_instructions if instruction.root != "EXIT"
    ]
    branch_row = replace(branch_row, opcode=site.machine_instructions[0].opcode)
    if not branch_instructions:
        return replace(branch_row, note=_EXIT_NOTE if branch_counters.divergent else "")
    if branch_counters.divergent and len(branch_instructions) > 1:
        return replace(branch_row, divergent=None, note=_COPIES_NOTE.format(len(branch_instructions)))
    return replace(branch_row, divergent=branch_counters.divergent)
