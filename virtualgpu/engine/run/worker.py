"""Worker that runs blocks on one thread: its buffers, and its callbacks from generated code."""

from __future__ import annotations

import ctypes
import functools
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.engine.ir import layout
from virtualgpu.engine.lower import copy_queue
from virtualgpu.engine.observe import origin, results
from virtualgpu.engine.run import barriers, faults, printf
from virtualgpu.engine.run.launch import RunningLaunch
from virtualgpu.records import Dim3

_PRINTF_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32
)
_OBSERVER_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p
)
_BARRIER_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_SERVICE_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_uint32,
)


def _aligned_buffer(size_bytes: int, align: int = 128) -> tuple[npt.NDArray[np.uint8], int]:
    buffer = np.empty(size_bytes + align, np.uint8)
    return buffer, buffer.ctypes.data + (-buffer.ctypes.data) % align


def make_thread_indices(block: Dim3) -> npt.NDArray[np.int32]:
    """Return the ``threadIdx`` of every lane of a block as an array of shape (warps, 3, 32)."""
    warps = -(-block[0] * block[1] * block[2] // layout.LANES)
    thread_number = np.arange(warps * layout.LANES, dtype=np.int32)
    axis_rows = np.stack(
        [
            thread_number % block[0],
            thread_number // block[0] % block[1],
            thread_number // (block[0] * block[1]),
        ]
    )
    return np.ascontiguousarray(axis_rows.reshape(3, warps, layout.LANES).transpose(1, 0, 2).astype(np.int32))


@functools.lru_cache(maxsize=256)
def _lanes_of(mask: int) -> tuple[int, ...]:
    return tuple(lane for lane in range(layout.LANES) if mask >> lane & 1)


class Worker:
    """A runner that executes some blocks of a grid on one thread."""

    def __init__(
        self, launch: RunningLaunch, live_allocations: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
    ) -> None:
        kernel = launch.kernel
        self.launch = launch
        self.callback_error: BaseException | None = None
        tables = kernel.tables
        self.accesses = np.zeros(max(len(tables.accesses), 1) * layout.ACCESS_STRIDE // 8, np.int64)
        self.branches = np.zeros(max(len(tables.branches), 1) * layout.BRANCH_STRIDE // 8, np.int64)
        self.blocks = np.zeros(max(len(tables.blocks), 1) * layout.BLOCK_STRIDE // 8, np.int64)
        sector_cache = np.zeros(max(len(tables.accesses), 1) * 2, np.int64)
        l1_slots = layout.count_l1_slots(launch.options.l1_bytes)
        l1_tags = np.zeros(l1_slots, np.int64)
        warps = launch.warps
        frames, frames_address = _aligned_buffer(warps * kernel.frame_bytes + 64)
        local_stride = -(-32 * kernel.local_bytes // 64) * 64
        local_memory, local_address = _aligned_buffer(warps * local_stride + 64)
        copy_queues, copies_address = _aligned_buffer(
            warps * copy_queue.WARP_BYTES if tables.copy_instruction_count else 0
        )
        # Shared memory is uninitialized on a GPU too; all ones are read as NaN or -1, which is easy to
        # notice.
        shared_memory, shared_address = _aligned_buffer(launch.shared_bytes + 64)
        shared_memory[:] = 0xFF
        self.status = np.zeros(warps, np.int32)
        self.predicates = np.zeros(warps, np.uint32)
        self.fault_report = ""
        self._templates: dict[int, str] = {}
        self.excused_blocks: dict[int, tuple[int, ...]] = {}  # by the pc of a barrier
        tids = make_thread_indices(launch.packed_launch.block)
        param_bytes = np.frombuffer(launch.packed_launch.params, np.uint8).copy()
        range_starts, range_ends = _insert_range(live_allocations, param_bytes.ctypes.data, param_bytes.size)
        self.printf_callback = _PRINTF_CALLBACK(self.on_printf)
        self.barrier_callback = _BARRIER_CALLBACK(self.on_barrier)
        self.service_callback = _SERVICE_CALLBACK(self.on_service)
        self.observer_callback = _OBSERVER_CALLBACK(self.on_access)
        self.context = np.zeros(1, layout.CONTEXT)
        context_address = self.context.ctypes.data
        self._current_block = ctypes.c_int64.from_address(
            context_address + layout.get_field_offset("block_linear")
        )
        self._current_warp = ctypes.c_int32.from_address(context_address + layout.get_field_offset("warp"))
        self._back_edge_budget = ctypes.c_int32.from_address(
            context_address + layout.get_field_offset("budget")
        )
        self._lane_views: dict[int, npt.NDArray[np.int64]] = {}
        self.readable_ranges = range_starts, range_ends
        self.own_memory = shared_memory, local_memory  # memory of its blocks, which no other worker accesses
        self._kept_buffers = [
            sector_cache,
            l1_tags,
            frames,
            local_memory,
            copy_queues,
            shared_memory,
            tids,
            param_bytes,
            range_starts,
            range_ends,
        ]
        buffers: dict[str, npt.NDArray[Any]] = {
            "params": param_bytes,
            "access_counters": self.accesses,
            "branch_counters": self.branches,
            "block_counters": self.blocks,
            "access_cache": sector_cache,
            "live_starts": range_starts,
            "live_ends": range_ends,
            "abort_flag": launch.abort_flag,
            "globals": launch.global_addresses,
            "tids": tids,
            "status": self.status,
            "predicates": self.predicates,
            "block_clock": launch.block_clock,
            "block_sectors": launch.block_sectors,
            "block_wavefronts": launch.block_wavefronts,
            "block_longest": launch.block_longest_warp,
            "l1_table": l1_tags,
            "textures": launch.memory.textures.table,
        }
        observer_code = observed_flag = 0
        if launch.options.observer is not None:
            observer_code, observed_flag = launch.options.observer.watch(
                ctypes.cast(self.observer_callback, ctypes.c_void_p).value or 0
            )
        rotation_interval = (
            layout.ROTATION_INTERVAL if launch.options.independent_threads else layout.NEVER_ROTATE
        )
        field_values: dict[str, int] = {
            "shared": shared_address,
            "shared_bytes": launch.shared_bytes,
            "live_count": len(range_starts),
            "frames": frames_address,
            "frame_stride": kernel.frame_bytes,
            "local": local_address,
            "local_bytes": kernel.local_bytes,
            "local_stride": local_stride,
            "threads": launch.threads,
            "warps": warps,
            "trace_block": launch.trace_block,
            "trace_warp": launch.trace_warp,
            "budget": layout.BACK_EDGE_BUDGET,
            "sm_count": launch.options.sm_count,
            "dynamic_shared_bytes": launch.packed_launch.shared_bytes,
            "reserved_shared_bytes": kernel.reserved_shared_bytes,
            "printf": ctypes.cast(self.printf_callback, ctypes.c_void_p).value or 0,
            "barrier": ctypes.cast(self.barrier_callback, ctypes.c_void_p).value or 0,
            "service": ctypes.cast(self.service_callback, ctypes.c_void_p).value or 0,
            "observer": observer_code,
            "watched": observed_flag,
            "observed": int(launch.options.observer is not None),
            "patience": launch.patience_rounds,
            "hand_over": int(launch.options.turns_seed is not None),
            "rotate_every": rotation_interval,
            "grid_workspace": launch.grid_workspace,
            "copies": copies_address,
            "l1_base": launch.memory.base_address,
            "l1_slots": l1_slots,
            "l1_inverse": (1 << layout.L1_INVERSE_BITS) // l1_slots + 1,
        }
        for axis, size in zip("xyz", launch.packed_launch.block, strict=True):
            field_values[f"ntid_{axis}"] = size
        for axis, size in zip("xyz", launch.packed_launch.grid, strict=True):
            field_values[f"nctaid_{axis}"] = size
        if launch.trace is not None:
            field_values |= launch.trace.make_initial_fields()
        context_record = self.context[0]
        for name, array in buffers.items():
            context_record[name] = array.ctypes.data
        for name, field_value in field_values.items():
            context_record[name] = field_value

    def bytes_at(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        """Return a range of this worker's host memory as a writable array of bytes."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))

    def lanes_at(self, address: int) -> npt.NDArray[np.int64]:
        """Return the 32 lane values at an address in a stack frame of the generated code."""
        view = self._lane_views.get(address)
        if view is None:
            view = np.ctypeslib.as_array((ctypes.c_int64 * layout.LANES).from_address(address))
            self._lane_views[address] = view
        return view

    def on_access(self, _context: int, site: int, lanes: int, mask: int, stored_address: int | None) -> None:
        observer = self.launch.options.observer
        assert observer is not None
        block = self._current_block.value
        warp = self._current_warp.value
        try:
            if site >= 0:
                if observer.access(block, warp, site, self.lanes_at(lanes), mask):
                    self._back_edge_budget.value = 0
            elif site == layout.AT_BLOCK_BARRIER:
                barrier_instruction = self.launch.kernel.plans[0].function.instructions[
                    int(self.lanes_at(lanes)[0])
                ]
                observer.wait(
                    block,
                    warp,
                    barrier_instruction,
                    mask,
                    barriers.find_expected_lanes(self, barrier_instruction, warp, mask),
                )
            elif site == layout.BARRIER_ARRIVAL:
                observer.arrive(block, warp, mask, int(self.lanes_at(lanes)[0]))
            elif site == layout.BLOCK_BARRIER_OPENS:
                observer.barrier(block, barriers.read_lane_pcs(self) != layout.EXITED, True)
            elif site == layout.SHUFFLE:
                assert stored_address is not None
                function_index, pc = divmod(int(self.lanes_at(stored_address)[0]), 1 << 32)
                shuffle_instruction = self.launch.kernel.plans[function_index].function.instructions[pc]
                observer.shuffle(block, warp, shuffle_instruction, self.lanes_at(lanes), mask)
            else:
                addresses = self.lanes_at(lanes) if lanes else None
                observer.custom_event(block, warp, site, addresses, mask, stored_address or 0)
        except BaseException as error:
            self.callback_error = error
            self.launch.abort_flag[0] = 1

    def on_service(
        self,
        _context: int,
        number: int,
        inputs_address: int,
        input_count: int,
        outputs_address: int,
        output_count: int,
        mask: int,
    ) -> int:
        try:
            inputs = (
                self.bytes_at(inputs_address, 256 * input_count)
                .view(np.uint64)
                .reshape(input_count, layout.LANES)
            )
            (request,) = self.launch.kernel.tables.services[number]
            result = self.launch.memory.open_heap().execute_calls(request, inputs[0], mask)
            if output_count:
                self.bytes_at(outputs_address, 256).view(np.uint64)[:] = result
        except BaseException as error:
            self.callback_error = error
            return 1
        return 0

    def on_barrier(self, _context: int) -> int:
        try:
            return barriers.open_barriers(self)
        except BaseException as error:
            self.callback_error = error
            self.context[0]["fault_code"] = layout.CALLBACK_FAILED
            return layout.BARRIER_FAULT

    def start_blocks(self, order: npt.NDArray[np.int64], first_position: int) -> int:
        """Run blocks in the given order, starting at index `first_position` of that order.

        Afterwards, the context field ``next`` is the index of the next block.
        """
        self.context[0]["block_order"], self.context[0]["next"] = order.ctypes.data, first_position
        status = int(
            self.launch.machine_code.run_blocks(self.context.ctypes.data, first_position, len(order))
        )
        self._read_trace()
        return status

    def resume_block(self) -> int:
        """Continue the block that was suspended last."""
        block = int(self.context[0]["block_linear"])
        status = int(self.launch.machine_code.run_block(self.context.ctypes.data, block, 0))
        self._read_trace()
        return status

    @property
    def next_position(self) -> int:
        return int(self.context[0]["next"])

    def _read_trace(self) -> None:
        if self.launch.trace is not None:
            context_record = self.context[0]
            shared_memory = self.bytes_at(int(context_record["shared"]), self.launch.shared_bytes)
            self.launch.trace.read(context_record, shared_memory)

    # -- printf ------------------------------------------------------------------------------------

    def read_device_memory(self, address: int, size: int) -> bytes:
        """Return bytes of device memory for ``printf``. The result is empty if the address is not
        allocated.
        """
        range_starts, range_ends = self.readable_ranges
        range_index = int(np.searchsorted(range_starts, address, side="right")) - 1
        if range_index < 0 or address + size > int(range_ends[range_index]):
            return b""
        return ctypes.string_at(address, size)

    def on_printf(self, _context: int, formats_address: int, arguments_address: int, mask: int) -> int:
        try:
            template_addresses = (ctypes.c_uint64 * layout.LANES).from_address(formats_address)[:]
            argument_pointers = (ctypes.c_uint64 * layout.LANES).from_address(arguments_address)
            buffer = self.launch.print_buffer
            lanes = _lanes_of(mask)
            formats_by_address = {
                address: self._read_template(address)
                for address in {template_addresses[lane] for lane in lanes}
            }
            argument_counts = {
                address: printf.count_arguments(template) for address, template in formats_by_address.items()
            }
            if buffer.has_space:
                stack_bytes = int(self.context[0]["local_bytes"])
                local_base = int(self.context[0]["local_base"])
                for lane in lanes:
                    template = formats_by_address[template_addresses[lane]]
                    arguments_size_bytes = 8 * argument_counts[template_addresses[lane]]
                    argument_bytes = self.argument_bytes(
                        argument_pointers[lane],
                        local_base + lane * stack_bytes,
                        stack_bytes,
                        arguments_size_bytes,
                    )
                    buffer.add(printf.format_text(template, argument_bytes, self.read_device_memory))
            else:
                buffer.dropped_calls += len(lanes)
            for lane in lanes:
                argument_pointers[lane] = argument_counts[template_addresses[lane]]
        except BaseException as error:
            self.callback_error = error
            return 1
        return 0

    def _read_template(self, address: int) -> str:
        """Return a format string, which is read only once per launch because it is a constant."""
        if address not in self._templates:
            self._templates[address] = printf.read_string(self.read_device_memory, address)
        return self._templates[address]

    def argument_bytes(self, pointer: int, stack_address: int, stack_bytes: int, max_bytes: int) -> bytes:
        """Return the packed arguments at a pointer into the stack of a lane. The result is empty for other
        pointers.
        """
        if pointer >> 56 != 2:
            return b""
        offset = pointer & ((1 << 56) - 1)
        return ctypes.string_at(stack_address + offset, max(0, min(stack_bytes - offset, max_bytes)))

    # -- faults ------------------------------------------------------------------------------------

    def find_fault(self) -> faults.Fault | None:
        context_record = self.context[0]
        if not context_record["fault_code"]:
            return None
        launch = self.launch
        function = launch.kernel.plans[int(context_record["fault_function"])].function
        pc = int(context_record["fault_pc"])
        if pc < 0 and context_record["fault_code"] == layout.ABORTED:
            pc = self._any_pc(context_record)
        instruction: ir.Instruction | None = (
            function.instructions[pc] if 0 <= pc < len(function.instructions) else None
        )
        thread_index = int(context_record["warp"]) * 32 + (int(context_record["fault_lane"]) & 31)
        fault_message = str(self.callback_error) if self.callback_error else self.fault_report
        if context_record["fault_code"] == layout.ASSERTED:
            text_address, file_address, line_number, _ = (int(v) for v in context_record["fault_extra"][:4])
            name = PurePath(printf.read_string(self.read_device_memory, file_address)).name
            fault_message = (
                f"`{printf.read_string(self.read_device_memory, text_address)}` "
                f"({name}:{line_number & 0xFFFFFFFF})"
            )
        return faults.Fault(
            int(context_record["fault_code"]),
            function,
            instruction,
            (int(context_record["ctaid_x"]), int(context_record["ctaid_y"]), int(context_record["ctaid_z"])),
            results.from_linear_index(thread_index, launch.packed_launch.block),
            int(context_record["fault_address"]),
            int(context_record["fault_size"]),
            launch.shared_bytes,
            launch.kernel.local_bytes,
            launch.options.watchdog_s,
            fault_message,
            None if instruction is None else self.base_pointer(function, instruction),
            launch.progress,
        )

    def _any_pc(self, context_record: Any) -> int:
        """Return the program counter of any running thread in a stopped block, else -1."""
        thread_position = barriers.find_running_thread(self)
        if thread_position is None:
            return -1
        context_record["warp"], context_record["fault_lane"], block = thread_position
        return self.launch.kernel.plans[0].control_flow.blocks[block].first

    @property
    def current_line(self) -> int:
        """Source line that a running thread of the current block executes, or 0 if it is unknown."""
        thread_position = barriers.find_running_thread(self)
        plan = self.launch.kernel.plans[0]
        if thread_position is None:
            return 0
        instructions = plan.function.instructions[plan.control_flow.blocks[thread_position[2]].first :]
        return next((instruction.line for instruction in instructions if instruction.line), 0)

    def base_pointer(self, function: ir.Function, instruction: ir.Instruction) -> int | None:
        """Return the pointer from which the address of a memory access was computed, or None if it is
        unknown.
        """
        launch = self.launch
        variables = dict(
            zip(launch.kernel.tables.global_names, launch.global_addresses.tolist(), strict=False)
        )
        return origin.find_base_pointer(function, instruction, launch.packed_launch.params, variables)


def _insert_range(
    live_ranges: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]], start: int, size: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the sorted live ranges with one more range.

    Kernel parameters are such a range, because they can also be read through pointers.
    """
    range_index = int(np.searchsorted(live_ranges[0], start))
    return np.insert(live_ranges[0], range_index, start), np.insert(live_ranges[1], range_index, start + size)
