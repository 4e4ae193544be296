"""libcupti as `ctypes` would load it, over the virtual GPU that stands for a real one.

It writes CUPTI's own bytes, laid out by the C structures below (cupti_activity.h of CUDA 13.0, with the sizes
of that version), into the buffers that it asks for, and has CUPTI's habits: records come from another thread,
in several buffers, the last ones first; an end of a range has no name; the device is not waited for. Times
are those of the modelled clock, far from 0 as CUPTI's are.
"""

from __future__ import annotations

import ctypes
import importlib
import random
import threading
from ctypes import c_char_p, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from types import SimpleNamespace
from typing import Any

from tests.real import second_copy
from tests.real.fake_callbacks import Callbacks

EPOCH_NS = 1_700_000_000_000_000_000
VERSION = 130001
SUCCESS = 0
INVALID_KIND = 21
MAX_LIMIT_REACHED = 12
MULTIPLE_SUBSCRIBERS = 39
NO_VALUE = 0xFFFFFFFF


_TYPES = {
    "u8": c_uint8,
    "u16": c_uint16,
    "u32": c_uint32,
    "u64": c_uint64,
    "i32": c_int32,
    "i64": c_int64,
    "str": c_char_p,
    "ptr": c_void_p,
}


def _structure(name: str, declaration: str) -> Any:
    """A C structure from declarations such as ``u32 kind, flags; i32 grid[3];``."""
    fields = []
    for names in filter(None, map(str.strip, declaration.split(";"))):
        kind, _, variables = names.partition(" ")
        for variable in variables.split(","):
            field, _, count = variable.strip().removesuffix("]").partition("[")
            fields.append((field, _TYPES[kind] * int(count) if count else _TYPES[kind]))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


Kernel = _structure(
    "Kernel",
    """
    u32 kind; u8 cache_config, shared_memory_config; u16 registers; u32 cache_requested, cache_executed;
    u64 start, end, completed; u32 device, context, stream; i32 grid[3], block[3], static_shared,
    dynamic_shared; u32 local[2], correlation; i64 grid_id; str name; ptr reserved; u64 queued,
    submitted; u8 launch[4]; u32 shared; u64 node; u32 limit, graph; u8 rest[56];
    """,
)
Memcpy = _structure(
    "Memcpy",
    """
    u32 kind; u8 copy, source, target, flags; u64 size, start, end; u32 device, context, stream,
    correlation, runtime, pad; ptr reserved; u64 node; u32 graph; u8 rest[20];
    """,
)
Memset = _structure(
    "Memset",
    """
    u32 kind, value; u64 size, start, end; u32 device, context, stream, correlation; u16 flags, memory;
    ptr reserved; u64 node; u32 graph; u8 rest[12];
    """,
)
Api = _structure(
    "Api",
    """
    u32 kind, cbid; u64 start, end; u32 process, thread, correlation, status;
    """,
)
Marker = _structure(
    "Marker",
    """
    u32 kind, flags; u64 time; u32 id, object_kind, object[3]; str name, domain;
    """,
)
MarkerData = _structure(
    "MarkerData",
    """
    u32 kind, flags, id, payload_kind; u64 payload; u32 color, category; str domain;
    """,
)
CudaEvent = _structure(
    "CudaEvent",
    """
    u32 kind, correlation, context, stream, event, pad, device, pad2; ptr reserved; u64 timestamp, sync;
    """,
)
Synchronization = _structure(
    "Synchronization",
    """
    u32 kind, type; u64 start, end; u32 correlation, context, stream, event; u64 sync; u32 status, pad;
    """,
)


