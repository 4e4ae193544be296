"""The tests of fused functions once more, with CuPy itself in the virtual GPU's place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.virtual import test_fuse, test_fuse_refusals
from tests.virtual.test_fuse import (  # noqa: F401  (collects these tests here too)
    test_a_named_type_of_a_sum_is_ignored,
    test_extremes_of_every_type,
    test_functions_agree_with_those_outside,
    test_in_place_operators_write_to_the_argument,
    test_it_is_the_function_itself_for_host_data,
    test_more_than_one_loop,
    test_numbers_alone_take_the_narrowest_type,
    test_numbers_and_none_as_arguments,
    test_of_two_results_of_a_reduction_the_first_comes_back,
    test_reductions_at_the_end,
    test_results_are_new_and_span_all_arguments,
    test_same_result_and_type_as_without,
    test_the_function_is_traced_once_for_each_type,
)
from tests.virtual.test_fuse_refusals import (  # noqa: F401
    test_arguments_that_do_not_fit,
    test_arrays_from_outside_the_function,
    test_names_of_kernels,
    test_what_cannot_be_fused,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hardware(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests use CuPy."""
    for module in (test_fuse, test_fuse_refusals):
        monkeypatch.setattr(module, "cp", cp)
