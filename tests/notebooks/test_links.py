"""Links to the CUDA Programming Guide lead to the current one, and to headings that are there.

``anchors.tsv`` lists those that were looked up, with the month; a link that is not listed fails.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.notebooks.course import FOLDER, NOTEBOOKS, read, text

LISTED = {
    line.split("\t")[0]
    for line in Path(__file__).with_name("anchors.tsv").read_text(encoding="utf-8").splitlines()[1:]
}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def guide_links(prose: str) -> list[str]:
    """Addresses in the Programming Guide, the old one and the current one."""
    return re.findall(
        r"https://docs\.nvidia\.com/cuda/(?:archive/[\d.]+/)?cuda-(?:c-)?programming-guide/[^)\s]*", prose
    )


@each_notebook
def test_links_to_the_guide_use_listed_anchors(path: Path) -> None:
    unlisted = [link for link in guide_links(text(read(path))) if link not in LISTED]
    assert not unlisted, "look the heading up, and list it in anchors.tsv"


def test_wrong_anchor_is_detected() -> None:
    right = (
        "[a](https://docs.nvidia.com/cuda/cuda-programming-guide/02-basics/intro-to-cuda-cpp.html#kernels), b"
    )
    assert set(guide_links(right)) <= LISTED
    assert not set(guide_links(right.replace("#kernels", "#kernel"))) & LISTED


@each_notebook
def test_glossary_links_point_to_existing_headings(path: Path) -> None:
    """JupyterLab's anchor of a heading is its text with hyphens instead of spaces."""
    glossary = text(read(FOLDER / "glossary.ipynb"))
    headings = {heading.replace(" ", "-") for heading in re.findall(r"^##? (.+)$", glossary, re.M)}
    links = re.findall(r"\]\(glossary\.ipynb#((?:[^()]|\([^()]*\))*)\)", text(read(path)))
    assert not set(links) - headings
