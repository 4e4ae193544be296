"""``gl.names`` on a GPU: what its rows call direct or composed does the same in PyTorch and in CuPy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from gpulab_course.content.n16_platform.figures import recorded
from gpulab_course.teach.names import load_name_rows

# The same thing twice, each leaving a value in `r`; "=" equal, "~0.2" within that share, "ran" both run.
PAIRS = {
    name: (torch_code.replace("\\n", "\n"), cupy_code.replace("\\n", "\n"), how)
    for name, torch_code, cupy_code, how in (
        line.split("\t")
        for line in Path(__file__).with_name("torch_pairs.tsv").read_text(encoding="utf-8").splitlines()[1:]
    )
}
SPIN = 'extern "C" __global__ void spin(long long n) { long long t = clock64(); while (clock64() - t < n); }'
# Other files look at these: the driver's bindings, an allocator from a library, cuFile, private switches.
APART = {"driver"}
ELSEWHERE = {"CUDAPluggableAllocator", "change_current_allocator", "CudaError", "Stream.record_event"}
# Newer than the PyTorch that was recorded, of NCCL, which CuPy does not bring along, or a variable.
ELSEWHERE |= {"current_solver_handle", "caching_allocator_disabled", "nccl.all_reduce"}
ELSEWHERE |= {"CUDA_LAUNCH_BLOCKING"}


@pytest.fixture(scope="module")
def both() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    cupy = pytest.importorskip("cupy")
    nvml = pytest.importorskip("pynvml")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no GPU here")
    from torch.cuda import comm

    nvml.nvmlInit()
    torch.cuda._sleep(10)
    spin = cupy.RawKernel(SPIN, "spin")
    spin((1,), (1,), (1,))
    given = {"torch": torch, "comm": comm, "cupy": cupy, "nvml": nvml, "spin": spin}
    given |= {"h": nvml.nvmlDeviceGetHandleByIndex(0), "n": torch.cuda.device_count()}
    given |= {"t": torch.arange(8, device="cuda", dtype=torch.float32), "x": cupy.arange(8, dtype="f4")}
    return given


@pytest.mark.gpu
@pytest.mark.parametrize("name", PAIRS)
def test_pytorch_and_cupy_code_have_equal_results(name: str, both: dict[str, Any]) -> None:
    torch_code, cupy_code, how = PAIRS[name]
    found = []
    for code in (torch_code, cupy_code):
        space = dict(both)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(code, space)
        found.append(space["r"])
    if how == "=":
        assert found[0] == found[1]
    elif how.startswith("~"):
        flat = [[v for v in (f if isinstance(f, tuple) else (f,)) if not isinstance(v, str)] for f in found]
        assert flat[0] == pytest.approx(flat[1], rel=float(how[1:]))


def test_each_direct_and_composed_row_has_a_pair() -> None:
    rows = [row for row in load_name_rows() if row.kind in ("direct", "composed") and row.where not in APART]
    assert {row.torch for row in rows} - set(PAIRS) <= ELSEWHERE
    assert set(PAIRS) <= {row.torch for row in load_name_rows()}


def test_enough_pairs_are_recorded_as_equal() -> None:
    known = recorded()
    assert known
    assert len(set(known["same"]) & set(PAIRS)) >= 80


def test_the_list_covers_the_recorded_pytorch_functions() -> None:
    known = recorded()
    rows = {row.torch for row in load_name_rows()}
    spoken = rows | {name.rpartition(".")[2] for name in rows}
    for module in ("cuda.memory", "cuda.nvtx", "cuda.comm", "cuda.random", "cuda.graphs", "cuda.profiler"):
        missing = [n for n in known["torch_all"].get(module, ()) if n.islower() and n not in spoken]
        assert not missing, (module, missing)
