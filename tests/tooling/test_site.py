"""The site's reference, and the pictures of its pages."""

import re
from pathlib import Path

import gpulab
from gpulab._names import COURSE_FUNCTIONS

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_reference_has_every_public_function_once() -> None:
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    names = re.findall(r"autofunction:: (?:gpulab|gpulab_course\.api)\.(\w+)$", text, re.MULTILINE)
    assert sorted(names) == sorted({*gpulab._MODULE_OF_NAME, *COURSE_FUNCTIONS} - {"errors"})


def test_pages_and_pictures_of_the_first_page_exist() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    paths = re.findall(r'(?:href|src)="([^"]+)"', text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / "docs" / path).exists()] == []
