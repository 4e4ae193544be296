"""``gl.sandbox``: run code in a separate process, whose faults do not affect the notebook's process."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpulab import session
from gpulab._deprecated import accept_old_parameters
from gpulab.lab._base import MimeBundle, PicturedResult
from gpulab.lab.faults import child
from gpulab.lab.faults.jobs import Call, Cell, pack_job
from gpulab.processes.errors import ProcessError
from gpulab.processes.talk import RequestProcess
from gpulab.processes.values import DamagedBytesError
from gpulab.views.tables.sandbox import SandboxTable
from virtualgpu.errors import GpulabError
from virtualgpu.records.faults.sandboxed import Culprit, SandboxRun
from virtualgpu.records.hazards import Place
from virtualgpu.records.timeline import SourceLine

MAX_LIMIT_S = 50.0
DEFAULT_LIMIT_S = 20.0
DEFAULT_MEMORY_BYTES = 4 << 30
_KEPT_OUTPUT_BYTES = 64 << 10
_ELAPSED_TIME_FACTOR = 3  # seconds that pass, for each of processor time
_START_LIMIT_S = 60.0
# A second context takes memory of the device: with less than this free, none is made beforehand.
_CONTEXT_BYTES = 2 << 30


@accept_old_parameters
def sandbox(
    fn: Callable[..., Any],
    *args: Any,
    returns: bool = False,
    launch_blocking: bool = False,
    limit_s: float = DEFAULT_LIMIT_S,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Sandboxed:
    r"""Run a function in a separate process, so that a fault cannot destroy the CUDA context of this process.

    Parameters
    ----------
    fn, args
        The function and its arguments. Arguments, and globals that the function names, are copied through the
        host, at most 256 MiB together; the arrays of this notebook stay unchanged.
    returns
        Whether ``.result`` holds the result of the function. It must be possible to pickle it (arrays are
        allowed), and it can have up to 64 MiB.
    launch_blocking
        Let the host wait after each launch, as ``CUDA_LAUNCH_BLOCKING=1`` does.
    limit_s
        The limit of processor time, at most 50 s. The elapsed time may be three times as long.
    memory_bytes
        The limit of host memory for the process and all processes that it starts.

    Returns
    -------
    Sandboxed
        The output, the figures and, after an error, a report: the line that raised the error, the faulty
        launch, and whether the CUDA context was lost. An exception of the function is reported, not raised.
        ``.record`` is a `virtualgpu.records.faults.sandboxed.SandboxRun`.

    Raises
    ------
    GpulabError
        If a value cannot be copied to the other process. Nothing has started then; the message names the
        value.

    Notes
    -----
    In a sandbox, the virtual GPU reports faults as CUDA does: late, with a short message, and again at every
    later call. gpulab still knows the faulty launch. On a real GPU, a second run with launch blocking finds
    it.

    A sandbox guards against crashes and infinite loops, not against hostile code: it runs as the same user,
    and with ``returns=True`` its result is unpickled in this process.

    Examples
    --------
    >>> seen = gl.sandbox(lambda: print("from another process"))
    >>> seen.output
    'from another process\n'
    >>> gl.sandbox(lambda x: x * 2, 21, returns=True).result
    42
    """
    if not callable(fn):
        raise TypeError(f"gl.sandbox needs a function, not {type(fn).__name__}. Pass it without calling it.")
    name = getattr(fn, "__name__", type(fn).__name__)
    return run_in_sandbox(Call(fn, args), name, returns, launch_blocking, limit_s, memory_bytes)


def run_in_sandbox(
    job: Call | Cell, name: str, returns_result: bool, is_blocking: bool, limit_s: float, memory_bytes: int
) -> Sandboxed:
    """Run a job in a sandbox. If the error does not identify the faulty launch, repeat the job with
    synchronous launches.
    """
    if not 0 < limit_s <= MAX_LIMIT_S:
        raise ValueError(
            f"limit_s must be a number of seconds above 0 and up to {MAX_LIMIT_S:g}, not {limit_s!r}."
        )
    if type(memory_bytes) is not int or memory_bytes < 1:
        raise ValueError(f"memory_bytes must be a positive number of bytes, not {memory_bytes!r}.")
    job_bytes = pack_job(job)
    run_limits = (limit_s, _ELAPSED_TIME_FACTOR * limit_s, memory_bytes)
    record, outcome = _run_once(job_bytes, name, returns_result, is_blocking, run_limits)
    if record.sticky and record.culprit is None:
        blocking_record = record if is_blocking else _run_once(job_bytes, name, False, True, run_limits)[0]
        if blocking_record.raised is not None:
            record = replace(record, culprit=Culprit(0, blocking_record.raised))
    return Sandboxed(record, outcome, returns_result)


class Sandboxed(PicturedResult):
    """The outcome of code that ran in a sandbox."""

    def __init__(self, record: SandboxRun, outcome: dict[str, Any], returns_result: bool) -> None:
        self.record = record
        self._outcome = outcome
        self._returns_result = returns_result

    @property
    def ok(self) -> bool:
        """Return whether the code ended without an error."""
        return self.record.ok

    @property
    def output(self) -> str:
        """The first 64 KiB of the output that the code printed."""
        return self.record.output

    @property
    def figures(self) -> list[bytes]:
        """Return the Matplotlib figures that the code did not close, as PNG images."""
        return [figure.tobytes() for figure in self._outcome.get("figures", ())]

    @property
    def result(self) -> Any:
        """The value that the function in the sandbox returned.

        Raises
        ------
        GpulabError
            If the result was not requested with ``returns=True``, the function did not finish, or the result
            could not be pickled.
        """
        if not self._returns_result:
            raise GpulabError("Results are returned only if you request them: gl.sandbox(..., returns=True).")
        result_bytes = self._outcome.get("result")
        if result_bytes is None:
            raise GpulabError(f"There is no result. {self!r}")
        return pickle.loads(result_bytes.tobytes())

    def _picture(self) -> SandboxTable:
        return SandboxTable.of(self.record)

    def _repr_mimebundle_(self, **kwargs: Any) -> MimeBundle | None:
        import base64

        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        mime_data, metadata = bundle
        display_data = self._outcome.get("shown", {})
        mime_data["text/html"] += display_data.get("text/html", display_data.get("image/svg+xml", ""))
        for figure in self.figures:
            image_text = base64.b64encode(figure).decode()
            mime_data["text/html"] += (
                f'<img alt="a figure from the sandbox" src="data:image/png;base64,{image_text}">'
            )
        if "text/plain" in display_data:
            mime_data["text/plain"] += f"\n{display_data['text/plain']}"
        return mime_data, metadata

    def __repr__(self) -> str:
        return SandboxTable.of(self.record).verdict


def _run_once(
    job_bytes: bytes, name: str, returns_result: bool, is_blocking: bool, run_limits: tuple[float, float, int]
) -> tuple[SandboxRun, dict[str, Any]]:
    """Run a job once, in the waiting process or in a new one, and start the next waiting process."""
    spare_process = _find_spare_process(os.getpid())
    start_s = time.perf_counter()
    process = spare_process.take_process(is_blocking)
    outcome = dict[str, Any]()
    end_reason = ""
    try:
        process.set_limits(*run_limits)
        outcome = process.ask("", child.run_job, job_bytes, returns_result, is_blocking, run_limits[0] / 3)
    except ProcessError as reason:
        end_reason = str(reason)
    except DamagedBytesError:
        end_reason = (
            "it wrote to a file descriptor that it did not open. Use only file descriptors that you opened."
        )
    finally:
        printed_output, output_lines = process.end_and_read_output()
        process.__exit__()
        spare_process.prepare_process()
    fault_fields = outcome.get("given")
    record = SandboxRun(
        provenance=session.backend().provenance,
        name=name,
        seconds=time.perf_counter() - start_s,
        output=printed_output,
        output_lines=output_lines,
        ended=end_reason,
        frames=tuple(_make_source_line(*frame) for frame in outcome.get("frames", ())),
        culprit=None if fault_fields is None else _make_culprit(fault_fields),
        blocking=is_blocking,
        notes=tuple(outcome.get("notes", ())),
        **{name: outcome[name] for name in ("error", "status", "sticky", "at_end") if name in outcome},
    )
    return record, outcome


def _make_culprit(fault_fields: dict[str, Any]) -> Culprit:
    launch, file, line = fault_fields["given"]
    source_line = _make_source_line(file, line) if file else None
    return Culprit(
        launch, source_line, fault_fields["kernel"], Place(*fault_fields["place"]), fault_fields["said"]
    )


def _make_source_line(file: str, line: int) -> SourceLine:
    return SourceLine(session.format_file_name(file), line, linecache.getline(file, line).strip())


class _SpareProcess:
    """Storage for a process that was started in advance. The process has loaded its modules and waits for the
    next job.

    The process has a CUDA context if the device has enough memory for one.
    """

    def __init__(self) -> None:
        self._waiting_process: tuple[tuple[Any, ...], RequestProcess, threading.Thread] | None = None

    def take_process(self, is_blocking: bool) -> RequestProcess:
        """Return the process that was started in advance if it fits the device, or a new process."""
        device_key = _make_device_key(is_blocking)
        waiting_process = self._waiting_process
        self._waiting_process = None
        if waiting_process is not None:
            waiting_process[2].join(_START_LIMIT_S)
            if waiting_process[0] == device_key and _is_responsive(waiting_process[1]):
                return waiting_process[1]
            waiting_process[1].__exit__()
        return _start_process(device_key)

    def prepare_process(self) -> None:
        """Start the process for the next job in the background."""
        if self._waiting_process is not None:
            return
        with contextlib.suppress(Exception):  # a busy computer starts it when it is needed
            device_key = _make_device_key(False)
            process = _start_process(device_key)
            thread = threading.Thread(target=_warm_up, args=(process, device_key), daemon=True)
            thread.start()
            self._waiting_process = device_key, process, thread


def _is_responsive(process: RequestProcess) -> bool:
    """Return whether a waiting process replies, since a process that was killed may not have ended yet."""
    try:
        process.ask("", child.confirm_alive)
    except (ProcessError, DamagedBytesError):
        return False
    return True


def _warm_up(process: RequestProcess, device_key: tuple[Any, ...]) -> None:
    if device_key[3]:
        with contextlib.suppress(Exception):
            process.ask("", child.warm_up, device_key[1])


def _start_process(device_key: tuple[Any, ...]) -> RequestProcess:
    device, device_count, blocks_launches, _ = device_key
    environment = {"MPLBACKEND": "Agg"} | ({"CUDA_LAUNCH_BLOCKING": "1"} if blocks_launches else {})
    process = RequestProcess(
        device, MAX_LIMIT_S, _START_LIMIT_S, DEFAULT_MEMORY_BYTES, _KEPT_OUTPUT_BYTES, environment
    )
    process.__enter__()
    if device_count > 1:
        process.ask("", child.warm_up, device_count)
    return process


def _make_device_key(is_blocking: bool) -> tuple[Any, ...]:
    """Return the settings that a waiting process must match.

    They are the device, the number of devices, launch blocking, and whether memory for a context is free.
    """
    device_choice = session.which_device()
    if device_choice.kind == "virtual":
        return f"virtual:{device_choice.device}", device_choice.count, False, True
    device_index = int(session.cp().cuda.Device().id)
    free_bytes, _ = session.cp().cuda.runtime.memGetInfo()
    return f"cuda:{device_index}", 1, is_blocking, free_bytes > _CONTEXT_BYTES


@functools.cache
def _find_spare_process(parent: int) -> _SpareProcess:
    """Return the storage of the waiting process. A forked process gets its own storage, which is empty at
    first.
    """
    return _SpareProcess()
