"""Set the docstrings and signatures of ``cp``'s functions from NumPy's, and add an example to each."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

DEVICE_PLACE_NOTE = (
    "Like NumPy's function of the same name, but for device arrays. The result stays on the device."
)
_UFUNC_PARAMETERS = """Element by element, as NumPy's function of this name, on device arrays.

Parameters
----------
x, x1, x2 : ndarray or scalar
    Device arrays, whose shapes are broadcast against each other, or scalars.
out : ndarray, optional
    Array for the result; a new array by default.
dtype : dtype, optional
    Type to compute with.
casting : str, optional
    Allowed conversions, as in NumPy.

Returns
-------
ndarray
    On the device; of dimension 0 for scalars.
"""
# Sections of a docstring that apply to NumPy only.
_NUMPY_ONLY_SECTION_PATTERN = re.compile(r"\n *(?:See Also|Notes|References|Examples|Warns)\n *---")

# One call of each of the most common functions, and its result.
FUNCTION_EXAMPLES = """
cp.abs(cp.array([-1, 2])) -> array([1, 2])
cp.add(cp.array([1, 2]), 10) -> array([11, 12])
cp.allclose(cp.array([1.0]), cp.array([1.0 + 1e-9])) -> array(True)
cp.any(cp.array([0, 3]) > 2) -> array(True)
cp.all(cp.array([0, 3]) > 2) -> array(False)
cp.arange(0, 10, 3) -> array([0, 3, 6, 9])
cp.argmax(cp.array([3, 9, 4])) -> array(1)
cp.argmin(cp.array([3, 9, 4])) -> array(0)
cp.argsort(cp.array([3, 9, 4])) -> array([0, 2, 1])
cp.array([1, 2, 3], dtype=cp.float32) -> array([1., 2., 3.], dtype=float32)
cp.array_equal(cp.arange(3), cp.arange(3)) -> array(True)
cp.asarray([1.5, 2.5]) -> array([1.5, 2.5])
cp.asnumpy(cp.array([1, 2])).tolist() -> [1, 2]
cp.bincount(cp.array([0, 2, 2])) -> array([1, 0, 2])
cp.broadcast_to(cp.array([1, 2]), (2, 2)) -> array([[1, 2], [1, 2]])
cp.ceil(cp.array([1.2])) -> array([2.])
cp.clip(cp.array([-5, 1, 8]), 0, 4) -> array([0, 1, 4])
cp.concatenate([cp.array([1, 2]), cp.array([3])]) -> array([1, 2, 3])
cp.cos(cp.array([0.0])) -> array([1.])
cp.count_nonzero(cp.array([0, 3, 4])) -> array(2)
cp.cumprod(cp.array([1, 2, 3])) -> array([1, 2, 6])
cp.cumsum(cp.array([1, 2, 3])) -> array([1, 3, 6])
cp.diag(cp.array([1, 2])) -> array([[1, 0], [0, 2]])
cp.diff(cp.array([1, 4, 9])) -> array([3, 5])
cp.divide(cp.array([1, 3]), 2) -> array([0.5, 1.5])
cp.dot(cp.array([1, 2]), cp.array([3, 4])) -> array(11)
cp.einsum("ij,j->i", cp.ones((2, 2)), cp.array([1.0, 2.0])) -> array([3., 3.])
cp.equal(cp.array([1, 2]), 2) -> array([False, True])
cp.exp(cp.array([0.0])) -> array([1.])
cp.expand_dims(cp.array([1, 2]), 0) -> array([[1, 2]])
cp.eye(2) -> array([[1., 0.], [0., 1.]])
cp.flip(cp.array([1, 2, 3])) -> array([3, 2, 1])
cp.floor(cp.array([1.8])) -> array([1.])
cp.full(3, 7) -> array([7, 7, 7])
cp.histogram(cp.array([1, 2, 2, 5]), bins=2)[0] -> array([3, 1])
cp.hstack([cp.array([1]), cp.array([2])]) -> array([1, 2])
cp.isnan(cp.array([1.0, cp.nan])) -> array([False, True])
cp.linspace(0, 1, 3) -> array([0. , 0.5, 1. ])
cp.log(cp.array([1.0])) -> array([0.])
cp.matmul(cp.array([[1, 2]]), cp.array([[3], [4]])) -> array([[11]])
cp.max(cp.array([3, 9, 4])) -> array(9)
cp.maximum(cp.array([-1, 2]), 0) -> array([0, 2])
cp.mean(cp.array([1.0, 2.0])) -> array(1.5)
cp.median(cp.array([1.0, 9.0, 2.0])) -> array(2.)
cp.min(cp.array([3, 9, 4])) -> array(3)
cp.minimum(cp.array([-1, 2]), 0) -> array([-1, 0])
cp.multiply(cp.array([1, 2]), 3) -> array([3, 6])
cp.nonzero(cp.array([0, 3, 4])) -> (array([1, 2]),)
cp.ones(2, dtype=cp.int32) -> array([1, 1], dtype=int32)
cp.ones_like(cp.array([5, 6])) -> array([1, 1])
cp.outer(cp.array([1, 2]), cp.array([3, 4])) -> array([[3, 4], [6, 8]])
cp.percentile(cp.array([1.0, 2.0, 3.0]), 50) -> array(2.)
cp.power(cp.array([2, 3]), 2) -> array([4, 9])
cp.prod(cp.array([2, 3])) -> array(6)
cp.ravel(cp.array([[1, 2], [3, 4]])) -> array([1, 2, 3, 4])
cp.repeat(cp.array([1, 2]), 2) -> array([1, 1, 2, 2])
cp.reshape(cp.arange(4), (2, 2)) -> array([[0, 1], [2, 3]])
cp.roll(cp.array([1, 2, 3]), 1) -> array([3, 1, 2])
cp.round(cp.array([1.26]), 1) -> array([1.3])
cp.searchsorted(cp.array([1, 3, 5]), cp.array([4])) -> array([2])
cp.sin(cp.array([0.0])) -> array([0.])
cp.sort(cp.array([3, 1, 2])) -> array([1, 2, 3])
cp.split(cp.arange(4), 2) -> [array([0, 1]), array([2, 3])]
cp.sqrt(cp.array([4.0])) -> array([2.])
cp.squeeze(cp.array([[1, 2]])) -> array([1, 2])
cp.stack([cp.array([1, 2]), cp.array([3, 4])]) -> array([[1, 2], [3, 4]])
cp.std(cp.array([1.0, 3.0])) -> array(1.)
cp.subtract(cp.array([5, 6]), 1) -> array([4, 5])
cp.sum(cp.array([[1, 2], [3, 4]]), axis=0) -> array([4, 6])
cp.take(cp.array([10, 20, 30]), cp.array([2, 0])) -> array([30, 10])
cp.tanh(cp.array([0.0])) -> array([0.])
cp.tile(cp.array([1, 2]), 2) -> array([1, 2, 1, 2])
cp.transpose(cp.array([[1, 2]])) -> array([[1], [2]])
cp.tril(cp.ones((2, 2))) -> array([[1., 0.], [1., 1.]])
cp.unique(cp.array([2, 1, 2])) -> array([1, 2])
cp.var(cp.array([1.0, 3.0])) -> array(1.)
cp.vstack([cp.array([1]), cp.array([2])]) -> array([[1], [2]])
cp.where(cp.array([1, -2]) > 0, 1, 0) -> array([1, 0])
cp.zeros((2, 2), dtype=cp.float32).nbytes -> 16
cp.zeros_like(cp.array([5, 6])) -> array([0, 0])
cp.fft.fft(cp.array([1.0, 0.0])) -> array([1.+0.j, 1.+0.j])
cp.fft.ifft(cp.fft.fft(cp.array([1.0, 2.0]))).real -> array([1., 2.])
cp.fft.rfft(cp.ones(4)).shape -> (3,)
cp.fft.fftfreq(4) -> array([ 0. , 0.25, -0.5 , -0.25])
cp.fft.fft2(cp.ones((2, 2))).real -> array([[4., 0.], [0., 0.]])
cp.fft.fftshift(cp.array([0, 1, -2, -1])) -> array([-2, -1, 0, 1])
cp.linalg.norm(cp.array([3.0, 4.0])) -> array(5.)
cp.linalg.solve(2 * cp.eye(2), cp.array([2.0, 4.0])) -> array([1., 2.])
cp.linalg.inv(2 * cp.eye(2)) -> array([[0.5, 0. ], [0. , 0.5]])
cp.linalg.det(2 * cp.eye(2)) -> array(4.)
cp.linalg.svd(cp.diag(cp.array([3.0, 4.0])))[1] -> array([4., 3.])
cp.linalg.eigh(cp.diag(cp.array([2.0, 1.0])))[0] -> array([1., 2.])
cp.linalg.qr(cp.eye(2))[1].shape -> (2, 2)
cp.random.rand(2, 3).shape -> (2, 3)
cp.random.randn(1000).dtype -> dtype('float64')
cp.random.randint(0, 10, size=5).shape -> (5,)
cp.random.normal(0, 1, size=(2, 2)).shape -> (2, 2)
cp.random.uniform(-1, 1, size=4).shape -> (4,)
cp.random.permutation(4).sum() -> array(6)
cp.random.default_rng(0).random(3).shape -> (3,)
"""


def document_wrapper(
    wrapper: Any,
    function: Any,
    name: str,
    missing_keywords: Collection[str] = (),
    place_note: str = DEVICE_PLACE_NOTE,
) -> None:
    """Set the signature and the docstring of a function for device arrays. Both are derived from the NumPy
    function.

    Parameters
    ----------
    wrapper
        Function whose signature and docstring are set; it takes any arguments.
    function
        Function that computes the result: NumPy's, or a replacement.
    name
        Name of the function in ``cp``.
    missing_keywords
        Keywords of NumPy's function that `wrapper` does not accept.
    place_note
        Sentence that says where the function computes.
    """
    wrapper.__name__ = wrapper.__qualname__ = name
    no_default = inspect.Parameter.empty
    with contextlib.suppress(ValueError):  # before NumPy 2.4, functions written in C have no signature
        signature_items = inspect.signature(function).parameters.items()
        parameters = [
            parameter.replace(annotation=no_default)
            for keyword, parameter in signature_items
            if keyword not in missing_keywords
        ]
        wrapper.__signature__ = inspect.Signature(parameters)
    # `python -OO` leaves docstrings out.
    docstring = function.__doc__ or getattr(getattr(np, name, None), "__doc__", None) or ""
    description = _NUMPY_ONLY_SECTION_PATTERN.split(docstring, maxsplit=1)[0]
    indent = "    " if description.startswith("\n    ") else ""
    if description.startswith(f"{name}("):
        description = description.partition("\n\n")[2]  # after the signature
    for keyword in missing_keywords:
        description = re.sub(
            rf"\n{indent}{keyword} : .*?(?=\n{indent}\w|\n\n{indent}\w|\Z)", "", description, flags=re.S
        )
    summary, _, details = description.strip().partition("\n\n")
    wrapper.__doc__ = f"{summary}\n\n{indent}{place_note}\n\n{indent}{details.lstrip()}".rstrip() + "\n"


def make_ufunc_docstring(function: np.ufunc) -> str:
    """Return the docstring of an element-wise function, with NumPy's summary and CuPy's parameters."""
    paragraphs = (function.__doc__ or "").split("\n\n")
    return f"{paragraphs[1].strip()}\n\n{_UFUNC_PARAMETERS}" if len(paragraphs) > 1 else _UFUNC_PARAMETERS


def make_ufunc_signature(function: np.ufunc) -> inspect.Signature:
    """Return the signature of an element-wise function. The signature lists the operands and then the
    keywords that CuPy accepts.
    """
    names = ("x",) if function.nin == 1 else tuple(f"x{i + 1}" for i in range(function.nin))
    parameter_class = inspect.Parameter
    operands = [parameter_class(name, parameter_class.POSITIONAL_ONLY) for name in names]
    keywords = [
        parameter_class(name, parameter_class.KEYWORD_ONLY, default=default)
        for name, default in (("out", None), ("dtype", None), ("casting", "same_kind"))
    ]
    return inspect.Signature([*operands, *keywords])


def add_examples(modules: Mapping[str, Any]) -> None:
    """Add examples to the docstrings of the functions in ``cp`` and its modules."""
    for line in FUNCTION_EXAMPLES.strip().split("\n"):
        example_code, _, result = line.partition(" -> ")
        path = example_code.partition("(")[0]
        module, _, name = path.rpartition(".")
        function = getattr(modules[module], name)
        docstring = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = f"{docstring}\n\nExamples\n--------\n>>> {example_code}\n{result}\n"


def document_methods(array_class: type, module: Any) -> None:
    """Copy signatures and docstrings from functions to the array methods of the same name."""
    for name, method in vars(array_class).items():
        function = getattr(module, name, None)
        if (getattr(method, "__doc__", None) or "").startswith(f"Like ``cp.{name}("):
            function_signature = inspect.signature(function)  # type: ignore[arg-type]
            _, *other_parameters = function_signature.parameters.values()
            self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            method.__signature__ = inspect.Signature([self_parameter, *other_parameters])
            method.__doc__ = function.__doc__
