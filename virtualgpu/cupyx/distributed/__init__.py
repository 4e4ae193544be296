"""``cupyx.distributed`` of the virtual GPU: NCCL's calls on arrays. Ranks are threads of one process."""

from __future__ import annotations

from typing import Any

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cupyx.distributed._backend import NCCLBackend, init_process_group

__all__ = ["NCCLBackend", "init_process_group"]

_raise_missing_name = make_module_getattr(
    "cupyx.distributed",
    globals(),
    {
        "array": "create one part per virtual GPU, within `with cp.cuda.Device(n):`, and join the results "
        "with NCCLBackend or cp.cuda.nccl"
    },
)


def __getattr__(name: str) -> Any:
    return _raise_missing_name(name)
