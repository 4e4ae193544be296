"""CUDA C++ compiled once for a target: PTX to execute, machine code to read resources from."""

from __future__ import annotations

import difflib
import functools
import re
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from virtualgpu.compile import nvrtc
from virtualgpu.compile.advice import advice
from virtualgpu.compile.cubin import KernelResources, kernel_resources
from virtualgpu.compile.headers.cupy import with_headers
from virtualgpu.compile.headers.includes import stamp
from virtualgpu.compile.ptx import ir
from virtualgpu.cuda_errors import CompileException, CUDADriverError
from virtualgpu.launch.signature import SourceParam, kernel_names, source_params
from virtualgpu.model.occupancy import occupancy
from virtualgpu.records import DeviceInfo, KernelStats, Occupancy

if TYPE_CHECKING:
    from virtualgpu.engine import Program
    from virtualgpu.model.machine import VirtualDevice

CACHED_MODULES = 128
_MANGLED = re.compile(r"_Z(\d+)(\w+)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


def target_for(capability: tuple[int, int]) -> int:
    """The target NVRTC compiles for: the newest it supports that the device can run.

    A device older than all of them (V100 under CUDA 13) gets the oldest.
    """
    wanted = 10 * capability[0] + capability[1]
    targets = nvrtc.supported_targets()
    return max((t for t in targets if t <= wanted), default=min(targets))


@dataclass(eq=False, slots=True)
class CompiledModule:
    """One compilation. ``lowered_names`` maps name expressions to the symbols they became.

    ``in_advance`` tells that it was shipped with the course, since NVRTC is not installed; ``log`` is
    what NVRTC warned of.
    """

    code: str
    options: tuple[str, ...]
    target: int
    ptx: str
    lowered_names: dict[str, str]
    resources: Mapping[str, KernelResources]
    in_advance: bool = False
    log: str = ""
    _programs: weakref.WeakKeyDictionary[VirtualDevice, Program] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def program(self, device: VirtualDevice) -> Program:
        """The module as loaded on a device; its ``__device__`` variables live there."""
        from virtualgpu.engine import Program

        with self._lock:
            program = self._programs.get(device)
            if program is None:
                program = self._programs[device] = Program(self.ptx, self.code)
            return program

    def symbol(self, name: str) -> str:
        """The symbol of a kernel given by its name or name expression.

        Raises
        ------
        CUDADriverError
            Status 500, ``CUDA_ERROR_NOT_FOUND``; the message names the kernels there are.
        """
        symbol = self.lowered_names.get(name, name)
        if symbol in self.resources:
            return symbol
        raise CUDADriverError(
            500, "CUDA_ERROR_NOT_FOUND", f"named symbol not found: {self._why_missing(name)}"
        )

    def spelled(self, symbol: str) -> str:
        """A kernel's name as the learner wrote it: the name expression behind a mangled symbol."""
        return next((e for e, lowered in self.lowered_names.items() if lowered == symbol), symbol)

    def source_params(self, symbol: str) -> tuple[SourceParam, ...] | None:
        """The kernel's parameters as the source spells them, None if that is unclear."""
        expression = self.spelled(symbol)
        mangled = _MANGLED.match(expression)
        if mangled:
            return source_params(self.code, mangled[2][: int(mangled[1])])
        base = _IDENTIFIER.findall(expression.split("<")[0])
        return source_params(self.code, base[-1]) if base else None

    def entry(self, symbol: str, device: VirtualDevice) -> ir.Function:
        return self.program(device).entries[symbol]

    def stats(self, symbol: str, info: DeviceInfo) -> KernelStats:
        """What the compiler decided for a kernel, as CUDA's function attributes report it."""
        found = self.resources[symbol]
        how = (
            f"compiled {'in advance ' if self.in_advance else ''}by NVRTC"
            if self.code
            else "estimated from PTX"
        )
        return KernelStats(
            provenance=replace(info.as_virtual, detail=f"{how} for {self._target_text(info)}"),
            name=self.spelled(symbol),
            target=f"sm_{self.target}",
            registers_per_thread=found.registers_per_thread,
            static_shared_bytes=found.static_shared_bytes,
            local_bytes=found.local_bytes,
            constant_bytes=found.constant_bytes,
            max_threads_per_block=max_threads_per_block(info, found),
        )

    def _target_text(self, info: DeviceInfo) -> str:
        text = f"sm_{self.target}"
        if 10 * info.compute_capability[0] + info.compute_capability[1] < self.target:
            return f"{text}, its oldest target; the device itself is {info.capability}"
        return text

    def _why_missing(self, name: str) -> str:
        symbols = set(self.resources)
        if not symbols and name not in kernel_names(self.code):
            return f"there is no kernel '{name}', nor any other __global__ function in this source."
        mangled = next((s for s in symbols if re.match(rf"_Z\w*?{len(name)}{re.escape(name)}", s)), None)
        if mangled or (name in kernel_names(self.code) and name not in symbols):
            return (
                f"'{name}' is in the source, but C++ has mangled its name"
                f"{f' to {mangled}' if mangled else ' or never instantiated the template'}. Put "
                'extern "C" before __global__, or name it in RawModule(..., name_expressions=[...]).'
            )
        if "<" in name:
            return (
                f"'{name}' is no compiled kernel. Name the instantiation in "
                f"RawModule(..., name_expressions=['{name}']) and get it with get_function('{name}')."
            )
        known = sorted(self.spelled(symbol) for symbol in symbols)
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        return f"there is no kernel '{name}' in this source.{hint} It has: {', '.join(known)}."


@functools.lru_cache(maxsize=512)
def max_threads_per_block(info: DeviceInfo, found: KernelResources) -> int:
    """Threads that one block of a kernel can have on a device: launch bounds and registers."""
    bound = found.launch_bound_threads or info.max_threads_per_block
    bound = min(bound, info.max_threads_per_block)
    if found.estimated:  # ptxas would have kept to what the largest block may have
        return bound
    for threads in range(info.max_threads_per_block, 0, -32):
        fits = occupancy(info, threads, found.registers_per_thread).blocks_by_limit["registers"]
        if fits:
            return min(bound, threads)
    return 0


def fit(info: DeviceInfo, found: KernelResources, block_threads: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a kernel; an estimate of registers is taken for no more than a block may have."""
    registers = found.registers_per_thread
    if not found.estimated:
        return occupancy(info, block_threads, registers, shared_bytes)
    origin = replace(info.as_virtual, detail="occupancy rules, with registers estimated from PTX")
    while registers > 1 and not occupancy(info, block_threads, registers).blocks_by_limit["registers"]:
        registers -= 1
    return occupancy(info, block_threads, registers, shared_bytes, provenance=origin)


def compiled_module(
    code: str, options: tuple[str, ...], name_expressions: tuple[str, ...], capability: tuple[int, int]
) -> CompiledModule:
    """Compile for a device's compute capability, or take it from the process's cache.

    Raises
    ------
    CompileException
        With NVRTC's (or ptxas's) log, whose line numbers are the learner's.
    NvrtcMissingError
        If NVRTC is not installed.
    UnknownProcessorError
        If ``VIRTUALGPU_CPU`` names a processor that the code could not run on.
    """
    from virtualgpu.engine.machine import processor

    processor.chosen()
    return _compile(code, options, name_expressions, target_for(capability), stamp(code, options))


@functools.lru_cache(maxsize=CACHED_MODULES)
def _compile(
    code: str, options: tuple[str, ...], name_expressions: tuple[str, ...], target: int, _headers: str
) -> CompiledModule:
    source = with_headers(code)
    try:
        flags = (*options, *nvrtc.CUPY_OPTIONS)
        image, machine = nvrtc.compile_both(
            source, target=target, options=flags, name_expressions=name_expressions
        )
    except nvrtc.NvrtcCompileError as error:
        told = f"{error.log}\n{advice(error.log, code)}".rstrip()
        raise CompileException(told, code, "kernel.cu", options) from None
    resources = kernel_resources(machine.cubin) if machine is not None else image.resources or {}
    in_advance = machine is None
    return CompiledModule(
        code, options, target, image.ptx, image.lowered_names, resources, in_advance, image.log
    )
