"""What a real GPU and compute-sanitizer say of the wrong kernels, each run in a process of its own.

``python -m tests.gpu.sanitizer_verdicts OUT.json [NAME ...]`` on a machine with a GPU records the
verdicts of the whole catalogue or of some kernels, ``--barriers OUT.json`` what synccheck says of the
patterns of ``barriers.cu``, and ``--xml OUT.json [NAME ...]`` the tool's own files, for who reads those.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engine import barriers
from tests.engine.faulty_kernels import BY_NAME, CATALOGUE, Faulty, arguments
from tools.json_rows import json_rows

ROOT = Path(__file__).resolve().parent.parent.parent
PLAIN_LIMIT_S = 30
TOOL_LIMIT_S = 60
HANG_LIMIT_S = 12
AT_ONCE = 8
# One of each tool, and of each shape of a report.
XML_OF = (
    "global_read_past_end",
    "misaligned_float4",
    "shared_static_past_end",
    "missing_barrier",
    "missing_syncwarp",
    "global_never_written",
    "barrier_in_one_branch",
    "device_assert",
    "endless_recursion",
    "huge_shift",
)
_NOISE = re.compile(
    r"^(COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|Target application|Error: process|Saved host|"
    r"Host Frame|Device Frame|\d+ errors? |\s*$)"
)
_SITE = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_LINE = re.compile(r"[\w./-]+\.cu:(\d+)")
_COUNT = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")


def run_one(name: str) -> None:
    """Launch one kernel through CuPy without a memory pool; print how it ended."""
    import cupy

    cupy.cuda.set_allocator(None)
    faulty = BY_NAME[name]
    args, _kept = arguments(faulty, cupy)
    kernel = cupy.RawKernel(faulty.code, "k", options=("-lineinfo",))
    try:
        kernel((faulty.grid,), (faulty.block,), tuple(args), shared_mem=faulty.shared_bytes)
        cupy.cuda.Device().synchronize()
    except Exception as error:
        print("OUTCOME", str(error).split(":")[0], flush=True)
        os._exit(0)
    print("OUTCOME ok", flush=True)
    os._exit(0)


def run_barrier(name: str) -> None:
    """Launch one pattern of ``barriers.cu``."""
    import cupy

    pattern = barriers.BY_NAME[name]
    kernel = cupy.RawKernel(pattern.code, "k", options=("-lineinfo",))
    kernel((pattern.grid,), pattern.block, (cupy.zeros(256, "i4"), cupy.int32(8)))
    cupy.cuda.Device().synchronize()


def barrier_verdict(name: str) -> dict[str, Any]:
    """What synccheck says of a pattern; ``hangs`` where it does not end."""
    command = [sys.executable, "-m", "tests.gpu.sanitizer_verdicts", "--run-barrier", name]
    text = _child(
        ["compute-sanitizer", "--tool", "synccheck", "--show-backtrace", "device", *command], TOOL_LIMIT_S
    )
    return {"hangs": True} if text is None else read_report(text)


def _child(command: list[str], limit_s: float) -> str | None:
    """Output of a command; None if it did not end in time."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    )
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def _outcome(output: str | None) -> str:
    if output is None:
        return "hangs"
    found = re.search(r"OUTCOME (.+)", output)
    return found[1].strip() if found else "no outcome"


def read_report(text: str) -> dict[str, Any]:
    """The first error of a report, with its place, and how many there were."""
    lines = [re.sub(r"^=+ ?", "", line) for line in text.splitlines() if line.startswith("=========")]
    words = [line for line in lines if not _NOISE.match(line.strip())]
    site = next((m for line in lines if (m := _SITE.search(line))), None)
    counts = [int(m[1]) for line in lines if (m := _COUNT.search(line))]
    found = {
        "errors": counts[-1] if counts else 0,
        "words": [_without_numbers(word.strip()) for word in words[:2]],
        "lines": sorted({int(m[1]) for line in lines for m in _LINE.finditer(line)}),
        "thread": [int(site[n]) for n in (1, 2, 3)] if site else None,
        "block": [int(site[n]) for n in (4, 5, 6)] if site else None,
    }
    return {key: value for key, value in found.items() if value not in (None, [])}


