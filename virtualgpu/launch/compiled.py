"""Compiled CUDA C++ for one target: PTX to execute, and machine code from which resources are read."""

from __future__ import annotations

import difflib
import functools
import re
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

from virtualgpu.compile import nvrtc
from virtualgpu.compile.advice import make_advice
from virtualgpu.compile.cubin import KernelResources, read_kernel_resources
from virtualgpu.compile.headers.cupy import insert_headers
from virtualgpu.compile.headers.includes import hash_headers
from virtualgpu.compile.ptx import ir
from virtualgpu.cuda_errors import CompileException, CUDADriverError
from virtualgpu.errors import SourceWarning, warn
from virtualgpu.launch.signature import SourceParam, find_kernel_names, parse_source_params
from virtualgpu.model.occupancy import occupancy
from virtualgpu.records import DeviceInfo, KernelStats, Occupancy

if TYPE_CHECKING:
    from virtualgpu.engine import Program
    from virtualgpu.model.machine import VirtualDevice

MAX_CACHED_MODULES = 128
_MANGLED_PATTERN = re.compile(r"_Z(\d+)(\w+)")
_IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_]\w*")
_LOG_WARNING_PATTERN = re.compile(r"^kernel\.cu\(\d+\): warning.*", re.MULTILINE)


def choose_target(capability: tuple[int, int]) -> int:
    """Return the newest NVRTC target that a device with the given compute capability can run.

    A device that is older than all targets gets the oldest target.
    """
    capability_number = 10 * capability[0] + capability[1]
    targets = nvrtc.supported_targets()
    return max((target for target in targets if target <= capability_number), default=min(targets))


