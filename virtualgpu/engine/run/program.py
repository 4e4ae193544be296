"""A PTX module that is loaded on a device: its variables, its compiled kernels, and launches of them."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir, parser
from virtualgpu.compile.ptx.contract import contract_products
from virtualgpu.compile.ptx.inline import inline_waiting_functions
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower import calls, codegen
from virtualgpu.engine.lower.ops import memory_ops
from virtualgpu.engine.machine import jit, processor
from virtualgpu.engine.machine.processor import Processor
from virtualgpu.engine.observe import accesses, fragments, results, tracing
from virtualgpu.engine.run.crew import run_launch_parts
from virtualgpu.engine.run.launch import PackedLaunch, RunningLaunch, RunOptions
from virtualgpu.engine.run.worker import Worker
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.model.memory.host import check_host_memory
from virtualgpu.records import BlockTrace, KernelCounters, Provenance, WarpTrace
from virtualgpu.records.access import AccessTrace
from virtualgpu.records.fragments import FragmentTrace

T = TypeVar("T")
_GRID_WORKSPACE_BYTES = 64
# Position in the order, instructions, sectors and wavefronts; SM, start, end and duration.
_BYTES_PER_BLOCK = 64


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """The results of a kernel launch, such as its counters and traces. Arrays with names that begin with
    ``block_`` have one row per block.
    """

    counters: KernelCounters | None
    block_warp_instructions: npt.NDArray[np.int64]
    block_sectors: npt.NDArray[np.int64]
    block_wavefronts: npt.NDArray[np.int64]
    block_longest_warp: npt.NDArray[np.int64]
    executions: npt.NDArray[np.int64]
    lane_executions: npt.NDArray[np.int64]
    kernel: codegen.GeneratedKernel
    trace: WarpTrace | None = None
    block_trace: BlockTrace | None = None
    access_trace: AccessTrace | None = None
    fragment_trace: FragmentTrace | None = None


@functools.lru_cache(maxsize=64)
def _parse_module(ptx: str) -> ir.Module:
    return contract_products(parser.parse_cached(ptx))


def _compile_kernel(
    ptx: str,
    entry: str,
    with_counters: bool,
    is_traced: bool,
    is_observed: bool = False,
    trap_nan: bool = False,
) -> tuple[codegen.GeneratedKernel, jit.KernelCode, bool]:
    """Return the compiled code of a kernel, and whether its blocks have to run in order."""
    return _compile_kernel_for_processor(
        processor.find_chosen_processor(), ptx, entry, with_counters, is_traced, is_observed, trap_nan
    )


@functools.lru_cache(maxsize=256)
def _compile_kernel_for_processor(
    target_processor: Processor,
    ptx: str,
    entry: str,
    with_counters: bool,
    is_traced: bool,
    is_observed: bool,
    trap_nan: bool,
) -> tuple[codegen.GeneratedKernel, jit.KernelCode, bool]:
    """Return the compiled code of a kernel for a processor, and whether its blocks have to run in order."""
    kernel = codegen.generate_kernel(
        _parse_module(ptx),
        entry,
        with_counters=with_counters,
        with_trace=is_traced,
        with_observer=is_observed,
        trap_nan=trap_nan,
        has_mask_registers=target_processor.has_lane_masks,
    )
    return kernel, jit.KernelCode(kernel.text, target_processor), _needs_block_order(kernel)


@functools.lru_cache(maxsize=256)
def _compute_kernel_amounts(
    target_processor: Processor, ptx: str, entry: str, is_observed: bool, trap_nan: bool
) -> results.KernelAmounts:
    return results.compute_kernel_amounts(
        _compile_kernel_for_processor(target_processor, ptx, entry, True, False, is_observed, trap_nan)[0]
    )


@functools.lru_cache(maxsize=64)
def _get_shared_cache(_ptx: str) -> dict[Hashable, Any]:
    return {}


class Program:
    """A PTX module that is loaded on one virtual device.

    Parameters
    ----------
    ptx
        PTX text, for example from NVRTC.
    code
        Its CUDA C++ source; faults and traces quote its lines.

    Raises
    ------
    PtxError
        If the text is not PTX.
    """

    def __init__(self, ptx: str, code: str = "") -> None:
        self.ptx = ptx
        self.code = code
        self.module = _parse_module(ptx)
        self._variables: dict[str, int] = {}
        self._cache = _get_shared_cache(ptx)
        self._lock = threading.RLock()

    def get_cached(self, key: Hashable, compute_value: Callable[[], T]) -> T:
        """Return the cached value for a key, which is computed at the first call.

        All programs with the same PTX text share this cache.
        """
        if key not in self._cache:
            self._cache[key] = compute_value()
        value: T = self._cache[key]
        return value

    @property
    def entries(self) -> dict[str, ir.Function]:
        """The kernels of the module, with their mangled names as keys."""
        return self.module.entries

    def static_shared_bytes(self, name: str) -> int:
        """Return the size in bytes of a kernel's static shared memory, as its PTX declares it."""
        module = inline_waiting_functions(self.module, name)
        return codegen.lay_out_shared(module, codegen.list_reachable(module, name))[1]

    def generate_uncounted(
        self, name: str, *, is_observed: bool = False, trap_nan: bool = False
    ) -> codegen.GeneratedKernel:
        """Return the generated code of a kernel for launches without counters."""
        return _compile_kernel(self.ptx, name, False, False, is_observed, trap_nan)[0]

    def generate_counted(self, name: str) -> codegen.GeneratedKernel:
        """Return the generated code of a kernel for launches with counters and an observer."""
        return _compile_kernel(self.ptx, name, True, False, True)[0]

    def generate_traced(self, name: str, *, with_counters: bool) -> codegen.GeneratedKernel:
        """Return the generated code of a kernel for launches with a trace.

        The trace refers to the instructions of this code.
        """
        return _compile_kernel(self.ptx, name, with_counters, True)[0]

    def global_address(self, name: str, memory: DeviceMemory) -> tuple[int, int]:
        """Return the address and size in bytes of a ``__device__`` or ``__constant__`` variable.

        Raises
        ------
        KeyError
            If the module has no such variable.
        """
        variable = self.module.variables[name]
        if variable.space not in ("global", "const"):
            raise KeyError(name)
        with self._lock:
            return self._variable_address(name, variable, memory), variable.size_bytes

    def _variable_address(self, name: str, variable: ir.Variable, memory: DeviceMemory) -> int:
        """Return the address of a variable; the first call allocates and initializes the variable."""
        if name not in self._variables:
            address = memory.malloc(max(variable.size_bytes, 1))
            self._variables[name] = address
            memory.track_allocation(address, max(variable.size_bytes, 1), f"module variable {name}")
            initial_bytes = bytearray(variable.initial.ljust(variable.size_bytes, b"\0"))
            for offset, pointer in variable.pointers:
                if pointer.name in self.module.functions:
                    target_address = calls.function_address(self.module, pointer.name)
                else:
                    target_address, _ = self.global_address(pointer.name, memory)
                initial_bytes[offset : offset + 8] = (target_address + pointer.offset).to_bytes(8, "little")
            if initial_bytes:
                memory.view(address, len(initial_bytes))[:] = np.frombuffer(bytes(initial_bytes), np.uint8)
        return self._variables[name]

    def launch(
        self, packed: PackedLaunch, memory: DeviceMemory, options: RunOptions | None = None
    ) -> LaunchResult:
        """Run all blocks of a kernel, with `memory` as the memory of the device.

        Raises
        ------
        KernelFault
            If the kernel does something illegal or outlasts the watchdog.
        NotSupportedError
            If it uses a feature that the virtual GPU does not support.
        """
        options = options or RunOptions()
        with_counters = options.instrument != "none"
        trace_request = options.trace
        is_observed = options.observer is not None
        kernel, machine_code, needs_block_order = _compile_kernel(
            self.ptx, packed.name, with_counters, False, is_observed, options.trap_nan
        )
        if kernel.tables.services:
            memory.open_heap()  # before the launch reads the live allocations
        check_host_memory(
            math.prod(packed.grid) * _BYTES_PER_BLOCK,
            f"that the virtual GPU needs to record the {math.prod(packed.grid):,} blocks of kernel "
            f"'{packed.title}'. Launch fewer blocks, for example with a grid-stride loop",
        )
        threads = math.prod(packed.block)
        check_host_memory(
            threads * kernel.local_bytes,
            f"that the {threads:,} threads of a block of kernel '{packed.title}' need for local memory. "
            "Launch smaller blocks, or keep large arrays in global memory",
        )
        launch = RunningLaunch(
            kernel=kernel,
            machine_code=machine_code,
            source=self.code,
            packed_launch=replace(packed, params=packed.params.ljust(8, b"\0")),
            options=options,
            shared_bytes=kernel.static_shared_bytes + packed.shared_bytes,
            memory=memory,
            global_addresses=self._variable_addresses(kernel, memory),
            is_serial=packed.cooperative
            or is_observed
            or needs_block_order
            or options.turns_seed is not None,
            grid_workspace=self._grid_workspace(memory) if packed.cooperative else 0,
        )
        block_order = options.block_order
        if block_order is None:
            block_order = np.arange(launch.block_clock.size, dtype=np.int64)
        machine_code.improve()
        start_s = time.perf_counter()
        if trace_request is None:
            workers = run_launch_parts(launch, [(launch, block_order)])
        else:
            traced_kernel, traced_code, _ = _compile_kernel(
                self.ptx, packed.name, with_counters, True, is_observed
            )
            traced_block = results.to_linear_index(trace_request.block_index, packed.grid)
            traced_position = int(np.nonzero(block_order == traced_block)[0][0])
            traced_launch = launch.with_trace(
                traced_kernel,
                traced_code,
                self._variable_addresses(traced_kernel, memory),
                traced_block,
                trace_request,
            )
            launch_parts = [
                (launch, block_order[:traced_position]),
                (traced_launch, block_order[traced_position : traced_position + 1]),
                (launch, block_order[traced_position + 1 :]),
            ]
            if packed.cooperative:  # the blocks wait for each other
                launch_parts = [(traced_launch, block_order)]
            workers = run_launch_parts(launch, launch_parts)
        machine_code.note_run_time(time.perf_counter() - start_s)
        provenance = Provenance("modelled", options.device_name)
        counters = None
        if with_counters:
            amounts = _compute_kernel_amounts(
                processor.find_chosen_processor(), self.ptx, packed.name, is_observed, options.trap_nan
            )
            counters = _make_launch_counters(launch, amounts, provenance, workers)
        block_counters = results.sum_counters([w.blocks for w in workers], layout.BLOCK_STRIDE)
        result = LaunchResult(
            counters=counters,
            block_warp_instructions=launch.block_clock,
            block_sectors=launch.block_sectors,
            block_wavefronts=launch.block_wavefronts,
            block_longest_warp=launch.block_longest_warp,
            executions=block_counters[:, 0],
            lane_executions=block_counters[:, 1],
            kernel=kernel,
        )
        if trace_request is None:
            return result
        if trace_request.with_accesses and counters is not None:
            result = replace(
                result, access_trace=accesses.make_access_trace(traced_launch, counters, trace_request)
            )
        if trace_request.with_fragments:
            result = replace(
                result, fragment_trace=fragments.make_fragment_trace(traced_launch, provenance, trace_request)
            )
        if not trace_request.with_steps:
            return result
        block_trace = tracing.make_block_trace(traced_launch, provenance, trace_request)
        warp_trace = next(
            (warp for warp in block_trace.warps if warp.warp_index == trace_request.warp_index), None
        )
        return replace(
            result, trace=warp_trace, block_trace=block_trace if trace_request.is_whole_block else None
        )

    def _grid_workspace(self, memory: DeviceMemory) -> int:
        """Return the address of the driver's workspace for ``grid.sync()`` of cooperative groups."""
        workspace_label = "cooperative groups' workspace"
        with self._lock:
            if workspace_label not in self._variables:
                self._variables[workspace_label] = memory.malloc(_GRID_WORKSPACE_BYTES)
                memory.track_allocation(
                    self._variables[workspace_label], _GRID_WORKSPACE_BYTES, workspace_label
                )
        address = self._variables[workspace_label]
        memory.view(address, _GRID_WORKSPACE_BYTES)[:] = 0
        memory.view(address, 4).view(np.uint32)[0] = _GRID_WORKSPACE_BYTES
        return address

    def _variable_addresses(
        self, kernel: codegen.GeneratedKernel, memory: DeviceMemory
    ) -> npt.NDArray[np.int64]:
        addresses = np.zeros(max(len(kernel.tables.global_names), 1), np.int64)
        for global_index, variable in enumerate(kernel.tables.global_names):
            addresses[global_index], _ = self.global_address(variable, memory)
        return addresses


