"""Insertion of probes into a kernel's PTX, so that a real GPU records the SM of a block and the active lanes.

The kernel keeps its instructions, names and results. It has one additional parameter at the end, a
64-bit pointer to a buffer of 64-bit words:

* `instrument_blocks`: word 0 is the sampling shift ``s`` (of each ``2**s`` consecutive blocks one is
  recorded, as at pseudo-random: `find_recorded_blocks`), word 1 unused; from word 2 three words per recorded
  block: ``%globaltimer`` at the start of its first warp, the same at the end of its last warp (both ns), and
  ``%smid``. See `make_block_buffer` and `read_blocks`.
* `instrument_warp`: word 0 counts the events, word 1 is the capacity in events, words 2 to 5 select the
  warp; from word 6 two words per event, one event each time the warp enters a basic block:
  ``%clock64``, and the active mask with the block's number above it. See `make_warp_buffer` and `read_warp`.

Starts are an atomic minimum and ends an atomic maximum over warps; within a warp only the lowest
active lane writes. All probe instructions are predicated, so that they add no branches of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.entry_text import EntryText, apply_edits, find_entry
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.errors import PtxError
from virtualgpu.records import Dim3

UInt64Array = npt.NDArray[np.uint64]

_BLOCK_HEADER_WORDS = 2
_BLOCK_WORDS = 3
_WARP_HEADER_WORDS = 6
_WARP_WORDS = 2
_UNSET_TIME = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
# 2**64 divided by the golden ratio (Knuth, The Art of Computer Programming, 6.4): neighbours become distant.
_HASH_FACTOR = 0x9E37_79B9_7F4A_7C15

_EXIT_PATTERN = re.compile(r"(?:@(!?)\s*(%?[\w$]+)\s+)?(?:ret|exit)(?:\.uni)?\s*;")
_VERSION_PATTERN = re.compile(r"^(\s*\.version\s+)(\d+)\.(\d+)", re.M)


@dataclass(frozen=True, slots=True)
class InstrumentedPtx:
    """Instrumented PTX, with the first instruction and the source position of each basic block."""

    ptx: str
    first_pc: tuple[int, ...] = ()
    line: tuple[int, ...] = ()
    column: tuple[int, ...] = ()
    text: tuple[str, ...] = ()


def instrument_blocks(ptx: str, kernel: str) -> InstrumentedPtx:
    """Add code to a kernel that records the SM, the start time and the end time of its thread blocks.

    Parameters
    ----------
    ptx
        A PTX module, of either dialect that NVRTC generates.
    kernel
        Name of the ``.entry``, mangled if it is a template.

    Raises
    ------
    PtxError
        If the module has no such entry.
    """
    make_name = _NameGenerator(ptx)
    kernel_entry = find_entry(ptx, kernel)
    ptx_edits = [
        _make_parameter_edit(kernel_entry, make_name),
        (kernel_entry.first_code_offset, _make_block_prologue(make_name)),
    ]
    for statement_index, statement in enumerate(s for s in kernel_entry.statements if s.is_code):
        match = _EXIT_PATTERN.fullmatch(statement.plain)
        if not match:
            continue
        epilogue = _make_block_epilogue(make_name, statement_index)
        if match[2] is None:
            ptx_edits.append((statement.start, epilogue))
        else:
            skip_label = make_name(f"stay_{statement_index}")
            negation = "" if match[1] else "!"
            ptx_edits.append((statement.start, f"@{negation}{match[2]} bra {skip_label};\n{epilogue}"))
            ptx_edits.append((statement.end, f"\n{skip_label}:\n"))
    return InstrumentedPtx(apply_edits(ptx, ptx_edits))


def instrument_warp(ptx: str, kernel: str) -> InstrumentedPtx:
    """Instrument a kernel to record the basic blocks that one warp enters. The launch determines which warp
    is traced.

    Functions that the kernel calls are not instrumented. Parameters and errors are those of
    `instrument_blocks`.
    """
    make_name = _NameGenerator(ptx)
    kernel_entry = find_entry(ptx, kernel)
    function = parse(ptx).functions[kernel]
    block_starts = sorted(block.first for block in cfg.build_flow(function).blocks)
    code_statements = [s for s in kernel_entry.statements if s.is_code]
    if len(code_statements) != len(function.instructions):
        raise PtxError(
            f"Kernel {kernel} cannot be instrumented: the number of its statements and instructions differs."
        )
    ptx_edits = [
        _make_parameter_edit(kernel_entry, make_name),
        (kernel_entry.first_code_offset, _make_warp_prologue(make_name)),
    ]
    for block_index, block_start in enumerate(block_starts):
        ptx_edits.append((code_statements[block_start].start, _make_warp_probe(make_name, block_index)))
    source_positions = [
        _find_source_position(function, start, end)
        for start, end in _iterate_block_spans(block_starts, len(code_statements))
    ]
    return InstrumentedPtx(
        apply_edits(ptx, ptx_edits),
        first_pc=tuple(block_starts),
        line=tuple(line for line, _ in source_positions),
        column=tuple(column for _, column in source_positions),
        text=tuple(
            _summarize_block(function, start, end)
            for start, end in _iterate_block_spans(block_starts, len(code_statements))
        ),
    )


def lower_version(ptx: str, version: tuple[int, int]) -> str:
    """Lower the PTX ISA version that PTX text declares, for drivers older than the compiler.

    NVRTC always declares its own version in PTX. Code for an older GPU rarely needs it, and the driver still
    refuses instructions that the declared version does not have.
    """
    match = _VERSION_PATTERN.search(ptx)
    if not match or (int(match[2]), int(match[3])) <= version:
        return ptx
    return f"{ptx[: match.start()]}{match[1]}{version[0]}.{version[1]}{ptx[match.end() :]}"


def find_isa_version(version: tuple[int, int]) -> tuple[int, int]:
    """Return the PTX ISA version that belongs to a CUDA release (PTX ISA, "Release Notes").

    CUDA 11.x has PTX ISA 7.x, and CUDA 13.x has 9.x. CUDA 12.x has 8.x up to 12.5, and 8.(x - 1) from 12.6
    on.
    """
    major, minor = version
    if major == 12 and minor >= 6:
        minor -= 1
    return max(major - 4, 6), minor


# Buffers ---------------------------------------------------------------------------------------


def make_block_buffer(block_count: int, sampled: int = 1) -> UInt64Array:
    """Return a buffer in which `instrument_blocks` records the times of a grid with `block_count`
    thread blocks.


    The buffer has space for one in every ``sampled`` blocks; ``sampled`` is a power of two.
    """
    if sampled < 1 or sampled & (sampled - 1):
        raise ValueError(f"`sampled` must be a power of two, not {sampled}.")
    block_rows = np.zeros((-(-block_count // sampled), _BLOCK_WORDS), np.uint64)
    block_rows[:, 0] = _UNSET_TIME
    header_words = np.array([sampled.bit_length() - 1, 0], np.uint64)
    return np.concatenate([header_words, block_rows.reshape(-1)])


def find_recorded_blocks(row_count: int, sampling_interval: int) -> npt.NDArray[np.int64]:
    """Return the indices of the thread blocks that the rows of a `make_block_buffer` record. The last index
    can exceed the largest block index of the grid.

    The recorded blocks do not have a fixed distance, because it could have a common factor with the number
    of SMs or resident blocks, so that some of them would never be recorded.
    """
    row_index = np.arange(row_count, dtype=np.uint64)
    pseudo_random = (row_index * np.uint64(_HASH_FACTOR)) >> np.uint64(40)
    block_indices = row_index * np.uint64(sampling_interval) + pseudo_random % np.uint64(sampling_interval)
    return block_indices.astype(np.int64)


def read_blocks(
    buffer: UInt64Array,
) -> tuple[npt.NDArray[np.int64], UInt64Array, UInt64Array, npt.NDArray[np.int32]]:
    """Return the index, the start time, the end time and the SM of each recorded block. The times are in ns.

    Times are those of the GPU's global timer.
    """
    block_rows = buffer[_BLOCK_HEADER_WORDS:].reshape(-1, _BLOCK_WORDS)
    block_indices = find_recorded_blocks(len(block_rows), 1 << int(buffer[0]))
    has_run = block_rows[:, 0] != _UNSET_TIME
    block_rows = block_rows[has_run]
    return (
        block_indices[has_run],
        block_rows[:, 0].copy(),
        block_rows[:, 1].copy(),
        block_rows[:, 2].astype(np.int32),
    )


def make_warp_buffer(block_index: Dim3, warp_index: int, max_events: int) -> UInt64Array:
    """Return a buffer for at most `max_events` events that `instrument_warp` records for one warp."""
    header_words = np.array([0, max_events, *block_index, warp_index], np.uint64)
    return np.concatenate([header_words, np.zeros(max_events * _WARP_WORDS, np.uint64)])


def read_warp(buffer: UInt64Array) -> tuple[UInt64Array, npt.NDArray[np.uint32], npt.NDArray[np.int32], bool]:
    """Return each event's clock (in SM cycles), active mask and basic block, and whether events are
    missing.
    """
    event_count = int(buffer[0])
    max_events = int(buffer[1])
    event_rows = buffer[_WARP_HEADER_WORDS:].reshape(-1, _WARP_WORDS)[: min(event_count, max_events)]
    active_masks = (event_rows[:, 1] & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
    return (
        event_rows[:, 0].copy(),
        active_masks,
        (event_rows[:, 1] >> np.uint64(32)).astype(np.int32),
        event_count > max_events,
    )


class _NameGenerator:
    """A generator of register and label names that the PTX module does not use."""

    def __init__(self, ptx: str) -> None:
        self.prefix = "gpulab"
        while self.prefix in ptx:
            self.prefix += "_"

    def __call__(self, name: str) -> str:
        return f"{self.prefix}_{name}"


def _iterate_block_spans(starts: list[int], statement_count: int) -> Iterator[tuple[int, int]]:
    yield from zip(starts, [*starts[1:], statement_count], strict=True)


def _find_source_position(function: ir.Function, start: int, end: int) -> tuple[int, int]:
    """Return the most frequent source line, with column, of the instructions in a basic block.

    Of equally frequent lines, the later one is returned. The first instruction often has another position,
    because compilers move address arithmetic.
    """
    positions = [
        (instruction.line, instruction.column)
        for instruction in function.instructions[start:end]
        if instruction.line
    ]
    if not positions:
        return 0, 0
    source_lines = [line for line, _ in positions]
    most_frequent_line = max(reversed(source_lines), key=source_lines.count)
    return next(position for position in positions if position[0] == most_frequent_line)


def _summarize_block(function: ir.Function, start: int, end: int) -> str:
    first_text = function.instructions[start].text
    last_text = function.instructions[end - 1].text
    return first_text if end - start == 1 else f"{first_text} … {last_text} ({end - start} instructions)"


# Probes ----------------------------------------------------------------------------------------


def _make_parameter_edit(entry: EntryText, make_name: _NameGenerator) -> tuple[int, str]:
    declaration = f".param .u64 {make_name('buffer')}"
    if not entry.has_parentheses:
        return entry.params_end, f"({declaration})"
    return entry.params_end, f", {declaration}" if entry.has_params else declaration


def _select_lowest_lane(make_name: _NameGenerator) -> str:
    """Return PTX that sets a predicate in the lowest active lane only, and a register to the active mask."""
    mask_register = make_name("mask")
    lower_lanes = make_name("lower")
    lowest_predicate = make_name("lowest")
    return f"""\
	activemask.b32 %{mask_register};
	mov.u32 %{lower_lanes}, %lanemask_lt;
	and.b32 %{lower_lanes}, %{lower_lanes}, %{mask_register};
	setp.eq.u32 %{lowest_predicate}, %{lower_lanes}, 0;
