"""The engine's tests of single instructions once more, with the GPU in the engine's place.

What those tests expect comes from Python and NumPy. A GPU that gives the same shows that they expect
the right thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine import ptx_runner
from tests.engine.test_conversions import *  # noqa: F403
from tests.engine.test_forms import (  # noqa: F401
    test_integer_to_float_conversion_saturates,
    test_mad_hi_sat_saturates_its_sum,
    test_minimum_and_maximum_with_xorsign_abs_and_nan,
    test_relu_keeps_nan,
    test_slct_with_ftz_flushes_a_subnormal_selector,
)
from tests.engine.test_instructions import *  # noqa: F403  (collects their tests here too)
from tests.engine.test_narrow_types import *  # noqa: F403
from tests.engine.test_regressions import (  # noqa: F401
    test_64_bit_bfe_uses_all_bits_of_position_and_length,
    test_absolute_differences_of_packed_bytes,
    test_nan_becomes_the_sign_bit_or_zero,
    test_packed_half_words,
    test_the_upper_part_of_a_24_bit_product_starts_at_bit_16,
)
from tests.engine.test_rounding import *  # noqa: F403

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def hardware(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `ptx_runner.apply` run its kernels on the GPU."""

    def launch(
        ptx: str, name: str, arrays: Sequence[npt.NDArray[Any]], grid: int = 1, block: int = 32
    ) -> list[npt.NDArray[Any]]:
        module = cp.cuda.function.Module()
        module.load(ptx.encode())
        on_device = [cp.asarray(np.ascontiguousarray(array)) for array in arrays]
        module.get_function(name)((grid, 1, 1), (block, 1, 1), tuple(on_device))
        return [cp.asnumpy(array) for array in on_device]

    monkeypatch.setattr(ptx_runner, "launch", launch)
