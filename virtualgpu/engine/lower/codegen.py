"""Compiler of one kernel of a PTX module, with all functions that it calls, to one LLVM module."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import callgraph
from virtualgpu.compile.ptx.inline import inline_waiting_functions
from virtualgpu.engine.ir import common as common_ir
from virtualgpu.engine.ir import driver as driver_ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower import calls
from virtualgpu.engine.lower.function import FunctionCompiler
from virtualgpu.engine.lower.plan import CodeOptions, FunctionPlan, KernelTables, make_plan
from virtualgpu.errors import NotSupportedError

SHARED_ALIGN = 16


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """The generated code of a kernel, with the memory sizes and tables for a launch."""

    name: str
    text: str
    plans: tuple[FunctionPlan, ...]
    tables: KernelTables
    static_shared_bytes: int
    frame_bytes: int
    local_bytes: int

    @property
    def reserved_shared_bytes(self) -> int:
        """Size of the static shared memory that the system reserves, in bytes."""
        return layout.RESERVED_SHARED_BYTES if layout.RESERVED_SHARED_NAME in self.tables.shared else 0


def list_reachable(module: ir.Module, entry: str) -> list[ir.Function]:
    """Return a kernel and every function that it may call. The kernel is first in the list."""
    reachable_names: list[str] = [entry]
    for name in reachable_names:
        callee_names = callgraph.list_callees(module.functions[name])
        if "" in callee_names:  # a call through a pointer may mean any function
            callee_names = [
                function_name for function_name, function in module.functions.items() if not function.is_entry
            ]
        for callee in callee_names:
            if callee in module.functions and callee not in reachable_names:
                reachable_names.append(callee)
    return [module.functions[name] for name in reachable_names]


def lay_out_shared(module: ir.Module, functions: list[ir.Function]) -> tuple[dict[str, int], int]:
    """Return the offsets of the shared variables that a kernel uses, and their total size in bytes.

    Dynamic shared memory (``extern __shared__``) starts after the static variables.
    """
    used_names = {
        name
        for function in functions
        for instruction in function.instructions
        for operand in instruction.operands
        for name in _list_symbols(operand)
    }
    variables = [
        variable
        for variable in module.variables.values()
        if variable.space == "shared" and variable.name in used_names
    ]
    for function in functions:
        variables += function.shared.values()
    offsets: dict[str, int] = {}
    total_bytes = 0
    if layout.RESERVED_SHARED_NAME in used_names:
        offsets[layout.RESERVED_SHARED_NAME] = 0
        total_bytes = layout.RESERVED_SHARED_BYTES
    for variable in variables:
        if not variable.dynamic:
            total_bytes = -(-total_bytes // variable.align) * variable.align
            offsets[variable.name] = total_bytes
            total_bytes += variable.size_bytes
    dynamic_variables = [v for v in variables if v.dynamic]
    if dynamic_variables:
        alignment = max(SHARED_ALIGN, *(v.align for v in dynamic_variables))
        total_bytes = -(-total_bytes // alignment) * alignment
        offsets.update({v.name: total_bytes for v in dynamic_variables})
    return offsets, total_bytes


def _list_symbols(operand: ir.Operand | None) -> list[str]:
    if isinstance(operand, ir.Symbol):
        return [operand.name]
    if isinstance(operand, ir.Special) and operand.name.startswith(layout.RESERVED_SHARED_NAME):
        return [layout.RESERVED_SHARED_NAME]
    if isinstance(operand, ir.Address):
        return _list_symbols(operand.base)
    if isinstance(operand, ir.Vector):
        return [name for element in operand.items for name in _list_symbols(element)]
    return []


def generate_kernel(
    module: ir.Module,
    entry_name: str,
    *,
    with_counters: bool,
    with_trace: bool,
    with_observer: bool = False,
    trap_nan: bool = False,
    has_mask_registers: bool = False,
) -> GeneratedKernel:
    """Generate the LLVM module of one kernel.

    The argument `has_mask_registers` is true for processors with mask registers, such as those with AVX-512.

    Raises
    ------
    NotSupportedError
        If the kernel uses an instruction that the virtual GPU does not support, or clusters of blocks.
    """
    if (cluster_blocks := module.functions[entry_name].cluster_blocks) > 1:
        raise NotSupportedError(
            f"The virtual GPU does not support clusters, but {entry_name} requests clusters of "
            f"{cluster_blocks} blocks. Remove __cluster_dims__, and exchange data between blocks "
            "through global memory."
        )
    module = inline_waiting_functions(module, entry_name)
    functions = list_reachable(module, entry_name)
    plans = {
        function.name: make_plan(function, function_index, callgraph.find_memory_results(module, function))
        for function_index, function in enumerate(functions)
    }
    tables = KernelTables(functions=[f.name for f in functions])
    tables.shared, static_shared = lay_out_shared(module, functions)
    options = CodeOptions(
        with_counters=with_counters,
        is_traced=with_trace,
        is_observed=with_observer,
        trap_nan=trap_nan,
        has_mask_registers=has_mask_registers,
    )
    declarations: set[str] = set()
    function_texts = []
    for function in functions:
        compiler = FunctionCompiler(module, plans[function.name], plans, tables, options)
        function_texts.append(compiler.compile())
        declarations |= compiler.emitter.declared
    depth = _find_call_depth(functions, plans)
    entry_plan = plans[entry_name]
    frame_bytes = entry_plan.frame_bytes + depth * max(
        (callee_plan.frame_bytes for callee_plan in plans.values()), default=0
    )
    local_bytes = entry_plan.local_bytes + depth * max(
        (callee_plan.local_bytes for callee_plan in plans.values()), default=0
    )
    llvm_sections = [
        common_ir.COMMON_FUNCTIONS,
        *tables.support_functions.values(),
        *function_texts,
        driver_ir.make_driver(entry_plan.symbol),
    ]
    if with_trace:
        llvm_sections.append(driver_ir.TRACE_FUNCTIONS)
    lines = "\n".join(llvm_sections).split("\n")
    declarations |= {line for line in lines if line.startswith("declare ")}
    llvm_text = "\n".join(
        [*sorted(declarations), *(line for line in lines if not line.startswith("declare "))]
    )
    return GeneratedKernel(
        entry_name,
        llvm_text,
        tuple(plans.values()),
        tables,
        static_shared,
        frame_bytes,
        local_bytes,
    )


def _find_call_depth(functions: list[ir.Function], plans: dict[str, FunctionPlan]) -> int:
    """Return the length of the longest chain of calls; recursion counts as the engine's limit."""
    depth_by_name: dict[str, int] = {}

    def find_depth(name: str, path: tuple[str, ...]) -> int:
        if name in path:
            return calls.MAX_DEPTH
        if name not in depth_by_name:
            callee_names = callgraph.list_callees(plans[name].function)
            callees = (
                [c for c in plans if not plans[c].function.is_entry] if "" in callee_names else callee_names
            )
            callees = [c for c in callees if c in plans]
            depth_by_name[name] = max((1 + find_depth(c, (*path, name)) for c in callees), default=0)
        return depth_by_name[name]

    try:
        return min(find_depth(functions[0].name, ()), calls.MAX_DEPTH)
    except RecursionError:
        raise NotSupportedError(
            f"Kernel {functions[0].name} nests its calls too deeply for the virtual GPU."
        ) from None
