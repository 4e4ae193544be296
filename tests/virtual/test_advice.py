"""Advice for kernels that do not compile or that trap; each remedy works."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from typing import Any

import pytest

import virtualgpu.cp as cp
from virtualgpu.compile import nvrtc
from virtualgpu.compile.interruptible import run_interruptible
from virtualgpu.cuda_errors import CompileException, LaunchFailure
from virtualgpu.engine.machine import jit
from virtualgpu.launch.compiled import compile_module

HEAD = 'extern "C" __global__ void k(float* x, int n) '
# What is wrong, what is said, and the program that does as it is told.
CASES = {
    HEAD + "{ __shared__ float s[20000]; s[n] = *x; __syncthreads(); *x = s[n / 2]; }": (
        "pass its size at the launch as shared_mem=80000.",
        HEAD + "{ extern __shared__ float s[]; s[n] = *x; __syncthreads(); *x = s[n / 2]; }",
    ),
    HEAD + "{ __shared__ float s[90000]; s[n] = *x; __syncthreads(); *x = s[n / 2]; }": (
        "No block has more than 232,448 bytes of shared memory: use smaller tiles.",
        "",
    ),
    HEAD + "{ *x = std::sqrt(*x); }": ("write sqrt without std::", HEAD + "{ *x = sqrt(*x); }"),
    HEAD + "{ std::cout << *x; }": ('printf("%d\\n", i)', HEAD + '{ printf("%d\\n", n); }'),
    HEAD + "{ *x = 1; }\nint main() { k<<<1, 1>>>(0, 1); }": ("Leave out main() and <<<...>>>", ""),
    "#include <cstdio>\n" + HEAD + "{ }": ("printf needs no header in a kernel", ""),
    'extern "C" __global__ void k(uint32_t* x) { *x = 1; }': (
        "Add #include <cuda/std/cstdint> on top.",
        '#include <cuda/std/cstdint>\nextern "C" __global__ void k(uint32_t* x) { *x = 1; }',
    ),
    'extern "C" __global__ void k(half* x) { *x = 1; }': (
        "Add #include <cuda_fp16.h> on top.",
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(half* x) { *x = 1; }',
    ),
    HEAD + "{ *x = FLT_MAX; }": (
        "Add #include <cuda/std/cfloat> on top.",
        "#include <cuda/std/cfloat>\n" + HEAD + "{ *x = FLT_MAX; }",
    ),
    HEAD + "{ *x = M_PI; }": (
        "CUDART_PI_F",
        "#include <math_constants.h>\n" + HEAD + "{ *x = CUDART_PI_F; }",
    ),
    HEAD + "{ *x = INFINITY; }": (
        "CUDART_INF_F",
        "#include <math_constants.h>\n" + HEAD + "{ *x = CUDART_INF_F; }",
    ),
    HEAD + "{ *x = __shfl_down(*x, 1); }": (
        "__shfl_down_sync(0xffffffff, ...)",
        HEAD + "{ *x = __shfl_down_sync(0xffffffff, *x, 1); }",
    ),
    HEAD + "{ cudaDeviceSynchronize(); }": ("cp.cuda.Device().synchronize()", ""),
    HEAD + "{ swap(x[0], x[1]); }": (
        "cuda::std::swap after #include <cuda/std/utility>",
        "#include <cuda/std/utility>\n" + HEAD + "{ cuda::std::swap(x[0], x[1]); }",
    ),
    HEAD + "{ cooperative_groups::this_thread_block().sync(); }": (
        "Add #include <cooperative_groups.h> on top.",
        "#include <cooperative_groups.h>\n" + HEAD + "{ cooperative_groups::this_thread_block().sync(); }",
    ),
    HEAD + "{ __syncthread(); }": ("Did you mean '__syncthreads'?", HEAD + "{ __syncthreads(); }"),
    HEAD + "{ x[threadIDx.x] = 1; }": ("Did you mean 'threadIdx'?", HEAD + "{ x[threadIdx.x] = 1; }"),
    HEAD + "{ int column = n; x[colunm] = 1; }": ("Did you mean 'column'?", ""),
    'extern "C" __global__ int k(float* x) { return 1; }': ("A kernel cannot return a value", ""),
    HEAD + "{ __shared__ float s[]; s[n] = 1; }": ("`extern __shared__ float s[];`", ""),
    HEAD + "{ float s[n]; s[0] = 1; *x = s[0]; }": ("The compiler must know an array's size", ""),
    HEAD + "{ *x = min(*x, 3); }": ("same type, such as x and 3.0f", HEAD + "{ *x = min(*x, 3.0f); }"),
    "__host__ float f() { return 1; }\n" + HEAD + "{ *x = f(); }": ("Leave out __host__", ""),
    "def k(x):\n    x[0] = 1": ("This is Python; a kernel is written in CUDA C++", ""),
}


def compiled(code: str) -> str:
    """Return the error log of a compilation; empty if it succeeds."""
    try:
        compile_module(code, (), (), (8, 0))
    except CompileException as error:
        return str(error)
    return ""


@pytest.mark.parametrize("wrong", CASES)
def test_the_remedy_for_a_compile_error_works(wrong: str) -> None:
    message, right = CASES[wrong]
    log = compiled(wrong)
    assert message in "\n".join(log.split("\n")[-2:]), log
    assert not right or not compiled(right)


def test_a_clear_compile_error_has_no_advice() -> None:
    log = compiled(HEAD + "{ int i = 0\n x[i] = 1; }")
    assert log.endswith('error detected in the compilation of "kernel.cu".')
    assert compiled(HEAD + "{ *x = unheard_of; }").endswith(
        'error detected in the compilation of "kernel.cu".'
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("float* p = 0; *p = *x;", "check the pointers in this line"),
        ("cooperative_groups::this_grid().sync(); *x = 1;", "RawKernel(..., enable_cooperative_groups=True)"),
        ("if (*x == 0) __trap();", "thread (0, 0, 0))."),
    ],
)
def test_a_trap_error_names_the_likely_cause(body: str, message: str) -> None:
    header = "#include <cooperative_groups.h>\n" if "groups" in body else ""
    code = f"{header}{HEAD}{{ {body} }}"
    with pytest.raises(LaunchFailure) as raised:
        cp.RawKernel(code, "k")((1,), (1,), (cp.zeros(1, cp.float32), 1))
    assert str(raised.value).endswith(f"{message}." if not message.endswith(".") else message)


def test_only_line_feeds_count_as_line_ends() -> None:
    """Only a line feed ends a line, unlike for Python's `splitlines`."""
    code = HEAD + "{\n  // form feed \f and line separator \u2028 in a comment\n  x[n] = 1;\n}"
    with pytest.raises(RuntimeError, match=r"line 3 `x\[n\] = 1;`"):
        cp.RawKernel(code, "k")((1,), (1,), (cp.zeros(1, cp.float32), 99))


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (
            lambda: cp.ElementwiseKernel("T x", "T y", "T z = x;\ny = z +", "twice"),
            "operation of 'twice', line 2: ",
        ),
        (
            lambda: cp.ElementwiseKernel(
                "T x", "T y", "y = f(x)", "k", preamble="\n__device__ int f(T a) {\n;]"
            ),
            "preamble of 'k', line 3: ",
        ),
        (
            lambda: cp.ReductionKernel("T x", "T y", "x * q", "a + b", "y = a", "0", "r"),
            "map_expr of 'r', line 1: ",
        ),
        (
            lambda: cp.ReductionKernel("T x", "T y", "x", "a +", "y = a", "0", "r"),
            "reduce_expr of 'r', line 1: ",
        ),
    ],
)
def test_compile_logs_of_generated_kernels_use_the_users_lines(kernel: Any, message: str) -> None:
    with pytest.raises(CompileException) as raised:
        kernel()(cp.zeros(3))
    assert f"{message}error" in str(raised.value)
    assert "error detected" in str(raised.value) or "errors detected" in str(raised.value)


