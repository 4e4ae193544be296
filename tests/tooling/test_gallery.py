"""Gallery pages are self-contained, the index links to all pages, and README pictures link to them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gpulab import session
from tools import gallery, pictures

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "gallery"
# Resources that a browser would load. XML namespaces and links in texts are not loaded.
FETCHED = re.compile(r"""(?:\bsrc|<link[^>]+href)\s*=\s*["']?(?:https?:)?//|@import|import\(["']http""")


def linked(folder: Path) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]+)"', (folder / "index.html").read_text(encoding="utf-8"))


def test_the_shipped_gallery_is_complete() -> None:
    pages = {path.name for path in SHIPPED.glob("*.html")} - {"index.html"}
    assert pages == {f"{name}.html" for name in gallery.CELLS}
    assert {name for name in linked(SHIPPED) if name.endswith(".html")} == pages
    assert all((SHIPPED / name).is_file() for name in linked(SHIPPED))
    assert set(gallery.TEXTS) == set(gallery.CELLS)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2_500_000


def test_pictures_of_the_readme_link_to_the_gallery() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r"!\[[^\]]*\]\(notebooks/images/(\w+)\.png\)", readme)
    assert pictures
    assert re.findall(r"^\[!\[.*\.png\)\]\(gallery/(\w+)\.html\)$", readme, re.M) == pictures


@pytest.mark.parametrize("name", list(gallery.CELLS))
def test_a_picture_and_its_page_show_one_record(name: str) -> None:
    assert pictures.read_digest(name) == pictures.compute_page_digest(name), "run `make pictures`"


def test_a_changed_page_does_not_match_the_picture_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "IMAGES", tmp_path)
    monkeypatch.setattr(pictures, "GALLERY", tmp_path)
    Image.new("RGB", (4, 3), "red").save(tmp_path / "view.png")
    assert pictures.read_digest("view") is None
    (tmp_path / "view.html").write_text("313 µs")
    pictures.add_digest("view")
    assert pictures.read_digest("view") == pictures.compute_page_digest("view")
    with Image.open(tmp_path / "view.png") as picture:
        assert (picture.size, picture.getpixel((0, 0))) == ((4, 3), (255, 0, 0))
    (tmp_path / "view.html").write_text("336 µs")
    assert pictures.read_digest("view") != pictures.compute_page_digest("view")


def test_the_memory_map_shows_only_its_own_arrays() -> None:
    with session.on_device("virtual:A100"):
        names: dict[str, Any] = {}
        exec(pictures.SETUP, names)
        report = gallery.run_cell(gallery.CELLS["memory_map"], names)
    requested = [request.size_bytes >> 20 for request in report.requests if request.kind == "alloc"]
    assert requested == [2251, *[205] * 10, 1024]
    assert report.record.first.total_bytes == 0, "the pool is new"


def test_gallery_pages_load_no_network_resources() -> None:
    for path in SHIPPED.glob("*.html"):
        assert not FETCHED.search(path.read_text(encoding="utf-8")), path.name
    assert FETCHED.search('<script src="https://x/y.js">')


def test_a_gallery_in_another_folder_contains_its_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPULAB_DEVICE", "virtual:A100")
    gallery.main([str(tmp_path / "out"), "--only", "access"])
    assert "1 pages and an index" in capsys.readouterr().out
    assert sorted(linked(tmp_path / "out")) == ["access.html", "access.png"]
    text = (tmp_path / "out" / "access.html").read_text(encoding="utf-8")
    assert "Access microscope" in text
    assert not FETCHED.search(text)


def notebook(path: Path, *cells: tuple[str, str]) -> Path:
    cells_: list[dict[str, Any]] = [
        {"cell_type": kind, "id": f"cell-{index}", "metadata": {}, "source": text}
        | ({"outputs": [], "execution_count": None} if kind == "code" else {})
        for index, (kind, text) in enumerate(cells)
    ]
    path.write_text(json.dumps({"cells": cells_, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_a_notebooks_views_become_pages(tmp_path: Path) -> None:
    cells_ = notebook(
        tmp_path / "07_tiny.ipynb",
        ("markdown", "# 07 · Tiny\n\ntext"),
        ("code", "import gpulab as gl\nprint('hello')"),
        ("markdown", "## A section\n"),
        ("code", "gl.access(stride=3)"),
        ("code", "3"),
    )
    pages = gallery.save_course_pages(tmp_path, cells_)
    assert [(page.file, page.title) for page in pages] == [("07-cell-3.html", "07 · Tiny: A section")]
    assert pages[0].sentence.startswith("Access microscope, stride 3")
    assert (tmp_path / "07-cell-3.html").is_file()
    assert "07-cell-3.html" in gallery.make_index(pages)


def test_a_notebook_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"07_none\.ipynb did not run"):
        gallery.save_course_pages(tmp_path, tmp_path / "07_none.ipynb")


def test_text_of_views_is_escaped() -> None:
    text = gallery.make_index([gallery.Page('"><script>.html', "<b>", "a < b")])
    assert "<script>" not in text
    assert "<b>" not in text
