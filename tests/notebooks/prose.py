"""Read what the course says, and find the figures and words of measure that nothing beside them gives.

A sentence holds on one device only as soon as it says what was seen there. So a figure with a unit, or a word
such as "twice", needs a ground that a reader can see: it is computed (a placeholder), a definition, the
arithmetic beside it, or its kind and its device are named in the same paragraph. What no rule here recognises
stands in ``grounds/NN.tsv``, one for each notebook, with the reason why it is true everywhere. A *debt* there
has none yet.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.notebooks.course import NOTEBOOKS, read

ROOT = Path(__file__).resolve().parents[2]
GROUNDS = Path(__file__).with_name("grounds")

# ------------------------------------------------------------------------------------------ what is read


@dataclass(frozen=True)
class Passage:
    """A paragraph that a learner reads."""

    place: str  # the notebook or the course's folder
    where: str  # the cell, or the file and its line
    text: str


def notebook_passages(place: str, notebook: Any) -> Iterator[Passage]:
    """Paragraphs of the text, and what the code prints, reveals and says."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            pieces = paragraphs(cell.source)
        else:
            pieces = texts(re.sub(r"^\s*[%!].*$", "pass", cell.source, flags=re.MULTILINE))
        for piece in pieces:
            yield Passage(place, cell.id, piece)


def paragraphs(markdown: str) -> list[str]:
    """Paragraphs, list items and rows of tables, without code."""
    plain = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL)
    return [piece.strip() for piece in re.split(r"\n\s*\n|\n(?=[-|#] ?|\d+\. )", plain) if piece.strip()]


def folder_passages(place: str, path: Path) -> Iterator[Passage]:
    """A module's texts, but for docstrings, CUDA, and answers that are wrong on purpose."""
    for text in texts(path.read_text(encoding="utf-8")):
        yield Passage(place, path.name, text)


# Arguments that hold a premise, a wrong answer or a name.
_NO_CLAIM = {"choices", "comparison", "misconception", "unit"}


def texts(source: str) -> list[str]:
    """The texts of a module or a cell that claim something."""
    tree = ast.parse(source)
    quiet = {id(node) for silent in silent_nodes(tree) for node in ast.walk(silent)}
    passages_: list[str] = []

    def visit(node: ast.AST) -> None:
        if id(node) in quiet:
            return
        if isinstance(node, ast.JoinedStr):
            passages_.append("".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values))
            return
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            passages_.append(node.value)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return [text for text in passages_ if " " in text.strip() and not is_code(text)]


def silent_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, premises and answers that are wrong on purpose."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            yield from (word for word in node.keywords if word.arg in _NO_CLAIM)
            right = any(word.arg == "right" for word in node.keywords)
            if name == "Choice" and not right:
                yield node.args[0]
            if name in ("PredictionQuestion", "Question", "WhyQuestion"):
                yield from node.args[: 2 if name == "PredictionQuestion" else 1]


def is_code(text: str) -> bool:
    return bool(re.search(r"__global__|__device__|[;{]\s*\n|asm\(|^\s*%\w+", text))


@functools.cache
def passages() -> list[Passage]:
    """All that the notebooks and the course's folders say."""
    passages_: list[Passage] = []
    for path in NOTEBOOKS:
        passages_ += notebook_passages(path.stem.split("_")[0], read(path))
    for folder in sorted((ROOT / "gpulab_course" / "content").glob("n[0-9][0-9]*_*")):
        for path in sorted(folder.glob("*.py")):
            if path.name != "shown_answers.py":
                passages_ += folder_passages(folder.name[1:].split("_")[0], path)
    return passages_


# ------------------------------------------------------------------------------------------ what is found

