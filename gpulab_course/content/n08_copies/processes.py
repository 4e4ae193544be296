"""One array, two processes: CUDA's IPC.

``python -m gpulab_course.content.n08_copies.processes`` does it on this machine's GPU and prints JSON; it
needs CuPy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

ELEMENTS = 16 << 20
_LIMIT_S = 60

# The program of the other process. A handle is 64 bytes that mean one allocation of the first process.
CHILD = """
import sys, cupy
runtime = cupy.cuda.runtime
handle, n = bytes.fromhex(sys.stdin.readline()), int(sys.stdin.readline())
address = runtime.ipcOpenMemHandle(handle)
memory = cupy.cuda.UnownedMemory(address, 4 * n, None, 0)
x = cupy.ndarray(n, cupy.float32, cupy.cuda.MemoryPointer(memory, 0))
print(float(x.sum()), hex(address), flush=True)
x *= 2
cupy.cuda.Device().synchronize()
del x, memory
runtime.ipcCloseMemHandle(address)
"""


def measure() -> dict[str, Any]:
    """Measure how another process sums and doubles an array of ones of this process."""
    import cupy as cp

    memory = cp.cuda.Memory(4 * ELEMENTS)  # a cudaMalloc of its own: a handle means a whole allocation
    x = cp.ndarray(ELEMENTS, cp.float32, cp.cuda.MemoryPointer(memory, 0))
    x.fill(1)
    cp.cuda.Device().synchronize()
    handle = cp.cuda.runtime.ipcGetMemHandle(memory.ptr)
    since = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=f"{handle.hex()}\n{ELEMENTS}\n",
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=True,
    )
    there, address = child.stdout.split()
    return {
        "handle_bytes": len(handle),
        "sum there": float(there),
        "sum here": float(x.sum()),
        "address there": address,
        "address here": hex(memory.ptr),
        "took_s": round(time.perf_counter() - since, 2),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), separators=(",", ":")))
