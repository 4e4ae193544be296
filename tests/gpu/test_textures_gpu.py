"""The recorded texture fetches once more, from the GPU at hand."""

from __future__ import annotations

from typing import Any

import pytest

from tools.recordings import FOLDER, textures

pytestmark = pytest.mark.gpu

RECORDING = FOLDER / textures.FILE


@pytest.mark.parametrize("case", tuple(textures.cases()), ids=lambda case: case.name)
def test_fetches_are_those_recorded(cp: Any, case: textures.TextureCase) -> None:
    if not RECORDING.is_file():
        pytest.skip("nothing was recorded")
    assert textures.run(cp, case).tobytes() == textures.read(RECORDING)[case.name].tobytes()
