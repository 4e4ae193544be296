"""The recorded last bits of everyday arithmetic once more, from the GPU at hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.engine import arithmetic

pytestmark = pytest.mark.gpu

RECORDED = json.loads(arithmetic.RECORDED.read_text(encoding="utf-8"))


@pytest.mark.parametrize("kernel", arithmetic.KERNELS)
def test_results_are_bit_identical_to_the_recording(cp: Any, kernel: str) -> None:
    if cp.cuda.Device().compute_capability != "90":
        pytest.skip(
            "recorded for compute capability 9.0; the headers write bfloat16 otherwise for older ones"
        )
    assert arithmetic.digest(arithmetic.outputs(cp, kernel)) == RECORDED["digests"][kernel]
