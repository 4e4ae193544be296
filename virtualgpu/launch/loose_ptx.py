"""PTX that was handed over as it is: a module without its source, whose resources are estimated.

Only ptxas knows a kernel's registers, and it reads no PTX without the CUDA toolkit or a driver. The
estimate is the largest number of 32-bit registers that hold values at once, and a few for addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from virtualgpu.compile.cubin import KernelResources
from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.launch.compiled import CompiledModule

# Every kernel has some registers for its stack and its constants; none can name more than 255.
_OVERHEAD_REGISTERS = 4
_MAX_REGISTERS = 255


def loose_module(ptx: str, module: ir.Module | None = None) -> CompiledModule:
    """A module of PTX text, with estimated registers and the shared and local memory that it declares.

    Parameters
    ----------
    ptx
        The text.
    module
        What it was read as, if it was.

    Raises
    ------
    PtxError
        If it is no PTX.
    """
    module = module or parse(ptx)
    return CompiledModule("", (), target_of(module), ptx, {}, _Estimates(module))


class _Estimates(Mapping[str, KernelResources]):
    """Resources of a module's kernels, each worked out when it is asked for."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._known: dict[str, KernelResources] = {}

    def __getitem__(self, name: str) -> KernelResources:
        if name not in self._known:
            self._known[name] = _resources(self._module, self._module.entries[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._module.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._module.entries)

    def __len__(self) -> int:
        return len(self._module.entries)


def target_of(module: ir.Module) -> int:
    """The compute capability that PTX is for, such as 90 of ``sm_90a``."""
    digits = "".join(c for c in module.target.partition("_")[2] if c.isdigit())
    return int(digits or "0")


def _resources(module: ir.Module, kernel: ir.Function) -> KernelResources:
    functions = _called(module, kernel)
    names = {name for function in functions for name in _symbols(function)}
    shared = {n: v for n, v in module.variables.items() if n in names and v.space == "shared"}
    for function in functions:
        shared.update(function.shared)
    return KernelResources(
        registers_per_thread=min(max(map(register_estimate, functions)), _MAX_REGISTERS),
        static_shared_bytes=_packed_bytes([v for v in shared.values() if not v.dynamic]),
        local_bytes=sum(_packed_bytes(list(function.local.values())) for function in functions),
        constant_bytes=_packed_bytes([v for v in module.variables.values() if v.space == "const"]),
        launch_bound_threads=kernel.max_threads or None,
        estimated=True,
    )


def register_estimate(function: ir.Function) -> int:
    """The largest number of 32-bit registers that hold values which are still needed."""
    flow = cfg.build(function)
    words = {name: _words(kind) for name, kind in function.registers.items()}

    def held(names: set[str]) -> int:
        return sum(words.get(name, 0) for name in names)

    most = 0
    for block, leaving in zip(flow.blocks, cfg.live_out(function, flow), strict=True):
        live = set(leaving)
        # Kept as the block is gone through: with thousands alive at once, counting anew takes minutes.
        count = held(live)
        for instruction in reversed(function.instructions[block.first : block.end]):
            defined, used = map(set, cfg.definitions_and_uses(instruction))
            most = max(most, count + held(defined - live))
            count -= held(live & defined)
            live -= defined
            count += held(used - live)
            live |= used
    return most + _OVERHEAD_REGISTERS


def _words(kind: str) -> int:
    return 0 if kind == "pred" else ceil(int("".join(c for c in kind if c.isdigit()) or "32") / 32)


def _packed_bytes(variables: list[ir.Variable]) -> int:
    size = 0
    for variable in variables:
        size = -(-size // variable.align) * variable.align + variable.size_bytes
    return size


def _called(module: ir.Module, kernel: ir.Function) -> list[ir.Function]:
    """A kernel and the functions that it reaches."""
    found = {kernel.name: kernel}
    waiting = [kernel]
    while waiting:
        for name in _symbols(waiting.pop()):
            if name in module.functions and name not in found:
                found[name] = module.functions[name]
                waiting.append(found[name])
    return list(found.values())


def _symbols(function: ir.Function) -> Iterator[str]:
    for instruction in function.instructions:
        for operand in instruction.operands:
            base = operand.base if isinstance(operand, ir.Address) else operand
            if isinstance(base, ir.Symbol):
                yield base.name
