"""``gl.diagnose``: one run, sentences with line and counter, a baseline, refusals, files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from tools.recordings import mma_rates

N = 1 << 18
CODE = r"""
extern "C" __global__ void strided(const float* x, float* y, int* runs, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(runs, 1);
    y[i] = 2.0f * x[i * stride];
}"""


# Tensor cores with factors from shared memory: rows of `row_bytes` bytes, loaded `loads` times per product.
TENSOR_CODE = r"""
extern "C" __global__ void tensor(float* y, int row_bytes, int loads, int products) {
    extern __shared__ __align__(128) unsigned tile[];
    int lane = threadIdx.x % 32;
    for (int i = threadIdx.x; i < 8 * row_bytes; i += blockDim.x) tile[i] = 0;
    __syncthreads();
    unsigned row = (unsigned)__cvta_generic_to_shared(tile) + lane * row_bytes, a[4] = {}, b = 0;
    float c[4][4] = {};
    for (int k = 0; k < products; ++k) {
        for (int n = 0; n < loads; ++n)
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                         : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(row) : "memory");
#pragma unroll
        for (int n = 0; n < 4; ++n)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7},"
                         "{%8,%8}, {%0,%1,%2,%3};"
                         : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b));
    }
    for (int n = 0; n < 4; ++n)
        if (c[n][0] + c[n][1] + c[n][2] + c[n][3] != 0) y[0] = 1;
}"""


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[None]:
    with session.on_device(f"virtual:{getattr(request, 'param', 'T4')}"):
        yield


on_several_gpus = pytest.mark.parametrize("device", ["T4", "A100", "RTX 4090", "H100"], indirect=True)


class Strided:
    """A launch that reads every so many floats and counts its runs."""

    def __init__(self, stride: int) -> None:
        cp = session.cp()
        self.runs = cp.zeros(1, np.int32)
        arrays = cp.zeros(N * 16, np.float32), cp.zeros(N, np.float32), self.runs
        self.step = cp.RawKernel(CODE, "strided"), N // 256, 256, (*arrays, np.int32(stride))


@on_several_gpus
def test_cause_has_line_counters_ceiling_remedy_and_notebook() -> None:
    strided = Strided(16)
    diagnosis = gl.diagnose(*strided.step)
    cause = diagnosis.main
    assert int(strided.runs[0]) == 1, "the kernel runs once"
    assert cause is not None
    assert (cause.kind, cause.line) == ("uncoalesced", 5)
    # Every lane has a sector of its own; side by side, eight share one.
    assert (cause.figures["sectors"], cause.figures["ideal"]) == (32, 4)
    text = repr(diagnosis)
    for part in ("Line 5, y[i] = 2.0f * x[i * stride];", "Ceiling: ", "neighbouring", "Notebook 05a"):
        assert part in text, text
    assert cause.gain == pytest.approx(diagnosis.time_ns / cause.after_ns)
    corrected = gl.diagnose(*Strided(1).step)
    assert diagnosis.time_ns / corrected.time_ns == pytest.approx(cause.gain, rel=0.1)


def test_baseline_comparison_reports_fixes_and_speedup() -> None:
    before = Strided(16)
    after = Strided(1)
    diagnosis = gl.diagnose(*after.step, baseline=before.step)
    assert (int(before.runs[0]), int(after.runs[0])) == (1, 1)
    assert diagnosis.baseline is not None
    factor = diagnosis.baseline.time_ns / diagnosis.time_ns
    comparison = diagnosis.sentences()[-1]
    assert f"{factor:.2f} × as fast" in comparison or f"{factor:.1f} × as fast" in comparison
    assert "Fixed: " in comparison
    assert "uncoalesced" in comparison
    reverse = gl.diagnose(*before.step, baseline=after.step).sentences()[-1]
    assert "× as slow" in reverse
    assert "New: " in reverse
    assert "1 × as fast" in gl.diagnose(*after.step, baseline=Strided(1).step).sentences()[-1]


def test_a_diagnosis_is_saved_as_page_and_text(tmp_path: Path) -> None:
    diagnosis = gl.diagnose(*Strided(16).step)
    page = diagnosis.save(tmp_path / "why.html").read_text(encoding="utf-8")
    assert "Main cause: uncoalesced" in page
    text = diagnosis.save(tmp_path / "why.txt").read_text(encoding="utf-8")
    assert text.startswith("Diagnosis of strided: grid")
    assert "times modelled" in diagnosis.caption


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"baseline": 3}, TypeError, "`baseline` must be a launch, not int"),
        ({"baseline": (1, 2)}, TypeError, "`baseline` is a sequence of 2 elements"),
        ({"baseline": (None, 1, 1, ())}, TypeError, "Expected a kernel, but got None"),
        ({"shared_mem": -1}, ValueError, "shared_mem"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gl.diagnose(*Strided(1).step, **options)


def test_registers_that_ptxas_spills_are_reported() -> None:
    terms = "\n".join(f"    float r{k} = x[i + {k} * n];" for k in range(64))
    sums = "\n".join(f"    r{k} = r{k} * r{(k * 7 + 1) % 64} + 1;" for k in range(64))
    total = " + ".join(f"r{k}" for k in range(64))
    code = f"""extern "C" __global__ void many(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
{terms}
    for (int round = 0; round < 3; round++) {{
{sums}
    }}
    y[i] = {total};
}}"""
    cp = session.cp()
    args = cp.zeros(1 << 16, np.float32), cp.zeros(1024, np.float32), np.int32(1024)
    kernel = cp.RawKernel(code, "many", options=("--maxrregcount=32",))
    spilled = session.backend().kernel_stats(kernel).local_bytes
    assert spilled > 0
    assert f"ptxas keeps {spilled} bytes" in repr(gl.diagnose(kernel, 16, 64, args))
    assert "ptxas" not in repr(gl.diagnose(cp.RawKernel(code, "many"), 16, 64, args))


def test_nearly_empty_kernels_are_diagnosed() -> None:
    cp = session.cp()
    empty = cp.RawKernel('extern "C" __global__ void nothing() { }', "nothing")
    cause = gl.diagnose(empty, 1, 1).main
    assert cause is not None
    assert cause.kind == "launch"
    code = 'extern "C" __global__ void early(float* x, int n) { if (n) return; *x = 1; }'
    args = (cp.zeros(1, np.float32), np.int32(1))
    assert gl.diagnose(cp.RawKernel(code, "early"), 4, 33, args).time_ns > 0


def tensor_diagnosis(row_bytes: int, loads: int, products: int = 30) -> Any:
    cp = session.cp()
    kernel = cp.RawKernel(TENSOR_CODE, "tensor")
    args = cp.zeros(1, np.float32), np.int32(row_bytes), np.int32(loads), np.int32(products)
    info = session.backend().device_info()
    return gl.diagnose(kernel, info.sm_count, 256, args, shared_mem=32 * row_bytes)


@pytest.mark.parametrize("device", ["A100", "RTX 4090", "H100"], indirect=True)
def test_bank_conflicts_that_stall_tensor_cores_are_the_cause(device: None) -> None:
    conflicts = tensor_diagnosis(128, 4)
    assert conflicts.main is not None
    assert conflicts.main.kind == "bank conflicts"
    assert (conflicts.main.figures["wavefronts"], conflicts.main.figures["ideal"]) == (32, 4)
    assert "tensor cores wait for shared memory" in conflicts.verdict
    assert "Pad the rows by 16 bytes" in repr(conflicts)
    padded = tensor_diagnosis(144, 4)
    assert all(cause.kind != "bank conflicts" for cause in padded.worth_fixing)
    assert conflicts.time_ns / padded.time_ns == pytest.approx(conflicts.main.gain, rel=0.05)


@pytest.mark.parametrize("device", ["A100", "H100"], indirect=True)
def test_verdict_for_tensor_cores_cites_the_mma_sync_rate(device: None) -> None:
    diagnosis = tensor_diagnosis(144, 0, 300)
    assert diagnosis.bound == "tensor"
    has_faster_instructions = session.backend().device_info().compute_capability >= (9, 0)
    assert ("mma.sync reached 65 %" in diagnosis.verdict) is has_faster_instructions
    assert ("wgmma" in repr(diagnosis)) is has_faster_instructions
    assert "mma.sync" not in gl.diagnose(*Strided(16).step).verdict


@pytest.mark.parametrize("device", ["H200"], indirect=True)
@pytest.mark.parametrize(
    ("shape", "registers", "recorded_tflops"), [("m16n8k16", (4, 8, 4), 66.7), ("m8n8k4", (2, 1, 1), 32.8)]
)
def test_double_precision_mma_rates_agree_with_an_h200(
    device: None, shape: str, registers: tuple[int, int, int], recorded_tflops: float
) -> None:
    """Recorded on 29 November 2026 with the kernel of `tools.recordings.mma_rates`."""
    cp = session.cp()
    form = f"{shape}.row.col.f64.f64.f64.f64", *registers
    kernel = cp.RawKernel(mma_rates.make_code(form, 4), "k")
    (point,) = gl.roofline((kernel, 132, 256, (cp.zeros(1024), np.int32(150)))).record.points
    assert point.gflops == pytest.approx(1e3 * recorded_tflops, rel=0.1)
