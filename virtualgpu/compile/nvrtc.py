"""NVRTC through ctypes: CUDA C++ to PTX or to a cubin, without a GPU or driver.

The library and the CUDA headers are found by NVIDIA's own `cuda-pathfinder` (wheels in site-packages, conda,
or a system toolkit). If NVRTC is missing, `compile_ptx` returns PTX that was compiled in advance for the
course's own kernels (`virtualgpu.compile.shipped`).
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from virtualgpu.compile import cache as disk_cache
from virtualgpu.compile import shipped
from virtualgpu.compile.child import server
from virtualgpu.compile.child.process import CompilerEndedError, compiler
from virtualgpu.compile.cubin import KernelResources
from virtualgpu.compile.headers.includes import hash_headers
from virtualgpu.compile.interruptible import run_interruptible
from virtualgpu.errors import GpulabError, NotSupportedError, ToolMissingError

# Seconds of processor time that one compilation may take.
TIME_LIMIT_VARIABLE = "VIRTUALGPU_COMPILE_S"
_TIME_LIMIT_S = 20.0
_MEMORY_LIMIT_BYTES = 3 << 30
_temporary_limits: dict[str, float] = {}  # temporary limits
_HEADER_LIBRARIES = ("cudart", "cccl", "curand")

# Options that CuPy adds to every RawKernel (cupy/cuda/compiler.py, 14.x): subnormal floats become
# zero, and functions without a qualifier are device functions.
CUPY_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")


class NvrtcMissingError(ToolMissingError):
    """Error for an operation that needs NVRTC when NVRTC is not installed on this machine."""


class NvrtcCompileError(GpulabError, ValueError):
    """Error for source code that does not compile. The attribute ``log`` is NVRTC's log with line numbers of
    the learner's source.
    """

    def __init__(self, log: str) -> None:
        super().__init__(log)
        self.log = log


@dataclass(frozen=True, slots=True)
class PtxImage:
    """The result of a compilation to PTX for one target, with the log and the mangled names.

    The attribute ``resources`` contains the resources of each kernel, or None if they are unknown.
    """

    ptx: str
    target: int
    log: str = ""
    lowered_names: dict[str, str] = field(default_factory=dict)
    resources: dict[str, KernelResources] | None = None


@dataclass(frozen=True, slots=True)
class CubinImage:
    """The result of a compilation to machine code (an ELF file) for one target, with the log and the mangled
    names.
    """

    cubin: bytes
    target: int
    log: str = ""
    lowered_names: dict[str, str] = field(default_factory=dict)


def _get_library() -> ctypes.CDLL:
    library = _load_library()
    if isinstance(library, ctypes.CDLL):
        return library
    raise NvrtcMissingError(
        "NVRTC, NVIDIA's run-time compiler, was not found on this machine. Install it "
        "with `pip install nvidia-cuda-nvrtc` (Linux and Windows). NVIDIA has no package "
        "for macOS."
    ) from library


@functools.cache
def _load_library() -> ctypes.CDLL | Exception:
    """Return the loaded NVRTC library, or the exception that prevented loading it."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library_location = load_nvidia_dynamic_lib("nvrtc")
        library = ctypes.CDLL(library_location.abs_path or "")
    except Exception as error:
        return error
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


@functools.cache
def find_include_options() -> tuple[str, ...]:
    """Return the ``-I`` compiler options for the CUDA headers on this machine."""
    from cuda.pathfinder import find_nvidia_header_directory

    directories: list[str] = []
    for library_name in _HEADER_LIBRARIES:
        try:
            directory = find_nvidia_header_directory(library_name)
        except Exception:
            directory = None
        if directory and directory not in directories:
            directories.append(directory)
    return tuple(f"-I{directory}" for directory in directories)


def is_available() -> bool:
    """Return whether NVRTC can be loaded on this machine."""
    try:
        _get_library()
    except NvrtcMissingError:
        return False
    return True


