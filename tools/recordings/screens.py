"""Record the output of NVIDIA's and PyTorch's own tools for small programs, for notebooks 04 and 09.

``python -m tools.recordings.screens FOLDER [NAME ...]`` on a GPU writes ``compute_sanitizer.json`` (for
``gpulab_course/content/n04_debugging``), and ``torch_profiler.json``, ``nsight_systems.json`` and
``nsight_compute.json`` (for ``gpulab_course/content/n09_profiling``): a program each, the commands that ran
it, and what they printed. The trace of PyTorch's profiler and Nsight Systems' database are kept as well.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from gpulab.analysis.files import nsys

BLOCK_SUM = '''\
import sys
import cupy as cp

if "no-pool" in sys.argv:  # each array is an allocation of its own, whose end memcheck knows
    cp.cuda.set_allocator(None)
code = r"""
extern "C" __global__ void block_sum(const int* x, int* sums) {
    __shared__ int part[256];
    int t = threadIdx.x;
    part[t] = x[blockIdx.x * blockDim.x + t];
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 32) sums[blockIdx.x] = part[0];
}
"""
block_sum = cp.RawKernel(code, "block_sum", options=("-lineinfo",))
x, sums = cp.zeros(5 * 256, dtype=cp.int32), cp.zeros(4, dtype=cp.int32)
block_sum((5,), (256,), (x, sums))  # five blocks, and room for four sums
cp.cuda.Device().synchronize()
'''
STEPS = """\
import torch
from torch.profiler import ProfilerActivity, profile, record_function

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
x = torch.randn(512, 1024, device="cuda")


@torch.no_grad()
def step():
    with record_function("forward"):
        y = model(x)
    with record_function("loss"):
        return y.square().mean().item()  # waits for the GPU


step()  # the first call loads libraries and kernels
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    for _ in range(8):
        step()
print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=12, max_name_column_width=40))
prof.export_chrome_trace("steps.json")  # for Perfetto, or gl.open_timeline
"""
LOOP = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
x = torch.randn(512, 1024)


@torch.no_grad()
def step():
    with torch.cuda.nvtx.range("load"):
        inputs = x.cuda()
    with torch.cuda.nvtx.range("forward"):
        y = model(inputs)
    with torch.cuda.nvtx.range("loss"):
        return y.square().mean().item()  # waits for the GPU


step()  # the first call loads libraries and kernels
torch.cuda.cudart().cudaProfilerStart()  # nsys records from here ...
for _ in range(8):
    step()
torch.cuda.cudart().cudaProfilerStop()  # ... to here
"""
TRANSPOSE = """\
from pathlib import Path

import cupy as cp

code = Path("transpose.cu").read_text()  # the course's transposes: kernels.source("transpose.cu")
kernels = cp.RawModule(code=code, options=("-lineinfo",))
x = cp.random.random((4096, 4096), dtype=cp.float32)
y = cp.empty_like(x)
for name in ("transpose_naive", "transpose_tiled"):
    kernels.get_function(name)((128, 128), (32, 8), (x, y, cp.int32(4096), cp.int32(4096)))
cp.cuda.Device().synchronize()
"""
TRANSPOSES = Path(__file__).resolve().parents[2] / "gpulab_course/content/kernels/transpose.cu"
PROGRESS = re.compile(r"^(Processing \d+ events: )?(\[\d+/\d+\] )?\[[= ]*\d+%.*\n?", re.MULTILINE)
_NSYS_OPTIONS = "-t cuda,nvtx -s none --cpuctxsw=none -c cudaProfilerApi -f true"
# Without the host's stack, and without the errors of its calls that follow the first.
_SHORT_OPTIONS = "--show-backtrace no --report-api-errors no"
SCREENS = {
    "compute_sanitizer": (
        "block_sum.py",
        BLOCK_SUM,
        "compute-sanitizer --version",
        (
            f"compute-sanitizer --tool memcheck {_SHORT_OPTIONS} python block_sum.py",
            f"compute-sanitizer --tool memcheck {_SHORT_OPTIONS} python block_sum.py no-pool",
            f"compute-sanitizer --tool racecheck {_SHORT_OPTIONS} python block_sum.py",
        ),
    ),
    "torch_profiler": (
        "steps.py",
        STEPS,
        "python -c 'import torch; print(torch.__version__)'",
        ("python steps.py",),
    ),
    "nsight_systems": (
        "loop.py",
        LOOP,
        "nsys --version",
        (
            f"nsys profile {_NSYS_OPTIONS} -o loop python loop.py",
            "nsys stats --force-export=true -r nvtx_sum,cuda_api_sum,cuda_gpu_kern_sum loop.nsys-rep",
            "nsys export -t sqlite --force-overwrite=true -o loop.sqlite loop.nsys-rep",
        ),
    ),
    "nsight_compute": (
        "transpose.py",
        TRANSPOSE,
        "ncu --version",
        (
            "ncu --set full --clock-control none -k regex:transpose -f -o transpose python transpose.py",
            "ncu --import transpose.ncu-rep --page details",
            "ncu --import transpose.ncu-rep --page details --csv --print-units base",
        ),
    ),
}


def run_command(command: str, folder: str) -> str:
    """Return the whole output of a command, without its progress bars."""
    shell_command = command.replace("python ", f"{sys.executable} ", 1)
    process = subprocess.run(
        shell_command, shell=True, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return PROGRESS.sub("", process.stdout.replace(folder, "."))


def remove_machine_tables(path: Path) -> None:
    """Remove the unread tables of an Nsight Systems database, because they describe the machine."""
    with closing(sqlite3.connect(path)) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name not in nsys.EVENT_TABLES:
                database.execute(f"DROP TABLE {name}")
        used_columns = " UNION ".join(
            f"SELECT {name} FROM {table} WHERE {name} NOT NULL" for table, name in nsys.STRING_TABLES
        )
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({used_columns})")
        database.execute("UPDATE TARGET_INFO_GPU SET uuid = NULL, busLocation = NULL")
        database.commit()
        database.execute("VACUUM")


def main(folder: Path, names: Sequence[str] = ()) -> None:
    """Run every program, or those with these names, under its commands."""
    folder.mkdir(parents=True, exist_ok=True)
    device = run_command(
        "nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", "."
    ).splitlines()[0]
    for name in names or SCREENS:
        file, program, version, commands = SCREENS[name]
        with tempfile.TemporaryDirectory() as scratch_folder:
            (Path(scratch_folder) / file).write_text(program, encoding="utf-8")
            shutil.copy(TRANSPOSES, scratch_folder)
            screens = [
                {"command": command, "printed": run_command(command, scratch_folder)} for command in commands
            ]
            content = {
                "device": device,
                "date": time.strftime("%Y-%m-%d"),
                "version": run_command(version, scratch_folder).strip(),
                "file": file,
                "program": program,
                "screens": screens,
            }
            if (trace_path := Path(scratch_folder) / "steps.json").exists():
                (folder / "steps.json.gz").write_bytes(gzip.compress(trace_path.read_bytes(), mtime=0))
            if (report_path := Path(scratch_folder) / "loop.sqlite").exists():
                remove_machine_tables(report_path)
                shutil.copy(report_path, folder)
        content_json = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(content_json + "\n", encoding="utf-8")
        for screen in screens:
            print(f"$ {screen['command']}\n{screen['printed']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
