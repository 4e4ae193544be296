"""CUPTI's callbacks, made from what the virtual GPU tells of streams and memory while it is watched.

Arguments are laid out by the types below (generated_cuda_meta.h, generated_cuda_runtime_api_meta.h of CUDA
13.0). A library's kernel is given its arrays as CuPy's kernels are. Of graphs nothing is told.
"""

from __future__ import annotations

import ctypes
import importlib
import struct
from collections.abc import Callable
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint32, c_void_p
from functools import partial
from typing import Any

import numpy as np

from tests.real import second_copy
from virtualgpu.compile.ptx.parser import parse

KERNEL = (c_void_p, *(c_uint,) * 6, c_uint, c_void_p, c_void_p, c_void_p)
TYPES: dict[str, tuple[Any, ...]] = {
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "cudaMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "cudaEventCreateWithFlags": (c_void_p, c_uint),
    "cudaEventRecord": (c_void_p, c_void_p),
    "cudaEventSynchronize": (c_void_p,),
    "cudaStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cudaStreamCreateWithPriority": (c_void_p, c_uint, c_int),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaDeviceSynchronize": (),
    "cudaMalloc": (c_void_p, c_size_t),
    "cudaFree": (c_void_p,),
    "cudaMallocAsync": (c_void_p, c_size_t, c_void_p),
    "cudaFreeAsync": (c_void_p, c_void_p),
    "cudaLaunchHostFunc": (c_void_p, c_void_p, c_void_p),
    # What the virtual GPU does not call: tests tell of it themselves.
    "cuLaunchKernel": KERNEL,
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuLaunchCooperativeKernel": KERNEL[:-1],
    "cudaMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "cudaMemcpyPeerAsync": (c_void_p, c_int, c_void_p, c_int, c_size_t, c_void_p),
    "cudaEventDestroy": (c_void_p,),
    "cudaEventQuery": (c_void_p,),
    "cudaStreamQuery": (c_void_p,),
    "cudaStreamDestroy": (c_void_p,),
    "cudaFreeHost": (c_void_p,),
    "cudaStreamBeginCapture": (c_void_p, c_int),
    "cudaStreamEndCapture": (c_void_p, c_void_p),
    "cudaGraphInstantiate": (c_void_p, c_void_p),
    "cudaGraphLaunch": (c_void_p, c_void_p),
}


class CallbackData(ctypes.Structure):
    _fields_ = (
        ("site", c_int),
        ("name", c_char_p),
        ("params", c_void_p),
        ("result", c_void_p),
        ("symbol", c_char_p),
        ("context", c_void_p),
        ("context_uid", c_uint32),
        ("data", c_void_p),
        ("correlation", c_uint32),
    )


