"""HTML cards for tables, with a title, the origin of the numbers and a full view, without scripts.

A card has the styles of widgets (``card.css``), and is complete in itself: it works in a saved notebook, in
an export and without a kernel. The full view is the browser's own popover. Where a page removes styles and
buttons, such as GitHub, title, tables and sentences remain.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html import escape
from importlib.resources import files

from gpulab.views.parts import palette

CONTEXT_LINE_COUNT = 2
"""Lines of a listing before and after each marked line."""
_COLOUR_PATTERN = re.compile(r"var\(--gl-([\w-]+)")
_CLASS_PATTERN = re.compile(r"\bgl-[\w-]+")
# A rule, or a group of rules under a condition.
_RULE_PATTERN = re.compile(r"([^{}]+)\{(?:[^{}]|\{[^{}]*\})*\}")


@lru_cache(1)
def _read_rules() -> tuple[tuple[str, frozenset[str]], ...]:
    """Return the style rules of cards, each with the classes to which it applies.

    The rules have enough weight against JupyterLab's own rules for tables.
    """
    folder = files("gpulab.views.parts")
    shared_css, html_css = (
        (folder / name).read_text(encoding="utf-8") for name in ("card.css", "card_html.css")
    )
    css_text = (shared_css + html_css).replace(".gpulab-view", ".gpulab-card.gpulab-card")
    css_text = re.sub(r"/\*.*?\*/|\n\s*", "", css_text)
    return tuple(
        (rule[0], frozenset(_CLASS_PATTERN.findall(rule[1]))) for rule in _RULE_PATTERN.finditer(css_text)
    )


def _make_style(card_html: str) -> str:
    """Return a style sheet with only the rules and colours that some HTML uses."""
    classes = frozenset(_CLASS_PATTERN.findall(card_html))
    style_sheet = "".join(
        rule_text for rule_text, rule_classes in _read_rules() if not rule_classes or rule_classes & classes
    )
    colours = sorted(set(_COLOUR_PATTERN.findall(style_sheet + card_html)))
    return palette.make_colour_rules(".gpulab-card", colours) + style_sheet


def make_card(title: str, *parts: str, origin: str = "", notes: Iterable[str] = ()) -> str:
    """Return the HTML of a card with the given contents.

    Parameters
    ----------
    title
        The heading of the card.
    parts
        The contents as HTML.
    origin
        The source and device of the numbers, such as ``"measured on NVIDIA H200"``.
    notes
        Sentences at the end.
    """
    body_html = "".join(parts)
    caption = " ".join(notes)
    origin_html = f'<span class="gl-chip" data-source="{origin.partition(" ")[0]}">{escape(origin)}</span>'
    caption_html = f'<div class="gl-caption">{escape(caption)}</div>' if caption else ""
    # Equal cards share a name: the button of the second one opens the first one, which is the same.
    name = f"gl-card-{hashlib.sha256(f'{title}{body_html}{origin}'.encode()).hexdigest()[:10]}"
    card_label = escape(title) or "Table"
    card_html = (
        f'<div class="gl-head"><div class="gl-title">{escape(title)}</div>{origin_html}'
        f'<button type="button" class="gl-filling" popovertarget="{name}" aria-label="Fill the window" '
        f'title="Fill the window (Escape: back)"></button></div>{body_html}{caption_html}'
    )
    return (
        f'<section class="gpulab-card" role="group" aria-label="{card_label}" id="{name}" popover>'
        f"<style>{_make_style(card_html)}</style>{card_html}</section>"
    )


def make_paragraph(text: str, style: str = "plain") -> str:
    """Return a paragraph as HTML, or an empty string for an empty text. The parameter `style` is plain,
    strong or heading.
    """
    return f'<p class="gl-words-{style}">{escape(text)}</p>' if text else ""


def make_list(texts: Sequence[str], is_numbered: bool = False) -> str:
    """Return sentences as an HTML list, or an empty string if there are none."""
    list_tag = "ol" if is_numbered else "ul"
    return (
        f"<{list_tag}>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</{list_tag}>" if texts else ""
    )


def make_bar(share: float, colour: str = "accent") -> str:
    """Return the HTML of a bar for a share between 0 and 1. The number is written next to the bar."""
    bar_width = f"{100 * min(1.0, max(0.0, share)):.4g}%"
    return (
        '<span class="gl-track" aria-hidden="true">'
        f'<span class="gl-fill" style="width:{bar_width};background:var(--gl-{colour})"></span></span>'
    )


def make_bars(rows: Iterable[tuple[str, float, str, str]]) -> str:
    """Return labelled bars as HTML. Each row has a label, a share, a value as text, and a colour."""
    return f'<div class="gl-bars">{"".join(map(_make_labelled_bar, rows))}</div>'


def _make_labelled_bar(row: tuple[str, float, str, str]) -> str:
    label, filled_share, value, colour = row
    return (
        f'<div class="gl-bar"><span class="gl-bar-label">{escape(label)} </span>'
        f'{make_bar(filled_share, colour)}<span class="gl-bar-value"> {escape(value)}</span></div>'
    )


def make_fold(summary: str, content: str, is_open: bool) -> str:
    """Return HTML whose contents the reader can open and close."""
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{content}</details>"


def make_legend(entries: Iterable[tuple[str, str]]) -> str:
    """Return the HTML of a legend with colours and their meanings."""
    entry_spans = "".join(
        f'<span><i style="background:var(--gl-{colour})"></i>{escape(text)}</span>'
        for colour, text in entries
    )
    return f'<div class="gl-legend">{entry_spans}</div>'


def place_beside(*parts: str) -> str:
    """Return HTML that shows parts next to each other, or below each other on a narrow page. Empty parts are
    left out.
    """
    return f'<div class="gl-beside">{"".join(f"<div>{html}</div>" for html in parts if html)}</div>'


def make_strip(cells: Iterable[tuple[str, str, str]]) -> str:
    """Return values in chronological order as an HTML list. Each value has a text, a note and a colour."""
    items_html = "".join(
        f'<li style="border-top-color:var(--gl-{colour})"><b>{escape(text)}</b> '
        f"<small>{escape(note)}</small></li>"
        for text, note, colour in cells
    )
    return f'<ol class="gl-strip">{items_html}</ol>'


def make_source_lines(code: str, marks: Mapping[int, str], texts: Mapping[int, str] | None = None) -> str:
    """Return HTML with the marked source lines of a program and the lines around them.

    Parameters
    ----------
    code
        The source; empty if it is not known.
    marks
        The marks by line number (1-based), which describe the line.
    texts
        The texts of marked lines, which are used if `code` does not have them.
    """
    code_lines = code.split("\n") if code else []
    text_of_line = {line_number: code_lines[line_number - 1] for line_number in range(1, len(code_lines) + 1)}
    text_of_line = {**dict(texts or {}), **text_of_line}
    shown_lines = sorted(
        {
            line_number
            for marked_line in marks
            for line_number in range(marked_line - CONTEXT_LINE_COUNT, marked_line + CONTEXT_LINE_COUNT + 1)
            if line_number in text_of_line
        }
    )
    while shown_lines and not text_of_line[shown_lines[-1]].strip():
        shown_lines.pop()
    while shown_lines and not text_of_line[shown_lines[0]].strip():
        shown_lines.pop(0)
    if not any(line_number in marks for line_number in shown_lines):
        return ""
    common_indent = min(
        len(text_of_line[n]) - len(text_of_line[n].lstrip()) for n in shown_lines if text_of_line[n].strip()
    )
    line_rows = []
    for previous_number, line_number in zip([shown_lines[0], *shown_lines], shown_lines, strict=False):
        gap_html = '<i aria-hidden="true">⋮</i>\n' if line_number > previous_number + 1 else ""
        line_html = f"<b>{line_number:>4}</b> {escape(text_of_line[line_number].rstrip()[common_indent:])}"
        if line_number in marks:
            note_html = f" <em>{escape(marks[line_number])}</em>" if marks[line_number] else ""
            line_html = f"<mark>{line_html}{note_html}</mark>"
        line_rows.append(f"{gap_html}{line_html}")
    return f'<pre class="gl-listing">{chr(10).join(line_rows)}</pre>'
