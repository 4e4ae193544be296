"""From counts of PTX to counts of machine code: which access became what, and which branch is gone.

Every machine instruction names the PTX line it was made of (`virtualgpu.compile.sass`). An access of the PTX
whose line has machine accesses of the same width runs as written, in however many copies of a loop's
body: each execution of the PTX executes one copy. A wider machine access stands for its neighbours in
the same basic block as well, those at the following offsets from the same base. A conditional branch
whose line has no machine branch was predicated: its body is executed by every warp that comes by.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from virtualgpu.compile import nvrtc, sass
from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.entry_text import code_of
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.flow.regions import regions
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.compile.sass import SassInstruction
from virtualgpu.records import AccessCounters, BranchCounters, KernelCounters, KernelSource, Provenance
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun

_PREDICATED = "A short branch is gone: its body is predicated, so every warp that comes by executes it."
_EARLY = "A short branch is gone: the access is made before the test, for all lanes."
_UNSPLIT = "A short branch is gone: its body is predicated, so warps do not split."
_BY_EXIT = "Lanes that are done leave by EXIT, which is no divergent branch."
_COPIED = "ptxas has copied the loop's body: the branch stands {} times in machine code."
_SWAPS = "Machine code has no such atomic: a loop of compare-and-swap does it, as often as lanes collide."
_COMBINED = "The warp combines its lanes' values first ({}); one lane updates memory with the result."
_COUNTED = "The warp counts its lanes first (POPC); one lane adds their number to memory."
_PREFIXES = "A whole warp adds up its lanes' values first (SHFL); one lane updates memory with the result."
_AT_ONCE = "One instruction (ATOMS.POPC.INC) adds to an address for all lanes of a warp that name it."
_NO_ANSWER = "The old value has no use: RED updates memory and sends no answer."
_NOTHING = "No machine instruction is left of this access: ptxas knows its value or has no use for it."
_ACROSS = "ptxas has copied the loop's body and fetches the bytes of several turns at once."
_SOMETIMES = "ptxas merges this access with its neighbours in some copies of the loop's body only."

_ACCESSES = ("ld", "ldu", "st", "atom", "red")
# Lines that branches of their own come from; helper functions for slow cases stand under ``ret``.
_MNEMONIC = re.compile(r"\s*(?:@!?%?[\w$]+\s+)?([a-z]\w*)")
_WITH_SLOW_PATH = ("div", "rcp", "sqrt", "rsqrt", "rem", "call", "ret", "atom")


@dataclass(slots=True)
class _Site:
    """One access or branch: where it stands, what counted it, what became of it."""

    function: str
    instruction: ir.Instruction
    block: int
    machine: list[SassInstruction] = field(default_factory=list)
    around: dict[str, str] = field(default_factory=dict)  # opcodes of its line, by mnemonic
    access: AccessCounters | None = None
    branch: BranchCounters | None = None


def as_run(counters: KernelCounters, source: KernelSource, target: int) -> AsRun:
    """Compile a kernel to machine code and tell what that makes of a launch's counts.

    Parameters
    ----------
    counters
        Counts of the launch by PTX instruction.
    source
        The kernel.
    target
        What to compile for, such as 90.

    Raises
    ------
    NvdisasmMissingError
        If ``nvdisasm`` is not installed.
    NvrtcMissingError
        If NVRTC is not installed: machine code is made here, not shipped.
    """
    image, machine = nvrtc.compile_both(
        source.code,
        target=target,
        options=(*source.options, *nvrtc.CUPY_OPTIONS),
        name_expressions=source.name_expressions,
    )
    if machine is None:
        raise nvrtc.NvrtcMissingError
    entry = image.lowered_names.get(source.name, source.name)
    return anchor(counters, image.ptx, sass.disassemble(machine.cubin), target, entry)


def anchor(
    counters: KernelCounters,
    ptx: str,
    machine: dict[str, tuple[SassInstruction, ...]],
    target: int,
    entry: str = "",
) -> AsRun:
    """Tell what machine code makes of a launch's counts.

    Parameters
    ----------
    counters
        Counts of the launch by PTX instruction.
    ptx
        The PTX they count.
    machine
        The machine code made of the same source with ``-lineinfo``, from `sass.disassemble`.
    target
        What it was made for, such as 90.
    entry
        The kernel's (mangled) name in both; by default the counters' name.
    """
    module = parse(ptx)
    names = [entry or counters.kernel_name, *(n for n, f in module.functions.items() if not f.is_entry)]
    code = [i for name in names for i in machine.get(name, ())]
    sites, lines = _sites(counters, module, ptx, names)
    extra: Counter[str] = Counter()
    split = _a_loop_splits(sites)
    text = ptx.split("\n")
    for i in code:
        site = lines.get(i.ptx_line)
        if site is not None:
            site.around.setdefault(i.root, i.opcode)
        if not (i.space or i.is_conditional_branch):
            continue
        if site is not None and _belongs(i, site):
            site.machine.append(i)
        elif i.space:
            extra[f"{i.space} {i.kind} {i.opcode}"] += 1
        elif i.root != "EXIT":
            maker = _MNEMONIC.match(text[i.ptx_line - 1]) if i.ptx_line else None
            if maker and maker[1] in _WITH_SLOW_PATH:
                extra["branch of a slow path"] += 1
            elif split:
                extra["branch of a copied loop"] += 1
    gone = _gone(module, names, sites)
    accesses = [_access(site, gone[site.function].get(site.block, 0)) for site in sites if site.access]
    accesses = _merge([site for site in sites if site.access], accesses)
    provenance = counters.provenance
    detail = f"machine code by NVRTC for sm_{target}"
    return AsRun(
        provenance=Provenance(provenance.source, provenance.device, detail),
        kernel_name=counters.kernel_name,
        target=f"sm_{target}",
        grid=counters.grid,
        block=counters.block,
        accesses=tuple(accesses),
        branches=tuple(_branch(site) for site in sites if site.branch),
        extra=tuple(sorted(extra.items())),
    )


def _a_loop_splits(sites: Sequence[_Site]) -> bool:
    """Whether lanes leave some loop at different times; else what counts a copied loop is uniform."""
    return any(
        site.branch.divergent and site.instruction.target <= site.instruction.pc
        for site in sites
        if site.branch is not None
    )


def _sites(
    counters: KernelCounters, module: ir.Module, ptx: str, names: Sequence[str]
) -> tuple[list[_Site], dict[int, _Site]]:
    """Counted instructions in the counters' order, and the same by line of the PTX text."""
    found: dict[tuple[int, str], list[str]] = defaultdict(list)
    places: dict[str, list[int]] = {}
    blocks: dict[str, dict[int, int]] = {}
    starts = [0, *(k + 1 for k, c in enumerate(ptx) if c == "\n")]
    for name in names:
        function = module.functions[name]
        blocks[name] = {
            pc: block.number for block in cfg.build(function).blocks for pc in range(block.first, block.end)
        }
        places[name] = [bisect_right(starts, statement.start) for statement in code_of(ptx, name)]
        for i in function.instructions:
            if i.root in ("bra", "brx") or i.root in _ACCESSES:
                found[i.pc, i.text].append(name)
    sites: list[_Site] = []
    lines: dict[int, _Site] = {}
    rows: list[AccessCounters | BranchCounters] = [*counters.accesses, *counters.branches]
    for row in rows:
        if isinstance(row, AccessCounters) and row.space == "const":
            continue  # an operand of machine instructions
        owners = found.get((row.pc, row.text))
        if not owners:
            continue
        name = owners.pop(0)
        code = module.functions[name].instructions
        site = _Site(name, code[row.pc], blocks[name].get(row.pc, -1))
        lines[places[name][row.pc]] = site
        if isinstance(row, AccessCounters):
            site.access = row
        else:
            site.branch = row
            other = code[row.pc + 1] if row.pc + 1 < len(code) else None
            if other is not None and other.root == "bra" and other.guard is None:
                lines.setdefault(places[name][other.pc], site)  # the two become one
        sites.append(site)
    return sites, lines


