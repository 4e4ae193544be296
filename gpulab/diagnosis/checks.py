"""Checks of ``gpulab doctor``: each one tests a part of the machine and names the remedy.

A check needs only the standard library and NumPy to report that a part is missing. If a check itself fails,
the failure is a finding, so that the other checks still run.
"""

from __future__ import annotations

import importlib.util
import os
import re
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpulab.real.cupti import library as cupti
from gpulab.real.driver import ERROR_NO_DEVICE, parse_cuda_version, query_driver_status
from gpulab.real.nvml import NvmlError, query_sharing
from gpulab.session.cuda import INSTALL_COMMAND, CudaUnavailableError, open_cuda_device
from gpulab.words import count
from virtualgpu.errors import UnknownProcessorError

Status = Literal["ok", "missing", "wrong"]

REAL_GPU_SUBJECT = "real GPU"
VIRTUAL_GPU_SUBJECT = "virtual GPU"
FIRST_CELL_SUBJECT = "first cell"
_DEVICE_WORDS = {"cuda": "real", "virtual": "virtual"}
DRIVER_SUBJECT = "NVIDIA driver"
NO_DRIVER = "no driver library (libcuda)"
GPU_SUBJECTS = (
    DRIVER_SUBJECT,
    "CUDA version",
    "NVML",
    "GPU sharing",
    "CuPy",
    "CuPy's NVRTC",
    REAL_GPU_SUBJECT,
    "CUPTI",
)

_MIN_PYTHON = (3, 11)
_MIN_CUDA = (12, 0)
_PACKAGES = ("virtualgpu", "gpulab", "gpulab-course")
_MIN_LLVMLITE = (0, 48)
_GPU_ONLY_REMEDY = "only a real GPU needs it"