def test_an_uninstantiated_template_is_reported_as_such() -> None:
    with pytest.raises(RuntimeError, match=r"never instantiated the template.*name_expressions"):
        cp.RawModule(code=TEMPLATE).get_function("scale")
    with pytest.raises(CompileException, match=r"name_expressions\(2\): error[^$]*Did you mean 'float'"):
        cp.RawModule(code=TEMPLATE, name_expressions=["scale<flaot,3>"]).compile()


TEMPLATE = "template <typename T, int N> __global__ void scale(T* p) { p[threadIdx.x] *= N; }"


def test_a_template_has_one_name_in_all_records() -> None:
    from virtualgpu.backend import VirtualBackend
    from virtualgpu.model import machine
    from virtualgpu.protocol import Block, Blocks, Counters, Hazards, Launch, Warp

    kernel = cp.RawModule(code=TEMPLATE, name_expressions=["scale<float,3>"]).get_function("scale<float,3>")
    launch = Launch.of(kernel, 1, 32, (cp.zeros(32, cp.float32),))
    backend = VirtualBackend(machine.current())
    first = (0, 0, 0)
    for question in (Blocks(), Warp(first, 0), Block(first), Counters(), Hazards()):
        record: Any = backend.observe(launch, question)
        assert record.kernel_name == "scale<float,3>", question
    with pytest.raises(RuntimeError, match=r"kernel 'scale<float,3>' read"):
        kernel((1,), (64,), (cp.zeros(32, cp.float32),))


class LongCall:
    """A call into C of some seconds that Python cannot interrupt, with events for its begin and end."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> Any:
        self.begun.set()
        try:
            hashlib.pbkdf2_hmac("sha256", b"a", b"b", 8_000_000)
        finally:  # where Python raises at once what came meanwhile
            self.ended.set()

    def is_interrupted(self, work: Any) -> bool:
        """Return whether Ctrl-C during the call ends `work` before the call has ended."""

        def send() -> None:
            self.begun.wait(60)
            os.kill(os.getpid(), signal.SIGINT)

        # a suite that was started in the background ignores the signal
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=send).start()
        try:
            with pytest.raises(KeyboardInterrupt):
                work()
        finally:
            signal.signal(signal.SIGINT, before)
        return not self.ended.is_set()


def test_long_calls_can_be_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    call = LongCall()
    assert call.is_interrupted(lambda: run_interruptible(call))
    with monkeypatch.context() as patch:
        call = LongCall()
        patch.setattr(nvrtc, "_compile_now", call)
        assert call.is_interrupted(lambda: compiled(f"{HEAD}{{ *x = {time.time()}; }}"))
    with monkeypatch.context() as patch:
        call = LongCall()
        patch.setattr(jit, "_run_fast_passes", call)
        kernel = cp.RawKernel(f"{HEAD}{{ *x = {time.time()}; }}", "k")
        arguments = (cp.zeros(1, cp.float32), 1)
        assert call.is_interrupted(lambda: kernel((1,), (1,), arguments))
    assert run_interruptible(lambda: 3) == 3
    with pytest.raises(KeyError):
        run_interruptible(lambda: {}[1])
