"""Run a job in a process under an NVIDIA tool, which can end the CUDA context or replay kernels."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from gpulab import session
from gpulab.lab.faults.jobs import Call, pack_job
from gpulab.processes.tree import end_descendants
from virtualgpu.compile.toolkit import find_tool
from virtualgpu.errors import ToolMissingError

DEFAULT_LIMIT_S = 60.0
_MAX_OUTPUT_BYTES = 64 << 20  # of what a tool writes


def run_under_tool(
    tool: str,
    options: Sequence[str],
    make_job: Callable[[], Call],
    find_refusal: Callable[[str], str],
    limit_s: float = DEFAULT_LIMIT_S,
) -> tuple[bytes, str, str]:
    """Run a job under one of NVIDIA's tools. Return the output of the tool, the error of the job, and the
    reason if the tool did not run.

    Parameters
    ----------
    tool, options
        The name of the tool, and its options. The last option takes the path of the output file, which is
        added.
    make_job
        Returns the call to run. Under ``ncu``, the call runs twice, and the second run is counted.
    find_refusal
        Returns the reason why the tool did nothing, from its output; empty if the output has no reason.

    Raises
    ------
    GpulabError
        If a part of the job cannot be copied to another process.
    """
    try:
        if session.which_device().kind == "virtual":
            raise ToolMissingError("it needs a real GPU, but a virtual GPU is in use")
        with tempfile.TemporaryDirectory() as folder:
            report_file, job_file, error_file, log_file = (
                Path(folder) / name for name in ("wrote", "job", "ended", "log")
            )
            command = [find_tool(tool), *options, str(report_file), sys.executable, "-m", __name__, tool]
            job_file.write_bytes(pack_job(make_job()))
            environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            environment["GPULAB_DEVICE"] = f"cuda:{int(session.cp().cuda.Device().id)}"
            with log_file.open("wb") as log_output:
                process = subprocess.Popen(
                    [*command, str(job_file), str(error_file)],
                    stdin=subprocess.DEVNULL,
                    stdout=log_output,
                    stderr=log_output,
                    env=os.environ | environment,
                )
                try:
                    process.wait(limit_s)
                except subprocess.TimeoutExpired:
                    remedy = "check a smaller launch, or a kernel without an infinite loop"
                    raise ToolMissingError(f"{tool} did not finish within {limit_s:g} s: {remedy}") from None
                finally:
                    end_descendants(process.pid)
                    process.kill()
                    process.wait()
            tool_output = (_read_head(log_file) + _read_head(report_file)).decode(errors="replace")
            if refusal_reason := find_refusal(tool_output):
                raise ToolMissingError(f"{tool}: {refusal_reason}")
            if not error_file.exists() or not report_file.exists():
                last_output = " ".join(tool_output.split()[-40:]) or "no word"
                raise ToolMissingError(f"{tool} ended with status {process.returncode}: {last_output}")
            return _read_head(report_file), error_file.read_text(), ""
    except ToolMissingError as tool_error:
        return b"", "", str(tool_error)


def _read_head(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(_MAX_OUTPUT_BYTES + 1)
    return b""


def main(tool: str, job_file: str, error_file: str) -> None:
    """Run a job in a process that NVIDIA's tool started, and write the error of the job to a file."""
    cp = session.cp()
    error_text = ""
    try:
        job = pickle.loads(Path(job_file).read_bytes())
        if tool == "ncu":  # what is loaded and compiled once is not counted
            job()
            cp.cuda.Device().synchronize()
            cp.cuda.runtime.profilerStart()
        else:
            cp.cuda.set_allocator(None)  # a pool's blocks are larger than the arrays in them
        job()
        cp.cuda.Device().synchronize()
    except Exception as error:
        error_text = f"{type(error).__name__}: {error}"[:2000]
    Path(error_file).write_text(error_text)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # a context that is lost does not end well by itself
