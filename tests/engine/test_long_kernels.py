"""Long kernels, translated in passing first: the same results, and well where they run for long."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import parser
from virtualgpu.engine.lower import codegen
from virtualgpu.engine.machine import jit, processor, split
from virtualgpu.engine.machine.by_address import RowFunctions, UnreadableLineError, rewrite_by_address
from virtualgpu.engine.run import program


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

MIXED = r"""
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
extern "C" __global__ void k(float* f, double* d, long long* l, unsigned char* b, int n) {
    __shared__ float s[96];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = t < n ? f[t] : 0;
    __syncthreads();
    if (t >= n) return;
    float x = s[(threadIdx.x * 7 + 3) % 96] * 1.5f - 0.1f;
    double y = d[t];
    long long z = l[t];
    for (int i = 0; i < t % 5; i++) {
        x = x * x - 0.25f + sinf(x);
        y = y / (1.5 + i) - floor(y * 3);
        z = z * 6364136223846793005ll + (z >> 33) + t;
        if (z & 4) { x = -x; } else if (z & 8) { y = fma(y, y, -0.5); }
    }
    int total = __reduce_add_sync(__activemask(), (int)z & 255);
    b[t] = (unsigned char)(total + __popc((int)z) + fib(t % 6));
    f[t] = x;
    d[t] = y + __double2int_rn(y);
    l[t] = z ^ __float_as_int(x);
}"""
N = 250


def arrays() -> list[cp.ndarray]:
    rng = np.random.default_rng(7)
    values = [rng.normal(size=N).astype("f4"), rng.normal(size=N), rng.integers(-(2**60), 2**60, N)]
    return [cp.asarray(a) for a in (*values, np.zeros(N, "u1"))]


def results() -> tuple[list[bytes], gl.KernelCounters]:
    """What the kernel makes of the arrays, and its counters."""
    arguments = arrays()
    counters = gl.count(cp.RawKernel(MIXED, "k"), 3, 96, (*arguments, np.int32(N)))
    return [cp.asnumpy(a).tobytes() for a in arguments], counters


@pytest.fixture
def in_passing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every kernel counts as a long one that is met for the first time."""
    program._compile_kernel_for_processor.cache_clear()
    monkeypatch.setattr(jit, "_QUICK_FIRST_LIMIT_S", -1.0)
    monkeypatch.setattr(jit, "_is_stored", lambda *_: False)
    yield
    program._compile_kernel_for_processor.cache_clear()


def halves_of(code: str) -> split.KernelHalves:
    text = codegen.generate_kernel(
        parser.parse(nvrtc.compile_ptx(code, target=80).ptx), "k", with_counters=True, with_trace=False
    ).text
    halves = split.split_kernel(text)
    assert halves is not None
    return halves


