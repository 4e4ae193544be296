"""The tests of generated kernels once more, with CuPy itself in the virtual GPU's place.

What they expect comes from NumPy and from CuPy's documentation. CuPy passing them shows that they ask
for the right thing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.virtual import test_generated
from tests.virtual.test_generated import (  # noqa: F401  (collects these tests here too)
    test_axes_of_a_reduction,
    test_complex_arithmetic,
    test_elementwise_kernels_accept_every_dtype,
    test_empty_reductions,
    test_outputs_may_be_views,
    test_preamble_options_and_loop_statements,
    test_raw_arrays_and_the_element_index,
    test_raw_outputs_can_be_added_to_atomically,
    test_reduction_of_every_element_type,
    test_reductions_with_several_arguments_and_a_custom_type,
    test_scalars_have_the_dtype_of_the_array,
    test_several_outputs_and_return_rules,
    test_the_out_argument_of_a_reduction,
    test_the_size_argument_requires_raw_arrays,
    test_views_and_broadcasting,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hardware(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests use CuPy."""
    monkeypatch.setattr(test_generated, "cp", cp)


def test_launches_that_cupy_adjusts(cp: Any) -> None:
    """Sizes below one count as one; a cooperative grid shrinks with a warning."""
    code = r"""
    extern "C" __global__ void count(int* n) { atomicAdd(n, 1); }
    """
    n = cp.zeros(1, "i4")
    cp.RawKernel(code, "count")((0,), (32,), (n,))
    assert int(n[0]) == 32
    cooperative = cp.RawKernel(code, "count", enable_cooperative_groups=True)
    with pytest.warns(UserWarning, match="The grid size will be reduced from 1000000"):
        cooperative((1_000_000,), (256,), (n,))


@pytest.mark.parametrize("dtypes", [("f4", "f4"), ("i4", "f8")])
def test_fused_results(cp: Any, dtypes: tuple[str, str]) -> None:
    def work(x: Any, y: Any) -> Any:
        return cp.where(x > y, 3 * x * x - y / 4, -y), x + y

    x = cp.arange(12).reshape(3, 4).astype(dtypes[0])
    y = cp.arange(4).astype(dtypes[1])
    for plain, fused in zip(work(x, y), cp.fuse(work)(x, y), strict=True):
        assert plain.dtype == fused.dtype
        np.testing.assert_allclose(fused.get(), plain.get(), rtol=1e-6)
