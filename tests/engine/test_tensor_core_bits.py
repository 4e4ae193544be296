"""Tensor-core sums bit for bit: an H200's of three million random and many hard inputs."""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.engine.tensor_core_inputs import CLASSES, KINDS, inputs, on_gpu, source
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
RECORDED = json.loads(Path(__file__).with_name("tensor_core_sums_h200.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def cp() -> Any:
    with session.on_device("virtual:H100") as array_module:
        yield array_module


def digest(bits: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(bits).tobytes()).hexdigest()[:32]


@pytest.mark.parametrize("kind", KINDS)
def test_each_input_class_is_bit_identical_to_an_h200(cp: Any, kind: str) -> None:
    kernel = cp.RawKernel(source(kind), "go")
    known = RECORDED["kinds"][kind]["classes"]
    result = {
        cls: digest(on_gpu(cp, kernel, kind, *inputs(kind, cls, RECORDED["seed"], RECORDED["tiles"])))
        for cls in CLASSES
    }
    assert [cls for cls in CLASSES if result[cls] != known[cls]] == []


@pytest.mark.parametrize(("kind", "cls"), [*product(KINDS, ["near", "spread"])])
def test_a_million_random_sums_are_bit_identical_to_an_h200(cp: Any, kind: str, cls: str) -> None:
    kernel = cp.RawKernel(source(kind), "go")
    known = RECORDED["kinds"][kind]["million"][cls]
    tiles = RECORDED["million_tiles"]
    inputs_of_seed = inputs(kind, cls, RECORDED["million_seed"], tiles * len(known))
    pieces = [
        [part[place : place + tiles] for part in inputs_of_seed]
        for place in range(0, tiles * len(known), tiles)
    ]
    assert [digest(on_gpu(cp, kernel, kind, *piece)) for piece in pieces] == known


def test_the_recording_is_complete_and_from_an_h200() -> None:
    assert RECORDED["device"] == "NVIDIA H200"
    assert set(RECORDED["kinds"]) == set(KINDS)
    assert all(set(known["classes"]) == set(CLASSES) for known in RECORDED["kinds"].values())


# SHA-256 of the results of `double_results` on an H200 (driver 580.159.04, 29 November 2026).
DOUBLES = {
    (8, 4): "3321f377d5d813e21b21a5f84146080d",
    (16, 4): "5f8265afe559d8b1babad3f689de1312",
    (16, 8): "001fb930c151256b254b23b8c1744684",
    (16, 16): "57767d845523711d3c9744ef9b7be1ec",
}


def double_results(cp: Any, m: int, k: int, tiles: int = 64) -> Any:
    """Return the products of random doubles of very different sizes."""
    counts = m // 4, m * k // 32, k // 4
    names = iter(f"%{number}" for number in range(sum(counts)))
    sums, left, right = ("{" + ",".join(next(names) for _ in range(count)) + "}" for count in counts)
    outputs = ", ".join(f'"+d"(d[{i}])' for i in range(counts[0]))
    inputs = ", ".join(
        f'"d"({name}[{i}])' for name, count in zip("ab", counts[1:], strict=True) for i in range(count)
    )
    code = f"""extern "C" __global__ void k(const double* fa, const double* fb, double* fd) {{
        double a[{counts[1]}], b[{counts[2]}], d[{counts[0]}];
        fa += blockIdx.x * {m * k}; fb += blockIdx.x * {8 * k}; fd += blockIdx.x * {8 * m};
        int g = threadIdx.x / 4, t = threadIdx.x % 4, rows = {m // 8};
        for (int i = 0; i < {counts[1]}; ++i) a[i] = fa[(g + 8 * (i % rows)) * {k} + t + 4 * (i / rows)];
        for (int i = 0; i < {counts[2]}; ++i) b[i] = fb[(t + 4 * i) * 8 + g];
        for (int i = 0; i < {counts[0]}; ++i) d[i] = fd[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
        asm volatile("mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64 {sums}, {left}, {right}, {sums};"
                     : {outputs} : {inputs});
        for (int i = 0; i < {counts[0]}; ++i) fd[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
    }}"""
    rng = np.random.default_rng(m + k)
    shapes = (tiles, m, k), (tiles, k, 8), (tiles, m, 8)
    a, b, d = (cp.asarray(rng.standard_normal(s) * 2.0 ** rng.integers(-20, 20, s)) for s in shapes)
    cp.RawKernel(code, "k")((tiles,), (32,), (a, b, d))
    return cp.asnumpy(d)


@pytest.mark.parametrize(("m", "k"), DOUBLES)
def test_sums_of_doubles_are_bit_identical_to_an_h200(cp: Any, m: int, k: int) -> None:
    assert digest(double_results(cp, m, k)) == DOUBLES[m, k]