def _belongs(i: SassInstruction, site: _Site) -> bool:
    if site.branch is not None:
        return i.is_conditional_branch
    return bool(i.space) and site.access is not None and i.kind == site.access.kind


def _gone(module: ir.Module, names: Iterable[str], sites: Sequence[_Site]) -> dict[str, dict[int, int]]:
    """Blocks whose branch is gone, by function: how many warps come by such a block."""
    found: dict[str, dict[int, int]] = {name: {} for name in names}
    inside = {name: regions(module.functions[name]) for name in found}
    for site in sites:
        if site.branch is None or site.machine:
            continue
        here = found[site.function]
        for block in inside[site.function].get(site.block, ()):
            here[block] = max(here.get(block, 0), site.branch.executed)
    return found


def _access(site: _Site, passing: int) -> AccessAsRun:
    counted = site.access
    assert counted is not None
    row = AccessAsRun(
        pc=counted.pc,
        line=counted.line,
        text=counted.text,
        space=counted.space,
        kind=counted.kind,
        opcode="",
        size_bytes=counted.size_bytes,
        written=counted.requests,
        requests=0,
        executions=0,
        column=counted.column,
    )
    if not site.machine:
        return row
    row = replace(
        row,
        opcode=site.machine[0].opcode,
        size_bytes=site.machine[0].size_bytes,
        requests=counted.requests,
        executions=counted.requests,
    )
    if passing > counted.requests:
        if all(i.guarded for i in site.machine):
            row = replace(row, executions=passing, note=_PREDICATED)
        else:
            row = replace(row, executions=passing, requests=passing, note=_EARLY)
    if "CAS" in row.opcode and ".cas" not in counted.text:
        return replace(row, requests=None, executions=None, note=_SWAPS)
    if row.kind == "atomic":
        row = replace(row, note=" ".join(filter(None, (row.note, _became(site)))))
    return row


