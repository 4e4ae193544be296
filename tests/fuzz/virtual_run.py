"""Generated kernels on the virtual GPU's engine."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.fuzz import generator
from virtualgpu.compile import nvrtc
from virtualgpu.engine import PackedLaunch, Program, RunOptions
from virtualgpu.model.memory import DeviceMemory

MEMORY_BYTES = 256 << 20


@lru_cache(maxsize=4)
def compiled(first: int, target: int) -> tuple[Program, dict[int, generator.Kernel]]:
    """The program of the pack that starts at a seed."""
    source, kernels = generator.program(range(first, first + generator.PACK))
    options = (*generator.OPTIONS, *nvrtc.CUPY_OPTIONS)
    image = nvrtc.compile_ptx(source, target=target, options=options)
    return Program(image.ptx, source), {k.seed: k for k in kernels}


def run(program: Program, k: generator.Kernel, **options: Any) -> list[npt.NDArray[np.generic]]:
    """What a kernel writes; `options` are those of `RunOptions`."""
    memory = DeviceMemory(MEMORY_BYTES)
    data = generator.data(k)
    arrays = [*data.inputs, *data.outputs]
    addresses = []
    for number, array in enumerate(arrays):
        address = memory.malloc(array.nbytes)
        memory.track_allocation(address, array.nbytes, f"argument {number}")
        memory.view(address, array.nbytes)[:] = array.view(np.uint8)
        addresses.append(address)
    params = np.array(addresses, np.uint64).tobytes() + np.int32(data.n).tobytes() + data.scale.tobytes()
    fresh = Program(program.ptx, program.code)  # its own module variables, in this memory
    settings: dict[str, Any] = {"instrument": "none", "watchdog_s": 60.0, **options}
    fresh.launch(
        PackedLaunch(k.name, k.grid, k.block, params, k.dynamic_shared_bytes), memory, RunOptions(**settings)
    )
    out = []
    for array, address in zip(arrays[len(data.inputs) :], addresses[len(data.inputs) :], strict=True):
        out.append(memory.view(address, array.nbytes).view(array.dtype).copy())
    return out
