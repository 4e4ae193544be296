"""Compile kernels to PTX with CuPy's options, and load instrumented copies next to them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cupy
from cupy.cuda import driver, nvrtc, runtime

from gpulab.real.driver import parse_cuda_version
from virtualgpu.compile import nvrtc as shared
from virtualgpu.compile.instrument import InstrumentedPtx, find_isa_version, lower_version
from virtualgpu.compile.nvrtc import CUPY_OPTIONS
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import Launch, kernel_source
from virtualgpu.records import KernelSource

_UNSUPPORTED_PTX_VERSION = 222
_DEVICE_TO_DEVICE = 3


def make_raw_kernel(kernel: Any) -> Any:
    """Return a kernel as a `RawKernel` of CuPy. A `KernelSource` is converted."""
    if isinstance(kernel, cupy.RawKernel):
        return kernel
    program = kernel_source(kernel)
    if program.name_expressions:
        module = cupy.RawModule(
            code=program.code, options=program.options, name_expressions=program.name_expressions
        )
        return module.get_function(program.name)
    return cupy.RawKernel(program.code, program.name, program.options)


def compile_ptx(source: KernelSource, capability: str) -> str:
    """Compile the source of a kernel to PTX with line information and the compiler options of CuPy.

    The result is shared with virtual GPUs of the same target, which use the same PTX. Sources that need
    CuPy's headers or include paths are compiled by CuPy's NVRTC.

    Parameters
    ----------
    source
        The kernel.
    capability
        Compute capability without a point, such as ``"90"``.

    Raises
    ------
    GpulabError
        If the source does not compile; the message is NVRTC's log.
    """
    if int(capability) in shared.supported_targets():
        with suppress(GpulabError):
            compiled_image, _ = shared.compile_both(
                source.code,
                target=int(capability),
                options=(*source.options, *CUPY_OPTIONS),
                name_expressions=source.name_expressions,
            )
            return compiled_image.ptx
    options = [option for option in source.options if not option.startswith(("-arch", "--gpu-architecture"))]
    options = [*cupy._core.core.assemble_cupy_compiler_options(tuple(options)), *CUPY_OPTIONS]
    options += [f"-arch=compute_{capability}", "-lineinfo"]
    program = nvrtc.createProgram(source.code, "kernel.cu", (), ())
    try:
        for name_expression in source.name_expressions:
            nvrtc.addNameExpression(program, name_expression)
        nvrtc.compileProgram(program, tuple(dict.fromkeys(options)))
        ptx = nvrtc.getPTX(program)
    except nvrtc.NVRTCError as error:
        raise GpulabError(nvrtc.getProgramLog(program) or str(error)) from error
    finally:
        nvrtc.destroyProgram(program)
    return (ptx.decode() if isinstance(ptx, bytes) else str(ptx)).rstrip("\0")


@dataclass(frozen=True, slots=True)
class Probe:
    """An instrumented copy of a kernel that is loaded on a device."""

    function: Any
    module: Any
    instrumented: InstrumentedPtx
    variables: tuple[tuple[str, int], ...]

    @property
    def registers(self) -> int:
        return int(driver.funcGetAttribute(driver.CU_FUNC_ATTRIBUTE_NUM_REGS, self.function.ptr))

    def allow_shared_bytes(self, kernel: Any) -> None:
        """Set the dynamic shared memory limit of the copy to that of the original kernel."""
        driver.funcSetAttribute(
            self.function.ptr,
            driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            kernel.max_dynamic_shared_size_bytes,
        )

    def launch(self, kernel: Any, launch: Launch, buffer: Any) -> None:
        """Run the instrumented copy in the current stream instead of the original kernel, and wait for it.

        The copy has its own ``__device__`` and ``__constant__`` variables. Their contents are copied from the
        original before the launch, and back after it.
        """
        original_function = kernel.kernel
        stream = cupy.cuda.get_current_stream()
        self._copy_variables(original_function.module, self.module, stream)
        self.function(
            launch.grid,
            launch.block,
            (*launch.args, buffer),
            shared_mem=launch.shared_bytes,
            enable_cooperative_groups=kernel.enable_cooperative_groups,
        )
        self._copy_variables(self.module, original_function.module, stream)
        stream.synchronize()

    def _copy_variables(self, source: Any, target: Any, stream: Any) -> None:
        for name, size_bytes in self.variables:
            try:
                source_address = driver.moduleGetGlobal(source.ptr, name)
                target_address = driver.moduleGetGlobal(target.ptr, name)
            except driver.CUDADriverError:  # a name that only the PTX has
                continue
            runtime.memcpyAsync(target_address, source_address, size_bytes, _DEVICE_TO_DEVICE, stream.ptr)


def load_probe(ptx: str, name: str, instrument: Callable[[str, str], InstrumentedPtx]) -> Probe:
    """Instrument the PTX of a kernel, and load it with the driver. The driver compiles the instrumented PTX.

    Raises
    ------
    PtxError
        If the PTX does not contain the kernel.
    """
    probe_ptx = instrument(ptx, name)
    module = cupy.cuda.function.Module()
    try:
        module.load(probe_ptx.ptx.encode() + b"\0")
    except driver.CUDADriverError as error:
        if getattr(error, "status", None) != _UNSUPPORTED_PTX_VERSION:
            raise
        # The compiler is newer than the driver.
        compatible_ptx = lower_version(
            probe_ptx.ptx, find_isa_version(parse_cuda_version(runtime.driverGetVersion()))
        )
        module.load(compatible_ptx.encode() + b"\0")
    module_variables = tuple(
        (variable.name, variable.size_bytes)
        for variable in parse(ptx).variables.values()
        if variable.space in ("global", "const") and not variable.name.startswith("$") and variable.size_bytes
    )
    return Probe(module.get_function(name), module, probe_ptx, module_variables)
