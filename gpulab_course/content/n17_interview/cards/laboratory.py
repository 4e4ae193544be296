"""Functions for all interview cards: choice of a device, kernels of the course, and published data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any

from gpulab import session
from virtualgpu.records import Provenance

DEVICES = ("T4", "A100", "RTX 3090", "RTX 4090", "L40S", "H100", "H200")
_KERNELS_FOLDER = Path(__file__).resolve().parents[1] / "kernels"
ARITHMETIC_SOURCE = "arithmetic"


def choose_article(name: str) -> str:
    """Return the article "a" or "an" that fits the pronunciation of a device's name."""
    return "a" if name.startswith("T") else "an"


def draw_other_device(rng: Random, device: str) -> str:
    """Choose a random device that is not `device`, for a follow-up question."""
    return rng.choice([name for name in DEVICES if name != device])


@contextmanager
def use_device(device: str) -> Iterator[Any]:
    """Use a virtual GPU of this model in a `with` block, which yields the array module ``cp``."""
    with session.on_device(f"virtual:{device}") as cp:
        yield cp


@dataclass(frozen=True, slots=True)
class PublishedData:
    """The published data of a device, for use in interview cards.

    The attribute `fp32_tflops` is the FP32 rate without tensor cores. `fp16_tensor_tflops` is the dense rate
    with FP32 accumulation.
    """

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    max_warps_per_sm: int
    registers_per_sm: int
    shared_per_sm_bytes: int
    memory_bandwidth_gbps: float
    fp32_tflops: float
    fp16_tensor_tflops: float
    pcie_gbps: float
    provenance: Provenance

    @property
    def has_async_copies(self) -> bool:
        """Whether the device copies from global to shared memory asynchronously."""
        return self.compute_capability >= (8, 0)


def read_published_info(device: str) -> PublishedData:
    """Return the published data of a device."""
    device_info = session.find_table_info(device)
    published_values = {field.name: getattr(device_info, field.name) for field in fields(PublishedData)}
    assert all(published_value is not None for published_value in published_values.values()), device
    return PublishedData(**published_values)


def read_tensor_tflops(device: str, format_name: str) -> float:
    """Return a device's published dense tensor-core rate for a number format, or 0 if there is none.

    The format has a name from `virtualgpu.records.counters.TENSOR_FORMATS`.
    """
    with use_device(device):
        return session.find_ceilings().gflops.get(f"tensor {format_name}", 0.0) / 1e3


def make_provenance(device: str) -> Provenance:
    """Return the provenance of a device's published data."""
    return read_published_info(device).provenance


def compile_kernel(cp: Any, name: str, shared_bytes: int = 0) -> Any:
    """Return a kernel of the interview notebook, which may use `shared_bytes` of dynamic shared memory."""
    function = cp.RawModule(code=read_kernel_source("estimates.cu")).get_function(name)
    if shared_bytes > 48 << 10:
        function.max_dynamic_shared_size_bytes = shared_bytes
    return function


def read_kernel_source(file_name: str) -> str:
    """Return the source text of one of the interview notebook's kernels."""
    return (_KERNELS_FOLDER / file_name).read_text(encoding="utf-8")
