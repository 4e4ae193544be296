"""The process of a sandbox, which runs a job and returns its outcome as plain data."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from types import TracebackType
from typing import Any

import numpy as np
import psutil

from gpulab import session
from gpulab.processes.errors import describe_exit
from gpulab.processes.tree import find_children

_COMPILER_FOLDER = "virtualgpu/compile/"
_MAX_CHARACTERS = 4000  # characters of an error's text
_MAX_FIGURES = 16
_FIGURE_DPI = 72


def warm_up(_: Any, count: int) -> None:
    """Load modules and create the CUDA context before the process receives a job."""
    if count > 1:
        session.use_device(count=count)
    session.cp().ones(()).sum().get()  # which opens the device


def confirm_alive(_: Any) -> bool:
    """Return True to show that the process is alive and can receive a job."""
    return True


def run_job(
    _: Any, job_bytes: bytes, returns_result: bool, is_blocking: bool, watchdog_s: float
) -> dict[str, Any]:
    """Run a job. The returned dictionary contains the error, the state of the device, and the result if
    ``returns`` is true.
    """
    own_pid = os.getpid()
    cp = session.cp()
    if session.which_device().kind == "virtual":
        session.use_device(watchdog_s=watchdog_s)
    job = pickle.loads(job_bytes)
    outcome: dict[str, Any] = {
        "error": "",
        "frames": [],
        "status": 0,
        "sticky": False,
        "at_end": False,
        "notes": [],
        "figures": [],
        "shown": {},
        "result": None,
        "given": None,
    }
    with session.report_late_faults(is_blocking) as late_faults:
        job_value = None
        try:
            job_value = job()
            _finish_work(cp, outcome)
        except BaseException as error:
            _add_error(error, outcome)
        if os.getpid() != own_pid:
            os._exit(0)  # a process that the job forked, and that came out of it as well
        if outcome["status"]:
            outcome["sticky"] = _read_next_status(cp) == outcome["status"]
        late_fault = late_faults.fault if late_faults is not None else None
        if late_faults is not None and late_faults.faulty_launch is not None and late_fault is not None:
            fault_site = late_fault.site
            outcome["given"] = {
                "given": tuple(late_faults.faulty_launch),
                "kernel": fault_site.kernel,
                "said": str(late_fault),
                "place": (fault_site.line, fault_site.source_text, fault_site.block, fault_site.thread),
            }
        if not outcome["error"]:
            _add_result(job_value, returns_result, outcome)
    _add_figures(outcome)
    if any(not _is_compiler(pid) for pid in find_children(own_pid)):
        outcome["notes"].append("The code left processes that were still running. They were ended.")
    return outcome


def _is_compiler(pid: int) -> bool:
    """Return whether a process runs the compiler of the virtual GPU, or has ended."""
    try:
        return any(_COMPILER_FOLDER in argument for argument in psutil.Process(pid).cmdline())
    except psutil.Error:
        return True


def _finish_work(cp: Any, outcome: dict[str, Any]) -> None:
    """Wait for the remaining work on all devices, and add an error of that work to the outcome."""
    try:
        for device_id in range(cp.cuda.runtime.getDeviceCount()):
            with cp.cuda.Device(device_id):
                cp.cuda.Device(device_id).synchronize()
    except RuntimeError as error:
        _add_error(error, outcome)
        outcome["frames"], outcome["at_end"] = [], True


def _add_error(error: BaseException, outcome: dict[str, Any]) -> None:
    """Add an error, and the lines of the program that led to it, to the outcome."""
    try:
        error_text = str(error)[:_MAX_CHARACTERS]
    except BaseException:  # its text is made by the program
        error_text = ""
    if isinstance(error, SystemExit):
        outcome["error"] = f"SystemExit: {describe_exit(error).removeprefix('it ')}"
    else:
        outcome["error"] = f"{type(error).__name__}: {error_text}" if error_text else type(error).__name__
    status = getattr(error, "status", 0)
    outcome["status"] = status if isinstance(status, int) else 0
    outcome["frames"] = _find_frames(error.__traceback__)


def _find_frames(error_traceback: TracebackType | None) -> list[tuple[str, int]]:
    """Return the learner's lines in a traceback, or the lines of the course's helpers if there are none."""
    program_lines = session.make_program_lines()
    for is_shown in (program_lines.is_learner_file, program_lines.is_program_file):
        shown_frames = [
            (frame.f_code.co_filename, line)
            for frame, line in traceback.walk_tb(error_traceback)
            if is_shown(frame.f_code.co_filename, str(frame.f_globals.get("__name__")))
        ]
        if shown_frames:
            return shown_frames[-20:]
    return []


def _read_next_status(cp: Any) -> int:
    """Return the error status of the next call to the device, or 0. A sticky error appears again."""
    try:
        cp.cuda.runtime.deviceSynchronize()
    except Exception as error:
        status = getattr(error, "status", 0)
        return status if isinstance(status, int) else 0
    return 0


def _add_result(value: Any, returns_result: bool, outcome: dict[str, Any]) -> None:
    """Add the pickled result to the outcome, or a note that explains why it cannot be pickled."""
    import cloudpickle

    if isinstance(value, DisplayOutput):
        outcome["shown"], value = value.display_bundle, value.values
    if not returns_result:
        return
    try:
        value_bytes = cloudpickle.dumps(value)
    except Exception as error:
        outcome["notes"].append(
            f"The result, {_describe_type(value)}, cannot leave the sandbox ({type(error).__name__}): return "
            "numbers, texts, arrays or containers of them."
        )
        return
    outcome["result"] = np.frombuffer(value_bytes, np.uint8)


class DisplayOutput:
    """The results of a notebook cell that ran in a sandbox. The results are the values of the declared
    variables and the output of the last expression.
    """

    def __init__(self, values: dict[str, Any], display_bundle: dict[str, Any]) -> None:
        self.values = values
        self.display_bundle = display_bundle


def _describe_type(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _add_figures(outcome: dict[str, Any]) -> None:
    """Add all open Matplotlib figures to the outcome as PNG images."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    import io

    for figure_number in pyplot.get_fignums()[:_MAX_FIGURES]:
        buffer = io.BytesIO()
        with contextlib.suppress(Exception):
            pyplot.figure(figure_number).savefig(buffer, format="png", dpi=_FIGURE_DPI, bbox_inches="tight")
            outcome["figures"].append(np.frombuffer(buffer.getvalue(), np.uint8))