SIZES = {
    10: Kernel,
    1: Memcpy,
    2: Memset,
    4: Api,
    5: Api,
    12: Marker,
    13: MarkerData,
    36: CudaEvent,
    38: Synchronization,
}
DRIVER_CALLS: tuple[str, ...] = ("cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel")
RUNTIME_CALLS = (
    "cudaMemcpyAsync_v3020",
    "cudaMemcpyPeerAsync_v4000",
    "cudaMemsetAsync_ptsz_v7000",
    "cudaLaunchHostFunc_v10000",
    "cudaGraphLaunch_v10000",
    "cudaEventRecord_v3020",
    "cudaStreamWaitEvent_v3020",
    "cudaStreamSynchronize_v3020",
    "cudaDeviceSynchronize_v3020",
    "cudaEventSynchronize_v3020",
    "cudaStreamQuery_v3020",
    "cudaEventQuery_v3020",
    "cudaStreamBeginCapture_v10000",
    "cudaStreamEndCapture_v10000",
    "cudaEventCreateWithFlags_v3020",
    "cudaStreamCreateWithPriority_v5050",
    "cudaStreamCreateWithPriority_v5050",
    "cudaMalloc_v3020",
    "cudaFree_v3020",
    "cudaMallocAsync_v11020",
    "cudaFreeAsync_v11020",
    "cudaMemcpy_v3020",
    "cudaEventDestroy_v3020",
    "cudaStreamDestroy_v5050",
    "cudaFreeHost_v3020",
    "cudaGraphInstantiate_v10000",
)
COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
WAITS = {"EVENT_SYNCHRONIZE": 1, "STREAM_WAIT_EVENT": 2, "STREAM_SYNCHRONIZE": 3, "CONTEXT_SYNCHRONIZE": 4}
CONTEXT = 1


