"""The recorded texture fetches once more, from the GPU at hand."""

from __future__ import annotations

from typing import Any

import pytest

from tools.recordings import FOLDER, textures

pytestmark = pytest.mark.gpu

RECORDED = textures.read(FOLDER / textures.FILE)


@pytest.mark.parametrize(
    "case", [c for c in textures.make_cases() if c.name in RECORDED], ids=lambda case: case.name
)
def test_texture_fetches_equal_the_recording(cp: Any, case: textures.TextureCase) -> None:
    assert textures.run(cp, case).tobytes() == RECORDED[case.name].tobytes()
