"""``cp.cuda.nvrtc``: functions of the run-time compiler, under CuPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from virtualgpu.compile import nvrtc as _compiler
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.errors import NotSupportedError
from virtualgpu.model import machine as _machine

_ERROR_NAMES = {4: "NVRTC_ERROR_INVALID_PROGRAM", 6: "NVRTC_ERROR_COMPILATION"}
_INVALID_PROGRAM_STATUS = 4
_COMPILATION_ERROR_STATUS = 6


class NVRTCError(RuntimeError):
    """Error raised by NVRTC functions, with CuPy's class name. The attribute ``status`` is NVRTC's error
    code.

    The log of the compiler is in `getProgramLog`.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"{_ERROR_NAMES[status]} ({status})")
        self.status = status


@dataclass(eq=False)
class _Program:
    source: str
    name: str
    name_expressions: list[str] = field(default_factory=list)
    log: str = ""
    ptx: str = ""
    cubin: bytes = b""
    lowered_names: dict[str, str] = field(default_factory=dict)


def getVersion() -> tuple[int, int]:  # noqa: N802
    """Return the version of NVRTC as a tuple (major, minor)."""
    return _compiler.read_version()


def getSupportedArchs() -> list[int]:  # noqa: N802
    """Return the compute capabilities for which NVRTC can compile PTX, such as 90 for 9.0."""
    return list(_compiler.supported_targets())


def createProgram(  # noqa: N802
    src: str, name: str, headers: Sequence[object], include_names: Sequence[object]
) -> int:
    """Create an NVRTC program from source code, and return its handle. The program is released with
    `destroyProgram`.
    """
    if headers or include_names:
        raise NotSupportedError(
            "The virtual GPU's NVRTC does not support headers in memory. Pass their folder with -I."
        )
    program = _Program(src, name or "default_program")
    _machine.current().runtime_objects[id(program)] = program
    return id(program)


def destroyProgram(prog: int) -> None:  # noqa: N802
    """Destroy a program that `createProgram` created."""
    _find_program(prog)
    del _machine.current().runtime_objects[prog]


def addNameExpression(prog: int, name: str) -> None:  # noqa: N802
    """Register a template instantiation, such as ``"scale<float>"``, for compilation by `compileProgram`."""
    _find_program(prog).name_expressions.append(name)


def compileProgram(prog: int, options: Sequence[str]) -> None:  # noqa: N802
    """Compile a program to PTX. An option for a real architecture, such as ``-arch=sm_90``, also produces
    machine code.

    Raises
    ------
    NVRTCError
        Status 6, ``NVRTC_ERROR_COMPILATION``, if the source does not compile.
    """
    program = _find_program(prog)
    target_options = [option for option in options if option.startswith(("-arch", "--gpu-architecture"))]
    target_arch = (
        int("".join(character for character in target_options[-1] if character.isdigit()))
        if target_options
        else min(getSupportedArchs())
    )
    compile_options = {
        "options": [option for option in options if option not in target_options],
        "name_expressions": program.name_expressions,
        "file_name": program.name,
    }
    try:
        ptx_image = _compiler.compile_ptx(program.source, target=target_arch, **compile_options)  # type: ignore[arg-type]
        if target_options and "=sm_" in target_options[-1]:
            cubin_image = _compiler.compile_cubin(program.source, target=target_arch, **compile_options)  # type: ignore[arg-type]
            program.cubin = cubin_image.cubin
    except _compiler.NvrtcCompileError as error:
        program.log = error.log
        raise NVRTCError(_COMPILATION_ERROR_STATUS) from error
    program.ptx = ptx_image.ptx
    program.log = ptx_image.log
    program.lowered_names = ptx_image.lowered_names


def getPTX(prog: int) -> bytes:  # noqa: N802
    """Return the PTX of a program, without the NUL character at its end."""
    return _find_program(prog).ptx.encode()


def getCUBIN(prog: int) -> bytes:  # noqa: N802
    """Return the machine code of a compiled program.

    Raises
    ------
    RuntimeError
        As in CuPy, if the program was compiled for a virtual architecture.
    """
    cubin = _find_program(prog).cubin
    if not cubin:
        raise RuntimeError("cubin is requested, but the real arch (sm_XX) is not provided")
    return cubin


def getProgramLog(prog: int) -> str:  # noqa: N802
    """Return the log that the compiler wrote for a program."""
    return _find_program(prog).log


def getLoweredName(prog: int, name: str) -> str:  # noqa: N802
    """Return the mangled name of an expression that was passed to `addNameExpression`."""
    return _find_program(prog).lowered_names[name]


def _find_program(handle: int) -> _Program:
    program = _machine.current().runtime_objects.get(handle)
    if not isinstance(program, _Program):
        raise NVRTCError(_INVALID_PROGRAM_STATUS)
    return program


__getattr__ = make_module_getattr("cp.cuda.nvrtc", globals())