_SMALL = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
WORDS: dict[str, float] = {word: number for number, word in enumerate(_SMALL, 1)} | {
    "fifteen": 15,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "eighty": 80,
    "ninety": 90,
    "hundred": 100,
    "thousand": 1000,
    "million": 1e6,
}
MEASURES = {
    "twice": 2.0,
    "half": 0.5,
    "halve": 0.5,
    "halves": 0.5,
    "halved": 0.5,
    "a third": 1 / 3,
    "two thirds": 2 / 3,
    "a quarter": 0.25,
    "three quarters": 0.75,
    "an eighth": 0.125,
    "a tenth": 0.1,
    "flat": None,
    "order of magnitude": 10.0,
    "orders of magnitude": None,
    "doubled": 2.0,
    "tripled": 3.0,
}
_PREFIX = {"": 1.0, "n": 1e-9, "µ": 1e-6, "m": 1e-3, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNITS: dict[str, float] = {f"{p}B/s": f for p, f in _PREFIX.items() if p not in ("n", "µ", "m")}
UNITS |= {f"{p}FLOP/s": f for p, f in _PREFIX.items() if p not in ("n", "µ", "m")}
UNITS |= {f"{p}s": f for p, f in _PREFIX.items() if p in ("", "n", "µ", "m")}
UNITS |= {f"{p}{u}": f for u in ("Hz", "W") for p, f in _PREFIX.items() if p not in ("n", "µ")}
UNITS |= {f"{p}B": f for p, f in _PREFIX.items() if p in ("k", "K", "M", "G", "T")}
UNITS |= {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "%": 0.01, "percent": 0.01}
UNITS |= {"byte": 1.0, "bytes": 1.0, "times": 1.0, "°C": 1.0, "cycles": 1.0, "clocks": 1.0, "SMs": 1.0}
UNITS |= {"nanosecond": 1e-9, "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "sectors": 1.0}
UNITS |= {f"{word}s": UNITS[word] for word in ("nanosecond", "microsecond", "millisecond", "second")}

_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_WORD = "(?:a |two |three |four |five |eight )?(?:" + "|".join(sorted(WORDS, key=len, reverse=True)) + ")"
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
_FIGURE = re.compile(
    rf"(?<![\w.^{{-])(?P<number>{_NUMBER}|{_WORD}|a|an)(?P<space>[ \u00a0]| ?to (?:{_NUMBER}) |-)?"
    rf"(?P<unit>{_UNIT}|×(?! ?\d)|(?<=[ \u00a0])x as)(?![\w/])(?! \d+ )",
)
# Half a lane is an average, and somebody has taken it.
_AVERAGE = re.compile(
    r"(?<![\w.])(?P<number>\d+\.\d+) (?:of \d+ )?(?:lanes|warps|threads|blocks|launches|passes)\b"
)
_MEASURE = re.compile(rf"\b(?P<word>{'|'.join(sorted(MEASURES, key=len, reverse=True))})\b", re.IGNORECASE)
# "a second" is a rate or an ordinal, "one byte" a definition: an article counts with these alone.
_ARTICLE_UNITS = {"microsecond", "nanosecond", "millisecond", "quarter"}


@dataclass(frozen=True)
class Figure:
    """A figure with a unit, or a word of measure."""

    passage: Passage
    words: str  # as it is written
    value: float | None  # in base units
    sentence: str


def figures(passage: Passage) -> Iterator[Figure]:
    """Every figure and word of measure of a passage."""
    text = without_code(passage.text)
    for sentence in re.split(r"(?<=[.!?…])\s+(?=[A-Z*`\d{(]|$)", text):
        for match in _FIGURE.finditer(sentence):
            if match["number"] in ("a", "an", "one") and match["unit"] not in _ARTICLE_UNITS:
                continue
            if match["unit"] == "s" and not match["space"]:  # "the 1990s"
                continue
            value = number(match["number"])
            yield Figure(passage, match[0].strip(), value * UNITS.get(match["unit"], 1.0), sentence)
        for match in _AVERAGE.finditer(sentence):
            yield Figure(passage, match[0], number(match["number"]), sentence)
        for match in _MEASURE.finditer(sentence):
            yield Figure(passage, match["word"], MEASURES[match["word"].lower()], sentence)


def without_code(text: str) -> str:
    """Without code, links' addresses, emphasis and the marks of tables."""
    text = re.sub(r"`[^`]*`|<code>.*?</code>", "`…`", text)
    text = re.sub(r"\]\([^)]*\)|\(\d+ min\)", "]", text)
    text = re.sub(r"</?\w+>|\*+|(?<![\w])_|_(?![\w])", "", text)
    return re.sub(r"\s+", " ", text.replace("−", "-"))


def number(text: str) -> float:
    """The value of digits or of a number word."""
    if text[0].isdigit():
        return float(text.replace(",", ""))
    *factors, last = text.split()
    value = WORDS.get(last, 1.0)
    for word in factors:
        value *= WORDS.get(word, 1.0)
    return value


# ------------------------------------------------------------------------------------------ what gives it

KINDS = re.compile(r"\b(?:measured|recorded|modelled|published|data ?sheet)\b", re.IGNORECASE)
DEVICES = re.compile(
    r"\b(?:[ABHVPTL]\d{1,3}[A-Z]?|GB\d+|RTX \d+|this computer|Volta|Turing|Ampere|Ada|Hopper|Blackwell)\b"
)
# What CUDA defines, on every device: sizes of types, of a sector, of a line, of a warp.
DEFINED_BYTES = {1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0}


def ground_of(figure: Figure) -> str:
    """What gives a figure, or nothing."""
    if figure.sentence.rstrip(" )*").endswith("?"):
        return "a question claims nothing"
    if KINDS.search(figure.passage.text) and DEVICES.search(figure.passage.text):
        return "its kind and its device are named"
    if re.search(r" bytes?$", figure.words) and figure.value in DEFINED_BYTES:
        return "a definition"
    if computed(figure):
        return "arithmetic beside it"
    return ""


_OPERATORS = {
    "×": operator.mul,
    "·": operator.mul,
    "*": operator.mul,
    "/": operator.truediv,
    "divided by": operator.truediv,
    "of": operator.truediv,
    "instead of": operator.truediv,
    "against": operator.truediv,
    "+": operator.add,
    "-": operator.sub,
}
_TERM = rf"(?P<n>{_NUMBER}|{'|'.join(_SMALL)})(?:[ \u00a0]?(?P<u>{_UNIT}))?(?![\w/])"
_OPERATOR = "|".join(map(re.escape, sorted(_OPERATORS, key=len, reverse=True)))
_NEXT = re.compile(rf"(?: \w+){{0,3}}?\s*(?P<op>{_OPERATOR})\s*{_TERM}")


def computed(figure: Figure) -> bool:
    """Whether arithmetic that is written in the same sentence gives the figure."""
    if figure.value is None:
        return False
    return any(
        abs(figure.value - result * scale) <= 0.03 * abs(figure.value)
        for value in results(figure.sentence)
        for result in (value, 1 / value if value else 0)
        for scale in (1.0, 0.01)
        if result != 0
    )


def results(sentence: str) -> Iterator[float]:
    """The values of the expressions in a sentence: of each of their beginnings, as one reads."""
    for begin in re.finditer(rf"(?<![\w.,]){_TERM}", sentence):
        value = term(begin)
        end = begin.end()
        while following := _NEXT.match(sentence, end):
            operand = term(following)
            combine = _OPERATORS[following["op"]]
            if combine is operator.truediv and operand == 0:
                break
            value = combine(value, operand)
            end = following.end()
            yield value


def term(match: re.Match[str]) -> float:
    unit = match["u"] or ""
    return number(match["n"]) * (1.0 if unit in ("%", "percent") else UNITS.get(unit, 1.0))


# ------------------------------------------------------------------------------------------ exceptions


# rule: CUDA, the programming model or Python says so. arithmetic: it follows from the text beside it.
# premise: it is given, not claimed. task: an exercise asks for it. published: in the document that is linked
# or named. debt: nothing gives it yet.
REASONS = ("rule", "arithmetic", "premise", "task", "published", "debt")


@dataclass(frozen=True)
class Ground:
    """Why a passage may say what no rule recognises; or that it may not, but does."""

    place: str
    words: str  # a piece of the passage as ``without_code`` leaves it
    reason: str
    why: str


def grounds() -> list[Ground]:
    return [
        Ground(path.stem, *line.split("\t"))
        for path in sorted(GROUNDS.glob("*.tsv"))
        for line in path.read_text(encoding="utf-8").splitlines()[1:]
    ]


def applies(ground: Ground, figure: Figure) -> bool:
    return (
        figure.passage.place == ground.place
        and figure.words in ground.words
        and ground.words in without_code(figure.passage.text)
    )


def unfounded(passages_: list[Passage], listed: list[Ground]) -> list[Figure]:
    """Figures of the passages that nothing gives."""
    return [
        figure
        for passage in passages_
        for figure in figures(passage)
        if not ground_of(figure) and not any(applies(ground, figure) for ground in listed)
    ]
