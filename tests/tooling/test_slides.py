"""Slides and handouts of the short courses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulab_course.content.courses import find_course
from tools import slides
from tools.courses import SHORT_COURSES


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {path.stem: path for path in slides.write(tmp_path_factory.mktemp("slides"))}


def test_slides_need_no_network(pages: dict[str, Path]) -> None:
    assert set(pages) == set(SHORT_COURSES)
    for page in pages.values():
        text = page.read_text(encoding="utf-8")
        sources = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', text)
        files = [source for source in sources if not source.startswith("data:")]
        assert len(files) >= 4
        assert [name for name in files if not (page.parent / name).is_file()] == []


def test_slides_show_class_exercises_without_solutions(pages: dict[str, Path]) -> None:
    text = pages["half-day"].read_text(encoding="utf-8")
    headings = re.findall(r"<h3[^>]*>(.*?)<", text)
    exercises = [heading for heading in headings if re.search(r"\d\d-\w+:", heading)]
    assert [re.findall(r"\d\d-\w+", heading)[0] for heading in exercises] == [
        "00-blocks",
        "00-saxpy",
        "00-repair",
        "02-index",
        "02-stride",
        "05-asked",
        "05-copy4",
    ]
    assert "Solution of" not in text


def test_every_slide_has_something_to_show() -> None:
    for name in SHORT_COURSES:
        for cell in slides.make_deck(find_course(name)).cells:
            kind = cell.metadata["slideshow"]["slide_type"]
            assert kind in ("slide", "subslide", "notes")
            shows_source = not cell.metadata.get("transient", {}).get("remove_source")
            assert (shows_source and cell.source.strip()) or cell.get("outputs"), cell
