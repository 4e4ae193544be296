"""``gl.as_run``: what the machine code of a kernel does, counted beside what its PTX says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpulab import session
from gpulab.call.arguments import Shape
from gpulab.lab import count
from virtualgpu.compile import nvrtc, sass
from virtualgpu.protocol import kernel_source

if TYPE_CHECKING:
    from gpulab.views.tables.as_run import AsRunTable


def as_run(
    kernel: Any, grid: Shape, block: Shape, args: Sequence[Any] = (), shared_bytes: int = 0
) -> AsRunTable:
    """Run a kernel and show its counts as written (PTX) beside those as run (machine code).

    Between the two, NVIDIA's assembler ptxas merges neighbouring accesses into wider ones, predicates
    short branches and copies loop bodies. The table says where, and what it changes.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    grid, block
        Blocks in the grid and threads in a block: a number or a tuple of one to three.
    args
        The kernel's arguments, a tuple.
    shared_bytes
        Dynamic shared memory of each block.

    Returns
    -------
    AsRunTable
        The counts (`virtualgpu.records.as_run.AsRun`), which display as tables.

    Raises
    ------
    NvdisasmMissingError
        If ``nvdisasm``, NVIDIA's disassembler, is not installed.
    NvrtcMissingError
        If NVRTC is not installed: machine code is made here, not shipped.
    """
    from gpulab.views.tables.as_run import AsRunTable
    from virtualgpu.compile.as_run import anchor

    if not sass.available():
        raise sass.NvdisasmMissingError
    counters = count(kernel, grid, block, args, shared_bytes)
    source = kernel_source(kernel)
    twin = session.twin()
    stats = session.backend().kernel_stats(kernel) if twin is None else twin.backend.kernel_stats(source)
    target = int(stats.target.removeprefix("sm_"))
    expressions = tuple(getattr(kernel, "name_expressions", None) or source.name_expressions)
    if "<" in source.name and source.name not in expressions:
        expressions = (*expressions, source.name)
    flags = (*source.options, *nvrtc.CUPY_OPTIONS)
    image = nvrtc.compile_ptx(source.code, target=target, options=flags, name_expressions=expressions)
    machine = nvrtc.compile_cubin(
        source.code, target=target, options=("-lineinfo", *flags), name_expressions=expressions
    )
    entry = image.lowered_names.get(source.name, source.name)
    return AsRunTable.of(
        anchor(counters, image.ptx, sass.disassemble(machine.cubin), target, entry), source.code
    )