_SELF_TEST, _HEADER_TEST = (
    (resources.files("gpulab.diagnosis") / f"{name}.cu").read_text(encoding="utf-8")
    for name in ("self_test", "headers")
)
_LIBRARY_HEADER_TEST = "#include <cuda/std/cstdint>\n#include <mma.h>\n"
_INSTALL_HEADERS_REMEDY = (
    "pip install nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cuda-crt "
    "(conda: cuda-cudart-dev, cuda-cccl and cuda-crt)"
)
_THREAD_COUNT = 1000
_BLOCK_SIZE = 128


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of checking one component of the installation. A ``missing`` component may be acceptable,
    but a ``wrong`` component is not.
    """

    subject: str
    status: Status
    found: str
    remedy: str = ""


CheckResult = tuple[Status, str, str]


def run_checks() -> tuple[Finding, ...]:
    """Run all checks in order. A component is checked before the components that need it."""
    return tuple(_run_check(subject, check) for subject, check in _CHECKS)


def _run_check(subject: str, check: Callable[[], CheckResult]) -> Finding:
    try:
        return Finding(subject, *check())
    except Exception as error:
        remedy = "Reinstall this part; `gpulab doctor` then checks it again."
        return Finding(subject, "wrong", _format_error(error), remedy)


def _format_error(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" =\t")]
    error_text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return error_text if len(error_text) <= 160 else error_text[:159] + "…"


def _find_version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


def _format_version(version: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in version)


# --- Python, the three packages and the driver ---


def check_python() -> CheckResult:
    """Check whether the version of the Python interpreter is supported."""
    version = _format_version(sys.version_info[:3])
    if sys.version_info[:2] < _MIN_PYTHON:
        return "wrong", version, f"Install Python {_format_version(_MIN_PYTHON)} or newer."
    return "ok", version, ""


def check_packages() -> CheckResult:
    """Check whether gpulab, virtualgpu and the course are installed in the same version."""
    versions = {name: _find_version(name) for name in _PACKAGES}
    installed_versions = {name: version for name, version in versions.items() if version}
    versions_text = ", ".join(f"{name} {version or 'absent'}" for name, version in versions.items())
    if not installed_versions:
        return "ok", "a checkout that is not installed", ""
    if len(set(installed_versions.values())) > 1:
        pip_requirements = " ".join(
            f"{name}=={max(installed_versions.values(), key=_parse_version)}" for name in installed_versions
        )
        return "wrong", f"{versions_text}: the versions differ", f"pip install {pip_requirements}"
    return "ok", versions_text, ""


def check_driver() -> CheckResult:
    """Check whether the library of the NVIDIA driver is installed and can be initialized."""
    driver_status = query_driver_status()
    if driver_status.library is None:
        return "missing", NO_DRIVER, "Nothing to do without an NVIDIA GPU."
    if driver_status.init_code in (0, ERROR_NO_DEVICE) and not driver_status.is_usable:
        return "missing", "a driver, but no CUDA device", "In a container, start it with `--gpus all`."
    if driver_status.init_code:
        return (
            "wrong",
            f"{driver_status.problem} (cuInit returned {driver_status.init_code})",
            driver_status.remedy,
        )
    return "ok", f"{driver_status.library}, {count(driver_status.device_count, 'CUDA device')}", ""


def check_cuda_version() -> CheckResult:
    """Check the newest CUDA version that the NVIDIA driver supports."""
    version = query_driver_status().cuda_version
    if version is None:
        return "missing", "unknown without a driver", ""
    if version < _MIN_CUDA:
        return (
            "wrong",
            f"CUDA {_format_version(version)}",
            "Update the NVIDIA driver: CuPy needs CUDA 12 or newer.",
        )
    return "ok", f"up to CUDA {_format_version(version)}", ""


def check_nvml() -> CheckResult:
    """Check whether NVML can provide live readings of the GPU."""
    if importlib.util.find_spec("pynvml") is None:
        return "missing", "nvidia-ml-py is not installed", "pip install nvidia-ml-py"
    try:
        gpu_sharing = query_sharing()
    except NvmlError as error:
        if query_driver_status().is_usable:
            return "wrong", str(error), "Start the container with the driver capability `utility`."
        return "missing", f"{error} ({_GPU_ONLY_REMEDY})", ""
    driver_text = f", driver {gpu_sharing.driver_version}" if gpu_sharing.driver_version else ""
    return "ok", f"{gpu_sharing.name}{driver_text}", ""


def check_sharing() -> CheckResult:
    """Check whether MIG, exclusive mode or other processes affect the use of the GPU."""
    try:
        gpu_sharing = query_sharing()
    except NvmlError:
        return "missing", "no GPU", ""
    if gpu_sharing.phrase:
        return "ok", gpu_sharing.phrase, "Nothing to repair; measured times may vary from run to run."
    return "ok", "the whole GPU; no other process was found", ""


# --- CuPy and the real GPU ---


def check_cupy() -> CheckResult:
    """Check whether exactly one CuPy is installed, can be imported, and matches the driver."""
    cupy_wheels = sorted(
        name
        for distribution in metadata.distributions()
        if (name := str(distribution.metadata["Name"] or "").lower()) == "cupy" or name.startswith("cupy-")
    )
    if importlib.util.find_spec("cupy") is None:
        if query_driver_status().is_usable:
            return "missing", "not installed, though there is a GPU", INSTALL_COMMAND
        return "missing", f"not installed ({_GPU_ONLY_REMEDY})", ""
    if len(cupy_wheels) > 1:
        remedy = f"pip uninstall {' '.join(cupy_wheels)}; {INSTALL_COMMAND}"
        return "wrong", f"several packages: {', '.join(cupy_wheels)}", remedy
    import cupy

    toolkit = parse_cuda_version(int(cupy.cuda.runtime.runtimeGetVersion()))
    description = f"{cupy.__version__} for CUDA {_format_version(toolkit)}"
    driver_version = query_driver_status().cuda_version
    # CUDA promises minor-version compatibility: a driver runs every toolkit of its major version.
    if driver_version is not None and toolkit[0] > driver_version[0]:
        remedy = f"Update the driver, or install gpulab[cuda{driver_version[0]}] instead."
        return (
            "wrong",
            f"{description}, but the driver supports only CUDA {_format_version(driver_version)}",
            remedy,
        )
    return "ok", description, ""


def check_cupy_nvrtc() -> CheckResult:
    """Check whether CuPy finds NVRTC, the compiler that it needs for every kernel."""
    if importlib.util.find_spec("cupy") is None:
        return "missing", f"no CuPy ({_GPU_ONLY_REMEDY})", ""
    import cupy

    try:
        version = cupy.cuda.nvrtc.getVersion()
    except Exception as error:
        return "wrong", _format_error(error), f"CuPy cannot compile kernels without it: {INSTALL_COMMAND}"
    return "ok", _format_version(tuple(version)), ""


def check_real_gpu() -> CheckResult:
    """Check whether a kernel that CuPy runs on the GPU computes the same result as NumPy."""
    try:
        device = open_cuda_device()
    except CudaUnavailableError as error:
        if query_driver_status().is_usable and importlib.util.find_spec("cupy"):
            return "wrong", str(error), "See the lines above."
        return "missing", str(error), ""
    import cupy

    x, expected_output = _make_self_test_data()
    y = cupy.zeros(_THREAD_COUNT, cupy.float32)
    kernel = cupy.RawKernel(_SELF_TEST, "scale")
    kernel((-(-_THREAD_COUNT // _BLOCK_SIZE),), (_BLOCK_SIZE,), (cupy.asarray(x), y, np.int32(_THREAD_COUNT)))
    if not np.array_equal(y.get(), expected_output):
        remedy = "Check the GPU's health: `nvidia-smi -q`."
        return "wrong", f"{device.device} computes other results than NumPy", remedy
    return "ok", f"{device.device}, compute capability {_format_version(device.compute_capability)}", ""


def check_cupti() -> CheckResult:
    """Check whether CUPTI can record timelines."""
    library = cupti.load_cupti()
    if library is None:
        remedy = "pip install nvidia-cuda-cupti" if query_driver_status().is_usable else ""
        return "missing", "not installed (timelines are recorded with events instead)", remedy
    rival_tool = cupti.find_other_cupti_tool()
    if rival_tool:
        return "wrong", f"in use by {rival_tool}", f"Run this without {rival_tool}."
    try:
        return "ok", f"CUPTI {library.version}", ""
    except cupti.CuptiError as error:
        return "wrong", _format_error(error), "pip install --force-reinstall nvidia-cuda-cupti"


# --- the virtual GPU ---


def check_nvrtc() -> CheckResult:
    """Check whether NVRTC, the compiler of the virtual GPU, is installed."""
    from virtualgpu.compile import nvrtc

    if not nvrtc.is_available():
        if sys.platform == "darwin":
            return "missing", "not available for macOS", "Compile kernels on Linux or Windows."
        return "missing", "not found", "pip install nvidia-cuda-nvrtc"
    compute_capabilities = nvrtc.supported_targets()
    lowest_capability, highest_capability = (
        f"{compute_capability // 10}.{compute_capability % 10}"
        for compute_capability in (compute_capabilities[0], compute_capabilities[-1])
    )
    return (
        "ok",
        (
            f"{_format_version(nvrtc.read_version())}, compute capability {lowest_capability} "
            f"to {highest_capability}"
        ),
        "",
    )


def check_headers() -> CheckResult:
    """Check whether the CUDA headers for cooperative groups, half precision, libcu++ and tensor cores are
    found.
    """
    from virtualgpu.compile import nvrtc

    if not nvrtc.is_available():
        return "missing", "not checked, because NVRTC is missing", ""
    try:
        nvrtc.compile_ptx(_HEADER_TEST, target=80)
        nvrtc.compile_cubin(_LIBRARY_HEADER_TEST, target=80)
    except nvrtc.NvrtcCompileError as error:
        return "missing", error.log.split("\n")[0], _INSTALL_HEADERS_REMEDY
    return "ok", "cooperative_groups.h, cuda_fp16.h, libcu++ and mma.h compile", ""


def check_virtual_gpu() -> CheckResult:
    """Check whether a kernel on the virtual GPU computes the same result as NumPy."""
    version = _find_version("llvmlite")
    if importlib.util.find_spec("llvmlite") is None:
        return "missing", "llvmlite is not installed", "pip install llvmlite"
    if version and _parse_version(version)[:2] < _MIN_LLVMLITE:
        return "wrong", f"llvmlite {version} rejects the engine's code", "pip install -U llvmlite"
    from virtualgpu.compile import nvrtc

    try:
        ptx_result = nvrtc.compile_ptx(_SELF_TEST, target=80)
    except nvrtc.NvrtcMissingError:
        return "missing", "no NVRTC", "See the line on NVRTC."
    from virtualgpu.engine import PackedLaunch, Program
    from virtualgpu.engine.machine import processor
    from virtualgpu.engine.run.crew import count_cores
    from virtualgpu.model.memory import DeviceMemory

    try:
        processor_name = processor.find_chosen_processor()
    except UnknownProcessorError as error:
        return "wrong", str(error), f"unset {processor.CPU_VARIABLE}"
    x, expected_output = _make_self_test_data()
    memory = DeviceMemory(1 << 20)
    addresses = [memory.malloc(x.nbytes) for _ in range(2)]
    for address, label in zip(addresses, "xy", strict=True):
        memory.track_allocation(address, x.nbytes, label)
    memory.view(addresses[0], x.nbytes)[:] = x.view(np.uint8)
    program = Program(ptx_result.ptx, _SELF_TEST)
    block_count = -(-_THREAD_COUNT // _BLOCK_SIZE)
    packed_params = struct.pack("<QQi", *addresses, _THREAD_COUNT)
    program.launch(PackedLaunch("scale", (block_count, 1, 1), (_BLOCK_SIZE, 1, 1), packed_params), memory)
    kernel_output = memory.view(addresses[1], x.nbytes).view(np.float32)
    if not np.array_equal(kernel_output, expected_output):
        return "wrong", "its results differ from NumPy's", "pip install --force-reinstall llvmlite"
    kernels_text = "kernels" if nvrtc.is_available() else "the course's own kernels, compiled in advance,"
    return (
        "ok",
        f"runs {kernels_text} on {count(count_cores(), 'CPU thread')}, {processor_name}; llvmlite {version}",
        "",
    )


def _make_self_test_data() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    # Multiples of 1/8, so that no operation rounds and the answer is exact.
    index = np.arange(_THREAD_COUNT)
    x = (index / 8 - 50).astype(np.float32)
    return x, (3 * x + index % 7).astype(np.float32)


def check_cell() -> CheckResult:
    """Check whether ``from gpulab import cp``, the first line of a notebook, provides a working device."""
    from gpulab import session

    device_variable = os.environ.get("GPULAB_DEVICE")
    try:
        device = session.which_device()
        array_sum = int(session.cp().arange(4).sum())
    except Exception as error:
        remedy = (
            "See the lines above."
            if device_variable is None
            else f"GPULAB_DEVICE is {device_variable!r}: correct or unset it."
        )
        return "wrong", _format_error(error), remedy
    if array_sum != 6:
        return "wrong", f"0 + 1 + 2 + 3 is {array_sum} on the {device.device}", "See the lines above."
    return "ok", f"`from gpulab import cp` works, on the {_DEVICE_WORDS[device.kind]} {device.device}", ""


# --- Jupyter ---


def check_jupyterlab() -> CheckResult:
    """Check whether JupyterLab is installed, and whether its kernel can update widgets from other threads."""
    version = _find_version("jupyterlab")
    if version is None:
        return "missing", "not installed", "pip install jupyterlab"
    if _parse_version(version) < (4, 2):
        return "wrong", version, 'pip install "jupyterlab>=4.2"'
    kernel = _find_version("ipykernel")
    if kernel is None:
        return "missing", f"{version}, but no ipykernel", "pip install ipykernel"
    if _parse_version(kernel)[:2] == (7, 0):
        remedy = 'Updates from threads are broken in ipykernel 7.0: pip install "ipykernel!=7.0.*"'
        return "wrong", f"{version}, ipykernel {kernel}", remedy
    return "ok", f"{version}, ipykernel {kernel}", ""


def check_widgets() -> CheckResult:
    """Check whether the notebook can show interactive widgets."""
    min_versions = {"ipywidgets": (8, 1), "anywidget": (0, 9), "matplotlib": (3, 8)}
    versions: dict[str, str | None] = {name: _find_version(name) for name in min_versions}
    absent_packages = [name for name, version in versions.items() if version is None]
    if absent_packages:
        return "missing", f"no {', '.join(absent_packages)}", f"pip install {' '.join(absent_packages)}"
    outdated_names = [
        name for name, version in versions.items() if version and _parse_version(version) < min_versions[name]
    ]
    versions_text = ", ".join(f"{name} {version}" for name, version in versions.items())
    if outdated_names:
        requirements = " ".join(f'"{name}>={_format_version(min_versions[name])}"' for name in outdated_names)
        return "wrong", versions_text, f"pip install {requirements}"
    return "ok", versions_text, ""


_CHECKS: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("Python", check_python),
    ("packages", check_packages),
    (DRIVER_SUBJECT, check_driver),
    ("CUDA version", check_cuda_version),
    ("NVML", check_nvml),
    ("GPU sharing", check_sharing),
    ("CuPy", check_cupy),
    ("CuPy's NVRTC", check_cupy_nvrtc),
    (REAL_GPU_SUBJECT, check_real_gpu),
    ("CUPTI", check_cupti),
    ("NVRTC", check_nvrtc),
    ("CUDA headers", check_headers),
    (VIRTUAL_GPU_SUBJECT, check_virtual_gpu),
    (FIRST_CELL_SUBJECT, check_cell),
    ("JupyterLab", check_jupyterlab),
    ("widgets", check_widgets),
)
