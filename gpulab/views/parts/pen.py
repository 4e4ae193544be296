"""Drawing with Pillow in nominal pixels and colour names; text in the fonts that matplotlib brings."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gpulab.views.parts import palette

# Twice the pixels, so that a picture stays sharp where a page shows it larger.
SHARPNESS = 2
_ANCHORS = {"start": "lm", "middle": "mm", "end": "rm"}


@cache
def font(size: float, weight: str = "normal") -> ImageFont.FreeTypeFont:
    """DejaVu as matplotlib brings it, so that pictures are the same on every machine."""
    found = find_spec("matplotlib")
    assert found is not None
    assert found.origin is not None
    name = {"bold": "DejaVuSans-Bold", "mono": "DejaVuSansMono"}.get(weight, "DejaVuSans")
    path = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{name}.ttf"
    # Basic layout: nothing here is written from right to left or ligated, and it is far quicker.
    return ImageFont.truetype(str(path), size * SHARPNESS, layout_engine=ImageFont.Layout.BASIC)


@cache
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in nominal pixels."""
    return font(size, weight).getlength(text) / SHARPNESS


def wrapped(text: str, width: float, size: float, weight: str = "normal") -> list[str]:
    """Break a text into lines no wider than `width`; a single longer word stays whole."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if line and text_width(longer, size, weight) > width:
                lines.append(line)
                line = word
            else:
                line = longer
        lines.append(line)
    return lines


def shortened(text: str, width: float, size: float, weight: str = "normal") -> str:
    """Return `text`, cut with an ellipsis if it is too wide."""
    if text_width(text, size, weight) <= width:
        return text
    while text and text_width(f"{text}…", size, weight) > width:
        text = text[:-1]
    return f"{text}…"


class Pen:
    """Draws in nominal pixels and colour names."""

    def __init__(self, width: float, height: float) -> None:
        self.image = Image.new(
            "RGB", (round(width * SHARPNESS), round(height * SHARPNESS)), palette.light("bg")
        )
        self.draw = ImageDraw.Draw(self.image)

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        """A filled rectangle, at least a pixel wide and high."""
        a, b, c, d = (round(v * SHARPNESS) for v in (x0, y0, x1, y1))
        self.draw.rectangle((a, b, max(a, c - 1), max(b, d - 1)), fill=palette.light(colour))

    def outline(self, x0: float, y0: float, x1: float, y1: float, colour: str, width: float = 2) -> None:
        box = tuple(round(v * SHARPNESS) for v in (x0, y0, x1, y1))
        self.draw.rectangle(box, outline=palette.light(colour), width=round(width * SHARPNESS))

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1) -> None:
        flat = [(x * SHARPNESS, y * SHARPNESS) for x, y in points]
        self.draw.line(
            flat, fill=palette.light(colour), width=max(1, round(width * SHARPNESS)), joint="curve"
        )

    def polygon(self, points: list[tuple[float, float]], colour: str) -> None:
        self.draw.polygon([(x * SHARPNESS, y * SHARPNESS) for x, y in points], fill=palette.light(colour))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 11,
        weight: str = "normal",
        colour: str = "fg",
        anchor: str = "start",
        turn: bool = False,
    ) -> None:
        """Text with its vertical middle at y; turned, it reads upwards around (x, y)."""
        if not turn:
            self.draw.text(
                (x * SHARPNESS, y * SHARPNESS),
                text,
                palette.light(colour),
                font(size, weight),
                anchor=_ANCHORS[anchor],
            )
            return
        wide = round(text_width(text, size, weight) * SHARPNESS) + 4
        high = round(size * 1.5 * SHARPNESS)
        slip = Image.new("L", (wide, high), 0)
        ImageDraw.Draw(slip).text((wide / 2, high / 2), text, 255, font(size, weight), anchor="mm")
        slip = slip.transpose(Image.Transpose.ROTATE_90)
        place = (round(x * SHARPNESS - high / 2), round(y * SHARPNESS - wide / 2))
        self.image.paste(palette.light(colour), place, slip)
