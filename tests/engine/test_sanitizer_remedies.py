"""Each remedy that the sanitizer prints is applied, and what it found is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

import gpulab as gl
from gpulab import session
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
_HEAD = 'extern "C" __global__ void k(int* x, int* y) {\n'
_SHARED = "__shared__ int s[128]; int t = threadIdx.x; s[t] = x[t]; __syncthreads();\n"
LOCK = "put __threadfence() after taking and before releasing the lock"
SIGNAL = "put __threadfence() before the flag changes and after it is read"
VARIABLE = "Read into a variable, call __syncthreads(), then write"


@dataclass(frozen=True)
class Remedy:
    """A kernel of `blocks` blocks of `threads`, a sentence that is printed for it, and what it changes."""

    body: str
    sentence: str
    changes: dict[str, str] = field(default_factory=dict)
    blocks: int = 1
    threads: int = 128


def _scan(step: str, barrier: str = "__syncthreads();") -> str:
    return f"{_SHARED}for (int d = 1; d < blockDim.x; d *= 2) {{\n{step}\n{barrier}\n}}\ny[t] = s[t];"


_STEP = "if (t >= d) s[t] += s[t - d];"
_TWO_STEPS = "int v = t >= d ? s[t - d] : 0;\n__syncthreads();\ns[t] += v;"
_ROTATE = "s[t] = s[(t + 1) % blockDim.x];"
REMEDIES = {
    "scan in place": Remedy(_scan(_STEP), VARIABLE, {_STEP: _TWO_STEPS}),
    "scan in place, unrolled": Remedy(
        _scan(_STEP).replace("blockDim.x", "128").replace("for (", "#pragma unroll\nfor ("),
        VARIABLE,
        {_STEP: _TWO_STEPS},
    ),
    "scan of a warp": Remedy(
        _scan(_STEP, "__syncwarp();"),
        "Read into a variable, call __syncwarp(), then write",
        {_STEP: _TWO_STEPS.replace("__syncthreads", "__syncwarp")},
        threads=32,
    ),
    "scan with two lines": Remedy(
        _scan("int v = t >= d ? s[t - d] : 0;\ns[t] += v;"),
        "Put __syncthreads() between lines 4 and 5",
        {"0;\n": "0;\n__syncthreads();\n"},
    ),
    "scan without barriers": Remedy(
        _scan(_STEP, "").replace("y[t]", "__syncthreads();\ny[t]"),
        "If the race remains, read into a variable, call __syncthreads(), then write",
        {_STEP: f"{_TWO_STEPS}\n__syncthreads();"},
    ),
    "tree without barriers": Remedy(
        _SHARED + "for (int d = 64; d; d /= 2) {\nif (t < d) s[t] += s[t + d];\n}\nif (!t) y[0] = s[0];",
        "Put __syncthreads() between two iterations of the loop",
        {"\n}\n": "\n__syncthreads();\n}\n"},
    ),
    "rotated without a loop": Remedy(
        f"{_SHARED}{_ROTATE}\n__syncthreads();\ny[t] = s[t];",
        VARIABLE,
        {_ROTATE: "int v = s[(t + 1) % blockDim.x];\n__syncthreads();\ns[t] = v;"},
    ),
    "rotated in a loop": Remedy(
        _scan(_ROTATE), VARIABLE, {_ROTATE: "int v = s[(t + 1) % blockDim.x];\n__syncthreads();\ns[t] = v;"}
    ),
    "all write one element in a loop": Remedy(
        _scan("s[0] = t;"),
        "Let one thread write it, or give each thread its own element",
        {"s[0] = t": "if (!t) s[0] = t"},
    ),
    "flag that is written plainly": Remedy(
        "if (threadIdx.x) return;\nif (!blockIdx.x) {\nx[0] = 7;\n*y = 1;\n}\n"
        "else { while (*(volatile int*)y == 0);\n__threadfence();\nx[1] = x[0]; }",
        "Write the flag with an atomic, such as atomicExch(), and put __threadfence() before it",
        {"*y = 1;": "__threadfence(); atomicExch(y, 1);"},
        blocks=2,
    ),
    "flag without fences": Remedy(
        "if (threadIdx.x) return;\nif (!blockIdx.x) {\nx[0] = 7;\natomicExch(y, 1);\n}\n"
        "else { while (atomicAdd(y, 0) == 0);\nx[1] = x[0]; }",
        SIGNAL,
        {"atomicExch": "__threadfence(); atomicExch", "== 0);": "== 0); __threadfence();"},
        blocks=2,
    ),
    "flag without the reader's fence": Remedy(
        "if (threadIdx.x) return;\nif (!blockIdx.x) {\nx[0] = 7;\n__threadfence(); atomicExch(y, 1);\n}\n"
        "else { while (atomicAdd(y, 0) == 0);\nx[1] = x[0]; }",
        SIGNAL,
        {"== 0);": "== 0); __threadfence();"},
        blocks=2,
    ),
    **{
        f"{form} with {fences}": Remedy(
            f"{start}\n{middle}\n{end}",
            LOCK,
            {middle: f"__threadfence(); {change}; __threadfence();"},
            blocks=2,
            threads=64,
        )
        for form, start, end in (
            ("spin lock", "while (atomicCAS(y, 0, 1) != 0);", "atomicExch(y, 0);"),
            (
                "lock that is tried",
                "bool done = false; while (!done) if (atomicCAS(y, 0, 1) == 0) {",
                "atomicExch(y, 0); done = true; }",
            ),
        )
        for change in ("*(volatile int*)x = *(volatile int*)x + 1",)
        for fences, middle in (
            ("no fence", f"{change};"),
            ("a fence before it is opened", f"{change}; __threadfence();"),
        )
    },
    "exchanges in a loop": Remedy(
        _SHARED.replace("128", "130").replace("s[t] = x[t]", "s[t] = s[t + 64] = t * 37 % 64")
        + "for (int i = 0; i < 64; i++) {\nint j = 2 * t + i % 2;\n"
        "if (j < 127 && s[j] > s[j + 1]) { int v = s[j]; s[j] = s[j + 1]; s[j + 1] = v; }\n}\ny[t] = s[t];",
        "put __syncthreads() between two iterations of the loop",
        {"= v; }\n}": "= v; }\n__syncthreads();\n}"},
        threads=64,
    ),
    "the last block adds up": Remedy(
        "if (threadIdx.x) return;\nx[blockIdx.x] = 5;\nif (atomicAdd(y, 1) == gridDim.x - 1) {\n"
        "x[9] = x[0] + x[1] + x[2]; }",
        SIGNAL,
        {"= 5;": "= 5; __threadfence();", "{\nx[9]": "{ __threadfence();\nx[9]"},
        blocks=3,
    ),
    "flag between warps": Remedy(
        "__shared__ int s; __shared__ volatile int flag; if (!threadIdx.x) flag = 0;\n__syncthreads();\n"
        "if (threadIdx.x == 0) { s = x[9];\nflag = 1; }\n"
        "if (threadIdx.x == 32) { while (!flag);\ny[0] = s; }",
        "sets after a __threadfence()",
        {
            "flag = 1": "__threadfence_block(); flag = 1",
            "while (!flag);": "while (!flag); __threadfence_block();",
        },
        threads=64,
    ),
    "lock around a plain store": Remedy(
        "while (atomicCAS(y, 0, 1) != 0);\nx[0] = blockIdx.x;\natomicExch(y, 0);",
        LOCK,
        {"x[0]": "__threadfence(); x[0]", "atomicExch": "__threadfence(); atomicExch"},
        blocks=2,
        threads=64,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        yield


def _hazards(body: str, remedy: Remedy) -> list[str]:
    x = gl.cp.zeros(128, "i")
    y = gl.cp.zeros(128, "i")
    kernel = gl.cp.RawKernel(f"{_HEAD}{body}\n}}", "k")
    return [hazard.message for hazard in gl.sanitize(kernel, remedy.blocks, remedy.threads, (x, y)).hazards]


@pytest.mark.parametrize("remedy", REMEDIES.values(), ids=REMEDIES)
def test_applying_the_suggested_fix_removes_the_hazard(remedy: Remedy) -> None:
    messages = _hazards(remedy.body, remedy)
    assert messages
    assert any(remedy.sentence in message for message in messages), messages
    body = remedy.body
    for before, after in remedy.changes.items():
        assert before in body
        body = body.replace(before, after)
    assert not _hazards(body, remedy)


def test_output_elements_that_no_thread_wrote_are_reported() -> None:
    code = _HEAD + "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 100) x[i] = y[i]; }"
    kernel = gl.cp.RawKernel(code, "k")
    y = gl.cp.ones(128, "i")
    (some,) = gl.sanitize(kernel, 1, 64, (gl.cp.empty(128, "i"), y)).hazards
    assert (some.kind, some.severity, some.array, some.count) == ("output not written", "info", "x[64]", 64)
    assert "512 bytes" in some.message
    assert "256 of them" in some.message
    (last,) = gl.sanitize(kernel, 2, 64, (gl.cp.empty((16, 8), "i"), y)).hazards
    assert last.array == "x[100] ([12, 4] of shape (16, 8))"
    for array, blocks in (
        (gl.cp.empty(100, "i"), 2),
        (gl.cp.empty(128, "i")[:64], 1),
        (gl.cp.zeros(128, "i"), 1),
    ):
        assert not gl.sanitize(kernel, blocks, 64, (array, y)).hazards
    nothing = gl.cp.RawKernel(code.replace("i < 100", "y[i] < 0"), "k")
    assert gl.sanitize(nothing, 1, 64, (gl.cp.empty(64, "i"), y)).hazards[0].count == 64
