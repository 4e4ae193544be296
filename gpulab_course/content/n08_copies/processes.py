"""A device array that two processes share by means of a CUDA IPC handle.

``python -m gpulab_course.content.n08_copies.processes`` runs both processes on this machine's GPU and prints
JSON; it needs CuPy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

ELEMENT_COUNT = 16 << 20
_TIMEOUT_S = 60

# The program of the second process. The handle, 64 bytes, identifies an allocation of the first process.
CHILD_CODE = """
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


def measure_shared_array() -> dict[str, Any]:
    """Share a device array with a second process, which sums and doubles it, and return the results and the
    time.
    """
    import cupy as cp

    device_memory = cp.cuda.Memory(
        4 * ELEMENT_COUNT
    )  # a separate cudaMalloc, because a handle is for a whole allocation
    x = cp.ndarray(ELEMENT_COUNT, cp.float32, cp.cuda.MemoryPointer(device_memory, 0))
    x.fill(1)
    cp.cuda.Device().synchronize()
    ipc_handle = cp.cuda.runtime.ipcGetMemHandle(device_memory.ptr)
    start_s = time.perf_counter()
    child = subprocess.run(
        [sys.executable, "-c", CHILD_CODE],
        input=f"{ipc_handle.hex()}\n{ELEMENT_COUNT}\n",
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    )
    child_sum, child_address = child.stdout.split()
    return {
        "handle_bytes": len(ipc_handle),
        "sum there": float(child_sum),
        "sum here": float(x.sum()),
        "address there": child_address,
        "address here": hex(device_memory.ptr),
        "took_s": round(time.perf_counter() - start_s, 2),
    }


if __name__ == "__main__":
    print(json.dumps(measure_shared_array(), separators=(",", ":")))
