"""``cp.ElementwiseKernel``: a generated kernel that evaluates a C++ expression for every element."""

from __future__ import annotations

import warnings
from typing import Any

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cp._elementwise.header import make_header
from virtualgpu.cp._elementwise.operands import (
    Operand,
    broadcast_arguments,
    check_arguments,
    find_loop_shape,
    get_dtype,
    lay_out_arguments,
    make_layout_value,
    prepare_outputs,
)
from virtualgpu.cp._elementwise.parameters import (
    TypeMap,
    check_identifiers,
    check_name,
    compile_generated,
    decide_types,
    get_cpp_type,
    make_typedefs,
    parse_parameters,
)

MAX_GRID_BLOCKS = 2**31 - 1


class ElementwiseKernel:
    """A kernel that computes its outputs element by element, with broadcasting.

    Parameters
    ----------
    in_params, out_params : str
        Parameter lists such as ``"float32 x, T y, raw T z"``: a NumPy type or a letter that stands for any
        type, and a name. ``raw`` arrays are not looped over but indexed, by ``i`` for instance.
    operation : str
        CUDA C++ statements for one element. ``i`` is its index and ``_ind.size()`` the number of elements.
    name : str
        The kernel's name.
    reduce_dims : bool
        Merge axes that are contiguous in all arrays.
    preamble : str
        C++ before the kernel.
    no_return, return_tuple : bool
        Return nothing, or always a tuple.
    options : tuple of str
        NVRTC options.
    loop_prep, after_loop : str
        Statements before and after the loop.
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        operation: str,
        name: str = "kernel",
        reduce_dims: bool = True,
        preamble: str = "",
        no_return: bool = False,
        return_tuple: bool = False,
        *,
        options: tuple[str, ...] = (),
        loop_prep: str = "",
        after_loop: str = "",
    ) -> None:
        check_name(name)
        self.in_params, self.out_params = parse_parameters(in_params), parse_parameters(out_params)
        self.params = self.in_params + self.out_params
        if any(parameter.name == "i" for parameter in self.params):
            raise ValueError(
                "Can not use 'i' as a parameter name: the variable i is the index of the element"
            )
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.nargs = self.nin + self.nout
        self.operation = operation
        self.name = self.__name__ = name
        self.reduce_dims = bool(reduce_dims)
        self.preamble = preamble
        self.no_return = bool(no_return)
        self.return_tuple = bool(return_tuple)
        self.options = options
        self.loop_prep = loop_prep
        self.after_loop = after_loop
        self._compiled_kernels: dict[Any, RawKernel] = {}

    def __call__(self, *args: Any, size: int | None = None, stream: Any = None, block_size: int = 128) -> Any:
        """Broadcast the arguments against each other and run the kernel.

        Parameters
        ----------
        args
            The inputs, followed by all outputs or by none.
        size : int, optional
            Elements to loop over, where all arrays are raw.
        stream : Stream, optional
            The current stream by default.
        block_size : int
            Threads per block.

        Returns
        -------
        ndarray or tuple of ndarray
            The outputs.

        Raises
        ------
        TypeError, ValueError
            If arguments do not fit the parameters or the loop's size is undecided.
        CompileException
            If the C++ is wrong.
        """
        if block_size <= 0:
            raise ValueError("block_size must be greater than zero")
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name!r}. It must be either {self.nin} or {self.nargs} "
                f"(with outputs), but given {len(args)}."
            )
        checked_args = check_arguments(args)
        in_args = checked_args[: self.nin]
        out_args = checked_args[self.nin :]
        for array in out_args:
            if not isinstance(array, ndarray):
                raise TypeError("Output arguments type must be cupy.ndarray")
        shape = find_loop_shape(checked_args, self.params, size)
        in_types, out_types, type_map = decide_types(
            self.in_params,
            self.out_params,
            [get_dtype(a) for a in in_args],
            [a.dtype for a in out_args],
        )
        results = prepare_outputs(out_args, self.out_params, out_types, shape, size is not None)
        if 0 not in shape:
            inputs = broadcast_arguments(in_args, self.in_params, shape)
            is_constant = [True] * self.nin + [False] * self.nout
            operands, arguments, merged_shape = lay_out_arguments(
                [*inputs, *results],
                self.params,
                [*in_types, *out_types],
                is_constant,
                shape,
                self.reduce_dims,
            )
            kernel = self._compile_kernel(operands, type_map, len(merged_shape))
            element_count = 1
            for extent in merged_shape:
                element_count *= extent
            block_threads = min(block_size, element_count)
            block_count = min(MAX_GRID_BLOCKS, -(-element_count // block_threads))
            kernel(
                (block_count,), (block_threads,), (*arguments, make_layout_value(merged_shape)), stream=stream
            )
        if self.no_return:
            return None
        return results[0] if self.nout == 1 and not self.return_tuple else tuple(results)

    def _compile_kernel(self, operands: list[Operand], type_map: TypeMap, ndim: int) -> RawKernel:
        key = (tuple(operands), type_map, ndim)
        if key not in self._compiled_kernels:
            source_code = self._generate_source(operands, type_map, ndim)
            check_identifiers(self.params, source_code, self.name)
            code_parts = {"operation": self.operation, "preamble": self.preamble}
            self._compiled_kernels[key] = compile_generated(
                RawKernel(source_code, self.name, self.options), code_parts
            )
        return self._compiled_kernels[key]

    def _generate_source(self, operands: list[Operand], type_map: TypeMap, ndim: int) -> str:
        declarations = ", ".join(
            [*(operand.declaration for operand in operands), f"CLayout<{ndim}> _whole_layout"]
        )
        array_setup = "\n  ".join(cpp_line for operand in operands if (cpp_line := operand.setup_statement))
        element_definitions = "\n    ".join(
            cpp_line for operand in operands if (cpp_line := operand.define_element("_ind", "i"))
        )
        type_names = frozenset(
            [operand.c_type for operand in operands] + [get_cpp_type(dtype) for _, dtype in type_map]
        )
        return f"""{make_header(type_names, self.preamble + self.operation)}
{make_typedefs(type_map)}{self.preamble}
extern "C" __global__ void {self.name}({declarations}) {{
  {array_setup}
  CIndexer<{ndim}> _ind(_whole_layout);
  {self.loop_prep};
  for (ptrdiff_t i = (ptrdiff_t)blockIdx.x * blockDim.x + threadIdx.x; i < _ind.size();
       i += (ptrdiff_t)blockDim.x * gridDim.x) {{
    _ind.set(i);
    {element_definitions}
    {self.operation};
  }}
  {self.after_loop};
}}
"""

    @property
    def cached_codes(self) -> dict[tuple[Any, ...], str]:
        """Dictionary of the C++ sources generated so far. The keys are the C++ types of the arguments."""
        if not self._compiled_kernels:
            warnings.warn(
                "No codes are cached because compilation is deferred until the first function call.",
                stacklevel=2,
            )
        return {
            tuple(operand.c_type for operand in key[0]): kernel.code
            for key, kernel in self._compiled_kernels.items()
        }

    @property
    def cached_code(self) -> str:
        """C++ source of the kernel for its first combination of argument types."""
        return next(iter(self.cached_codes.values()))

    def __repr__(self) -> str:
        return f"<ElementwiseKernel {self.name!r}>"
