"""The tests of fused functions once more, with CuPy itself in the virtual GPU's place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.virtual import test_fuse, test_fuse_refusals
from tests.virtual.test_fuse import (  # noqa: F401  (collects these tests here too)
    test_a_fused_function_runs_unfused_for_host_data,
    test_fused_functions_equal_unfused_functions,
    test_fused_functions_may_end_in_a_reduction,
    test_fused_functions_with_several_loops,
    test_fused_max_and_min_of_every_dtype,
    test_fused_routines_have_the_same_results_and_dtypes,
    test_in_place_operators_write_to_the_argument,
    test_numbers_and_none_as_arguments,
    test_only_the_first_of_two_reduction_results_is_returned,
    test_python_numbers_have_the_narrowest_dtype,
    test_results_are_new_arrays_broadcast_over_all_arguments,
    test_the_dtype_argument_of_a_fused_sum_is_ignored,
    test_the_function_is_traced_once_for_each_type,
)
from tests.virtual.test_fuse_refusals import (  # noqa: F401
    test_a_kernel_name_must_be_an_identifier,
    test_arguments_that_do_not_fit,
    test_arrays_captured_from_outside_are_refused,
    test_unsupported_operations_raise_as_in_cupy,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hardware(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests use CuPy."""
    for module in (test_fuse, test_fuse_refusals):
        monkeypatch.setattr(module, "cp", cp)
