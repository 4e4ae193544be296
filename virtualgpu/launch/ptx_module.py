"""Modules that are loaded from PTX without its source; their resources are estimated.

Only ptxas determines a kernel's registers, and it needs the CUDA toolkit or a driver to read PTX. The
estimate is the largest number of 32-bit registers that hold values at once, plus a few for addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from virtualgpu.compile.cubin import KernelResources
from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.launch.compiled import CompiledModule

# Every kernel needs some registers for its stack and its constants; no kernel can use more than 255.
_OVERHEAD_REGISTERS = 4
_MAX_REGISTERS = 255


def load_ptx_module(ptx: str, module: ir.Module | None = None) -> CompiledModule:
    """Load a module from PTX text, and estimate the registers of its kernels.

    Parameters
    ----------
    ptx
        PTX text.
    module
        The parsed text, if it was parsed already.

    Raises
    ------
    PtxError
        If the text is not PTX.
    """
    module = module or parse(ptx)
    return CompiledModule("", (), parse_target(module), ptx, {}, _EstimatedResources(module))


class _EstimatedResources(Mapping[str, KernelResources]):
    """The estimated resources of a module's kernels, which are computed at their first use."""

    def __init__(self, module: ir.Module) -> None:
        self._module = module
        self._resources_by_name: dict[str, KernelResources] = {}

    def __getitem__(self, name: str) -> KernelResources:
        if name not in self._resources_by_name:
            self._resources_by_name[name] = _estimate_resources(self._module, self._module.entries[name])
        return self._resources_by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._module.entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._module.entries)

    def __len__(self) -> int:
        return len(self._module.entries)


def parse_target(module: ir.Module) -> int:
    """Return the compute capability for which PTX was generated, such as 90 for ``sm_90a``."""
    digits = "".join(c for c in module.target.partition("_")[2] if c.isdigit())
    return int(digits or "0")


def _estimate_resources(module: ir.Module, kernel: ir.Function) -> KernelResources:
    functions = _find_reachable_functions(module, kernel)
    symbol_names = {name for function in functions for name in _find_symbols(function)}
    shared_variables = {
        n: v for n, v in module.variables.items() if n in symbol_names and v.space == "shared"
    }
    for function in functions:
        shared_variables.update(function.shared)
    return KernelResources(
        registers_per_thread=min(max(map(estimate_registers, functions)), _MAX_REGISTERS),
        static_shared_bytes=_sum_aligned_bytes([v for v in shared_variables.values() if not v.dynamic]),
        local_bytes=sum(_sum_aligned_bytes(list(function.local.values())) for function in functions),
        constant_bytes=_sum_aligned_bytes([v for v in module.variables.values() if v.space == "const"]),
        launch_bound_threads=kernel.max_threads or None,
        estimated=True,
    )


def estimate_registers(function: ir.Function) -> int:
    """Return the largest number of 32-bit registers of a function that are live at the same time."""
    flow = cfg.build_flow(function)
    words_by_register = {
        name: _count_words(register_type) for name, register_type in function.registers.items()
    }

    def word_count(names: set[str]) -> int:
        return sum(words_by_register.get(name, 0) for name in names)

    max_live_words = 0
    for block, live_out in zip(flow.blocks, cfg.find_live_out(function, flow), strict=True):
        live_registers = set(live_out)
        # Updated step by step: with thousands of live registers, counting again takes minutes.
        live_words = word_count(live_registers)
        for instruction in reversed(function.instructions[block.first : block.end]):
            definitions, uses = map(set, cfg.find_definitions_and_uses(instruction))
            max_live_words = max(max_live_words, live_words + word_count(definitions - live_registers))
            live_words -= word_count(live_registers & definitions)
            live_registers -= definitions
            live_words += word_count(uses - live_registers)
            live_registers |= uses
    return max_live_words + _OVERHEAD_REGISTERS


def _count_words(register_type: str) -> int:
    return (
        0
        if register_type == "pred"
        else ceil(int("".join(c for c in register_type if c.isdigit()) or "32") / 32)
    )


def _sum_aligned_bytes(variables: list[ir.Variable]) -> int:
    total_bytes = 0
    for variable in variables:
        total_bytes = -(-total_bytes // variable.align) * variable.align + variable.size_bytes
    return total_bytes


def _find_reachable_functions(module: ir.Module, kernel: ir.Function) -> list[ir.Function]:
    """Return a kernel and all functions that it can call."""
    functions = {kernel.name: kernel}
    pending_names = [kernel]
    while pending_names:
        for name in _find_symbols(pending_names.pop()):
            if name in module.functions and name not in functions:
                functions[name] = module.functions[name]
                pending_names.append(functions[name])
    return list(functions.values())


def _find_symbols(function: ir.Function) -> Iterator[str]:
    for instruction in function.instructions:
        for operand in instruction.operands:
            base_operand = operand.base if isinstance(operand, ir.Address) else operand
            if isinstance(base_operand, ir.Symbol):
                yield base_operand.name
