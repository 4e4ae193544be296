"""Observe the streams and the memory of a real GPU: the `virtualgpu.protocol.StreamWatcher`.

CUPTI's callbacks report CUDA calls with their arguments, and CuPy's memory hook reports allocated and freed
blocks. Both are passed to the class `StreamWatch`, which virtual machines use, too.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from ctypes import POINTER, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import cupy
import numpy as np
import numpy.typing as npt
from cupy.cuda import memory_hook, runtime

from gpulab.real.cupti import library
from gpulab.real.cupti.callbacks import CallData, subscribe_to_calls
from gpulab.real.touched import AccessedRegions, KernelRegions, load_driver, read_parameters
from gpulab.words import count
from virtualgpu.errors import GpulabError, NotSupportedError
from virtualgpu.model.recording.watch import Regions, RunWatched, StreamRef, StreamWatch
from virtualgpu.records import ActivityKind, SourceLine
from virtualgpu.records.acts import HOST, Act, Region, Work

_Pointer = c_void_p
_PINNED_MEMORY = runtime.memoryTypeHost
_DEVICE_MEMORY = runtime.memoryTypeDevice
_MANAGED_MEMORY = runtime.memoryTypeManaged
_LEGACY_STREAM = 0
_LEGACY_STREAM_ALIAS = 1
_PER_THREAD_STREAM = 2
_UNOBSERVED_NOTE = (
    "A kernel that receives an address counts as using the whole array at this address. Accesses of host "
    "functions, and reads of pinned memory by the host, are not observed."
)


class _Event:
    """A CUDA event of the program; ``is_new`` is true if it was created during the observation."""

    is_new = False


class _MemoryRange:
    """A memory range in the form of an array, as `StreamWatch` needs it."""

    def __init__(self, address: int, size_bytes: int) -> None:
        self.itemsize = 1
        self.shape = (size_bytes,)
        self.strides = (1,)
        self.__array_interface__ = {"data": (address, False)}


@dataclass(slots=True)
class _Operation:
    """Description of an operation for `StreamWatch`; CUDA executes the operation."""

    kind: ActivityKind
    name: str
    touched_regions: AccessedRegions | None = None
    reads: Any = ()
    writes: Any = ()

    def run(self) -> float:
        return 0.0

    @property
    def run_watched(self) -> Callable[[RunWatched], tuple[float, tuple[Regions, ...]]] | None:
        touched_regions = self.touched_regions
        if touched_regions is None:
            return None
        return lambda _: (0.0, (touched_regions.reads, touched_regions.writes, touched_regions.atomics))


@dataclass(slots=True)
class _Capture:
    """A graph during its capture: its nodes, their predecessors, and the last node of each stream."""

    graph_id: int
    nodes: list[Work] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    last_nodes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    events: dict[int, tuple[int, ...]] = field(default_factory=dict)


class _UnlabelledMemory:
    """The memory of a device for `StreamWatch`. Its allocations have no labels, so only variable names
    describe them.
    """

    base_address = arena_bytes = 0

    def find_nearest_allocation(self, address: int) -> None:
        return None


class _DeviceWatch(StreamWatch):
    """A `StreamWatch` for real GPUs. It queries CUDA for the device to which an address belongs."""

    def __init__(self) -> None:
        device_memories = [_UnlabelledMemory() for _ in range(runtime.getDeviceCount())]
        super().__init__(device_memories, _is_pinned, _reject_launch)

    def memory_of(self, address: int) -> int:
        attributes = _read_pointer_attributes(address)
        return int(attributes.device) if attributes.type in (_DEVICE_MEMORY, _MANAGED_MEMORY) else HOST


class RealWatcher:
    """An observer of the streams and memory of this process on a GPU. Only one observer can be active at a
    time.

    Parameters
    ----------
    device_id
        The device's number.
    ptx
        Function that returns the PTX of a kernel of the program.
    """

    def __init__(self, device_id: int, ptx: Callable[[Any], str]) -> None:
        self._device_id = device_id
        self._kernel_regions = KernelRegions(device_id, ptx)
        self._exit_stack = ExitStack()
        self._events: dict[int, _Event] = {}
        self._handle_reuses: dict[int, int] = {}  # how often a stream's handle was given away
        self._stream_refs: dict[int, StreamRef] = {}
        self._unwritten_blocks: dict[
            int, SourceLine | None
        ] = {}  # blocks that nothing has written, with their lines
        self._stream_of_block: dict[int, int] = {}  # the stream that a block was taken in
        self._captures: dict[int, _Capture] = {}
        self._graphs: dict[int, _Capture] = {}
        self._graph_ids = itertools.count(1)
        self._operation_count = 0
        self._guessed_kernel_count = 0
        # Host memory that work of a stream may still change: ranges of addresses, by the stream's handle.
        self._host_writes: dict[int, set[tuple[int, int]]] = {}
        self._event_writes: dict[int, tuple[int, frozenset[tuple[int, int]]]] = {}  # those before an event
        self._error_texts: list[str] = []

    def start(self, see: Callable[[Act], None]) -> None:
        """Start the observation after all earlier work of the device has ended.

        Raises
        ------
        NotSupportedError
            Without CUPTI.
        GpulabError
            If another tool uses CUPTI, or another check is in progress.
        """
        cupti = library.load_cupti()
        rival_tool = library.find_other_cupti_tool()
        if cupti is None:
            raise NotSupportedError(
                "The check of streams on a real GPU needs CUPTI. Install CUPTI with `pip "
                "install nvidia-cuda-cupti`, or check the program on a virtual GPU: "
                'gl.use_device("virtual").'
            )
        if rival_tool:
            raise GpulabError(f"{rival_tool} is already using CUPTI. Run the check without {rival_tool}.")
        self._driver = load_driver()
        runtime.deviceSynchronize()
        for live_object in gc.get_objects():
            if type(live_object) is cupy.ndarray and getattr(live_object.data.mem, "ptr", None):
                self._kernel_regions.block_sizes[int(live_object.data.mem.ptr)] = int(
                    live_object.data.mem.size
                )
            elif (
                type(live_object) is cupy.cuda.Stream and getattr(live_object, "ptr", 0) > _PER_THREAD_STREAM
            ):
                self._register_stream(int(live_object.ptr), runtime.streamGetFlags(live_object.ptr))
        self._stream_watch = _DeviceWatch()
        self._on_act = see
        self._stream_watch.add_observer(see)
        with ExitStack() as stack:
            try:
                stack.enter_context(subscribe_to_calls(cupti, _WATCHED_FUNCTIONS, self._on_call))
            except library.CuptiError as error:
                if error.result != library.ERROR_SUBSCRIBER_EXISTS:
                    raise
                raise GpulabError(
                    "CUPTI allows one subscriber per process, and another check or tool "
                    "is already subscribed. End that check or tool first."
                ) from error
            stack.enter_context(_PoolHook(self))
            stack.enter_context(_use_own_reductions())
            self._exit_stack = stack.pop_all()

    def stop(self) -> str:
        """Stop the observation, and return a note about what could not be observed."""
        self._exit_stack.close()
        self._stream_watch.report_remaining_changes()
        self._stream_watch.remove_observer(self._on_act)
        report_notes = [_UNOBSERVED_NOTE]
        if self._guessed_kernel_count:
            report_notes.append(
                f"The arrays that {count(self._guessed_kernel_count, 'kernel')} of libraries read are not "
                "known. Arrays that they write are known only if the same line created them."
            )
        if self._error_texts:
            report_notes.append(
                f"{count(len(self._error_texts), 'call')} could not be read ({self._error_texts[0]})."
            )
        return " ".join(report_notes)

    # What CUPTI tells

    def _on_call(self, name: str, has_returned: bool, data: CallData) -> None:
        observed_call = _OBSERVED_CALLS.get(name)
        if observed_call is None or has_returned == observed_call.is_handled_before:
            return
        if has_returned and (not data.return_value or data.return_value[0]):
            return  # refused, or not ready
        arguments = _read_arguments(data.params, observed_call.argument_types)
        if name.startswith("cuLaunch"):
            arguments = [name, arguments, (data.symbol_name or b"").decode()]
        self.call_guarded(name, observed_call.handler, self, *arguments)

    def call_guarded(self, name: str, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function, and store its errors so that they do not reach the program."""
        try:
            function(*arguments)
        except Exception as error:
            self._error_texts.append(f"{name}: {error!r}")

    def _record_launch(self, name: str, arguments: list[Any], symbol: str) -> None:
        if name == "cuLaunchKernelEx":
            launch_config, function, parameter_addresses = arguments[:3]
            # CUlaunchConfig: seven numbers, then the stream.
            stream = c_void_p.from_address(ctypes.addressof(launch_config.contents) + 32).value or 0
        else:
            function = arguments[0]
            stream = arguments[8] or 0
            parameter_addresses = arguments[9]
        if not parameter_addresses:
            return
        if self._kernel_regions.is_from_cupy(function, symbol):
            touched_regions = self._kernel_regions.find_accessed_regions(
                function, symbol, read_parameters(self._driver, function, parameter_addresses)
            )
        else:
            self._guessed_kernel_count += 1
            touched_regions = AccessedRegions(writes=self._find_unwritten_regions())
        for region in (*touched_regions.writes, *touched_regions.atomics):
            self._unwritten_blocks.pop(region.address, None)
        self._on_operation(stream, _Operation("CONCURRENT_KERNEL", symbol, touched_regions))

    def _find_unwritten_regions(self) -> Regions:
        """Return the blocks that the current source line has allocated and no kernel has written. They may
        receive the results of a library kernel.
        """
        source_line = self._stream_watch.find_current_line()
        return tuple(
            Region(self._device_id, start, self._kernel_regions.block_sizes[start])
            for start, line in self._unwritten_blocks.items()
            if line == source_line and start in self._kernel_regions.block_sizes
        )

    def _record_sync_copy(self, target_address: int, source_address: int, size: int, copy_kind: int) -> None:
        self._record_copy(target_address, source_address, size, copy_kind, _LEGACY_STREAM)
        self._stream_watch.note_host_wait("work", number=self._operation_count)
        self._host_writes.get(_LEGACY_STREAM, set()).discard((target_address, target_address + size))

    def _record_copy(
        self, target_address: int, source_address: int, size: int, copy_kind: int, stream: int | None
    ) -> None:
        if not size:
            return
        memory_types = [
            _read_pointer_attributes(address).type for address in (target_address, source_address)
        ]
        arrays: list[Any] = []
        for address, memory_type in zip((target_address, source_address), memory_types, strict=True):
            if memory_type in (_DEVICE_MEMORY, _MANAGED_MEMORY):
                arrays.append((_MemoryRange(address, size),))
            else:
                # The call itself has read or filled pageable memory when it returns.
                arrays.append((_view_host_bytes(address, size),) if memory_type == _PINNED_MEMORY else ())
        if memory_types[0] == _PINNED_MEMORY:
            self._record_host_write(stream or 0, target_address, target_address + size)
        copy_direction = "".join(
            "D" if memory_type in (_DEVICE_MEMORY, _MANAGED_MEMORY) else "H"
            for memory_type in reversed(memory_types)
        )
        self._unwritten_blocks.pop(target_address, None)
        self._on_operation(
            stream or 0,
            _Operation(
                "MEMCPY", f"Memcpy {copy_direction[0]}to{copy_direction[1]}", None, arrays[1], arrays[0]
            ),
        )
        if memory_types[0] not in (_DEVICE_MEMORY, _MANAGED_MEMORY, _PINNED_MEMORY):
            self._stream_watch.note_host_wait("work", number=self._operation_count)

    def _record_peer_copy(
        self, target: int, _: int, source: int, __: int, size: int, stream: int | None
    ) -> None:
        read_ranges = (_MemoryRange(source, size),)
        written_ranges = (_MemoryRange(target, size),)
        self._on_operation(
            stream or 0, _Operation("MEMCPY2", "Memcpy PtoP", None, read_ranges, written_ranges)
        )

    def _record_memset(self, address: int, _: int, size: int, stream: int | None) -> None:
        if size:
            self._unwritten_blocks.pop(address, None)
            self._on_operation(
                stream or 0, _Operation("MEMSET", "Memset", None, (), (_MemoryRange(address, size),))
            )

    def _on_event_created(self, event: Any, _: int) -> None:
        new_event = self._events[event.contents.value or 0] = _Event()
        new_event.is_new = True

    def _record_event(self, event: int, stream: int | None) -> None:
        capture = self._find_active_capture(stream or 0)
        if capture is not None:
            capture.events[event] = capture.last_nodes.get(stream or 0, ())
            return
        for other_capture in self._captures.values():
            other_capture.events.pop(event, None)
        self._stream_watch.note_event_record(self._find_event(event), self._make_stream_ref(stream or 0))
        self._event_writes[event] = stream or 0, frozenset(self._host_writes.get(stream or 0, ()))

    def _on_stream_wait(self, stream: int | None, event: int, _: int) -> None:
        for capture in self._captures.values():
            if event in capture.events:
                own_last_nodes = capture.last_nodes.get(stream or 0, ())
                capture.last_nodes[stream or 0] = tuple(
                    dict.fromkeys((*own_last_nodes, *capture.events[event]))
                )
                return
        event_record = self._find_event(event)
        self._stream_watch.note_event_wait(
            event_record, self._make_stream_ref(stream or 0), not event_record.is_new
        )

    def _on_event_awaited(self, event: int) -> None:
        self._stream_watch.note_host_wait("event", event=self._find_event(event))
        stream, written_ranges = self._event_writes.get(event, (0, frozenset()))
        self._host_writes[stream] = self._host_writes.get(stream, set()) - written_ranges

    def _on_stream_awaited(self, stream: int | None) -> None:
        self._stream_watch.note_host_wait("stream", self._make_stream_ref(stream or 0))
        self._host_writes.pop(stream or 0, None)

    def _on_device_awaited(self) -> None:
        self._stream_watch.note_host_wait("device", self._make_stream_ref(_LEGACY_STREAM))
        self._host_writes.clear()

    def _on_event_destroyed(self, event: int) -> None:
        self._events.pop(event, None)

    def _on_stream_created(self, stream_pointer: Any, flags: int = 0, _: int = 0) -> None:
        handle = stream_pointer.contents.value or 0
        if handle in self._stream_refs:  # it was another stream's before
            self._handle_reuses[handle] = self._handle_reuses.get(handle, 0) + 1
        self._register_stream(handle, flags)

    def _on_stream_destroyed(self, stream: int) -> None:
        # Blocks may still go back to its arena: the place stays until the handle is another stream's.
        self._captures.pop(stream, None)

    # Memory

    def _on_allocation(self, address: Any, size: int) -> None:
        self._kernel_regions.segment_sizes[address.contents.value] = size
        self._stream_watch.note_allocation(self._device_id, address.contents.value, size)

    def _record_free(self, address: int | None) -> None:
        segment_bytes = self._kernel_regions.segment_sizes.pop(address or 0, 0)
        if segment_bytes:
            self._stream_watch.note_release(self._device_id, address or 0, segment_bytes, None)
        elif address:
            self._stream_watch.note_host_wait("device", self._make_stream_ref(_LEGACY_STREAM))

    def _record_async_malloc(self, address: Any, size: int, stream: int | None) -> None:
        block_address = address.contents.value
        self._kernel_regions.block_sizes[block_address] = size
        self._unwritten_blocks[block_address] = self._stream_watch.find_current_line()
        self._stream_watch.note_allocation(
            self._device_id, block_address, size, self._make_stream_ref(stream or 0).stream_id
        )

    def _record_async_free(self, address: int | None, stream: int | None) -> None:
        block_bytes = self._kernel_regions.block_sizes.pop(address or 0, 0)
        if block_bytes:
            self._stream_watch.note_release(
                self._device_id, address or 0, block_bytes, self._make_stream_ref(stream or 0).stream_id
            )

    def _record_host_free(self, address: int) -> None:
        self._stream_watch.note_host_release(address, 1)
        self._stream_watch.forget_buffers()  # how far the memory reaches is not told

    def on_block_taken(self, address: int, size: int) -> None:
        """Record that the memory pool of CuPy allocated a block in the current stream."""
        self._kernel_regions.block_sizes[address] = size
        self._unwritten_blocks[address] = self._stream_watch.find_current_line()
        self._stream_of_block[address] = int(cupy.cuda.get_current_stream().ptr)
        memory_pool = getattr(cupy.cuda.get_allocator(), "__self__", None)
        is_private_pool = memory_pool is not cupy.get_default_memory_pool()
        self._stream_watch.note_allocation(self._device_id, address, size, is_private=is_private_pool)

    def on_block_given_back(self, address: int, size: int) -> None:
        """Record that a memory block was returned to the free blocks of its stream in the pool."""
        self._kernel_regions.block_sizes.pop(address, None)
        self._unwritten_blocks.pop(address, None)
        arena_stream_id = self._make_stream_ref(self._stream_of_block.pop(address, _LEGACY_STREAM)).stream_id
        self._stream_watch.note_release(self._device_id, address, size, arena_stream_id)

    # Graphs

    def _record_host_function(self, stream: int | None, *_: Any) -> None:
        self._record_host_write(stream or 0)
        self._on_operation(stream or 0, _Operation("CONCURRENT_KERNEL", "host function", AccessedRegions()))

    def _on_capture_begun(self, stream: int, _: int) -> None:
        self._captures[stream] = _Capture(next(self._graph_ids), last_nodes={stream: ()})

    def _on_capture_ended(self, stream: int, graph: Any) -> None:
        capture = self._captures.pop(stream, None)
        if capture is not None and graph.contents.value:
            self._graphs[graph.contents.value] = capture
            self._stream_watch.note_graph_creation(capture.graph_id)

    def _on_graph_instantiated(self, graph_pointer: Any, graph: int) -> None:
        if graph in self._graphs:
            self._graphs[graph_pointer.contents.value] = self._graphs[graph]

    def _on_graph_launched(self, graph: int, stream: int | None) -> None:
        capture = self._graphs.get(graph)
        if capture is not None:
            self._operation_count += len(capture.nodes)
            self._stream_watch.note_graph_launch(
                self._make_stream_ref(stream or 0), capture.nodes, capture.edges, capture.graph_id
            )

    def _find_active_capture(self, stream: int) -> _Capture | None:
        return next((capture for capture in self._captures.values() if stream in capture.last_nodes), None)

    # Operations and places

    def _on_operation(self, stream: int, operation: _Operation) -> None:
        self._operation_count += 1
        capture = self._find_active_capture(stream)
        stream_ref = self._make_stream_ref(stream)
        if capture is None:
            self._stream_watch.run_operation(stream_ref, self._operation_count, operation)
            for start, end in set().union(*self._host_writes.values()):
                self._stream_watch.forget_buffers(start, end)
            return
        _, graph_node = self._stream_watch.run_node(stream_ref, self._operation_count, operation, None)
        capture.edges += [(predecessor, len(capture.nodes)) for predecessor in capture.last_nodes[stream]]
        capture.last_nodes[stream] = (len(capture.nodes),)
        capture.nodes.append(graph_node)

    def _record_host_write(self, stream: int, start: int = 0, end: int = 1 << 64) -> None:
        """Record that work of a stream can change host memory until the stream is synchronized.

        Such a change must not be mistaken for a change by the program. It can occur after a later copy has
        read the memory, so the memory is not observed again before the synchronization.
        """
        self._host_writes.setdefault(stream, set()).add((start, end))
        self._stream_watch.forget_buffers(start, end)

    def _find_event(self, handle: int) -> _Event:
        return self._events.setdefault(handle, _Event())

    def _make_stream_ref(self, handle: int) -> StreamRef:
        """Return the `StreamRef` of a stream handle without a query to CUDA.

        A query could fail, because the stream may no longer exist.
        """
        handle = _LEGACY_STREAM if handle == _LEGACY_STREAM_ALIAS else handle
        if handle not in self._stream_refs:
            self._register_stream(handle, 0)
        return self._stream_refs[handle]

    def _register_stream(self, handle: int, flags: int) -> None:
        """Give a stream a unique number, even if its handle belonged to an earlier stream."""
        stream_number = handle + (self._handle_reuses.get(handle, 0) << 48)
        is_blocking = not flags & runtime.streamNonBlocking
        self._stream_refs[handle] = StreamRef(self._device_id, stream_number, is_blocking)