def _make_launch_counters(
    launch: RunningLaunch, amounts: results.KernelAmounts, provenance: Provenance, workers: list[Worker]
) -> KernelCounters:
    accesses = results.sum_counters([w.accesses for w in workers], layout.ACCESS_STRIDE)
    branches = results.sum_counters([w.branches for w in workers], layout.BRANCH_STRIDE)
    blocks = results.sum_counters([w.blocks for w in workers], layout.BLOCK_STRIDE)
    kernel = launch.kernel
    tables = launch.kernel.tables
    longest_warp = max(int(w.context[0]["longest_warp"]) for w in workers)
    shared_bytes = launch.shared_bytes - kernel.reserved_shared_bytes
    return results.make_counters(
        kernel,
        amounts,
        launch.packed_launch.title,
        provenance,
        launch.packed_launch.grid,
        launch.packed_launch.block,
        shared_bytes,
        accesses[: len(tables.accesses)],
        branches[: len(tables.branches)],
        blocks[: len(tables.blocks)],
        longest_warp,
    )


def _needs_block_order(kernel: codegen.GeneratedKernel) -> bool:
    """Return whether running blocks on several CPU cores could change visible results.

    Atomics on global memory and printf depend on the order of blocks; on one core the order is the same
    in every run.
    """
    for plan in kernel.plans:
        for instruction in plan.function.instructions:
            if instruction.root in ("atom", "red") and memory_ops.space_of(instruction) != "shared":
                return True
            if instruction.root == "call" and any(
                isinstance(operand, ir.Symbol) and operand.name == "vprintf"
                for operand in instruction.operands
            ):
                return True
    return False
