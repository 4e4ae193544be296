"""Check whether CuPy can use a CUDA device; otherwise raise an error with the cause and the remedy."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from contextlib import suppress
from typing import Any

from gpulab.real.cupti import library
from gpulab.real.driver import CUDA_ERRORS, query_driver_status
from gpulab.real.nvml import decode_text, query_sharing
from gpulab.session.choose import DeviceChoice
from virtualgpu.errors import GpulabError

INSTALL_COMMAND = 'pip install "gpulab[cuda13]" (or gpulab[cuda12] for a CUDA 12 driver)'


class CudaUnavailableError(GpulabError, RuntimeError):
    """Error raised if CuPy cannot use a real CUDA device. The message contains the reason."""


def open_cuda_device(index: int = 0) -> DeviceChoice:
    """Make a device the current device of CuPy. A small allocation tests the device first.

    Raises
    ------
    CudaUnavailableError
        If CuPy is missing or broken, or the device does not exist or cannot run work.
    """
    cupy = _import_cupy()
    runtime = cupy.cuda.runtime
    try:
        device_count = int(runtime.getDeviceCount())
    except Exception as error:
        raise CudaUnavailableError(f"CuPy is installed, but {_explain_failure(error)}") from error
    if device_count == 0:
        raise CudaUnavailableError("CuPy is installed, but the driver finds no CUDA device")
    if index >= device_count:
        existing_devices = "only cuda:0" if device_count == 1 else f"cuda:0 to cuda:{device_count - 1}"
        raise CudaUnavailableError(f"there is no cuda:{index}; this machine has {existing_devices}")
    try:
        device = cupy.cuda.Device(index)
        device.use()
        test_array = cupy.zeros(1, dtype="int32")
        device.synchronize()
        del test_array
    except Exception as error:
        raise CudaUnavailableError(f"cuda:{index} cannot be used: {_explain_failure(error)}") from error
    try:
        cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        raise CudaUnavailableError(
            f"CuPy cannot load NVRTC and so cannot compile kernels. Install NVRTC with {INSTALL_COMMAND}"
        ) from error
    if device_count > 1:
        _import_collectives()
    library.load_cupti()  # before the program's first NVTX range: later, timelines would not see any
    properties = runtime.getDeviceProperties(index)
    name = decode_text(properties["name"])
    capability = (int(properties["major"]), int(properties["minor"]))
    return DeviceChoice("cuda", name, capability, index, device_count, caution=_make_sharing_note(device))


def _import_cupy() -> Any:
    if importlib.util.find_spec("cupy") is None:
        driver_status = query_driver_status()
        if driver_status.is_usable:
            raise CudaUnavailableError(f"there is a GPU, but CuPy is not installed: {INSTALL_COMMAND}")
        raise CudaUnavailableError(driver_status.problem)
    try:
        module = importlib.import_module("cupy")
    except Exception as error:  # CuPy raises many kinds: ImportError, RuntimeError, OSError
        raise CudaUnavailableError(
            f"CuPy is installed but cannot be imported ({_find_first_line(error)}). Run `gpulab doctor` for "
            "details"
        ) from error
    if module is sys.modules.get("virtualgpu.cp"):
        raise CudaUnavailableError("`import cupy` imports the virtual GPU here (virtualgpu.as_cupy)")
    if not hasattr(module, "cuda"):
        # A folder called cupy beside the notebook, a clone of its sources for instance, is found first.
        imported_path = next(iter(getattr(module, "__path__", ())), None) or getattr(
            module, "__file__", "something"
        )
        raise CudaUnavailableError(
            f"`import cupy` finds {imported_path}, which is not CuPy and should be renamed"
        )
    return module


def _import_collectives() -> None:
    """Import ``cp.cuda.nccl`` and ``cupyx.distributed``, so that both are available as on virtual GPUs."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        importlib.import_module("cupy.cuda.nccl")
        importlib.import_module("cupyx.distributed")


def _explain_failure(error: Exception) -> str:
    error_status = getattr(error, "status", None)
    if type(error).__name__ == "OutOfMemoryError":
        error_status = 2
    return CUDA_ERRORS[error_status][0] if error_status in CUDA_ERRORS else _find_first_line(error)


def _find_first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" =\t")]
    return lines[0].rstrip(".") if lines else type(error).__name__


def _make_sharing_note(device: Any) -> str:
    # NVML numbers all GPUs of the machine and CUDA only those that CUDA_VISIBLE_DEVICES lets
    # through, so the two meet by PCI bus id.
    with suppress(Exception):
        return query_sharing(device.pci_bus_id).phrase
    return ""
