"""``cp.ReductionKernel``: a generated reduction with a map, a reduce and a post-map expression."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._core.raw_kernel import RawKernel
from virtualgpu.cp._elementwise.header import make_header
from virtualgpu.cp._elementwise.operands import (
    Operand,
    Shape,
    broadcast_arguments,
    check_arguments,
    find_loop_shape,
    lay_out_arguments,
    make_layout_value,
    prepare_outputs,
)
from virtualgpu.cp._elementwise.parameters import (
    Parameter,
    TypeMap,
    check_identifiers,
    check_name,
    compile_generated,
    decide_types,
    get_cpp_type,
    make_typedefs,
    parse_parameters,
)

BLOCK_SIZE = 512
# Outputs per warp, if neighbouring outputs are also neighbours in memory.
_COALESCED_OUTPUT_COUNT = 32


class ReductionKernel:
    """A kernel that reduces arrays over all axes or some of them.

    Parameters
    ----------
    in_params, out_params : str
        Parameter lists, as of `ElementwiseKernel`.
    map_expr : str
        Expression of one element in the inputs' names; ``_J`` is the element's index in its reduction.
    reduce_expr : str
        Expression that combines ``a`` and ``b``.
    post_map_expr : str
        Expression that computes the outputs from the result ``a``, such as ``"y = sqrt(a)"``.
    identity : str
        Initial value of every thread. With None it is a zero of the type, as in CuPy, which counts as one
        more element, and an empty reduction is an error.
    name : str
        The kernel's name.
    reduce_type : str, optional
        C++ type of ``a`` and ``b``; the first output's by default.
    reduce_dims : bool
        Merge axes that are contiguous in all arrays.
    preamble : str
        C++ before the kernel.
    options : tuple of str
        NVRTC options.
    """

    def __init__(
        self,
        in_params: str,
        out_params: str,
        map_expr: str,
        reduce_expr: str,
        post_map_expr: str,
        identity: Any,
        name: str = "reduce_kernel",
        reduce_type: str | None = None,
        reduce_dims: bool = True,
        preamble: str = "",
        options: tuple[str, ...] = (),
    ) -> None:
        check_name(name)
        self.in_params, self.out_params = parse_parameters(in_params), parse_parameters(out_params)
        self.nin, self.nout = len(self.in_params), len(self.out_params)
        self.nargs = self.nin + self.nout
        self.map_expr = map_expr
        self.reduce_expr = reduce_expr
        self.post_map_expr = post_map_expr
        self.identity = "" if identity is None else str(identity)
        self.name = self.__name__ = name
        self.reduce_type = self.out_params[0].c_type if reduce_type is None else reduce_type
        self.reduce_dims = bool(reduce_dims)
        self.preamble = preamble
        self.options = options
        self._compiled_kernels: dict[Any, RawKernel] = {}

    def __call__(
        self,
        *args: Any,
        out: ndarray | None = None,
        axis: Any = None,
        keepdims: bool = False,
        stream: Any = None,
    ) -> Any:
        """Reduce the broadcast arrays.

        Parameters
        ----------
        args
            The inputs, followed by all outputs or by none.
        out : ndarray, optional
            The output, where it is not among `args`.
        axis : int or tuple of int, optional
            Axes to reduce; all by default.
        keepdims : bool
            Keep them with length 1.
        stream : Stream, optional
            The current stream by default.

        Returns
        -------
        ndarray
            The first output; as in CuPy, further outputs are computed but not returned.

        Raises
        ------
        TypeError, ValueError
            If arguments do not fit, or an axis is empty and there is no identity.
        CompileException
            If the C++ is wrong.
        """
        inputs, out_args = self._split_arguments(args, out)
        shape = find_loop_shape(inputs, self.in_params, None)
        in_types, out_types, type_map = decide_types(
            self.in_params,
            self.out_params,
            [a.dtype if isinstance(a, ndarray) else None for a in inputs],
            [a.dtype for a in out_args],
        )
        axes = range(len(shape)) if axis is None else axis
        reduced_axes = tuple(sorted(normalize_axis_tuple(axes, len(shape), allow_duplicate=True)))
        if len(set(reduced_axes)) < len(reduced_axes):
            raise ValueError("duplicate value in 'axis'")
        kept_axes = tuple(a for a in range(len(shape)) if a not in reduced_axes)
        out_shape = tuple(
            1 if a in reduced_axes else n for a, n in enumerate(shape) if keepdims or a in kept_axes
        )
        results = prepare_outputs(out_args, self.out_params, out_types, out_shape, False)
        if 0 not in out_shape:
            if not self.identity and 0 in shape:
                raise ValueError(f"zero-size array to reduction operation {self.name} which has no identity")
            axis_order = reduced_axes + kept_axes
            permuted_inputs = _move_reduced_axes(
                broadcast_arguments(inputs, self.in_params, shape), self.in_params, axis_order
            )
            self._launch(
                permuted_inputs,
                results,
                in_types,
                out_types,
                type_map,
                tuple(shape[a] for a in axis_order),
                out_shape,
                stream,
            )
        return results[0]

    def _split_arguments(self, args: Sequence[Any], out: ndarray | None) -> tuple[list[Any], list[Any]]:
        if len(args) not in (self.nin, self.nargs):
            raise TypeError(
                f"Wrong number of arguments for {self.name}. It takes {self.nin}, or {self.nargs} with "
                f"outputs, but {len(args)} were given."
            )
        out_args = list(args[self.nin :])
        if out is not None:
            if out_args:
                raise ValueError("cannot specify 'out' as both a positional and keyword argument")
            if self.nout != 1:
                raise NotImplementedError(
                    "`out=` supports only kernels with one output. Pass all outputs after the inputs."
                )
            out_args = [out]
        for array in out_args:
            if not isinstance(array, ndarray):
                raise TypeError("Output arguments type must be cupy.ndarray")
        return check_arguments(args[: self.nin]), check_arguments(out_args)

    def _launch(
        self,
        inputs: list[Any],
        results: list[ndarray],
        in_types: list[np.dtype[Any]],
        out_types: list[np.dtype[Any]],
        type_map: TypeMap,
        in_shape: Shape,
        out_shape: Shape,
        stream: Any,
    ) -> None:
        input_count = math.prod(in_shape)
        output_count = math.prod(out_shape)
        in_operands, in_arguments, in_loop_shape = lay_out_arguments(
            inputs,
            self.in_params,
            in_types,
            [True] * self.nin,
            in_shape,
            self.reduce_dims and input_count > 0,
        )
        out_operands, out_arguments, out_loop_shape = lay_out_arguments(
            results, self.out_params, out_types, [False] * self.nout, out_shape, self.reduce_dims
        )
        outputs_per_block = _choose_outputs_per_block(
            input_count // output_count, output_count, in_operands, inputs
        )
        kernel = self._compile_kernel(
            in_operands, out_operands, type_map, len(in_loop_shape), len(out_loop_shape)
        )
        blocks = min(2**31 - 1, -(-output_count // outputs_per_block))
        layout_arguments = (
            make_layout_value(in_loop_shape),
            make_layout_value(out_loop_shape),
            np.int32(outputs_per_block),
        )
        kernel((blocks,), (BLOCK_SIZE,), (*in_arguments, *out_arguments, *layout_arguments), stream=stream)

    def _compile_kernel(
        self,
        in_operands: list[Operand],
        out_operands: list[Operand],
        type_map: TypeMap,
        in_ndim: int,
        out_ndim: int,
    ) -> RawKernel:
        key = (tuple(in_operands), tuple(out_operands), type_map, in_ndim, out_ndim)
        if key not in self._compiled_kernels:
            source_code = self._generate_source(in_operands, out_operands, type_map, in_ndim, out_ndim)
            check_identifiers(self.in_params + self.out_params, source_code, self.name)
            code_parts = {
                "map_expr": f"static_cast<_type_reduce>({self.map_expr})",
                "reduce_expr": "_sum = REDUCE(_sum, _mapped);",  # where NVRTC finds fault with the macro
                "post_map_expr": "POST_MAP(_reduced);",
                "preamble": self.preamble,
            }
            self._compiled_kernels[key] = compile_generated(
                RawKernel(source_code, self.name, self.options), code_parts
            )
        return self._compiled_kernels[key]

    def _generate_source(
        self,
        in_operands: list[Operand],
        out_operands: list[Operand],
        type_map: TypeMap,
        in_ndim: int,
        out_ndim: int,
    ) -> str:
        operands = [*in_operands, *out_operands]
        declarations = ", ".join(
            [
                *(operand.declaration for operand in operands),
                f"CLayout<{in_ndim}> _whole_layout",
                f"CLayout<{out_ndim}> _result_layout",
                "int _block_stride",
            ]
        )
        array_setup = "\n  ".join(cpp_line for operand in operands if (cpp_line := operand.setup_statement))
        element_reads = "\n      ".join(
            cpp_line for operand in in_operands if (cpp_line := operand.define_element("_in_ind", "_j"))
        )
        element_writes = "\n      ".join(
            cpp_line for operand in out_operands if (cpp_line := operand.define_element("_out_ind", "_i"))
        )
        type_names = frozenset(
            [operand.c_type for operand in operands]
            + [get_cpp_type(dtype) for _, dtype in type_map]
            + [self.reduce_type]
        )
        # Threads of a block are split into _block_stride outputs and the parts that reduce each of them.
        return f"""{make_header(type_names, self.preamble)}
{make_typedefs(type_map)}{self.preamble}
typedef {self.reduce_type} _type_reduce;
#define REDUCE(a, b) ({_join_lines(self.reduce_expr)})
#define POST_MAP(a) ({_join_lines(self.post_map_expr)})
extern "C" __global__ void {self.name}({declarations}) {{
  __shared__ alignas(16) char _shared_bytes[{BLOCK_SIZE} * sizeof(_type_reduce)];
  _type_reduce* _shared = reinterpret_cast<_type_reduce*>(_shared_bytes);
  {array_setup}
  CIndexer<{in_ndim}> _in_ind(_whole_layout);
  CIndexer<{out_ndim}> _out_ind(_result_layout);
  const unsigned int _tid = threadIdx.x;
  for (ptrdiff_t _first = (ptrdiff_t)blockIdx.x * _block_stride; _first < _out_ind.size();
       _first += (ptrdiff_t)gridDim.x * _block_stride) {{
    const ptrdiff_t _i = _first + _tid % _block_stride;
    const ptrdiff_t _parts = {BLOCK_SIZE} / _block_stride;
    _type_reduce _sum = _type_reduce({self.identity});
    ptrdiff_t _J = _tid / _block_stride;
    if (_i < _out_ind.size()) for (ptrdiff_t _j = _J * _out_ind.size() + _i; _j < _in_ind.size();
         _j += _parts * _out_ind.size(), _J += _parts) {{
      _in_ind.set(_j);
      {element_reads}
      _type_reduce _mapped = static_cast<_type_reduce>({self.map_expr});
      _sum = REDUCE(_sum, _mapped);
    }}
    _shared[_tid] = _sum;
    __syncthreads();
    for (unsigned int _half = {BLOCK_SIZE} / 2; _half >= _block_stride; _half >>= 1) {{
      if (_tid < _half) {{
        _type_reduce _one = _shared[_tid], _other = _shared[_tid + _half];
        _shared[_tid] = REDUCE(_one, _other);
      }}
      __syncthreads();
    }}
    if (_tid < _block_stride && _i < _out_ind.size()) {{
      _out_ind.set(_i);
      {element_writes}
      _type_reduce _reduced = _shared[_tid];
      POST_MAP(_reduced);
    }}
    __syncthreads();
  }}
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
            tuple(operand.c_type for operand in (*key[0], *key[1])): kernel.code
            for key, kernel in self._compiled_kernels.items()
        }

    @property
    def cached_code(self) -> str:
        """C++ source of the kernel for its first combination of argument types."""
        return next(iter(self.cached_codes.values()))

    def __repr__(self) -> str:
        return f"<ReductionKernel {self.name!r}>"


def _join_lines(expression: str) -> str:
    """Return an expression on one line and without comments, so that it can be the body of a macro."""
    return " ".join(re.sub(r"//[^\n]*", "", expression).split())


def _move_reduced_axes(
    args: Sequence[Any], params: Sequence[Parameter], axis_order: tuple[int, ...]
) -> list[Any]:
    """Return the arguments with the axes that are reduced moved to the front."""
    if axis_order == tuple(range(len(axis_order))):
        return list(args)
    if any(param.is_raw and isinstance(a, ndarray) for a, param in zip(args, params, strict=True)):
        raise NotImplementedError(
            "Illegal conditions. If an argument is raw, the axes to be reduced must come first, such as axis "
            "0 or (0, 1)."
        )
    return [a.transpose(axis_order) if isinstance(a, ndarray) else a for a in args]


def _choose_outputs_per_block(
    reduced_count: int, total_outputs: int, in_operands: Sequence[Operand], inputs: Sequence[Any]
) -> int:
    """Return the number of outputs that one thread block computes, a power of two.

    It is larger if each output has few elements, and at least a warp's size if neighbouring outputs are
    neighbours in memory.
    """
    outputs_that_fit = BLOCK_SIZE // max(1, min(reduced_count, BLOCK_SIZE))
    arrays = [
        a
        for a, operand in zip(inputs, in_operands, strict=True)
        if operand.is_array and not operand.parameter.is_raw
    ]
    has_contiguous_rows = any(a.ndim and a.shape[-1] > 1 and a.strides[-1] == a.itemsize for a in arrays)
    coalesced_outputs = (
        min(_COALESCED_OUTPUT_COUNT, total_outputs) if has_contiguous_rows and total_outputs > 1 else 1
    )
    outputs_per_block = min(max(outputs_that_fit, coalesced_outputs), BLOCK_SIZE)
    return 1 << (outputs_per_block.bit_length() - 1)
