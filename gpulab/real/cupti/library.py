"""CUPTI through ctypes: collect activity records as bytes, and interpret them after the recording.

The package cupti-python is not used, because its record objects take 2 µs for each field that is read
(measured with version 13.0). With ten fields per kernel this is several times the cost of a launch, while the
program runs. Here the callbacks only store buffers, and the records are read after the recording. One library
also supports CUDA 12 and 13 with every version of Python.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Final

from gpulab.analysis.cupti.kinds import DRIVER, DRIVER_API, GRAPH_HOST_NODE, RUNTIME, RUNTIME_API
from gpulab.real.driver import read_data_rows
from virtualgpu.errors import GpulabError

_CUPTI_SUCCESS = 0
ERROR_SUBSCRIBER_EXISTS = 39  # CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
_SYSTEM_THREAD_IDS = 1  # CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM
_FLUSH_FORCED = 1
_ZEROED_BUFFERS = 5  # CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER
# A launch takes some 260 bytes; so many buffers are made ready before the recording begins.
_BUFFER_BYTES: Final = 8 << 20
_INITIAL_BUFFERS = 4
_INJECTION_VARIABLE = "NVTX_INJECTION64_PATH"
_VERSION_SUFFIX = re.compile(r"(_v\d+)?(_ptsz|_ptds)?(_v\d+)?$")

_RequestCallback = ctypes.CFUNCTYPE(None, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_size_t))
_CompleteCallback = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t, c_size_t)


class CuptiError(GpulabError):
    """Error for a call that CUPTI rejected. The attribute ``result`` contains the CUptiResult."""

    def __init__(self, function: str, result: int, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.result = result


class Cupti:
    """The connection of this process to CUPTI, of which only one can exist. This object owns the buffers that
    CUPTI fills.

    Parameters
    ----------
    library
        The library libcupti, from `ctypes.CDLL`.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self._spare_buffers: list[Any] = []
        self._buffers: dict[int, Any] = {}  # those that CUPTI writes to, by address
        self._full_buffers: deque[tuple[int, int]] = deque()
        # CUPTI keeps their addresses: they live as long as the process.
        self._callbacks = _RequestCallback(self._provide_buffer), _CompleteCallback(self._take_buffer)
        self._has_registered_callbacks = False
        self._active_kinds: list[int] = []
        self._call_names: dict[int, dict[int, str]] = {}

    def call(self, function: str, *arguments: Any) -> None:
        """Call a CUPTI function, and raise an error if the function fails.

        Raises
        ------
        CuptiError
            If CUPTI returns an error.
        """
        status = int(getattr(self._library, function)(*arguments))
        if status != _CUPTI_SUCCESS:
            message = c_char_p()
            self._library.cuptiGetResultString(status, byref(message))
            raise CuptiError(function, status, (message.value or b"").decode() or f"error {status}")

    @property
    def is_recording(self) -> bool:
        return bool(self._active_kinds)

    @property
    def version(self) -> int:
        """The version number of CUPTI (CUPTI_API_VERSION), such as 130001."""
        version_number = c_uint32()
        self.call("cuptiGetVersion", byref(version_number))
        return version_number.value

    def read_timestamp_ns(self) -> int:
        """The current time in ns of the clock that CUPTI uses in all its records."""
        time_ns = c_uint64()
        self.call("cuptiGetTimestamp", byref(time_ns))
        return time_ns.value

    # Recording

    def start(self, kinds: Iterable[int], calls: dict[int, frozenset[str]]) -> None:
        """Start to record the given kinds of activities and the calls of the given CUDA functions.

        The parameter `calls` contains the function names of each domain. Kinds that this CUPTI does not know
        are left out.

        Raises
        ------
        CuptiError
            If CUPTI returns an error, such as `ERROR_SUBSCRIBER_EXISTS` if another tool uses it. The
            recording does not start.
        """
        while len(self._spare_buffers) < _INITIAL_BUFFERS:
            buffer = (c_uint64 * (_BUFFER_BYTES // 8))()  # aligned to 8 bytes, as CUPTI asks
            ctypes.memset(buffer, 0, _BUFFER_BYTES)  # so that the system has given the pages
            self._spare_buffers.append(buffer)
        if not self._has_registered_callbacks:
            # CUPTI would fill buffers with zeros in the thread that launches.
            zero_flag = c_uint8(1)
            self._library.cuptiActivitySetAttribute(_ZEROED_BUFFERS, byref(c_size_t(1)), byref(zero_flag))
            self.call("cuptiActivityRegisterCallbacks", *self._callbacks)
            self.call("cuptiSetThreadIdType", _SYSTEM_THREAD_IDS)
            self._has_registered_callbacks = True
            atexit.register(self.stop)
        while self._full_buffers:  # what nobody has read
            del self._buffers[self._full_buffers.popleft()[0]]
        try:
            for record_kind in kinds:
                try:
                    self.call("cuptiActivityEnable", record_kind)
                except CuptiError as error:
                    if record_kind >= GRAPH_HOST_NODE and error.result != ERROR_SUBSCRIBER_EXISTS:
                        continue
                    raise
                self._active_kinds.append(record_kind)
            for domain, names in calls.items():
                # Choosing some without the kind gives no records (13.0): all are enabled, most forbidden.
                record_kind, enable_function = _CALL_SELECTORS[domain]
                self.call("cuptiActivityEnable", record_kind)
                self._active_kinds.append(record_kind)
                for cbid in [
                    cbid for cbid, name in self.list_call_names(domain).items() if name not in names
                ]:
                    self.call(enable_function, c_uint32(cbid), c_uint8(0))
        except CuptiError:
            self.stop()
            raise

    def stop(self) -> None:
        """End the recording. All device work must have ended before this call, because CUPTI does not wait
        for it.
        """
        if self._active_kinds:
            self._library.cuptiActivityFlushAll(_FLUSH_FORCED)
        while self._active_kinds:
            self._library.cuptiActivityDisable(self._active_kinds.pop())
        if self._has_registered_callbacks:
            self._library.cuptiActivityFlushAll(_FLUSH_FORCED)

    def count_dropped(self) -> int:
        """Return the number of records that CUPTI has dropped since the last call."""
        record_count = c_size_t()
        self.call("cuptiActivityGetNumDroppedRecords", None, c_uint32(0), byref(record_count))
        return record_count.value

    def take_buffers(self) -> Iterator[tuple[memoryview, list[int]]]:
        """Return the recorded buffers as bytes, with the offsets of their records. Each buffer is returned
        only once.
        """
        while self._full_buffers:
            address, valid_bytes = self._full_buffers.popleft()
            buffer = self._buffers.pop(address)
            record_offsets = []
            record_address = c_void_p()
            next_record = self._library.cuptiActivityGetNextRecord
            record_pointer = byref(record_address)
            while next_record(c_void_p(address), c_size_t(valid_bytes), record_pointer) == _CUPTI_SUCCESS:
                record_offsets.append((record_address.value or address) - address)
            yield memoryview(buffer).cast("B")[:valid_bytes], record_offsets

    def _provide_buffer(self, buffer: Any, size: Any, records: Any) -> None:
        new_buffer = self._spare_buffers.pop() if self._spare_buffers else (c_uint64 * (_BUFFER_BYTES // 8))()
        address = ctypes.addressof(new_buffer)
        self._buffers[address] = new_buffer
        buffer[0], size[0], records[0] = address, _BUFFER_BYTES, 0

    def _take_buffer(self, context: Any, stream: int, buffer: int, size: int, valid_bytes: int) -> None:
        if valid_bytes:
            self._full_buffers.append((buffer, valid_bytes))
        else:
            self._buffers.pop(buffer, None)

    # Names

    def list_call_names(self, domain: int) -> dict[int, str]:
        """Return a dictionary from CUPTI's function numbers to the names of CUDA functions without version
        suffixes.
        """
        if domain not in self._call_names:
            name_of_cbid: dict[int, str] = {}
            name = c_char_p()
            for cbid in range(1, 2000):
                if self._library.cuptiGetCallbackName(domain, c_uint32(cbid), byref(name)) != _CUPTI_SUCCESS:
                    if cbid > 600:
                        break
                    continue
                call_name = (name.value or b"").decode()
                if call_name and call_name != "INVALID":
                    name_of_cbid[cbid] = _VERSION_SUFFIX.sub("", call_name)
            self._call_names[domain] = name_of_cbid
        return self._call_names[domain]


_CALL_SELECTORS = {
    DRIVER_API: (DRIVER, "cuptiActivityEnableDriverApi"),
    RUNTIME_API: (RUNTIME, "cuptiActivityEnableRuntimeApi"),
}


def group_by_api(names: Collection[str]) -> dict[int, frozenset[str]]:
    """Divide the names of CUDA functions into names of the driver API and names of the runtime API."""
    runtime_names = frozenset(name for name in names if name.startswith("cuda"))
    return {DRIVER_API: frozenset(names) - runtime_names, RUNTIME_API: runtime_names}


@functools.cache
def load_cupti() -> Cupti | None:
    """Return the CUPTI object of this process, or None if CUPTI is not installed."""
    if sys.platform != "linux":
        return None
    try:
        from cuda import pathfinder

        library = pathfinder.load_nvidia_dynamic_lib("cupti")
    except (ImportError, RuntimeError, OSError):  # DynamicLibNotFoundError is a RuntimeError
        return None
    # NVTX looks here at its first call, and from then on tells CUPTI of ranges.
    os.environ.setdefault(_INJECTION_VARIABLE, library.abs_path)
    return Cupti(ctypes.CDLL(library.abs_path))


def find_other_cupti_tool() -> str:
    """Return the name of another tool that uses CUPTI in this process, or an empty string if there is
    none.
    """
    for tool, environment_variable, value_substring in read_data_rows("profilers.tsv"):
        variable_value = os.environ.get(environment_variable, "").lower()
        if variable_value and value_substring in variable_value:
            return tool
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.autograd._profiler_enabled():
        return "torch.profiler"
    return ""