class FakeCupti:
    """The functions of libcupti that gpulab calls.

    ``taken`` lets it behave as if another tool held it, ``records_a_buffer`` bounds what it puts into one
    buffer, ``no_times`` is the number of kernels that it has no times for.
    """

    def __init__(self) -> None:
        machine = importlib.import_module(f"{second_copy.NAME}.model.machine")
        self._current = machine.current
        self.ranges = importlib.import_module(f"{second_copy.NAME}.model.recording.ranges").RangeLog
        self.stream = importlib.import_module(f"{second_copy.NAME}.cp.cuda.stream")
        self.taken = False
        self.records_a_buffer = 50
        self.no_times = 0
        self.dropped = 0
        self._kinds: set[int] = set()
        self._chosen: set[tuple[int, int]] = set()
        self._records: list[Any] = []
        self._by_number: dict[int, Any] = {}  # operations, by the machine's number
        self._kept: list[Any] = []  # strings whose addresses were given away
        self._numbers: dict[int, int] = {}  # CUPTI's of a stream, by handle
        self._correlation = 0
        self._syncs = 0
        self._event_sync: dict[int, int] = {}
        self._set = self.stream.Event._set_recorded_position
        self._start_ns = 0
        self.begun = None
        self.order = random.Random(1)
        self.callbacks = Callbacks(
            self._current, lambda domain: DRIVER_CALLS if domain == 1 else RUNTIME_CALLS
        )

    @property
    def clock(self) -> Any:
        return self._current().clock

    def now(self) -> int:
        """The modelled clock, which a reading moves a little, so that no two are the same."""
        return int(EPOCH_NS + self.clock.advance(1))

    # Functions of libcupti

    def cuptiGetVersion(self, version: Any) -> int:
        version._obj.value = VERSION
        return SUCCESS

    def cuptiGetResultString(self, result: int, words: Any) -> int:
        words._obj.value = f"CUPTI_ERROR {result}".encode()
        return SUCCESS

    def cuptiGetTimestamp(self, time: Any) -> int:
        time._obj.value = self.now()
        return SUCCESS

    def cuptiActivitySetAttribute(self, attribute: int, size: Any, value: Any) -> int:
        assert (attribute, size._obj.value) == (5, ctypes.sizeof(value._obj))
        self._zeroed = value._obj.value
        return SUCCESS

    def cuptiSetThreadIdType(self, kind: int) -> int:
        return SUCCESS

    def cuptiGetCallbackName(self, domain: int, cbid: Any, name: Any) -> int:
        names = DRIVER_CALLS if domain == 1 else RUNTIME_CALLS
        if not 1 <= cbid.value <= len(names):
            return 1
        name._obj.value = names[cbid.value - 1].encode()
        return SUCCESS

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self._requested = requested
        self._completed = completed
        return SUCCESS

    def cuptiActivityEnable(self, kind: int) -> int:
        if self.taken:
            return MULTIPLE_SUBSCRIBERS
        if kind not in {*SIZES, 22, 37}:
            return INVALID_KIND
        self._begin()
        self._kinds.add(kind)
        names = {4: DRIVER_CALLS, 5: RUNTIME_CALLS}.get(kind, ())
        self._chosen |= {(kind, cbid) for cbid in range(1, len(names) + 1)}
        return SUCCESS

    def cuptiActivityDisable(self, kind: int) -> int:
        self._kinds.discard(kind)
        if not self._kinds:
            self.clock.recorder = None
            self.stream.Event._set_recorded_position = self._set
        return SUCCESS

    def cuptiActivityEnableDriverApi(self, cbid: Any, on: Any) -> int:
        return self._choose((4, cbid.value), on.value)

    def cuptiActivityEnableRuntimeApi(self, cbid: Any, on: Any) -> int:
        return self._choose((5, cbid.value), on.value)

    def _choose(self, call: tuple[int, int], on: int) -> int:
        (self._chosen.add if on else self._chosen.discard)(call)
        return SUCCESS

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: Any, dropped: Any) -> int:
        dropped._obj.value = self.dropped
        return SUCCESS

    def cuptiActivityGetNextRecord(self, buffer: Any, size: Any, record: Any) -> int:
        last = record._obj.value
        address = buffer.value
        if last is not None:
            address = last + ctypes.sizeof(SIZES[c_uint32.from_address(last).value])
        if address >= buffer.value + size.value:
            record._obj.value = None
            return MAX_LIMIT_REACHED
        record._obj.value = address
        return SUCCESS

    def cuptiActivityFlushAll(self, flag: int) -> int:
        self._markers()
        records = [r for r in self._records if self._wanted(r)]
        self._records = []
        for record in [r for r in records if isinstance(r, Kernel)][: self.no_times]:
            record.start = record.end = 0
        self.order.shuffle(records)
        worker = threading.Thread(target=self._deliver, args=(records,))
        worker.start()
        worker.join()
        return SUCCESS

    def cuptiSubscribe(self, subscriber: Any, callback: Any, data: Any) -> int:
        if self.taken or not self.callbacks.subscribe(callback):
            return MULTIPLE_SUBSCRIBERS
        subscriber._obj.value = 1
        return SUCCESS

    def cuptiEnableCallback(self, on: Any, subscriber: Any, domain: int, cbid: Any) -> int:
        self.callbacks.enable(domain, cbid.value)
        return SUCCESS

    def cuptiUnsubscribe(self, subscriber: Any) -> int:
        self.callbacks.unsubscribe()
        return SUCCESS

    # Records

    def number(self, handle: int) -> int:
        if not self._numbers:
            self._numbers[0] = 7
        return self._numbers.setdefault(0 if handle == 1 else handle, 12 + len(self._numbers))

    def queue(self, handle: int) -> Any:
        """What the machine knows of a stream."""
        return self._current().devices[0].work_queue.schedule.queue(handle)

    def _wanted(self, record: Any) -> bool:
        if isinstance(record, Api):
            # As 13.0 does it: a call that was chosen without its kind gives no record.
            return record.kind in self._kinds and (record.kind, record.cbid) in self._chosen
        return record.kind in self._kinds

    def _deliver(self, records: list[Any]) -> None:
        while records:
            some = records[-self.records_a_buffer :]
            records = records[: -self.records_a_buffer]
            buffer = c_void_p()
            size = c_size_t()
            most = c_size_t()
            self._requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(most))
            assert buffer.value
            assert buffer.value % 8 == 0
            assert self._zeroed
            assert not any(ctypes.string_at(buffer.value, 4096))
            used = 0
            for record in some:
                assert used + ctypes.sizeof(record) <= size.value
                ctypes.memmove(buffer.value + used, ctypes.byref(record), ctypes.sizeof(record))
                used += ctypes.sizeof(record)
            self._completed(None, 0, buffer, size, used)

    def _begin(self) -> None:
        clock = self.clock
        if clock.recorder is self:
            return
        assert clock.recorder is None
        clock.recorder = self
        self._start_ns = clock.now_ns
        set_ = self._set
        fake = self

        def recorded(event: Any, device: Any, stream_id: int, *arguments: Any) -> None:
            fake._syncs += 1
            fake._event_sync[event.ptr] = fake._syncs
            set_(event, device, stream_id, *arguments)
            fake._next()
            fake._records.append(
                CudaEvent(
                    kind=36,
                    correlation=fake._correlation,
                    context=CONTEXT,
                    device=device.id,
                    stream=fake.number(stream_id),
                    event=event.ptr & 0xFFFF,
                    sync=fake._syncs,
                )
            )

        self.stream.Event._set_recorded_position = recorded

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    def _api(self, name: str, begun_ns: int) -> None:
        """A call that returns now, with the correlation counted last."""
        for kind, names in ((4, DRIVER_CALLS), (5, RUNTIME_CALLS)):
            for cbid, full in enumerate(names, 1):
                if full.split("_")[0] == name:
                    self._records.append(
                        Api(
                            kind,
                            cbid,
                            EPOCH_NS + begun_ns,
                            EPOCH_NS + self.clock.now_ns,
                            1,
                            threading.get_native_id(),
                            self._correlation,
                        )
                    )

    def _markers(self) -> None:
        ranges = (
            self._current()
            .get_component(self.ranges, clock=self.clock)
            .find_ranges(self._start_ns, self.clock.now_ns)
        )
        natives = {thread.ident: thread.native_id for thread in threading.enumerate()}
        for number, nvtx_range in enumerate(ranges, 1):
            name = nvtx_range.name.encode()
            self._kept.append(name)
            place = {
                "id": number,
                "object_kind": 2,
                "object": (c_uint32 * 3)(1, natives.get(nvtx_range.thread) or nvtx_range.thread),
            }
            start_ns = EPOCH_NS + nvtx_range.start_ns
            flags = 1 if nvtx_range.is_mark else 2
            self._records.append(Marker(kind=12, flags=flags, time=start_ns, name=name, **place))
            if nvtx_range.color is not None:
                self._records.append(MarkerData(kind=13, flags=2, id=number, color=nvtx_range.color))
            if not nvtx_range.is_mark:
                self._records.append(Marker(kind=12, flags=4, time=EPOCH_NS + nvtx_range.end_ns, **place))
        self._start_ns = self.clock.now_ns + 1

    # What the machine tells, as it tells a timeline of its own

    def record_operation(self, activity: Any, stream: Any, begun_ns: int) -> None:
        self._next()
        self._activity(activity)
        calls = {
            "CONCURRENT_KERNEL": "cuLaunchKernel",
            "MEMCPY": "cudaMemcpyAsync",
            "MEMSET": "cudaMemsetAsync",
            "HOST_LAUNCH": "cudaLaunchHostFunc",
        }
        self._api(calls[activity.kind], begun_ns)

    def record_graph(self, activities: Any, stream: Any, begun_ns: int) -> None:
        self._next()
        for activity in activities:
            self._activity(activity)
        self._api("cudaGraphLaunch", begun_ns)

    def _activity(self, activity: Any) -> None:
        place = {
            "start": EPOCH_NS + activity.start_ns,
            "end": EPOCH_NS + activity.end_ns,
            "device": activity.device_id,
            "context": CONTEXT,
            "stream": self.number(activity.stream_id),
            "correlation": self._correlation,
            "graph": activity.graph_id,
            "node": activity.graph_node_id + 1 if activity.graph_id else 0,
        }
        if activity.kind == "CONCURRENT_KERNEL":
            name = activity.name.encode()
            self._kept.append(name)
            self._records.append(
                Kernel(
                    kind=10,
                    name=name,
                    grid=activity.grid or (1, 1, 1),
                    block=activity.block or (1, 1, 1),
                    dynamic_shared=activity.shared_bytes,
                    registers=activity.registers_per_thread,
                    **place,
                )
            )
        elif activity.kind == "MEMSET":
            self._records.append(Memset(kind=2, size=activity.size_bytes, **place))
        elif activity.kind == "MEMCPY":
            host = {None: 0, False: 1, True: 2}[activity.pinned]
            self._records.append(
                Memcpy(
                    kind=1,
                    copy=COPIES[activity.copy_kind],
                    size=activity.size_bytes,
                    source=host if activity.copy_kind == "HtoD" else 3,
                    target=host if activity.copy_kind == "DtoH" else 3,
                    **place,
                )
            )
        else:
            return
        self._by_number[activity.correlation_id] = self._records[-1]

    def update_times(self, planned: Any) -> None:
        for number, activity in planned.items():
            if number in self._by_number:
                record = self._by_number[number]
                record.start = EPOCH_NS + activity.start_ns
                record.end = EPOCH_NS + activity.end_ns

    def record_captured_call(self, kind: str, begun_ns: int) -> None:
        self._next()

    def record_call(self, name: str, begun_ns: int, number: int = 0) -> None:
        if name != "cudaEventRecord":
            self._next()
        self._api(name, begun_ns)

    def record_wait(
        self,
        type: str,
        name: str,
        begun_ns: int,
        device_id: int,
        stream_id: int | None,
        predecessors: Any = (),
        event_id: int = 0,
    ) -> None:
        self._synchronized(type, begun_ns, stream_id if type == "STREAM_SYNCHRONIZE" else None, event_id)
        self._api(name, begun_ns)

    def extend_call_to_now(self, copy: Any, begun_ns: int, has_waited: bool) -> None:
        call = next(record for record in reversed(self._records) if isinstance(record, Api))
        call.end = EPOCH_NS + self.clock.now_ns

    def record_order(
        self,
        device_id: int,
        stream_id: int,
        event_id: int,
        event_stream_id: int | None,
        predecessors: Any,
        stream: Any,
    ) -> None:
        now_ns = self.clock.now_ns
        self._synchronized("STREAM_WAIT_EVENT", now_ns, stream_id, event_id)
        self._api("cudaStreamWaitEvent", now_ns)

    def _synchronized(self, type: str, begun_ns: int, stream_id: int | None, event_id: int) -> None:
        self._next()
        self._records.append(
            Synchronization(
                kind=38,
                type=WAITS[type],
                start=EPOCH_NS + begun_ns,
                end=EPOCH_NS + self.clock.now_ns,
                correlation=self._correlation,
                context=CONTEXT,
                stream=NO_VALUE if stream_id is None else self.number(stream_id),
                event=(event_id & 0xFFFF) if event_id else NO_VALUE,
                sync=self._event_sync.get(event_id, NO_VALUE),
            )
        )


