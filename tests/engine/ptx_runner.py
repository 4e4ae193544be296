"""Runs one PTX instruction over many operands: a kernel that loads, computes and stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.engine import LaunchResult, PackedLaunch, Program, RunOptions
from virtualgpu.model.memory import DeviceMemory

_DTYPES = {
    "s8": np.int8,
    "u8": np.uint8,
    "s16": np.int16,
    "u16": np.uint16,
    "b16": np.uint16,
    "f16": np.float16,
    "s32": np.int32,
    "u32": np.uint32,
    "b32": np.uint32,
    "f32": np.float32,
    "s64": np.int64,
    "u64": np.uint64,
    "b64": np.uint64,
    "f64": np.float64,
}


def dtype_of(kind: str) -> Any:
    return _DTYPES[kind]


def run(
    ptx: str,
    name: str,
    arrays: Sequence[npt.NDArray[Any]],
    grid: int = 1,
    block: int = 32,
    *,
    numbers: Sequence[int] = (),
    source: str = "",
    shared_bytes: int = 0,
    cooperative: bool = False,
    **options: Any,
) -> tuple[LaunchResult, list[npt.NDArray[Any]]]:
    """Run a kernel of pointers and then 32-bit integers; return its result and the arrays' contents."""
    memory = DeviceMemory(1 << 28)
    params = b""
    addresses = []
    for array in arrays:
        address = memory.malloc(max(array.nbytes, 1))
        memory.track_allocation(address, max(array.nbytes, 1), f"{array.dtype} array of shape {array.shape}")
        memory.view(address, array.nbytes)[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        params += address.to_bytes(8, "little")
        addresses.append(address)
    params += b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)
    packed = PackedLaunch(name, (grid, 1, 1), (block, 1, 1), params, shared_bytes, cooperative)
    result = Program(ptx, source).launch(packed, memory, RunOptions(**options))
    return result, [
        memory.view(address, array.nbytes).copy().view(array.dtype).reshape(array.shape)
        for address, array in zip(addresses, arrays, strict=True)
    ]


def launch(
    ptx: str, name: str, arrays: Sequence[npt.NDArray[Any]], grid: int = 1, block: int = 32, **options: Any
) -> list[npt.NDArray[Any]]:
    """Run a kernel whose parameters are all pointers; return the arrays' contents after it."""
    return run(ptx, name, arrays, grid, block, **options)[1]


def apply(
    instruction: str,
    result: str,
    kinds: Sequence[str],
    operands: Sequence[npt.NDArray[Any]],
    target: int = 80,
) -> npt.NDArray[Any]:
    """Apply an instruction lane by lane.

    `instruction` uses %out for the result and %in0, %in1... for the operands; `result` and `kinds`
    are PTX types.
    """
    count = len(operands[0])
    lines = []
    declared = []
    for n, kind in enumerate([*kinds, result]):
        size = np.dtype(_DTYPES[kind]).itemsize
        bits = max(16, 8 * size)
        name = "out" if n == len(kinds) else f"in{n}"
        register = f".reg .{'f' if kind in ('f32', 'f64') else 'b'}{bits} %{name};"
        declared += [register, f".reg .b64 %p{n}, %q{n};"]
        lines += [
            f"ld.param.u64 %p{n}, [k_param_{n}];",
            f"cvta.to.global.u64 %p{n}, %p{n};",
            f"mad.wide.u32 %q{n}, %i, {size}, %p{n};",
        ]
        if n < len(kinds):
            lines.append(f"ld.global.{kind if kind != 'f16' else 'b16'} %{name}, [%q{n}];")
    out = "b16" if result == "f16" else result
    params = ", ".join(f".param .u64 k_param_{n}" for n in range(len(kinds) + 1))
    newline = "\n  "
    ptx = f""".version 8.0
.target sm_{target}
.address_size 64
.visible .entry k({params})
{{
  .reg .b32 %i, %t, %c, %n; .reg .pred %p;
  {newline.join(declared)}
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %ntid.x;
  mad.lo.u32 %i, %c, %n, %t;
  setp.ge.u32 %p, %i, {count};
  @%p bra DONE;
  {newline.join(lines)}
  {instruction}
  st.global.{out} [%q{len(kinds)}], %out;
DONE:
  ret;
}}
"""
    answer = np.zeros(count, _DTYPES[result])
    arrays = [np.asarray(o, _DTYPES[k]) for o, k in zip(operands, kinds, strict=True)]
    return launch(ptx, "k", [*arrays, answer], grid=-(-count // 64), block=64)[-1]
