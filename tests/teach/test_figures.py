"""Drawn figures: a picture that fits its frame, with a sentence that is true of it."""

from __future__ import annotations

import struct

import pytest

from gpulab.course.n00_start import figures
from gpulab.teach import picture


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


@pytest.mark.parametrize(("n", "threads", "blocks", "idle"), [(10, 4, 3, 2), (8, 4, 2, 0), (1, 4, 1, 3)])
def test_numbering_counts_blocks_and_idle_threads(n: int, threads: int, blocks: int, idle: int) -> None:
    caption = repr(figures.numbering(n, threads))
    assert caption.startswith(f"{n} elements in {blocks} blocks of {threads} threads")
    assert f"{idle} threads (hatched) have no element." in caption


def test_pictures_are_png_with_a_sentence() -> None:
    bundle, metadata = figures.stack()._repr_mimebundle_()
    assert metadata == {"image/png": {"alt": repr(figures.stack())}}
    assert isinstance(bundle["image/png"], bytes)
    assert size_of(bundle["image/png"]) == (760, 390)
    assert bundle["text/plain"] == repr(figures.stack())
    assert "on the virtual GPU" in repr(figures.stack())


def test_text_stays_inside_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest device name of the table must not run out of its box."""
    from gpulab import session
    from gpulab.session.choose import DeviceChoice

    longest = max(session.table(), key=lambda info: len(info.name)).name
    drawn = []
    of = picture.Picture.of

    def measure(figure: figures.Figure, caption: str) -> picture.Picture:
        made = of(figure, caption)
        renderer = figure.canvas.get_renderer()
        drawn.extend(
            (text.get_text(), text.get_window_extent(renderer).x1)
            for text in figure.axes[0].texts
            if text.get_text()
        )
        return made

    monkeypatch.setattr(picture.Picture, "of", measure)
    monkeypatch.setattr(figures, "which_device", lambda: DeviceChoice("virtual", longest, (8, 0)))
    figures.stack()
    assert drawn
    assert not [text for text, right in drawn if right > 755]
