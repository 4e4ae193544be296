"""Calls to the CUPTI library and handling of its results, tested with a fake library.

Its numbers are those of cupti_result.h, cupti_activity.h and cupti_callbacks.h of CUDA 13.0.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_size_t, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from gpulab.real.cupti import callbacks, library
from gpulab.real.cupti.library import Cupti, CuptiError
from virtualgpu.errors import GpulabError

SUCCESS = 0
INVALID_PARAMETER = 1
INVALID_KIND = 21
MAX_LIMIT_REACHED = 12
NOT_SUPPORTED = 27
MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39
DRIVER = 4
RUNTIME = 5
CONCURRENT_KERNEL = 10
MEMSET = 2
GRAPH_HOST_NODE = 56
HOST_LAUNCH = 58
DRIVER_API = 1
RUNTIME_API = 2
ATTR_ZEROED_OUT_ACTIVITY_BUFFER = 5
THREAD_ID_TYPE_SYSTEM = 1
FLAG_FLUSH_FORCED = 1
NAMES = {
    DRIVER_API: {1: b"cuInit", 2: b"cuLaunchKernel_ptsz", 700: b"cuLaunchKernelEx_v2"},
    RUNTIME_API: {
        1: b"cudaMalloc_v3020",
        2: b"cudaMemcpyAsync_ptsz_v7000",
        3: b"INVALID",
        4: b"",
        5: None,
        6: b"cudaEventRecord_v3020",
        600: b"cudaLast_v2",
        1999: b"cudaFar",
    },
}
RECORD_BYTES = 24


class Library:
    """A fake of the CUPTI functions in `ctypes`. It records each call; ``refused`` sets error results."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.refused: dict[tuple[str, int], int] = {}
        self.names = NAMES
        self.time = 1000
        self.asked: list[tuple[int, int]] = []
        self.has_words = True

    def _note(self, name: str, *arguments: Any) -> int:
        self.calls.append((name, *arguments))
        return self.refused.get((name, arguments[0] if arguments else 0), SUCCESS)

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, *arguments in self.calls if called == name]  # type: ignore[misc]

    def cuptiGetVersion(self, version: Any) -> int:
        version._obj.value = 130001
        return self._note("version")

    def cuptiGetTimestamp(self, time: Any) -> int:
        time._obj.value = (1 << 40) + self.time
        return self._note("timestamp")

    def cuptiGetResultString(self, result: int, words: Any) -> int:
        if self.has_words:
            words._obj.value = {21: b"CUPTI_ERROR_INVALID_KIND"}.get(result, b"CUPTI_ERROR")
        return SUCCESS

    def cuptiActivitySetAttribute(self, attribute: int, size: Any, value: Any) -> int:
        return self._note("attribute", attribute, size._obj.value, bytes(value._obj))

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:
        self.requested = requested
        self.completed = completed
        return self._note("register")

    def cuptiSetThreadIdType(self, kind: int) -> int:
        return self._note("threads", kind)

    def cuptiActivityEnable(self, kind: int) -> int:
        return self._note("enable", kind)

    def cuptiActivityDisable(self, kind: int) -> int:
        return self._note("disable", kind)

    def cuptiActivityEnableDriverApi(self, cbid: Any, on: Any) -> int:
        return self._note("driver", cbid.value, on.value)

    def cuptiActivityEnableRuntimeApi(self, cbid: Any, on: Any) -> int:
        return self._note("runtime", cbid.value, on.value)

    def cuptiActivityFlushAll(self, flag: int) -> int:
        return self._note("flush", flag)

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: Any, dropped: Any) -> int:
        assert (context, stream.value) == (None, 0)
        dropped._obj.value = 3
        return self._note("dropped")

    def cuptiActivityGetNextRecord(self, buffer: Any, size: Any, record: Any) -> int:
        last = record._obj.value
        address = buffer.value if last is None else last + RECORD_BYTES
        if address >= buffer.value + size.value:
            return MAX_LIMIT_REACHED
        record._obj.value = address
        return SUCCESS

    def cuptiGetCallbackName(self, domain: int, cbid: Any, name: Any) -> int:
        self.asked.append((domain, cbid.value))
        if cbid.value not in self.names[domain]:
            return INVALID_PARAMETER
        name._obj.value = self.names[domain][cbid.value]
        return SUCCESS

    def cuptiSubscribe(self, subscriber: Any, callback: Any, data: Any) -> int:
        assert data is None
        self.callback = callback
        subscriber._obj.value = 77
        return self._note("subscribe")

    def cuptiEnableCallback(self, on: Any, subscriber: Any, domain: int, cbid: Any) -> int:
        return self._note("callback", domain, cbid.value, on.value, subscriber.value)

    def cuptiUnsubscribe(self, subscriber: Any) -> int:
        return self._note("unsubscribe", subscriber.value)

    # Calls that CUPTI makes when it has records

    def request(self) -> tuple[int, int, int]:
        """Request a buffer. Return its address, size and maximum number of records (0: no limit)."""
        buffer = c_void_p()
        size = c_size_t(1)
        records = c_size_t(99)
        self.requested(ctypes.pointer(buffer), ctypes.pointer(size), ctypes.pointer(records))
        return buffer.value or 0, size.value, records.value

    def give(self, data: bytes) -> int:
        address, size, _ = self.request()
        ctypes.memmove(address, data, len(data))
        self.completed(None, 0, address, size, len(data))
        return address


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Library:
    monkeypatch.setattr(library, "_BUFFER_BYTES", 1 << 12)
    monkeypatch.setattr(library.atexit, "register", lambda function: exits.append(function))
    exits.clear()
    return Library()


