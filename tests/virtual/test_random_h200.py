"""A million numbers of each kind, and successive calls, against what CuPy drew on an H200."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp

pytestmark = pytest.mark.usefixtures("machine")

RECORDED = json.loads((Path(__file__).parent / "data" / "random_h200.json").read_text(encoding="utf-8"))
N = 10**6
DRAWS: dict[str, Any] = {
    "random64": lambda g: g.random(N),
    "random32": lambda g: g.random(N, dtype=np.float32),
    "int_10_i64": lambda g: g.integers(10, size=N),
    "int_m5_7_i32": lambda g: g.integers(-5, 7, size=N, dtype=np.int32),
    "int_endpoint": lambda g: g.integers(0, 100, size=N, endpoint=True),
    "int_2_40": lambda g: g.integers(0, 2**40 + 3, size=N),
    "int_u32": lambda g: g.integers(0, 2**32, size=N, dtype=np.uint32),
    "raw": lambda g: g.bit_generator.random_raw(N),
    "uniform": lambda g: g.uniform(-1.0, 3.0, size=N),
    "normal64": lambda g: g.standard_normal(N),
}
# Made with approximations of the hardware, which the virtual GPU meets to this accuracy.
CLOSE: dict[str, tuple[Any, float]] = {
    "normal32": (lambda g: g.standard_normal(N, dtype=np.float32), 1e-5),
    "normal64": (DRAWS["normal64"], 1e-15),
    "exponential": (lambda g: g.exponential(2.0, size=N), 1e-15),
}


def generator(row: Any) -> Any:
    return cp.random.Generator(getattr(cp.random, row["bits"])(row["seed"], size=row["threads"]))


def digest(array: Any) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize(
    "row", RECORDED["draws"], ids=lambda row: f"{row['bits']}-{row['seed']}-{row['threads']}"
)
def test_a_million_numbers_equal_those_of_an_h200(row: Any) -> None:
    rng = generator(row)
    state = rng.bit_generator._state.copy()

    def numbers_of(draw: Any) -> Any:
        rng.bit_generator._state[...] = state
        return draw(rng).get()

    for kind, draw in DRAWS.items():
        if kind == "normal64" and row["seed"] != 42:
            continue
        numbers = numbers_of(draw)
        assert (str(numbers.dtype), digest(numbers)) == (row[kind]["dtype"], row[kind]["sha256"]), kind
    for kind, (draw, tolerance) in CLOSE.items():
        head = np.frombuffer(bytes.fromhex(row[kind]["head"]), row[kind]["dtype"])
        np.testing.assert_allclose(numbers_of(draw)[: head.size], head, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bits", RECORDED["successive"], ids=lambda bits: bits["bits"])
def test_successive_calls_draw_the_numbers_of_an_h200(bits: Any) -> None:
    first = bits["first"]
    rng = generator({"bits": bits["bits"], "seed": 42, "threads": first["threads"]})
    states = rng.bit_generator._state
    assert states.size == first["each"] * first["threads"]
    assert digest(states.get()) == first["state_sha"]
    play = {
        "random64": lambda n: rng.random(n),
        "random32": lambda n: rng.random(n, dtype=np.float32),
        "int10": lambda n: rng.integers(10, size=n),
        "normal32": lambda n: rng.standard_normal(n, dtype=np.float32),
        "normal64": lambda n: rng.standard_normal(n),
        "exponential": lambda n: rng.exponential(1.0, n),
    }
    compared = 0
    for step in bits["rows"]:
        numbers = play[step["what"]](step["n"]).get()
        if "sha256" in step:
            compared += 1
            assert digest(numbers) == step["sha256"], step
    assert compared