def install() -> FakeCupti:
    """Let gpulab find a fake CUPTI, and read the modelled clock for the times of Python's lines."""
    from gpulab.real import watcher
    from gpulab.real.cupti import library, recorder
    from virtualgpu.model.recording import line_watch
    from virtualgpu.model.recording.program_lines import ProgramLines

    fake = FakeCupti()
    loaded = library.Cupti(fake)
    clock = SimpleNamespace(time_ns=fake.now)
    runtime = importlib.import_module(f"{second_copy.NAME}.cp.cuda.runtime")
    runtime.streamGetFlags = lambda handle: not fake.queue(handle).blocking
    runtime.streamGetPriority = lambda handle: fake.queue(handle).priority
    core = importlib.import_module(f"{second_copy.NAME}.cp._core")
    for name in ("reduction", "routine"):
        setattr(core, f"get_{name}_accelerators", list)
        setattr(core, f"set_{name}_accelerators", lambda _: None)
    belongs = ProgramLines.is_program_file

    def outside(self: ProgramLines, name: str, module: str) -> bool:
        """On hardware these files and the virtual GPU are compiled code, and have no lines."""
        is_hardware = module.startswith("tests.real.") and not module.startswith("tests.real.test_")
        return not is_hardware and not module.startswith(second_copy.NAME) and belongs(self, name, module)

    ProgramLines.is_program_file = outside  # type: ignore[method-assign]
    watcher.load_driver = lambda: fake.callbacks
    library.load_cupti, line_watch.time, recorder.time = lambda: loaded, clock, clock  # type: ignore[assignment]
    return fake
