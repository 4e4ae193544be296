"""Count what one ``gl.launch`` cell on the virtual GPU passes through: files, functions, changes of room.

Every call of a function of ``gpulab`` or ``virtualgpu`` is seen by ``sys.setprofile``. A room is a folder; a
change is a call from another one, library code in between left out of account. What a view does after it has
its record is counted apart: how a picture is drawn is a matter of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import gpulab as gl

ROOT = Path(gl.__file__).resolve().parent.parent
PACKAGES = (f"{ROOT}/gpulab/", f"{ROOT}/gpulab_course/", f"{ROOT}/virtualgpu/")
VIEWS = f"{ROOT}/gpulab/views"
CODE = """extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}"""


def hops(work: Callable[[], object]) -> dict[bool, tuple[int, int, int]]:
    """Files, functions and changes of room while `work` runs: outside views (False), and below one (True)."""
    functions: dict[bool, set[tuple[str, str]]] = {False: set(), True: set()}
    changes = {False: 0, True: 0}

    def see(frame: FrameType, event: str, arg: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(PACKAGES):
            return
        callers = [name]
        above = frame.f_back
        while above is not None:
            if above.f_code.co_filename.startswith(PACKAGES):
                callers.append(above.f_code.co_filename)
            above = above.f_back
        drawing = any(caller.startswith(VIEWS) for caller in callers)
        functions[drawing].add((name, frame.f_code.co_qualname))
        changes[drawing] += len(callers) > 1 and Path(callers[1]).parent != Path(name).parent

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return {
        part: (len({name for name, _ in found}), len(found), changes[part])
        for part, found in functions.items()
    }


def main() -> None:
    """Print the hops of a first launch and of one whose kernel is compiled."""
    cp = gl.use_device("virtual:A100").cp
    a, b, c = (cp.zeros(1024, cp.float32) for _ in range(3))
    kernel = cp.RawKernel(CODE, "add")
    for what in ("first launch", "launch"):
        found = hops(lambda: gl.launch(kernel, 4, 256, (a, b, c, np.int32(1024))))
        for part, (files, names, changes) in found.items():
            where = "in views" if part else "to the record"
            print(f"{what}, {where}: {files} files, {names} functions, {changes} changes of room")


if __name__ == "__main__":
    main()