exits: list[Any] = []
CALLS = {DRIVER_API: frozenset({"cuLaunchKernel"}), RUNTIME_API: frozenset({"cudaMalloc", "cudaEventRecord"})}


def test_a_recording_calls_cupti_in_order(fake: Library) -> None:
    cupti = Cupti(fake)
    assert not cupti.is_recording
    cupti.stop()
    assert fake.calls == [], "nothing has been asked for yet"
    cupti.start([CONCURRENT_KERNEL, MEMSET], CALLS)
    assert cupti.is_recording
    assert fake.calls == [
        ("attribute", ATTR_ZEROED_OUT_ACTIVITY_BUFFER, 1, b"\x01"),
        ("register",),
        ("threads", THREAD_ID_TYPE_SYSTEM),
        ("enable", CONCURRENT_KERNEL),
        ("enable", MEMSET),
        ("enable", DRIVER),
        ("driver", 1, 0),
        ("enable", RUNTIME),
        ("runtime", 2, 0),
        ("runtime", 600, 0),
    ]
    fake.calls.clear()
    cupti.stop()
    assert not cupti.is_recording
    assert fake.calls[0] == fake.calls[-1] == ("flush", FLAG_FLUSH_FORCED), "before the kinds end, and after"
    assert sorted(fake.calls[1:-1]) == [
        ("disable", kind) for kind in sorted((CONCURRENT_KERNEL, MEMSET, DRIVER, RUNTIME))
    ]
    assert exits == [cupti.stop], "a process that ends meanwhile stops it"


def test_a_failed_registration_is_retried(fake: Library) -> None:
    cupti = Cupti(fake)
    fake.refused["register", 0] = NOT_SUPPORTED
    with pytest.raises(CuptiError, match="cuptiActivityRegisterCallbacks"):
        cupti.start([MEMSET], {})
    assert not cupti.is_recording
    fake.refused.clear()
    cupti.start([MEMSET], {})
    assert len(fake.named("register")) == 2


@pytest.mark.parametrize("kind", [GRAPH_HOST_NODE, HOST_LAUNCH])
def test_record_kinds_unknown_to_an_older_cupti_are_skipped(fake: Library, kind: int) -> None:
    cupti = Cupti(fake)
    fake.refused["enable", kind] = INVALID_KIND
    cupti.start([MEMSET, kind, CONCURRENT_KERNEL], {})
    cupti.stop()
    assert sorted(fake.named("disable")) == [[MEMSET], [CONCURRENT_KERNEL]]


