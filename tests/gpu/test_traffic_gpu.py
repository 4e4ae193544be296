"""``gl.traffic`` and the course's tracing compiler once more, with CuPy itself in the virtual GPU's place."""

from __future__ import annotations

from typing import Any

import pytest

import gpulab as gl
from tests.session import test_tracing_compiler, test_traffic
from tests.session.test_tracing_compiler import (  # noqa: F401  (collects these tests here too)
    test_a_guard_that_fails_is_named_and_the_result_is_right,
    test_a_value_that_python_asks_for_leaves_the_function_as_written,
    test_an_array_from_outside_may_change_in_place_and_by_name,
    test_arguments_that_share_memory,
    test_functions_whose_guards_always_fail_are_no_longer_compiled,
    test_numbers_are_constants_of_the_code_and_guarded,
)
from tests.session.test_traffic import (  # noqa: F401
    test_a_fusion_boundary_has_its_reason,
    test_a_kernel_of_ones_own_is_counted_and_taken_as_it_is,
    test_arguments_are_left_as_they_were,
    test_functions_that_cannot_be_followed_are_refused_with_a_remedy,
    test_fused_kernels_give_what_the_function_gives,
    test_nine_passes_become_one_that_reads_and_writes_once,
    test_other_values_are_folded_and_reads_of_the_host_named,
    test_the_picture_has_a_description,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hardware(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests use CuPy."""
    for module in (test_traffic, test_tracing_compiler):
        monkeypatch.setattr(module, "cp", cp)
    monkeypatch.setattr(test_tracing_compiler, "FACTOR", 2.0)


def test_times_are_measured_and_every_pass_is_a_launch(cp: Any) -> None:
    x = cp.ones((4096, 4096), dtype=cp.float32)
    record = gl.traffic(test_traffic.affine, x, x[0].copy(), x[1].copy()).record
    assert record.provenance.source == "measured"
    passes = [each for each in record.expressions if each.kernel >= 0]
    assert [len(each.launches) for each in passes] == [1] * 9
    assert all(each.time_ns > 0 for each in passes)
    one = record.way(test_traffic.AS_WRITTEN)
    fused = record.way(test_traffic.FUSED)
    assert one.time_ns is not None
    assert fused.time_ns is not None
    assert fused.time_ns < one.time_ns / 3
