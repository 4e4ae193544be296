"""``gl.traffic`` and the course's tracing compiler once more, with CuPy itself in the virtual GPU's place."""

from __future__ import annotations

from typing import Any

import pytest

import gpulab as gl
from tests.session import test_tracing_compiler, test_traffic
from tests.session.test_tracing_compiler import (  # noqa: F401  (collects these tests here too)
    test_a_failed_guard_is_reported_and_the_result_is_correct,
    test_a_function_that_reads_a_value_on_the_host_is_not_compiled,
    test_a_global_array_can_be_modified_or_replaced,
    test_aliased_arguments_are_compiled_separately,
    test_compilation_stops_after_repeated_guard_failures,
    test_numbers_are_compiled_as_guarded_constants,
)
from tests.session.test_traffic import (  # noqa: F401
    test_a_fusion_boundary_has_its_reason,
    test_a_raw_kernel_is_counted_and_not_fused,
    test_a_traffic_report_is_described_and_saved,
    test_constants_are_folded_and_host_reads_are_reported,
    test_fused_kernels_return_the_results_of_the_function,
    test_nine_elementwise_passes_fuse_into_one,
    test_traffic_does_not_modify_the_arguments,
    test_untraceable_functions_are_refused_with_a_suggestion,
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
