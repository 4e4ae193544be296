"""What a module makes of the expressions, as plain data: ``python -m tests.virtual.cupy_outcomes FILE``.

Run where CuPy and a GPU are; the file is what `test_against_cupy.py` compares the virtual GPU with.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.virtual.cupy_expressions import expressions, names
from tools.json_rows import json_rows


def _numbers(array: Any) -> list[Any]:
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        return [[float(v.real), float(v.imag)] for v in flat]
    return [v.item() for v in flat]


def described(value: Any, cp: Any) -> Any:
    """Return a value's type and contents as JSON."""
    if isinstance(value, cp.ndarray | np.ndarray):
        return {
            "kind": "device array" if isinstance(value, cp.ndarray) else "NumPy array",
            "dtype": value.dtype.str,
            "shape": list(value.shape),
            "strides": list(value.strides),
            "values": _numbers(value.get() if isinstance(value, cp.ndarray) else value),
        }
    if isinstance(value, np.generic):
        return {"kind": "scalar", "dtype": value.dtype.str, "values": _numbers(np.asarray(value))}
    if isinstance(value, tuple | list):
        return {
            "kind": "tuple" if isinstance(value, tuple) else "list",
            "items": [described(item, cp) for item in value],
        }
    if isinstance(value, bool | int | float | str) or value is None:
        return {"kind": type(value).__name__, "values": [value]}
    return {"kind": "other", "text": str(value) if isinstance(value, np.dtype | complex) else ""}


def outcome(cp: Any, code: str, name: str = "") -> Any:
    """Return the result of an expression, the value of a statement's variable, or the error."""
    variables = names(cp)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if not name:
                return described(eval(code, variables), cp)
            exec(code, variables)
            return described(variables[name], cp)
    except Exception as error:
        return {"error": type(error).__name__, "is_a": [kind.__name__ for kind in type(error).__mro__[1:-2]]}


def outcomes(cp: Any) -> dict[str, Any]:
    """Return the outcome of every expression and statement."""
    return {f"{code} -> {name}" if name else code: outcome(cp, code, name) for code, name in expressions()}


def main() -> None:
    import cupy

    answers = {
        "CuPy": cupy.__version__,
        "NumPy": np.__version__,
        "device": cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(),
        "outcomes": outcomes(cupy),
    }
    Path(sys.argv[1]).write_text(json_rows(answers, 2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
