"""Results of the virtual GPU's arrays equal those of CuPy on an H200 (``data/cupy_h200.json``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import virtualgpu.cp as cp
from tests.virtual.cupy_expressions import expressions
from tests.virtual.cupy_outcomes import outcome

pytestmark = pytest.mark.usefixtures("machine")

RECORDED = json.loads((Path(__file__).parent / "data" / "cupy_h200.json").read_text(encoding="utf-8"))
RELATIVE_ERROR = {"f2": 4e-3, "f4": 1e-5, "c8": 1e-5, "f8": 1e-12, "c16": 1e-12}

# Where the virtual GPU differs on purpose: expression -> why.
DIFFERENT = {
    "i[1.0]": "CuPy takes the whole number; NumPy's error teaches more",
    "i['a']": "NumPy's error, which says what an index may be",
    "cp.sum([1, 2])": "the virtual GPU says that a list is not on the device",
    "cp.choose(cp.array([0, 1]), [cp.array([1, 2]), cp.array([3, 4])])": "CuPy fails with a list of choices",
    "cp.vectorize(lambda x: x + 1)(i)": "CuPy reads the function's source, and this text is in no file",
    "del i[0] -> i": "Python's own error",
}
# What CuPy lays out in memory in its own way; values and types are the same.
OTHER_STRIDES = {"cp.nonzero(i)", "cp.where(i > 5)", "cp.einsum('ij,jk->ik', m, m)"}


def difference(real: Any, answer: Any, strides: bool) -> str:
    """Describe the difference between two outcomes; empty if there is none."""
    if "error" in real or "error" in answer:
        names = [answer.get("error"), *answer.get("is_a", ())]
        is_same = real.get("error") in names and "error" in answer
        return "" if is_same else f"error {real.get('error')}, here {answer.get('error')}"
    if real["kind"] != answer["kind"]:
        return f"a {real['kind']}, here a {answer['kind']}"
    if "items" in real:
        if len(real["items"]) != len(answer["items"]):
            return f"{len(real['items'])} items, here {len(answer['items'])}"
        pairs = zip(real["items"], answer["items"], strict=True)
        return next((text for pair in pairs if (text := difference(*pair, strides))), "")
    for key in ("dtype", "shape", "text"):
        if real.get(key) != answer.get(key):
            return f"{key} {real.get(key)}, here {answer.get(key)}"
    if "values" in real and not same_values(real, answer):
        return f"{str(real['values'])[:80]}, here {str(answer['values'])[:80]}"
    if strides and "strides" in real:
        # An axis of one element has no stride that matters, an empty array has none at all.
        counted = [n for n, length in enumerate(real["shape"]) if length > 1]
        if 0 not in real["shape"] and [real["strides"][n] for n in counted] != [
            answer["strides"][n] for n in counted
        ]:
            return f"strides {real['strides']}, here {answer['strides']}"
    return ""


def same_values(real: Any, answer: Any) -> bool:
    kind = real.get("dtype", "<f8" if real["kind"] == "float" else "")[1:]
    tolerance = RELATIVE_ERROR.get(kind)
    if tolerance is None:
        return bool(real["values"] == answer["values"])
    a, b = (np.array(side["values"], np.float64) for side in (real, answer))
    return a.shape == b.shape and np.allclose(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize("start", range(0, len(EXPRESSIONS), 50))
def test_same_as_cupy(start: int) -> None:
    wrong = []
    for code, name in EXPRESSIONS[start : start + 50]:
        key = f"{code} -> {name}" if name else code
        real = RECORDED["outcomes"][key]
        answer = json.loads(json.dumps(outcome(cp, code, name)))
        text = difference(real, answer, key not in OTHER_STRIDES)
        if key in DIFFERENT and not text:
            wrong.append(f"{key} is as CuPy's now: take it off the list")
        elif key not in DIFFERENT and text:
            wrong.append(f"{key}: CuPy on {RECORDED['device']} gives {text}")
    assert not wrong, "\n".join(wrong)
