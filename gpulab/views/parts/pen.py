"""Drawing with Pillow in nominal pixels and colour names; text in the fonts that matplotlib ships."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from gpulab.views.parts import palette

# Factor of the pixels, so that an enlarged picture stays sharp.
SHARPNESS = 2
_PIL_ANCHORS = {"start": "lm", "middle": "mm", "end": "rm"}


@cache
def load_font(font_size: float, font_weight: str = "normal") -> ImageFont.FreeTypeFont:
    """Return the DejaVu font from matplotlib, with which pictures look the same on every machine."""
    matplotlib_spec = find_spec("matplotlib")
    assert matplotlib_spec is not None
    assert matplotlib_spec.origin is not None
    font_name = {"bold": "DejaVuSans-Bold", "mono": "DejaVuSansMono"}.get(font_weight, "DejaVuSans")
    font_path = Path(matplotlib_spec.origin).parent / "mpl-data" / "fonts" / "ttf" / f"{font_name}.ttf"
    # Basic layout is much faster, and no text here needs right-to-left layout or ligatures.
    return ImageFont.truetype(str(font_path), font_size * SHARPNESS, layout_engine=ImageFont.Layout.BASIC)


@cache
def text_width(text: str, font_size: float, font_weight: str = "normal") -> float:
    """Return the width of a text in nominal pixels."""
    return load_font(font_size, font_weight).getlength(text) / SHARPNESS


def wrap(text: str, width: float, font_size: float, font_weight: str = "normal") -> list[str]:
    """Break a text into lines of at most `width` pixels. Longer words are not broken."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        current_line = ""
        for word in paragraph.split(" "):
            longer_line = f"{current_line} {word}" if current_line else word
            if current_line and text_width(longer_line, font_size, font_weight) > width:
                lines.append(current_line)
                current_line = word
            else:
                current_line = longer_line
        lines.append(current_line)
    return lines


def shorten(text: str, width: float, font_size: float, font_weight: str = "normal") -> str:
    """Return the text unchanged if it fits, or a shortened text with an ellipsis."""
    if text_width(text, font_size, font_weight) <= width:
        return text
    while text and text_width(f"{text}…", font_size, font_weight) > width:
        text = text[:-1]
    return f"{text}…"


class Pen:
    """An image on which shapes and texts can be drawn. Sizes are in nominal pixels, and colours are given by
    name.
    """

    def __init__(self, width: float, height: float) -> None:
        self.image = Image.new(
            "RGB", (round(width * SHARPNESS), round(height * SHARPNESS)), palette.find_hex("bg")
        )
        self.draw = ImageDraw.Draw(self.image)

    def rect(self, x0: float, y0: float, x1: float, y1: float, colour: str) -> None:
        """Draw a filled rectangle that is at least one pixel wide and one pixel high."""
        left, top, right, bottom = (round(coordinate * SHARPNESS) for coordinate in (x0, y0, x1, y1))
        self.draw.rectangle(
            (left, top, max(left, right - 1), max(top, bottom - 1)), fill=palette.find_hex(colour)
        )

    def outline(self, x0: float, y0: float, x1: float, y1: float, colour: str, width: float = 2) -> None:
        """Draw the outline of a rectangle."""
        scaled_corners = tuple(round(coordinate * SHARPNESS) for coordinate in (x0, y0, x1, y1))
        self.draw.rectangle(scaled_corners, outline=palette.find_hex(colour), width=round(width * SHARPNESS))

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1) -> None:
        """Draw a line through points."""
        scaled_points = [(x * SHARPNESS, y * SHARPNESS) for x, y in points]
        self.draw.line(
            scaled_points,
            fill=palette.find_hex(colour),
            width=max(1, round(width * SHARPNESS)),
            joint="curve",
        )

    def polygon(self, points: list[tuple[float, float]], colour: str) -> None:
        """Draw a filled polygon."""
        self.draw.polygon([(x * SHARPNESS, y * SHARPNESS) for x, y in points], fill=palette.find_hex(colour))

    def arrow_head(
        self, start: tuple[float, float], end: tuple[float, float], colour: str, length: float = 8
    ) -> None:
        """Draw the head of an arrow from `start` to `end`."""
        direction_rad = math.atan2(end[1] - start[1], end[0] - start[0])
        wing_points = [
            (
                end[0] + length * math.cos(direction_rad + wing_angle_rad),
                end[1] + length * math.sin(direction_rad + wing_angle_rad),
            )
            for wing_angle_rad in (2.7, -2.7)
        ]
        self.polygon([end, *wing_points], colour)

    def disc(self, x: float, y: float, radius: float, colour: str, outline: str) -> None:
        """Draw a filled circle with an outline."""
        scaled_corners = [
            coordinate * SHARPNESS for coordinate in (x - radius, y - radius, x + radius, y + radius)
        ]
        self.draw.ellipse(
            scaled_corners,
            fill=palette.find_hex(colour),
            outline=palette.find_hex(outline),
            width=SHARPNESS,
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        font_size: float = 11,
        font_weight: str = "normal",
        colour: str = "fg",
        anchor: str = "start",
        is_vertical: bool = False,
    ) -> None:
        """Draw a text that is vertically centred at y. A vertical text reads upwards and is centred at (x,
        y).
        """
        if not is_vertical:
            self.draw.text(
                (x * SHARPNESS, y * SHARPNESS),
                text,
                palette.find_hex(colour),
                load_font(font_size, font_weight),
                anchor=_PIL_ANCHORS[anchor],
            )
            return
        width_px = round(text_width(text, font_size, font_weight) * SHARPNESS) + 4
        height_px = round(font_size * 1.5 * SHARPNESS)
        text_mask = Image.new("L", (width_px, height_px), 0)
        ImageDraw.Draw(text_mask).text(
            (width_px / 2, height_px / 2), text, 255, load_font(font_size, font_weight), anchor="mm"
        )
        text_mask = text_mask.transpose(Image.Transpose.ROTATE_90)
        corner = (round(x * SHARPNESS - height_px / 2), round(y * SHARPNESS - width_px / 2))
        self.image.paste(palette.find_hex(colour), corner, text_mask)