"""


def _compute_linear_index(
    make_name: _NameGenerator, destination: str, index_name: str, size_name: str
) -> str:
    """Return PTX that computes the linear index ``x + size.x * (y + size.y * z)`` in 64 bits.

    ``index_name`` is ``tid`` for a thread or ``ctaid`` for a block.
    """
    size_register = make_name("factor")
    coordinate_register = make_name("part")
    register_32 = make_name("narrow")
    ptx_lines = []
    for axis, size_axis in (("z", ""), ("y", "y"), ("x", "x")):
        ptx_lines.append(
            f"\tmov.u32 %{register_32}, %{index_name}.{axis};\n"
            f"\tcvt.u64.u32 %{coordinate_register}, %{register_32};\n"
        )
        if not size_axis:
            ptx_lines.append(f"\tmov.u64 %{destination}, %{coordinate_register};\n")
            continue
        ptx_lines.append(
            f"\tmov.u32 %{register_32}, %{size_name}.{size_axis};\n"
            f"\tcvt.u64.u32 %{size_register}, %{register_32};\n"
        )
        ptx_lines.append(
            f"\tmad.lo.u64 %{destination}, %{destination}, %{size_register}, %{coordinate_register};\n"
        )
    return "".join(ptx_lines)


def _make_block_prologue(make_name: _NameGenerator) -> str:
    row_register = make_name("row")
    scratch_register = make_name("kept")
    recorded_predicate = make_name("wanted")
    lowest_predicate = make_name("lowest")
    sm_register = make_name("narrow")
    block_register = make_name("block")
    shift_register = make_name("shift")
    base_register = make_name("base")
    time_register = make_name("time")
    index_code = _compute_linear_index(make_name, block_register, "ctaid", "nctaid")
    return f"""
	.reg .pred %{recorded_predicate};
	.reg .b64 %{row_register};
	{{
	.reg .pred %{lowest_predicate};
	.reg .b32 %{make_name("mask")}, %{make_name("lower")}, %{sm_register}, %{shift_register};
	.reg .b64 %{block_register}, %{base_register}, %{time_register}, %{scratch_register};
	.reg .b64 %{make_name("factor")}, %{make_name("part")};
	mov.u64 %{time_register}, %globaltimer;
	ld.param.u64 %{base_register}, [{make_name("buffer")}];
	cvta.to.global.u64 %{base_register}, %{base_register};
{index_code}	ld.global.u32 %{shift_register}, [%{base_register}];
	shr.u64 %{row_register}, %{block_register}, %{shift_register};
	mul.lo.u64 %{scratch_register}, %{row_register}, {_HASH_FACTOR - (1 << 64)};
	shr.u64 %{scratch_register}, %{scratch_register}, 40;
	xor.b64 %{scratch_register}, %{scratch_register}, %{block_register};
	shl.b64 %{make_name("factor")}, -1, %{shift_register};
	not.b64 %{make_name("factor")}, %{make_name("factor")};
	and.b64 %{scratch_register}, %{scratch_register}, %{make_name("factor")};
	setp.eq.u64 %{recorded_predicate}, %{scratch_register}, 0;
	mad.lo.u64 %{row_register}, %{row_register}, {8 * _BLOCK_WORDS}, %{base_register};
{_select_lowest_lane(make_name)}	and.pred %{lowest_predicate}, %{lowest_predicate}, %{recorded_predicate};
	@%{lowest_predicate} red.global.min.u64 [%{row_register}+{8 * _BLOCK_HEADER_WORDS}], %{time_register};
	mov.u32 %{sm_register}, %smid;
	cvt.u64.u32 %{scratch_register}, %{sm_register};
	@%{lowest_predicate} st.global.u64 [%{row_register}+{8 * _BLOCK_HEADER_WORDS + 16}], %{scratch_register};
	}}
	"""


def _make_block_epilogue(make_name: _NameGenerator, statement_index: int) -> str:
    lowest_predicate = make_name(f"lowest_{statement_index}")
    time_register = make_name(f"time_{statement_index}")
    mask_register = make_name(f"mask_{statement_index}")
    lower_lanes = make_name(f"lower_{statement_index}")
    row_register = make_name("row")
    return f"""{{
	.reg .pred %{lowest_predicate};
	.reg .b32 %{mask_register}, %{lower_lanes};
	.reg .b64 %{time_register};
	mov.u64 %{time_register}, %globaltimer;
	activemask.b32 %{mask_register};
	mov.u32 %{lower_lanes}, %lanemask_lt;
	and.b32 %{lower_lanes}, %{lower_lanes}, %{mask_register};
	setp.eq.u32 %{lowest_predicate}, %{lower_lanes}, 0;
	and.pred %{lowest_predicate}, %{lowest_predicate}, %{make_name("wanted")};
	@%{lowest_predicate} red.global.max.u64 [%{row_register}+{8 * _BLOCK_HEADER_WORDS + 8}], %{time_register};
	}}
	"""


def _make_warp_prologue(make_name: _NameGenerator) -> str:
    traced_predicate = make_name("mine")
    base_register = make_name("base")
    thread_register = make_name("thread")
    header_word = make_name("word")
    index_code = _compute_linear_index(make_name, thread_register, "tid", "ntid")
    coordinate_checks = []
    for byte_offset, axis in ((16, "x"), (24, "y"), (32, "z")):
        coordinate_checks.append(f"""\
	ld.global.u64 %{header_word}, [%{base_register}+{byte_offset}];
	mov.u32 %{make_name("narrow")}, %ctaid.{axis};
	cvt.u64.u32 %{make_name("part")}, %{make_name("narrow")};
	setp.eq.and.u64 %{traced_predicate}, %{header_word}, %{make_name("part")}, %{traced_predicate};
