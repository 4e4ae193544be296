"""Expressions that CuPy and the virtual GPU must answer alike: values, types, shapes, layout, errors.

Each is Python with ``cp`` (CuPy or the virtual GPU's module), ``np`` and the arrays of `names`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

LISTED = Path(__file__).parent / "data" / "cupy_expressions.txt"


def names(cp: Any) -> dict[str, Any]:
    """Return the variables of the expressions."""
    rng = np.random.default_rng(3)
    return {
        "cp": cp,
        "np": np,
        "i": cp.arange(12, dtype=cp.int32).reshape(3, 4),
        "j": cp.array([3, 1, 4, 1, 5, 9, 2, 6], cp.int64),
        "u": cp.array([0, 1, 127, 128, 255], cp.uint8),
        "f": cp.asarray(rng.standard_normal((3, 4)).astype(np.float32)),
        "d": cp.asarray(rng.standard_normal(7)),
        "h": cp.array([0.5, 1.5, -2.25, 60000], cp.float16),
        "c": cp.array([1 + 2j, -3j, 4], cp.complex64),
        "b": cp.array([True, False, True, True]),
        "e": cp.zeros((0, 3), cp.float32),
        "z": cp.array(2.5, cp.float32),
        "m": cp.asarray(rng.standard_normal((4, 4)).astype(np.float32)),
        "n": np.arange(4),
    }


_TYPES = """
bool_ int8 uint8 int16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128
"""


def _mixed() -> list[str]:
    """Return expressions of mixed types, with Python numbers and NumPy scalars."""
    out = []
    for a in _TYPES.split():
        x = f"cp.ones(3, cp.{a})"
        out += [
            f"{x} + cp.ones(3, cp.{b})" for b in ("int8", "uint8", "int32", "int64", "float16", "float32")
        ]
        out += [f"{x} {op} {n}" for op in ("+", "*", "/", "**") for n in ("2", "2.0")]
        out += [f"{x} + np.float32(2)", f"{x} + np.int64(2)", f"{x} + 2j", f"{x}.sum()", f"{x}.mean()"]
        out += [f"{x}.cumsum()", f"{x}.prod()", f"{x}.max()", f"{x}.std()", f"cp.sqrt({x})", f"cp.exp({x})"]
        out += [f"-{x}", f"~{x}", f"abs({x})", f"{x} // 2", f"{x} % 2", f"{x} << 1", f"{x} & 1", f"{x} < 2"]
    return out


def expressions() -> list[tuple[str, str]]:
    """Return the code of every line, and for a statement the name of its result."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    listed = [line.partition(" -> ") for line in lines if line and not line.startswith("#")]
    return [(code, name) for code, _, name in listed] + [(code, "") for code in _mixed()]
