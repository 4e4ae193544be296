"""Kernels whose last bits depend on fused products, their inputs, and what an H200 made of them.

``python -m tests.engine.arithmetic`` on a GPU with CuPy records anew.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

DATA = Path(__file__).parent / "data"
SOURCE = (DATA / "arithmetic.cu").read_text(encoding="utf-8")
RECORDED = DATA / "arithmetic_h200.json"
KERNELS: dict[str, str] = dict(re.findall(r"^KERNEL\((\w+), (\w+)\)", SOURCE, re.M))
BLOCKS = 16
THREADS = 128
COUNT = BLOCKS * THREADS
_TYPES: dict[str, tuple[str, int]] = {
    "float": ("f4", 1),
    "double": ("f8", 1),
    "__half": ("f2", 1),
    "__half2": ("f2", 2),
    "__nv_bfloat16": ("u2", 1),
}


def inputs(kind: str) -> tuple[Array, Array]:
    """Two arrays of `2 * COUNT` numbers between -1 and 1, as a kernel of a type reads them."""
    name, lanes = _TYPES[kind]
    values = np.random.default_rng(14).uniform(-1, 1, (2, 2 * COUNT * lanes))
    if kind == "__nv_bfloat16":
        first, second = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        first, second = values.astype(name)
    return first, second


@functools.cache
def module(cp: Any) -> Any:
    return cp.RawModule(code=SOURCE)


def outputs(cp: Any, kernel: str) -> Array:
    """What a kernel writes, as words of its type's size."""
    name, lanes = _TYPES[KERNELS[kernel]]
    out = cp.zeros(COUNT * lanes, name)
    first, second = (cp.asarray(array) for array in inputs(KERNELS[kernel]))
    module(cp).get_function(kernel)((BLOCKS,), (THREADS,), (out, first, second, np.int32(COUNT)))
    words: Array = cp.asnumpy(out)
    return words.view(f"u{words.itemsize}")


def digest(words: Array) -> str:
    return hashlib.sha256(words.tobytes()).hexdigest()[:16]


def record(cp: Any) -> None:
    device = cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    digests = {name: digest(outputs(cp, name)) for name in KERNELS}
    RECORDED.write_text(json.dumps({"device": device, "digests": digests}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    import cupy

    record(cupy)