@contextmanager
def _use_own_reductions() -> Iterator[None]:
    """Make CuPy use its own kernels for sums and sorting instead of CUB's, whose arrays are unknown."""
    cupy_core = cupy._core
    reductions = cupy_core.get_reduction_accelerators()
    routines = cupy_core.get_routine_accelerators()
    cupy_core.set_reduction_accelerators([])
    cupy_core.set_routine_accelerators([])
    try:
        yield
    finally:
        cupy_core.set_reduction_accelerators(reductions)
        cupy_core.set_routine_accelerators(routines)


class _PoolHook(memory_hook.MemoryHook):  # type: ignore[misc]
    name = "gpulab streams"

    def __init__(self, watcher: RealWatcher) -> None:
        self._watcher = watcher

    def malloc_postprocess(self, *, mem_ptr: int, mem_size: int, **_: Any) -> None:
        if mem_ptr:
            self._watcher.call_guarded("a block", self._watcher.on_block_taken, int(mem_ptr), int(mem_size))

    def free_preprocess(self, *, mem_ptr: int, mem_size: int, **_: Any) -> None:
        if mem_ptr:
            self._watcher.call_guarded(
                "a block", self._watcher.on_block_given_back, int(mem_ptr), int(mem_size)
            )


def _read_arguments(address: int | None, argument_types: tuple[Any, ...]) -> list[Any]:
    """Return the arguments of a CUDA call from the structure at an address."""
    if not argument_types or not address:
        return []

    class Arguments(ctypes.Structure):
        _fields_ = [
            (f"a{argument_index}", argument_type)
            for argument_index, argument_type in enumerate(argument_types)
        ]

    arguments = Arguments.from_address(address)
    return [getattr(arguments, f"a{argument_index}") for argument_index in range(len(argument_types))]


