"""The handouts of the short courses, printed by Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulab_course.content.courses import find_course
from tools import chromium, handout
from tools.courses import SHORT_COURSES


@pytest.mark.browser
@pytest.mark.parametrize("name", SHORT_COURSES)
def test_a_handout_is_one_page(name: str, tmp_path: Path) -> None:
    program = chromium.find()
    if program is None:
        pytest.skip("needs Chromium")
    path = tmp_path / "handout.html"
    path.write_text(handout.make_handout(find_course(name)), encoding="utf-8")
    pdf = handout.print_pdf(path, program).read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