@pytest.mark.parametrize(
    ("function", "first", "result"),
    [
        ("enable", CONCURRENT_KERNEL, INVALID_KIND),
        ("enable", GRAPH_HOST_NODE - 1, INVALID_KIND),
        ("enable", GRAPH_HOST_NODE, MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
        ("enable", CONCURRENT_KERNEL, MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
        ("enable", DRIVER, NOT_SUPPORTED),
        ("driver", 1, INVALID_PARAMETER),
    ],
)
def test_nothing_is_recorded_after_a_cupti_error(
    fake: Library, function: str, first: int, result: int
) -> None:
    cupti = Cupti(fake)
    fake.refused[function, first] = result
    with pytest.raises(CuptiError) as raised:
        cupti.start([MEMSET, CONCURRENT_KERNEL, GRAPH_HOST_NODE - 1, GRAPH_HOST_NODE], CALLS)
    assert raised.value.result == result
    assert (result == library.ERROR_SUBSCRIBER_EXISTS) == (result == MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    assert not cupti.is_recording
    enabled = [kind for (kind,) in fake.named("enable") if fake.refused.get(("enable", kind)) is None]
    assert sorted(kind for (kind,) in fake.named("disable")) == sorted(enabled)
    assert len(fake.named("flush")) == 2


def test_errors_name_the_function_and_its_result(fake: Library) -> None:
    cupti = Cupti(fake)
    fake.refused = {("timestamp", 0): INVALID_KIND}
    with pytest.raises(CuptiError, match=r"^cuptiGetTimestamp: CUPTI_ERROR_INVALID_KIND$") as raised:
        cupti.read_timestamp_ns()
    assert isinstance(raised.value, GpulabError)
    fake.has_words = False
    with pytest.raises(CuptiError, match=r"^cuptiGetTimestamp: error 21$"):
        cupti.read_timestamp_ns()


# -- buffers ----------------------------------------------------------------------------------------------


def test_unread_buffers_are_dropped_by_the_next_recording(fake: Library) -> None:
    cupti = Cupti(fake)
    cupti.start([MEMSET], {})
    fake.give(bytes(24))
    cupti.stop()
    cupti.start([MEMSET], {})
    fake.give(b"\x07" * 48)
    cupti.stop()
    assert [(bytes(buffer), offsets) for buffer, offsets in cupti.take_buffers()] == [(b"\x07" * 48, [0, 24])]
    assert cupti._buffers == {}


# -- names ------------------------------------------------------------------------------------------------


def test_version_suffixes_are_removed_from_call_names(fake: Library) -> None:
    cupti = Cupti(fake)
    assert cupti.list_call_names(RUNTIME_API) == {
        1: "cudaMalloc",
        2: "cudaMemcpyAsync",
        6: "cudaEventRecord",
        600: "cudaLast",
    }
    assert cupti.list_call_names(DRIVER_API) == {1: "cuInit", 2: "cuLaunchKernel"}
    queries = [cbid for domain, cbid in fake.asked if domain == RUNTIME_API]
    assert (queries[0], queries[-1]) == (1, 601), "gaps are passed over as far as the functions of CUDA go"
    queries = [*fake.asked]
    assert cupti.list_call_names(RUNTIME_API) is cupti.list_call_names(RUNTIME_API)
    assert fake.asked == queries


# -- callbacks --------------------------------------------------------------------------------------------


def test_a_subscription_ends_after_an_error(fake: Library) -> None:
    fake.refused["callback", RUNTIME_API] = INVALID_PARAMETER
    names = {RUNTIME_API: frozenset({"cudaMalloc"})}
    with pytest.raises(CuptiError), callbacks.subscribe_to_calls(Cupti(fake), names, lambda *_: None):
        pytest.fail("nothing is subscribed")
    assert fake.calls[-1] == ("unsubscribe", 77)
    fake.calls.clear()
    fake.refused = {("subscribe", 0): MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED}
    with pytest.raises(CuptiError), callbacks.subscribe_to_calls(Cupti(fake), names, lambda *_: None):
        pytest.fail("another tool holds it")
    assert fake.calls == [("subscribe",)], "who did not subscribe does not unsubscribe"


# -- the path of the library ------------------------------------------------------------------------------


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    monkeypatch.setattr(library.ctypes, "CDLL", lambda path: f"library at {path}")
    monkeypatch.setattr(library.sys, "platform", "linux")

    def find(name: str) -> Any:
        assert name == "cupti"
        return SimpleNamespace(abs_path="/somewhere/libcupti.so.13")

    pathfinder = SimpleNamespace(load_nvidia_dynamic_lib=find)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(pathfinder=pathfinder))
    return pathfinder


def load() -> Cupti | None:
    return library.load_cupti.__wrapped__()  # type: ignore[attr-defined, no-any-return]


def test_the_library_path_is_set_for_nvtx(unloaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = load()
    assert cupti is not None
    assert cupti._library == "library at /somewhere/libcupti.so.13"
    assert library.os.environ["NVTX_INJECTION64_PATH"] == "/somewhere/libcupti.so.13"
    monkeypatch.setenv("NVTX_INJECTION64_PATH", "a profiler's")
    assert load() is not None
    assert library.os.environ["NVTX_INJECTION64_PATH"] == "a profiler's"


@pytest.mark.parametrize("error", [ImportError, RuntimeError, OSError])
def test_load_returns_none_without_the_library(unloaded: Any, error: type[Exception]) -> None:
    def missing(_: str) -> Any:
        raise error

    unloaded.load_nvidia_dynamic_lib = missing
    assert load() is None
    assert "NVTX_INJECTION64_PATH" not in library.os.environ


@pytest.mark.parametrize(
    ("variables", "torch", "tool"),
    [
        ({}, None, ""),
        ({"NSYS_PROFILING_SESSION_ID": "7"}, None, "Nsight Systems"),
        ({"NSYS_PROFILING_SESSION_ID": ""}, None, ""),
        ({"CUDA_INJECTION64_PATH": "/opt/Compute-Sanitizer/lib.so"}, None, "Compute Sanitizer"),
        ({"CUDA_INJECTION64_PATH": "/opt/other.so"}, None, ""),
        ({"LD_PRELOAD": "/opt/NSYS/lib.so"}, None, "Nsight Systems"),
        ({}, True, "torch.profiler"),
        ({}, False, ""),
    ],
)
def test_other_tools_that_use_cupti_are_named(
    variables: dict[str, str], torch: bool | None, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _, variable, _ in library.read_data_rows("profilers.tsv"):
        monkeypatch.delenv(variable, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    profiler = SimpleNamespace(_profiler_enabled=lambda: torch)
    module = SimpleNamespace(autograd=profiler)
    monkeypatch.setitem(sys.modules, "torch", None if torch is None else module)
    assert library.find_other_cupti_tool() == tool
