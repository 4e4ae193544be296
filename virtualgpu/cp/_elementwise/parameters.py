"""Parameter lists of generated kernels (``"T x, raw float32 y"``) and the types of placeholders."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from virtualgpu.cp._core.dtypes import check_dtype
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cuda_errors import CompileException

_IDENTIFIER_PATTERN = re.compile(r"[A-Za-z_]\w*")
CPP_TYPE_NAMES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "float16",
    "float32": "float",
    "float64": "double",
    "complex64": "complex<float>",
    "complex128": "complex<double>",
}

TypeMap = tuple[tuple[str, np.dtype[Any]], ...]


def get_cpp_type(dtype: np.dtype[Any]) -> str:
    """Return the name of the C++ type for elements of a dtype."""
    return CPP_TYPE_NAMES["bool" if dtype.kind == "b" else np.dtype(f"{dtype.kind}{dtype.itemsize}").name]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a generated kernel.

    For a type placeholder such as ``T``, `dtype` is None and `placeholder` is its letter.
    """

    name: str
    placeholder: str
    dtype: np.dtype[Any] | None
    is_raw: bool

    @property
    def c_type(self) -> str:
        """C++ type of the parameter in the generated source."""
        return self.placeholder if self.dtype is None else get_cpp_type(self.dtype)


@lru_cache(maxsize=512)
def parse_parameters(text: str) -> tuple[Parameter, ...]:
    """Parse the parameter list of a kernel, such as ``"T x, raw float32 y"``.

    Raises
    ------
    Exception
        If a part is not a parameter (CuPy raises a plain ``Exception``); the message shows an example.
    TypeError
        If a type is not a type of NumPy.
    """
    return tuple(_parse_parameter(param_text) for param_text in text.split(",")) if text else ()


def _parse_parameter(text: str) -> Parameter:
    declaration_words = text.split()
    if len(declaration_words) < 2:
        raise Exception(f"Syntax error: {text}. A parameter is a type and a name, such as 'float32 x'.")
    *qualifiers, type_name, name = declaration_words
    for qualifier in qualifiers:
        if qualifier != "raw":
            raise Exception(f'Unknown keyword "{qualifier}" in {text!r}; the only keyword is raw.')
    if len(type_name) == 1:
        return Parameter(name, type_name, None, bool(qualifiers))
    try:
        dtype = check_dtype(type_name)
    except (TypeError, ValueError):
        raise TypeError(
            f"data type {type_name!r} not understood. Write a NumPy type, such as "
            "float32, or a letter that stands for any type, such as T. Array parameters "
            "are written without *."
        ) from None
    return Parameter(name, "", dtype, bool(qualifiers))


def check_name(name: str) -> None:
    """Raise ``ValueError`` if a name is not a valid C++ identifier."""
    if not _IDENTIFIER_PATTERN.fullmatch(name):
        raise ValueError(f'Invalid kernel name: "{name}"')


def check_identifiers(params: Sequence[Parameter], code: str, kernel_name: str) -> None:
    """Raise ``CompileException`` if the name of a parameter is not a valid C++ identifier."""
    for parameter in params:
        if not _IDENTIFIER_PATTERN.fullmatch(parameter.name):
            raise CompileException(
                f"error: expected an identifier. The parameter {parameter.name!r} is not a valid name in "
                "C++. Write array parameters without *.",
                code,
                kernel_name,
            )


def compile_generated(kernel: RawKernel, user_code_parts: Mapping[str, str]) -> RawKernel:
    """Compile the source of a generated kernel, and return the compiled kernel.

    Parameters
    ----------
    kernel
        The kernel.
    user_code_parts
        Parts of the source that the program provides, by name. The compiler's log numbers their lines.

    Raises
    ------
    CompileException
        If the C++ is wrong.
    """
    try:
        kernel.compile(log_stream=io.StringIO())  # so that no warning names generated code
    except CompileException as error:
        source_code = kernel.code

        def locate_line(match: re.Match[str]) -> str:
            line_number = int(match[1])
            for name, part_code in user_code_parts.items():
                first_line = source_code.count("\n", 0, source_code.rfind(part_code)) + 1
                if (
                    part_code
                    and part_code in source_code
                    and first_line <= line_number <= first_line + part_code.count("\n")
                ):
                    return f"{name} of {kernel.name!r}, line {line_number - first_line + 1}"
            return match[0]

        log = re.sub(r"\bkernel\.cu\((\d+)\)", locate_line, error.log)
        raise CompileException(log, source_code, error.name, error.options) from None
    return kernel


def decide_types(
    inputs: Sequence[Parameter],
    outputs: Sequence[Parameter],
    input_dtypes: Sequence[np.dtype[Any] | None],
    output_dtypes: Sequence[np.dtype[Any]],
) -> tuple[list[np.dtype[Any]], list[np.dtype[Any]], TypeMap]:
    """Determine the dtypes of all parameters from the output arrays and then from the inputs.

    A scalar has dtype None, because it is converted to the type of its parameter.

    Raises
    ------
    TypeError
        If an array does not fit its parameter.
    KeyError
        If no array determines a placeholder.
    """
    placeholder_dtypes: dict[str, np.dtype[Any]] = {}
    typed_parameters = [*zip(outputs, output_dtypes, strict=False), *zip(inputs, input_dtypes, strict=True)]
    for parameter, dtype in typed_parameters:
        if dtype is None:
            continue
        expected_dtype = parameter.dtype or placeholder_dtypes.setdefault(parameter.placeholder, dtype)
        if expected_dtype != dtype:
            type_note = f" (type {parameter.placeholder})" if parameter.dtype is None else ""
            raise TypeError(
                f"Type is mismatched. {parameter.name} is {dtype} but the kernel takes "
                f"{expected_dtype}{type_note}. Convert the array with "
                f"x.astype(cp.{expected_dtype.name}), or declare the parameter with a different "
                "type or letter."
            )
    dtypes = []
    for parameter in (*inputs, *outputs):
        parameter_dtype = parameter.dtype or placeholder_dtypes.get(parameter.placeholder)
        if parameter_dtype is None:
            raise KeyError(
                f"The type {parameter.placeholder} of {parameter.name} is not determined. Pass an array for "
                f"{parameter.name}, pass the output array, or write a type, such as float32."
            )
        dtypes.append(parameter_dtype)
    return dtypes[: len(inputs)], dtypes[len(inputs) :], tuple(sorted(placeholder_dtypes.items()))


def make_typedefs(type_map: TypeMap) -> str:
    """Return a C++ ``typedef`` for each type placeholder such as ``T``."""
    return "".join(f"typedef {get_cpp_type(dtype)} {letter};\n" for letter, dtype in type_map)