def _became(site: _Site) -> str:
    """What machine code does instead of an atomic by each lane; empty where it does just that."""
    atomics = [i for i in site.machine if i.kind == "atomic"]
    if any(i.guarded for i in atomics):  # ptxas lets one lane act for its warp
        for helper, note in (("REDUX", _COMBINED), ("SHFL", _PREFIXES), ("POPC", _COUNTED)):
            if helper == "SHFL" and len(atomics) == 1:
                continue  # it hands the old value to the others
            if helper in site.around:
                return note.format(site.around[helper])
    if any(".POPC" in i.opcode for i in atomics):
        return _AT_ONCE
    is_atom = site.instruction.root == "atom"
    return _NO_ANSWER if is_atom and all(i.root in ("RED", "REDG") for i in atomics) else ""


def _merge(sites: Sequence[_Site], rows: Sequence[AccessAsRun]) -> list[AccessAsRun]:
    """Let wide machine accesses stand for their neighbours; explain what is left over."""
    done = list(rows)
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for n, site in enumerate(sites):
        place = site.instruction.operands[0 if site.instruction.root == "st" else -1]
        if isinstance(place, ir.Address) and site.instruction.root in ("ld", "st"):
            counted = rows[n]
            groups[
                site.function, site.block, counted.space, counted.kind, place.base, counted_size(site)
            ].append(n)
    for members in groups.values():
        members.sort(key=lambda n: _offset(sites[n]))
        for width in sorted({i.size_bytes for n in members for i in sites[n].machine}, reverse=True):
            if width > counted_size(sites[members[0]]):
                _merge_group(sites, done, members, width)
    return [_left_over(row) if not row.opcode and row.merged_into is None else row for row in done]


def counted_size(site: _Site) -> int:
    """Bytes that one lane accesses as PTX has it."""
    assert site.access is not None
    return site.access.size_bytes


def _offset(site: _Site) -> int:
    place = site.instruction.operands[0 if site.instruction.root == "st" else -1]
    assert isinstance(place, ir.Address)
    return place.offset


def _merge_group(sites: Sequence[_Site], rows: list[AccessAsRun], members: list[int], width: int) -> None:
    """Find the runs of neighbours that accesses of `width` bytes stand for."""
    size = counted_size(sites[members[0]])
    at = {_offset(sites[n]): n for n in members}
    for phase in range(0, width, size):
        windows: dict[int, list[int]] = defaultdict(list)
        for n in members:
            windows[(_offset(sites[n]) - phase) // width].append(n)
        wide = [
            w for w in windows.values() if any(i.size_bytes == width for n in w for i in sites[n].machine)
        ]
        if wide and all(len(w) * size == width for w in wide):
            break
    else:
        for n in at.values():
            if any(i.size_bytes == width for i in sites[n].machine):
                rows[n] = replace(rows[n], requests=None, executions=None, note=_ACROSS)
        return
    for window in wide:
        owners = [n for n in window if sites[n].machine]
        widths = {i.size_bytes for n in owners for i in sites[n].machine}
        owner = owners[0]
        if len(widths) > 1:
            for n in owners:
                rows[n] = replace(rows[n], requests=None, executions=None, note=_SOMETIMES)
            continue
        note = _merged(len(window), size, rows[owner], width)
        for n in window:
            if n == owner:
                rows[n] = replace(rows[n], note=note)
            else:
                rows[n] = replace(
                    rows[n], opcode="", requests=0, executions=0, merged_into=rows[owner].pc, note=note
                )


def _merged(count: int, size: int, row: AccessAsRun, width: int) -> str:
    number = {2: "Two", 4: "Four", 8: "Eight", 16: "Sixteen"}.get(count, f"{count:,}")
    kind = {"load": "loads", "store": "stores"}.get(row.kind, "atomics")
    return (
        f"{number} {row.space} {kind} of {size} bytes side by side run as one {row.opcode} of {width} bytes."
    )


def _left_over(row: AccessAsRun) -> AccessAsRun:
    return replace(row, note=_NOTHING) if row.written else row


def _branch(site: _Site) -> BranchAsRun:
    counted = site.branch
    assert counted is not None
    row = BranchAsRun(
        pc=counted.pc,
        line=counted.line,
        text=counted.text,
        opcode="",
        written=counted.divergent,
        divergent=0,
        column=counted.column,
    )
    if not site.machine:
        return replace(row, note=_UNSPLIT if counted.divergent else "")
    branches = [i for i in site.machine if i.root != "EXIT"]
    row = replace(row, opcode=site.machine[0].opcode)
    if not branches:
        return replace(row, note=_BY_EXIT if counted.divergent else "")
    if counted.divergent and len(branches) > 1:
        return replace(row, divergent=None, note=_COPIED.format(len(branches)))
    return replace(row, divergent=counted.divergent)