@dataclass(eq=False, slots=True)
class CompiledModule:
    """The result of compiling CUDA source code. The dictionary ``lowered_names`` contains the symbol of each
    name expression.

    ``is_precompiled`` is True for modules that were shipped with the course, which are used if NVRTC is not
    installed. ``log`` contains NVRTC's warnings.
    """

    code: str
    options: tuple[str, ...]
    target: int
    ptx: str
    lowered_names: dict[str, str]
    resources: Mapping[str, KernelResources]
    is_precompiled: bool = False
    log: str = ""
    _programs: weakref.WeakKeyDictionary[VirtualDevice, Program] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _kernels: weakref.WeakKeyDictionary[VirtualDevice, dict[str, CompiledKernel]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_log_reported: bool = False

    def write_log(self, log_stream: TextIO) -> None:
        """Write the compiler warnings of NVRTC to a text file."""
        self._is_log_reported = True
        if self.log:
            log_stream.write(f"{self.log}\n")

    def warn(self) -> None:
        """Show the compiler warnings of NVRTC as `SourceWarning`. Each warning is shown only once."""
        if not self._is_log_reported:
            self._is_log_reported = True
            for message in _LOG_WARNING_PATTERN.findall(self.log):
                warn(f"NVRTC warns about the kernel's source. {message.strip()}", SourceWarning)

    def program(self, device: VirtualDevice) -> Program:
        """Return the loaded program of the module on a device, with its ``__device__`` variables."""
        from virtualgpu.engine import Program

        with self._lock:
            program = self._programs.get(device)
            if program is None:
                program = self._programs[device] = Program(self.ptx, self.code)
            return program

    def kernel(self, name: str, device: VirtualDevice) -> CompiledKernel:
        """Return the kernel with the given name or name expression, loaded on a device.

        Raises
        ------
        CUDADriverError
            Status 500, ``CUDA_ERROR_NOT_FOUND``; the message lists the module's kernels.
        """
        kernels = self._kernels.setdefault(device, {})
        kernel = kernels.get(name)
        if kernel is None:
            symbol = self.symbol(name)
            kernel = kernels[name] = CompiledKernel(
                module=self,
                symbol=symbol,
                stats=self.stats(symbol, device.info),
                resources=self.resources[symbol],
                program=self.program(device),
                source_params=self.source_params(symbol),
            )
        return kernel

    def symbol(self, name: str) -> str:
        """Return the mangled symbol of a kernel, given its name or name expression.

        Raises
        ------
        CUDADriverError
            Status 500, ``CUDA_ERROR_NOT_FOUND``; the message lists the module's kernels.
        """
        symbol = self.lowered_names.get(name, name)
        if symbol in self.resources:
            return symbol
        raise CUDADriverError(
            500, "CUDA_ERROR_NOT_FOUND", f"named symbol not found: {self._missing_message(name)}"
        )

    def source_name(self, symbol: str) -> str:
        """Return the name of a kernel in the source code, given its mangled symbol."""
        return next(
            (name for name, lowered_name in self.lowered_names.items() if lowered_name == symbol), symbol
        )

    def source_params(self, symbol: str) -> tuple[SourceParam, ...] | None:
        """Return the kernel's parameters as written in the source, or None if they cannot be determined."""
        expression = self.source_name(symbol)
        mangled_match = _MANGLED_PATTERN.match(expression)
        if mangled_match:
            return parse_source_params(self.code, mangled_match[2][: int(mangled_match[1])])
        identifiers = _IDENTIFIER_PATTERN.findall(expression.split("<")[0])
        return parse_source_params(self.code, identifiers[-1]) if identifiers else None

    def stats(self, symbol: str, info: DeviceInfo) -> KernelStats:
        """Return the registers, memory sizes and thread limit of a compiled kernel, as CUDA reports them."""
        resources = self.resources[symbol]
        origin = (
            f"compiled {'in advance ' if self.is_precompiled else ''}by NVRTC"
            if self.code
            else "estimated from PTX"
        )
        return KernelStats(
            provenance=replace(info.as_virtual, detail=f"{origin} for {self._target_text(info)}"),
            name=self.source_name(symbol),
            target=f"sm_{self.target}",
            registers_per_thread=resources.registers_per_thread,
            static_shared_bytes=resources.static_shared_bytes,
            local_bytes=resources.local_bytes,
            constant_bytes=resources.constant_bytes,
            max_threads_per_block=compute_max_block_threads(info, resources),
        )

    def _target_text(self, info: DeviceInfo) -> str:
        target_text = f"sm_{self.target}"
        if 10 * info.compute_capability[0] + info.compute_capability[1] < self.target:
            return f"{target_text}, its oldest target; the device itself is {info.capability}"
        return target_text

    def _missing_message(self, name: str) -> str:
        symbols = set(self.resources)
        if not symbols and name not in find_kernel_names(self.code):
            return f"there is no kernel '{name}', nor any other __global__ function in this source."
        mangled_name = next((s for s in symbols if re.match(rf"_Z\w*?{len(name)}{re.escape(name)}", s)), None)
        if mangled_name or (name in find_kernel_names(self.code) and name not in symbols):
            return (
                f"'{name}' is in the source, but C++ has mangled its name"
                f"{f' to {mangled_name}' if mangled_name else ' or never instantiated the template'}. Put "
                'extern "C" before __global__, or name it in RawModule(..., name_expressions=[...]).'
            )
        if "<" in name:
            return (
                f"'{name}' is not a compiled kernel. Name the instantiation in "
                f"RawModule(..., name_expressions=['{name}']) and get it with get_function('{name}')."
            )
        known_names = sorted(self.source_name(symbol) for symbol in symbols)
        similar_names = difflib.get_close_matches(name, known_names, n=1)
        hint = f" Did you mean '{similar_names[0]}'?" if similar_names else ""
        return f"there is no kernel '{name}' in this source.{hint} Its kernels: {', '.join(known_names)}."


@dataclass(frozen=True, slots=True, eq=False)
class CompiledKernel:
    """A kernel of a compiled module, loaded on a device.

    The attribute ``symbol`` is the name of the kernel in the PTX. ``source_params`` are its parameters as
    written in the source, or None if they are unclear there.
    """

    module: CompiledModule
    symbol: str
    stats: KernelStats
    resources: KernelResources
    program: Program
    source_params: tuple[SourceParam, ...] | None

    @property
    def name(self) -> str:
        """The name of the kernel in its source code."""
        return self.stats.name

    @property
    def entry(self) -> ir.Function:
        """The entry function of the kernel in its PTX code."""
        return self.program.entries[self.symbol]


@functools.lru_cache(maxsize=512)
def compute_max_block_threads(info: DeviceInfo, resources: KernelResources) -> int:
    """Return the largest number of threads per block that the kernel's launch bounds and registers permit."""
    launch_bound = resources.launch_bound_threads or info.max_threads_per_block
    launch_bound = min(launch_bound, info.max_threads_per_block)
    if resources.estimated:  # ptxas would have limited the registers to those of the largest block
        return launch_bound
    for threads in range(info.max_threads_per_block, 0, -32):
        fitting_blocks = occupancy(info, threads, resources.registers_per_thread).blocks_by_limit["registers"]
        if fitting_blocks:
            return min(launch_bound, threads)
    return 0


def check_registers_fit(
    info: DeviceInfo, resources: KernelResources, block_threads: int, shared_bytes: int
) -> Occupancy:
    """Return the occupancy of a kernel with the given resources and block size.

    Estimated register counts are reduced until one block fits.
    """
    registers = resources.registers_per_thread
    if not resources.estimated:
        return occupancy(info, block_threads, registers, shared_bytes)
    origin = replace(info.as_virtual, detail="occupancy rules, with registers estimated from PTX")
    while registers > 1 and not occupancy(info, block_threads, registers).blocks_by_limit["registers"]:
        registers -= 1
    return occupancy(info, block_threads, registers, shared_bytes, provenance=origin)


def compile_module(
    code: str, options: tuple[str, ...], name_expressions: tuple[str, ...], capability: tuple[int, int]
) -> CompiledModule:
    """Return the module compiled for a compute capability. The modules are cached in this process.

    Raises
    ------
    CompileException
        If the code does not compile; the error contains the log, with the learner's line numbers.
    NvrtcMissingError
        If NVRTC is not installed.
    UnknownProcessorError
        If ``VIRTUALGPU_CPU`` names a processor that cannot run the code.
    """
    from virtualgpu.engine.machine import processor

    processor.find_chosen_processor()
    return _compile(code, options, name_expressions, choose_target(capability), hash_headers(code, options))


@functools.lru_cache(maxsize=MAX_CACHED_MODULES)
def _compile(
    code: str, options: tuple[str, ...], name_expressions: tuple[str, ...], target: int, _headers: str
) -> CompiledModule:
    source_text = insert_headers(code)
    try:
        flags = (*options, *nvrtc.CUPY_OPTIONS)
        ptx_image, cubin_image = nvrtc.compile_both(
            source_text, target=target, options=flags, name_expressions=name_expressions
        )
    except nvrtc.NvrtcCompileError as error:
        log = f"{error.log}\n{make_advice(error.log, code)}".rstrip()
        raise CompileException(log, code, "kernel.cu", options) from None
    resources = (
        read_kernel_resources(cubin_image.cubin) if cubin_image is not None else ptx_image.resources or {}
    )
    is_precompiled = cubin_image is None
    return CompiledModule(
        code,
        options,
        target,
        ptx_image.ptx,
        ptx_image.lowered_names,
        resources,
        is_precompiled,
        ptx_image.log,
    )