class Callbacks:
    """The subscriber of a process: while there is one, the machine is watched."""

    def __init__(self, current: Callable[[], Any], names: Callable[[int], tuple[str, ...]]) -> None:
        self._current = current
        self._names = names
        self._handler: Any = None
        self._enabled: set[tuple[int, int]] = set()
        self._sizes: dict[int, list[int]] = {}
        self._function = importlib.import_module(f"{second_copy.NAME}.cp.cuda.function").Function
        self._functions: dict[str, Any] = {}  # CuPy's own kernels
        self._ordered: set[int] = set()
        self._event = importlib.import_module(f"{second_copy.NAME}.cp.cuda.stream").Event
        self._event_init = self._event.__init__
        self._stream = importlib.import_module(f"{second_copy.NAME}.cp.cuda.stream").Stream
        self._stream_init = self._stream.__init__
        self.writes_host_memory = False

    # libcupti and libcuda

    def subscribe(self, handler: Any) -> bool:
        if self._handler is not None:
            return False
        # By its address, as C has it.
        address = ctypes.cast(handler, c_void_p).value
        self._handler = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_uint32, c_void_p)(address)
        machine = self._current()
        callbacks = self
        machine.clock.watch = self
        for device in machine.devices:
            device.memory.segment_callback = partial(self._segment)

        def event_init(event: Any, *args: Any, **options: Any) -> None:
            callbacks._event_init(event, *args, **options)
            handle = c_void_p(event.ptr)
            callbacks._emit("cudaEventCreateWithFlags", ctypes.addressof(handle), 0)

        def stream_made(stream: Any, *args: Any, **options: Any) -> None:
            callbacks._stream_init(stream, *args, **options)
            if stream.ptr > 2:
                handle = c_void_p(stream.ptr)
                blocking = machine.devices[0].work_queue.make_stream_ref(stream.ptr).is_blocking
                callbacks._emit(
                    "cudaStreamCreateWithPriority", ctypes.addressof(handle), 0 if blocking else 1, 0
                )

        self._event.__init__ = event_init
        self._stream.__init__ = stream_made
        return True

    def unsubscribe(self) -> None:
        self._handler = None
        self._enabled.clear()
        machine = self._current()
        machine.clock.watch = None
        for device in machine.devices:
            device.memory.segment_callback = None
        self._event.__init__ = self._event_init
        self._stream.__init__ = self._stream_init

    def enable(self, domain: int, cbid: int) -> None:
        self._enabled.add((domain, cbid))

    def cuFuncGetParamInfo(self, function: Any, index: Any, offset: Any, size: Any) -> int:
        sizes = self._sizes[function.value]
        if index.value >= len(sizes):
            return 1
        size._obj.value = sizes[index.value]
        return 0

    def _emit(
        self, name: str, *values: Any, symbol: str = "", site: int | None = None, status: int = 0
    ) -> None:
        domain = 2 if name.startswith("cuda") else 1
        names = [full.split("_")[0] for full in self._names(domain)]
        if name not in names or (domain, names.index(name) + 1) not in self._enabled:
            return
        kinds = TYPES[name]

        class Params(ctypes.Structure):
            _fields_ = [(f"p{index}", kind) for index, kind in enumerate(kinds)]

        params = Params(*values)
        result = c_int(status)
        for place in (0, 1) if site is None else (site,):
            data = CallbackData(
                place, name.encode(), ctypes.addressof(params), ctypes.addressof(result), symbol.encode()
            )
            self._handler(None, domain, names.index(name) + 1, ctypes.addressof(data))

    def tell(self, name: str, *values: Any, symbol: str = "", status: int = 0) -> None:
        """Call back as for a call with these arguments, made now."""
        self._emit(name, *values, symbol=symbol, status=status)

    def _launch(self, stream: int, function: int, symbol: str, params: list[bytes], site: int) -> None:
        buffers = [ctypes.create_string_buffer(param, len(param)) for param in params]
        values = (c_void_p * len(buffers))(*map(ctypes.addressof, buffers))
        self._sizes[function] = [len(param) for param in params]
        self._emit(
            "cuLaunchKernel",
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            stream or None,
            ctypes.addressof(values),
            None,
            symbol=symbol,
            site=site,
        )

    # What the machine tells

    def run_operation(self, place: Any, number: int, operation: Any) -> float:
        stream = place.stream_id
        if operation.run_watched is not None:

            def run_kernel(launch: Any, options: Any = None) -> Any:
                packed = launch.packed_launch
                kernel = launch.launch.kernel
                function = int(getattr(getattr(kernel, "kernel", kernel), "ptr", 0)) or 1
                emit_launch = partial(self._launch, stream, function, packed.name, _params(launch))
                emit_launch(site=0)
                finished = launch.run(options or launch.options)
                emit_launch(site=1)
                return finished, ((), (), ())

            return float(operation.run_watched(run_kernel)[0])
        duration = operation.run()
        arrays = [*operation.reads, *operation.writes]
        plain = all(array.flags.c_contiguous for array in arrays)
        if operation.kind == "HOST_LAUNCH":
            self._emit("cudaLaunchHostFunc", stream or None, None, None)
        elif operation.kind == "MEMCPY" and plain:
            pageable = np.empty(operation.size_bytes, np.uint8)
            ends = [
                (arrays_of_end[0] if arrays_of_end else pageable).__array_interface__["data"][0]
                for arrays_of_end in (operation.writes, operation.reads)
            ]
            self._emit("cudaMemcpyAsync", *ends, operation.size_bytes, 4, stream or None)
        elif operation.kind == "MEMSET" and plain and operation.writes:
            array = operation.writes[0]
            address = array.__array_interface__["data"][0]
            self._emit("cudaMemsetAsync", address, 0, array.nbytes, stream or None)
        elif arrays:
            params = [_carray(array) for array in arrays]
            function = self._functions.setdefault(operation.name, object.__new__(self._function))
            function.ptr = id(function)
            for site in (0, 1):
                self._launch(stream, function.ptr, operation.name, params, site)
        return float(duration)

    def run_node(self, place: Any, number: int, operation: Any, source: Any) -> tuple[float, Any]:
        return operation.run(), None

    def note_graph_launch(self, *_: Any) -> None:
        pass

    note_graph_creation = note_graph_launch

    def find_current_line(self) -> None:
        return None

    def note_event_record(self, event: Any, place: Any) -> None:
        self._emit("cudaEventRecord", event.ptr, place.stream_id or None)

    def note_event_wait(self, event: Any, place: Any, is_recorded: bool) -> None:
        self._emit("cudaStreamWaitEvent", place.stream_id or None, event.ptr, 0)

    def note_host_wait(self, scope: str, place: Any = None, event: Any = None, number: int = 0) -> None:
        if scope == "device":
            self._emit("cudaDeviceSynchronize")
        elif scope == "stream":
            self._emit("cudaStreamSynchronize", place.stream_id or None)
        elif scope == "event":
            self._emit("cudaEventSynchronize", event.ptr)

    def _segment(self, address: int, size: int, is_allocation: bool) -> None:
        if is_allocation:
            handle = c_void_p(address)
            self._emit("cudaMalloc", ctypes.addressof(handle), size)
        else:
            self._emit("cudaFree", address)

    def note_allocation(
        self, device: int, address: int, size: int, stream: int | None = None, is_private: bool = False
    ) -> None:
        if stream is not None:
            self._ordered.add(address)
            handle = c_void_p(address)
            self._emit("cudaMallocAsync", ctypes.addressof(handle), size, stream or None)

    def note_release(self, device: int, address: int, size: int, stream: int | None) -> None:
        if address in self._ordered:
            self._ordered.discard(address)
            self._emit("cudaFreeAsync", address, stream or None)

    def note_host_release(self, address: int, size: int) -> None:
        pass


def _params(launch: Any) -> list[bytes]:
    """The bytes of each parameter of a launch."""
    packed = launch.packed_launch
    params = parse(launch.kernel.module.ptx).functions[packed.name].params
    return [bytes(packed.params[p.offset : p.offset + p.size_bytes]) for p in params]


def _carray(array: Any) -> bytes:
    address = array.__array_interface__["data"][0]
    return struct.pack(f"<{2 + 2 * array.ndim}q", address, array.size, *array.shape, *array.strides)