def _read_pointer_attributes(address: int) -> Any:
    return runtime.pointerGetAttributes(address)


def _is_pinned(address: int) -> bool:
    return bool(_read_pointer_attributes(address).type == _PINNED_MEMORY)


def _reject_launch(launch: Any, options: Any) -> tuple[Any, tuple[Regions, ...]]:
    raise AssertionError("A RealWatcher cannot run a launch, because CUDA runs it.")


def _view_host_bytes(address: int, size: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class _ObservedCall(NamedTuple):
    """An observed CUDA call: its handler, and the layout of its arguments in CUPTI."""

    handler: Callable[..., None]
    argument_types: tuple[Any, ...] = ()
    is_handled_before: bool = False  # it matters before CUDA does it


# By name; generated_cuda_runtime_api_meta.h has the arguments.
_OBSERVED_CALLS = {
    "cuLaunchKernel": _ObservedCall(
        RealWatcher._record_launch,
        (_Pointer, *(c_uint,) * 7, _Pointer, POINTER(_Pointer), _Pointer),
        is_handled_before=True,
    ),
    "cuLaunchKernelEx": _ObservedCall(
        RealWatcher._record_launch,
        (POINTER(c_uint * 7), _Pointer, POINTER(_Pointer), _Pointer),
        is_handled_before=True,
    ),
    "cuLaunchCooperativeKernel": _ObservedCall(
        RealWatcher._record_launch,
        (_Pointer, *(c_uint,) * 7, _Pointer, POINTER(_Pointer)),
        is_handled_before=True,
    ),
    "cudaMemcpy": _ObservedCall(RealWatcher._record_sync_copy, (_Pointer, _Pointer, c_size_t, c_int)),
    "cudaMemcpyAsync": _ObservedCall(
        RealWatcher._record_copy, (_Pointer, _Pointer, c_size_t, c_int, _Pointer)
    ),
    "cudaMemcpyPeerAsync": _ObservedCall(
        RealWatcher._record_peer_copy, (_Pointer, c_int, _Pointer, c_int, c_size_t, _Pointer)
    ),
    "cudaMemsetAsync": _ObservedCall(RealWatcher._record_memset, (_Pointer, c_int, c_size_t, _Pointer)),
    "cudaEventCreateWithFlags": _ObservedCall(RealWatcher._on_event_created, (POINTER(_Pointer), c_uint)),
    "cudaEventRecord": _ObservedCall(RealWatcher._record_event, (_Pointer, _Pointer)),
    "cudaEventQuery": _ObservedCall(RealWatcher._on_event_awaited, (_Pointer,)),
    "cudaEventSynchronize": _ObservedCall(RealWatcher._on_event_awaited, (_Pointer,)),
    "cudaEventDestroy": _ObservedCall(RealWatcher._on_event_destroyed, (_Pointer,)),
    "cudaStreamWaitEvent": _ObservedCall(RealWatcher._on_stream_wait, (_Pointer, _Pointer, c_uint)),
    "cudaStreamQuery": _ObservedCall(RealWatcher._on_stream_awaited, (_Pointer,)),
    "cudaStreamSynchronize": _ObservedCall(RealWatcher._on_stream_awaited, (_Pointer,)),
    "cudaStreamCreate": _ObservedCall(RealWatcher._on_stream_created, (POINTER(_Pointer),)),
    "cudaStreamCreateWithFlags": _ObservedCall(RealWatcher._on_stream_created, (POINTER(_Pointer), c_uint)),
    "cudaStreamCreateWithPriority": _ObservedCall(
        RealWatcher._on_stream_created, (POINTER(_Pointer), c_uint, c_int)
    ),
    "cudaStreamDestroy": _ObservedCall(RealWatcher._on_stream_destroyed, (_Pointer,)),
    "cudaDeviceSynchronize": _ObservedCall(RealWatcher._on_device_awaited),
    "cudaMalloc": _ObservedCall(RealWatcher._on_allocation, (POINTER(_Pointer), c_size_t)),
    "cudaFree": _ObservedCall(RealWatcher._record_free, (_Pointer,), is_handled_before=True),
    "cudaMallocAsync": _ObservedCall(
        RealWatcher._record_async_malloc, (POINTER(_Pointer), c_size_t, _Pointer)
    ),
    "cudaFreeAsync": _ObservedCall(
        RealWatcher._record_async_free, (_Pointer, _Pointer), is_handled_before=True
    ),
    "cudaFreeHost": _ObservedCall(RealWatcher._record_host_free, (_Pointer,), is_handled_before=True),
    "cudaLaunchHostFunc": _ObservedCall(RealWatcher._record_host_function, (_Pointer, _Pointer, _Pointer)),
    "cudaStreamBeginCapture": _ObservedCall(RealWatcher._on_capture_begun, (_Pointer, c_int)),
    "cudaStreamEndCapture": _ObservedCall(RealWatcher._on_capture_ended, (_Pointer, POINTER(_Pointer))),
    "cudaGraphInstantiate": _ObservedCall(RealWatcher._on_graph_instantiated, (POINTER(_Pointer), _Pointer)),
    "cudaGraphLaunch": _ObservedCall(RealWatcher._on_graph_launched, (_Pointer, _Pointer)),
}
_WATCHED_FUNCTIONS = library.group_by_api(_OBSERVED_CALLS)
