"""``cp.cuda.compiler``: compile CUDA C++ to PTX, for programs that load modules themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from virtualgpu.compile.nvrtc import CUPY_OPTIONS
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda import nvrtc
from virtualgpu.cp.cuda.device import Device
from virtualgpu.cuda_errors import CompileException

__all__ = ["CompileException", "compile_using_nvrtc"]


def compile_using_nvrtc(
    source: str,
    options: Sequence[str] = (),
    arch: str | None = None,
    filename: str = "kern.cu",
    name_expressions: Sequence[str] | None = None,
    log_stream: Any = None,
) -> tuple[bytes, dict[str, str]]:
    """Compile CUDA C++, and return the PTX and the mangled names of the name expressions.

    Parameters
    ----------
    source, options, filename
        CUDA C++, NVRTC's options and the file name in its log.
    arch
        Compute capability without a dot, such as ``"90"``; the current device's by default.
    name_expressions
        Template instantiations to keep.
    log_stream
        A text stream for the compiler's log.

    Raises
    ------
    CompileException
        If the source does not compile; the error contains NVRTC's log.
    """
    arch = arch or Device().compute_capability
    program = nvrtc.createProgram(source, filename, (), ())
    try:
        for expression in name_expressions or ():
            nvrtc.addNameExpression(program, expression)
        nvrtc.compileProgram(program, [*options, *CUPY_OPTIONS, f"-arch=compute_{arch}"])
        lowered_names = {name: nvrtc.getLoweredName(program, name) for name in name_expressions or ()}
        return nvrtc.getPTX(program), lowered_names
    except nvrtc.NVRTCError as error:
        raise CompileException(nvrtc.getProgramLog(program), source, filename, tuple(options)) from error
    finally:
        if log_stream is not None:
            log_stream.write(nvrtc.getProgramLog(program))
        nvrtc.destroyProgram(program)


__getattr__ = make_module_getattr("cp.cuda.compiler", globals())