""")
    return f"""
	.reg .pred %{traced_predicate};
	.reg .b64 %{base_register};
	{{
	.reg .b32 %{make_name("narrow")};
	.reg .b64 %{thread_register}, %{header_word}, %{make_name("factor")}, %{make_name("part")};
	ld.param.u64 %{base_register}, [{make_name("buffer")}];
	cvta.to.global.u64 %{base_register}, %{base_register};
{index_code}	shr.u64 %{thread_register}, %{thread_register}, 5;
	ld.global.u64 %{header_word}, [%{base_register}+40];
	setp.eq.u64 %{traced_predicate}, %{header_word}, %{thread_register};
{"".join(coordinate_checks)}	}}
	"""


def _make_warp_probe(make_name: _NameGenerator, block_index: int) -> str:
    lowest_predicate = make_name("lowest")
    fits_predicate = make_name("fits")
    event_address = make_name("place")
    event_word = make_name("word")
    clock_register = make_name("clock")
    base_register = make_name("base")
    return f"""{{
	.reg .pred %{lowest_predicate}, %{fits_predicate};
	.reg .b32 %{make_name("mask")}, %{make_name("lower")}, %{make_name("number")};
	.reg .b64 %{event_address}, %{event_word}, %{clock_register};
{_select_lowest_lane(make_name)}	and.pred %{lowest_predicate}, %{lowest_predicate}, %{make_name("mine")};
	mov.u64 %{clock_register}, %clock64;
	mov.u64 %{event_address}, 0;
	mov.u64 %{event_word}, 0;
	@%{lowest_predicate} atom.global.add.u64 %{event_address}, [%{base_register}], 1;
	@%{lowest_predicate} ld.global.u64 %{event_word}, [%{base_register}+8];
	setp.lt.and.u64 %{fits_predicate}, %{event_address}, %{event_word}, %{lowest_predicate};
	mad.lo.u64 %{event_address}, %{event_address}, {8 * _WARP_WORDS}, %{base_register};
	@%{fits_predicate} st.global.u64 [%{event_address}+{8 * _WARP_HEADER_WORDS}], %{clock_register};
	mov.u32 %{make_name("number")}, {block_index};
	mov.b64 %{event_word}, {{%{make_name("mask")}, %{make_name("number")}}};
	@%{fits_predicate} st.global.u64 [%{event_address}+{8 * _WARP_HEADER_WORDS + 8}], %{event_word};
	}}
	"""


def find_timer_step_ns(*times_ns: npt.NDArray[np.int64]) -> int:
    """Return the greatest common divisor of all differences between measured times, in ns.

    With enough measured times, this divisor equals the resolution of the clock.
    """
    time_differences = np.diff(np.unique(np.concatenate(times_ns)))
    return int(np.gcd.reduce(time_differences)) if time_differences.size else 1