@functools.cache
def read_version() -> tuple[int, int]:
    """Return the version of NVRTC as a tuple (major, minor)."""
    major = ctypes.c_int()
    minor = ctypes.c_int()
    _check_status(_get_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def supported_targets() -> tuple[int, ...]:
    """Return the compute capabilities for which NVRTC can compile, as integers such as 75 for 7.5.

    Without NVRTC, the result contains the targets of the course's precompiled kernels.
    """
    return _read_targets() if is_available() else shipped.list_targets()


@functools.cache
def _read_targets() -> tuple[int, ...]:
    library = _get_library()
    architecture_count = ctypes.c_int()
    _check_status(library.nvrtcGetNumSupportedArchs(ctypes.byref(architecture_count)))
    architectures = (ctypes.c_int * architecture_count.value)()
    _check_status(library.nvrtcGetSupportedArchs(architectures))
    return tuple(sorted(architectures))


def compile_ptx(
    code: str,
    *,
    target: int,
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    file_name: str = "kernel.cu",
) -> PtxImage:
    """Compile CUDA C++ to PTX with line information.

    Parameters
    ----------
    code
        CUDA C++ source.
    target
        Virtual architecture as an integer: 75 for compute capability 7.5, 100 for 10.0.
    options
        Further NVRTC options. A ``-arch`` among them is ignored: the target decides.
    name_expressions
        Template instantiations to keep, such as ``"scale<float>"``.
    file_name
        The name the log uses for the source.

    Raises
    ------
    NvrtcCompileError
        If the source does not compile.
    NvrtcMissingError
        If NVRTC is not installed and the source is not one of the course's own.
    """
    if not is_available():
        return _find_shipped_image(code, target, options, name_expressions)
    flags = [f"--gpu-architecture=compute_{target}", "-lineinfo", *options]
    (ptx_bytes,), log, lowered_names = _compile(code, file_name, flags, name_expressions, ("PTX",))
    return PtxImage(ptx_bytes.rstrip(b"\0").decode(), target, log, lowered_names)


def compile_both(
    code: str, *, target: int, options: tuple[str, ...] = (), name_expressions: tuple[str, ...] = ()
) -> tuple[PtxImage, CubinImage | None]:
    """Compile CUDA C++ to PTX and machine code, both with line information. The results are cached in the
    process.

    The PTX is that of `compile_ptx`. Without NVRTC there is no machine code; its resources are then part of
    the PTX image. Parameters and errors are those of `compile_ptx`.
    """
    return _compile_both(code, target, options, name_expressions, hash_headers(code, options))


@functools.lru_cache(maxsize=128)
def _compile_both(
    code: str, target: int, options: tuple[str, ...], name_expressions: tuple[str, ...], _header_hash: str
) -> tuple[PtxImage, CubinImage | None]:
    if not is_available():
        return _find_shipped_image(code, target, options, name_expressions), None
    flags = [f"--gpu-architecture=sm_{target}", "-lineinfo", *options]
    (ptx_bytes, cubin), log, lowered_names = _compile(
        code, "kernel.cu", flags, name_expressions, ("PTX", "CUBIN")
    )
    ptx_image = PtxImage(ptx_bytes.rstrip(b"\0").decode(), target, log, lowered_names)
    return ptx_image, CubinImage(cubin, target, log, lowered_names)


def _find_shipped_image(
    code: str, target: int, options: Sequence[str], expressions: Sequence[str]
) -> PtxImage:
    shipped_image = shipped.find_image(code, target=target, options=options, name_expressions=expressions)
    if shipped_image is None:
        raise NvrtcMissingError(
            "This kernel has to be compiled, and NVRTC, NVIDIA's run-time compiler, is "
            "not installed here. Only the course's own unchanged kernels were compiled "
            "in advance. Install it with `pip install nvidia-cuda-nvrtc` (Linux and "
            "Windows); NVIDIA has no NVRTC for macOS, so edit kernels there in an online "
            "notebook, such as Binder or Google Colab."
        )
    return PtxImage(shipped_image.ptx, target, "", shipped_image.lowered_names, shipped_image.resources)


def compile_cubin(
    code: str,
    *,
    target: int,
    options: Sequence[str] = (),
    name_expressions: Sequence[str] = (),
    file_name: str = "kernel.cu",
) -> CubinImage:
    """Compile CUDA C++ to machine code for ``sm_<target>``. The parameters are the same as those of
    `compile_ptx`.
    """
    flags = [f"--gpu-architecture=sm_{target}", *options]
    (image,), log, lowered_names = _compile(code, file_name, flags, name_expressions, ("CUBIN",))
    return CubinImage(image, target, log, lowered_names)


def _compile(
    code: str, file_name: str, flags: Sequence[str], expressions: Sequence[str], image_kinds: Sequence[str]
) -> tuple[list[bytes], str, dict[str, str]]:
    """Compile a source, or load its images from the cache on disk. Return one image per kind, the log and the
    mangled names.


    Sources that include the learner's own files (``-I``) are compiled each time.
    """
    _refuse_link_options(flags)
    options = _merge_options(flags)
    if any(flag.startswith(("-I", "--include-path", "-include", "--pre-include")) for flag in flags):
        return run_interruptible(
            lambda: _compile_now(code, file_name, options, expressions, image_kinds), compiler.interrupt
        )
    version_text = ".".join(map(str, read_version()))
    key_parts = (file_name, *options, "", *expressions, "", code, hash_headers(code))
    cache_keys = [disk_cache.make_key(version_text, image_kind, *key_parts) for image_kind in image_kinds]
    cached_entries = [
        entry_bytes.partition(b"\n")
        for key in cache_keys
        if (entry_bytes := disk_cache.load_entry("nvrtc", key))
    ]
    if len(cached_entries) == len(image_kinds):
        log_and_names = json.loads(cached_entries[0][0])
        return [image for _, _, image in cached_entries], log_and_names["log"], log_and_names["lowered"]

    def compile_and_store() -> tuple[list[bytes], str, dict[str, str]]:
        images, log, lowered_names = _compile_now(code, file_name, options, expressions, image_kinds)
        log_and_names = json.dumps({"log": log, "lowered": lowered_names}).encode()
        for key, image in zip(cache_keys, images, strict=True):
            disk_cache.store_entry("nvrtc", key, log_and_names + b"\n" + image)
        return images, log, lowered_names

    return run_interruptible(compile_and_store, compiler.interrupt)


def _compile_now(
    code: str, file_name: str, options: Sequence[str], expressions: Sequence[str], image_kinds: Sequence[str]
) -> tuple[list[bytes], str, dict[str, str]]:
    """Compile a source in a separate process, within limits of processor time and memory.

    NVRTC (13.5) ends its process for a template kernel with a pointer to an undeclared type, such as
    ``uint32_t*`` without its header. Without name expressions the same source causes an ordinary error.
    """
    time_limit_s = _get_limit_s()
    memory_limit_bytes = int(_temporary_limits.get("limit_bytes", _MEMORY_LIMIT_BYTES))
    request = {
        "code": code,
        "file_name": file_name,
        "options": list(options),
        "expressions": list(expressions),
        "kinds": list(image_kinds),
        "limit_s": time_limit_s,
        "limit_bytes": memory_limit_bytes,
        "folder": str(Path.cwd()),
    }
    try:
        reply, images = compiler.send(_get_library()._name, request)
    except InterruptedError:
        raise
    except OSError:  # no process can be started here
        reply, images = server.reply_to(_get_library(), request)
    except CompilerEndedError:
        if not expressions:
            raise NvrtcCompileError(
                "NVRTC stopped while it compiled this source, without an error message."
            ) from None
        _compile_now(code, file_name, options, (), image_kinds)
        raise NvrtcCompileError(
            "NVRTC stopped without an error message while it compiled "
            f"{', '.join(expressions)}. Check that every type in the source is declared: "
            "fixed-size integers need #include <cuda/std/cstdint>, half needs "
            "<cuda_fp16.h>."
        ) from None
    if "over" in reply:
        used_amount = f"{time_limit_s:g} s of processor time"
        remedy = ""
        if reply["over"] == "memory":
            used_amount = f"{memory_limit_bytes / 2**30:.2g} GiB of memory"
        elif not _temporary_limits:
            remedy = f"; if the source is only long, set {TIME_LIMIT_VARIABLE} to a larger number of seconds"
        raise NvrtcCompileError(
            f"NVRTC was stopped after it had used {used_amount}. Look for macros or templates "
            f"that expand into one another{remedy}."
        )
    if "failed" in reply:
        raise GpulabError(reply["failed"])
    if "refused" in reply:
        raise NvrtcCompileError(reply["refused"].replace("__nv_name_map", "name_expressions"))
    return images, reply["log"], reply["lowered"]


@contextmanager
def limit_compilations(limit_s: float, limit_bytes: int) -> Iterator[None]:
    """Context manager that limits the processor time and the memory of compilations."""
    previous_limits = _temporary_limits.copy()
    _temporary_limits.update(limit_s=limit_s, limit_bytes=limit_bytes)
    try:
        yield
    finally:
        _temporary_limits.clear()
        _temporary_limits.update(previous_limits)


def _get_limit_s() -> float:
    """Return the processor time in seconds that the compilation of a source may take."""
    if "limit_s" in _temporary_limits:
        return _temporary_limits["limit_s"]
    limit_text = os.environ.get(TIME_LIMIT_VARIABLE, "")
    try:
        return max(float(limit_text), 0.1)
    except ValueError:
        return _TIME_LIMIT_S


def _merge_options(flags: Sequence[str]) -> list[str]:
    """Combine default options with the learner's options, without duplicates.

    An option of the learner replaces the default, except for the target architecture.
    """
    options: list[str] = []
    has_architecture = False
    for flag in flags:
        if flag.startswith(("--gpu-architecture", "-arch")):
            if has_architecture:
                continue
            has_architecture = True
        if flag not in options:
            options.append(flag)
    if not any(flag.startswith(("--std", "-std")) for flag in options):
        options.append("--std=c++17")
    return [*options, *find_include_options()]


def _refuse_link_options(flags: Sequence[str]) -> None:
    link_option = next((flag for flag in flags if flag in ("-dlto", "--dlink-time-opt")), None)
    if link_option:
        raise NotSupportedError(
            f"The option {link_option} makes NVRTC produce code for a linker, but the virtual GPU has no "
            "linker. Remove this option."
        )


def _check_status(status: int) -> None:
    if status:
        error_text = _get_library().nvrtcGetErrorString(status).decode()
        raise GpulabError(f"NVRTC call failed: {error_text}.")
