"""Record the output of NVIDIA's and PyTorch's own tools for small programs, for notebooks 04 and 09.

``python -m tools.recordings.screens FOLDER`` on a GPU writes ``compute_sanitizer.json`` (for
``gpulab_course/content/n04_debugging``) and ``torch_profiler.json`` (for
``gpulab_course/content/n09_profiling``): a program each, the commands that ran it, and what they printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
# Without the host's stack, and without the errors of its calls that follow the first.
_SHORT = "--show-backtrace no --report-api-errors no"
SCREENS = {
    "compute_sanitizer": (
        "block_sum.py",
        BLOCK_SUM,
        "compute-sanitizer --version",
        (
            f"compute-sanitizer --tool memcheck {_SHORT} python block_sum.py",
            f"compute-sanitizer --tool memcheck {_SHORT} python block_sum.py no-pool",
            f"compute-sanitizer --tool racecheck {_SHORT} python block_sum.py",
        ),
    ),
    "torch_profiler": (
        "steps.py",
        STEPS,
        "python -c 'import torch; print(torch.__version__)'",
        ("python steps.py",),
    ),
}


def printed(command: str, folder: str) -> str:
    """Return the whole output of a command."""
    shell_command = command.replace("python ", f"{sys.executable} ", 1)
    process = subprocess.run(
        shell_command, shell=True, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return process.stdout.replace(folder, ".")


def main(folder: Path) -> None:
    """Run every program under its commands."""
    folder.mkdir(parents=True, exist_ok=True)
    device = printed("nvidia-smi --query-gpu=name,driver_version --format=csv,noheader", ".").splitlines()[0]
    for name, (file, program, version, commands) in SCREENS.items():
        with tempfile.TemporaryDirectory() as scratch:
            (Path(scratch) / file).write_text(program, encoding="utf-8")
            screens = [{"command": command, "printed": printed(command, scratch)} for command in commands]
            content = {
                "device": device,
                "date": time.strftime("%Y-%m-%d"),
                "version": printed(version, scratch).strip(),
                "file": file,
                "program": program,
                "screens": screens,
            }
        text = json.dumps(content, indent=1, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        for screen in screens:
            print(f"$ {screen['command']}\n{screen['printed']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