def test_quick_and_full_translation_have_equal_results_and_counts(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, whole_counters = results()
    assert whole != [cp.asnumpy(a).tobytes() for a in arrays()]
    request.getfixturevalue("in_passing")
    halves: list[split.KernelHalves | None] = []
    known = split.split_kernel

    def split_and_log(text: str) -> split.KernelHalves | None:
        halves.append(known(text))
        return halves[-1]

    monkeypatch.setattr(split, "split_kernel", split_and_log)
    passing, passing_counters = results()
    assert halves
    assert None not in halves
    assert passing == whole
    assert passing_counters.warp_instructions == whole_counters.warp_instructions
    assert passing_counters.accesses == whole_counters.accesses


def test_the_kernel_half_has_no_wide_operations() -> None:
    halves = halves_of(MIXED)
    body = halves.kernel_text.split("define internal i32 @warp_0")[1].split("\n}")[0]
    wide = [line for line in body.split("\n") if "<32 x" in line]
    assert not wide
    assert body.count("\n") > 300
    assert "count_sectors" in halves.support_text


def test_the_kernel_half_calls_functions_only_by_pointer() -> None:
    """LLVM's fast instruction selection does not support symbols that may be far away."""
    halves = halves_of(MIXED)
    body = halves.kernel_text.split("define internal i32 @warp_0")[1].split("\n}")[0]
    calls = [line for line in body.split("\n") if " call " in line and "@llvm." not in line]
    assert len(calls) > 100
    assert not [line for line in calls if "@" in line]
    assert {name for name in halves.function_names if f"store ptr @{name}, " in body} >= {"fault"}


@pytest.mark.usefixtures("in_passing")
def test_code_is_optimized_after_a_long_run() -> None:
    text = codegen.generate_kernel(
        parser.parse(nvrtc.compile_ptx(MIXED, target=80).ptx), "k", with_counters=False, with_trace=False
    ).text
    code = jit.KernelCode(text)
    first = code.run_blocks
    code.note_run_time(1e-9)
    code.improve()
    assert code.run_blocks is first
    code.note_run_time(1e3)
    code.improve()
    better = code.run_blocks
    assert better is not first
    code.note_run_time(1e3)
    code.improve()
    assert code.run_blocks is better


@pytest.mark.usefixtures("in_passing")
def test_optimized_code_has_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = results()
    improved: list[jit.KernelCode] = []
    known = jit.KernelCode.improve

    def after_long(code: jit.KernelCode) -> None:
        code.note_run_time(1e3)
        improved.append(code)
        known(code)

    monkeypatch.setattr(jit.KernelCode, "improve", after_long)
    second, _ = results()
    assert improved
    assert second == first


def test_translation_estimate_grows_with_length_and_narrow_vectors() -> None:
    text = codegen.generate_kernel(
        parser.parse(nvrtc.compile_ptx(MIXED, target=80).ptx), "k", with_counters=True, with_trace=False
    ).text
    assert (
        split.estimate_translation_s(text, 16)
        > split.estimate_translation_s(text, 32)
        > split.estimate_translation_s(text, 64)
        > 0
    )
    body = text.split("define internal i32 @warp_")[1]
    assert split.estimate_translation_s(
        f"{text}\ndefine internal i32 @warp_{body}", 32
    ) > split.estimate_translation_s(text, 32)


def test_unknown_code_is_not_split() -> None:
    lines = ["define internal i32 @warp_0() {", "entry:", "  %a = fancy <32 x i32> %b by magic", "}"]
    with pytest.raises(UnreadableLineError):
        rewrite_by_address(lines, RowFunctions())
    assert split.split_kernel("\n".join(lines)) is None


def test_loop_values_keep_their_stack_addresses() -> None:
    """An iteration reads values from before the loop and values that are merged at its head."""
    text = """define internal i32 @warp_0(ptr %out) {
entry:
  %one = add <32 x i32> splat (i32 1), splat (i32 2)
  br label %bb0
bb0:
  %start = mul <32 x i32> splat (i32 5), splat (i32 2)
  %step = add <32 x i32> splat (i32 3), splat (i32 4)
  br label %turn
turn:
  %n = phi i32 [0, %bb0], [%n1, %turn]
  %sum = phi <32 x i32> [%start, %bb0], [%more, %turn]
  %more = add <32 x i32> %sum, %step
  %junk = add <32 x i32> %more, %more
  %n1 = add i32 %n, 1
  %again = icmp ult i32 %n1, 3
  br i1 %again, label %turn, label %end
end:
  store <32 x i32> %more, ptr %out, align 4
  ret i32 0
}
define i32 @run_blocks(ptr %c, i64 %a, i64 %b) {
  %r = call i32 @warp_0(ptr %c)
  ret i32 %r
}
define i32 @run_block(ptr %c, i64 %a, i32 %b) {
  ret i32 0
}"""
    halves = split.split_kernel(text)
    assert halves is not None
    support = jit._load_module(
        halves.support_text, processor.find_chosen_processor(), entry_names=halves.function_names
    )
    places = {name: support.get_function_address(name) for name in halves.function_names}
    engine = jit._load_module(halves.kernel_text, processor.find_chosen_processor(), places)
    out = np.zeros(32, np.int32)
    assert jit._RUN_BLOCKS_TYPE(engine.get_function_address("run_blocks"))(out.ctypes.data, 0, 0) == 0
    assert out.tolist() == [10 + 3 * 7] * 32