def _without_numbers(text: str) -> str:
    """A line without what differs from run to run: addresses, folders and the names of files."""
    return re.sub(r"[0-9a-f]{40}\.cubin", "kernel", re.sub(r"0x[0-9a-f]+|/\S+/", "…", text))


def verdict(faulty: Faulty) -> dict[str, Any]:
    """How the kernel ends on this GPU, and what its tool says."""
    command = [sys.executable, "-m", "tests.gpu.sanitizer_verdicts", "--run", faulty.name]
    limit = HANG_LIMIT_S if faulty.hangs else PLAIN_LIMIT_S
    found: dict[str, Any] = {"plain": _outcome(_child(command, limit)), "tool": faulty.tool}
    if faulty.tool and not (faulty.hangs and faulty.tool == "memcheck"):
        more = ["--racecheck-report", "all"] if faulty.tool == "racecheck" else []
        text = _child(
            ["compute-sanitizer", "--tool", faulty.tool, *more, "--show-backtrace", "device", *command],
            TOOL_LIMIT_S if not faulty.hangs else 2 * HANG_LIMIT_S,
        )
        found |= {"hangs": True} if text is None else read_report(text)
    return found


def record_xml(path: Path, names: Sequence[str]) -> None:
    """Keep the XML that the tool writes of some kernels; the empty text where it wrote none."""

    def one(name: str) -> str:
        tool = BY_NAME[name].tool or "memcheck"
        more = ["--racecheck-report", "all"] if tool == "racecheck" else []
        more += ["--report-api-errors", "no"] if tool == "memcheck" else []
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "wrote.xml"
            command = [
                "compute-sanitizer",
                "--tool",
                tool,
                *more,
                "--print-limit",
                "3",
                "--xml",
                "--save",
                str(file),
            ]
            said = _child([*command, sys.executable, "-m", "tests.gpu.sanitizer_verdicts", "--run", name], 60)
            return file.read_text(errors="replace") if file.exists() else f"no file: {said}"

    result: dict[str, Any] = _asked()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        result["xml"] = dict(zip(names, pool.map(one, names), strict=True))
    path.write_text(json_rows(result, 2) + "\n")


def _asked() -> dict[str, Any]:
    """Which GPU and which tool."""
    asked = {
        "device": "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader",
        "sanitizer": "compute-sanitizer --version",
    }
    return {
        key: (_child(command.split(), 30) or "").strip().splitlines()[-1] for key, command in asked.items()
    }


def record_barriers(path: Path) -> None:
    """Write what synccheck says of every pattern of ``barriers.cu``."""
    result = _asked()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        result["verdicts"] = dict(
            zip(barriers.BY_NAME, pool.map(barrier_verdict, barriers.BY_NAME), strict=True)
        )
    path.write_text(json_rows(result, 2) + "\n")


def record(path: Path, names: Sequence[str]) -> None:
    """Write the verdicts of some kernels, of the whole catalogue if none is named."""
    result = _asked()
    chosen = [BY_NAME[name] for name in names] or list(CATALOGUE)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        verdicts = pool.map(verdict, chosen)
        result["verdicts"] = {f.name: v for f, v in zip(chosen, verdicts, strict=True)}
    path.write_text(json_rows(result, 2) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run_one(sys.argv[2])
    elif sys.argv[1] == "--run-barrier":
        run_barrier(sys.argv[2])
    elif sys.argv[1] == "--barriers":
        record_barriers(Path(sys.argv[2]))
    elif sys.argv[1] == "--xml":
        record_xml(Path(sys.argv[2]), sys.argv[3:] or XML_OF)
    else:
        record(Path(sys.argv[1]), sys.argv[2:])
