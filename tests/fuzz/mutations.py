"""Damage to PTX text: flipped bytes, lost and repeated lines, other types, registers and numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.fuzz.rng import Rng

_TYPE_TEXT = "u8 s8 b8 u16 s16 b16 f16 u32 s32 b32 f32 u64 s64 b64 f64 pred f16x2 bf16 b128"
_TYPES = tuple(_TYPE_TEXT.split())
_WORD_TEXT = """
ld st add sub mul mad fma mov cvt setp selp bra ret shfl vote bar atom red call cvta min shl bfe prmt
dp4a brx sync wide lo hi rn ftz global shared local param const v2 v4 cc idx ballot relaxed gpu eq lt sat
approx exch cas
"""
_WORDS = tuple(_WORD_TEXT.split())
_OPERAND_TEXT = """
%r1; %rd1; %f1; %p1; %rs1; %fd1; %tid.x; %laneid; %nosuch; %tid; 0; -1; 7; 4294967296; 0f3F800000
0d3FF0000000000000; 0x; 1.5; [%rd1]; [%r1+4]; [0]; {%r1, %r2}; {%r1, _}; _; %r1|%p1; !%p1; nothing
[nothing+8]; ; {}; (); (%r1)
"""
_OPERANDS = tuple(_OPERAND_TEXT.strip("\n").replace("\n", "; ").split("; "))
_NUMBERS = ("0", "1", "-1", "3", "8", "31", "255", "65536", "2147483648", "18446744073709551616", "1e9")
_BYTES = "%.,;:{}[]()|!@+-_<>=\"'/\\# \n\t0129azAZ$\x00\x7fé"

_TYPE = re.compile(r"\.(?:[busf](?:8|16|32|64)|pred|f16x2)\b")
_REGISTER = re.compile(r"%[a-z]+\d+")
_NUMBER = re.compile(r"(?<![\w%$])\d+(?!\w)")
_DOTTED = re.compile(r"(?<=[a-z0-9.])\.[a-z]\w*")
_OPERAND = re.compile(r"(?<=[ ,])[^\s,;]+(?=[,;])")
_LAST_OPERAND = re.compile(r",\s*[^,;\n]+(?=;)")
_MNEMONIC = re.compile(r"(?m)^\s*(?:@!?%p\d+\s+)?([a-z]\w*)(?=[.\s])")


Mutation = Callable[[Rng, str], str]


def _replace_one(pattern: re.Pattern[str], group: int, choices: Callable[[Rng], str]) -> Mutation:
    def change(rng: Rng, text: str) -> str:
        matches = list(pattern.finditer(text))
        if not matches:
            return text
        start, end = rng.choice(matches).span(group)
        return text[:start] + choices(rng) + text[end:]

    return change


def _flip(rng: Rng, text: str) -> str:
    index = rng.below(len(text) or 1)
    return text[:index] + rng.choice(_BYTES) + text[index + 1 :]


def _truncate(rng: Rng, text: str) -> str:
    return text[: rng.below(len(text) or 1)]


def _lines(change: Callable[[Rng, list[str]], None]) -> Mutation:
    def changed(rng: Rng, text: str) -> str:
        lines = text.split("\n")
        change(rng, lines)
        return "\n".join(lines)

    return changed


def _delete(rng: Rng, lines: list[str]) -> None:
    del lines[rng.below(len(lines))]


def _duplicate(rng: Rng, lines: list[str]) -> None:
    lines.insert(rng.below(len(lines)), rng.choice(lines))


def _swap(rng: Rng, lines: list[str]) -> None:
    a = rng.below(len(lines))
    b = rng.below(len(lines))
    lines[a], lines[b] = lines[b], lines[a]


def _cut_middle(rng: Rng, text: str) -> str:
    start = rng.below(len(text) or 1)
    return text[:start] + text[start + rng.between(1, 40) :]


def _take_operand_from_elsewhere(rng: Rng, text: str) -> str:
    operands = [m.group() for m in _OPERAND.finditer(text)]
    return _replace_one(_OPERAND, 0, lambda r: r.choice(operands or ["%r1"]))(rng, text)


MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _truncate,
    _cut_middle,
    _lines(_delete),
    _lines(_duplicate),
    _lines(_swap),
    _replace_one(_TYPE, 0, lambda rng: "." + rng.choice(_TYPES)),
    _replace_one(_TYPE, 0, lambda rng: ""),
    _replace_one(_DOTTED, 0, lambda rng: "." + rng.choice(_WORDS)),
    _replace_one(_REGISTER, 0, lambda rng: rng.choice(_OPERANDS[:9])),
    _replace_one(_OPERAND, 0, lambda rng: rng.choice(_OPERANDS)),
    _take_operand_from_elsewhere,
    _replace_one(_NUMBER, 0, lambda rng: rng.choice(_NUMBERS)),
    _replace_one(_LAST_OPERAND, 0, lambda rng: rng.choice(("", ", %r1, %r2"))),
    _replace_one(_MNEMONIC, 1, lambda rng: rng.choice(_WORDS)),
)


def damaged(seed: int, text: str) -> str:
    """The text after one to three mutations."""
    rng = Rng(31, seed)
    for _ in range(rng.weighted(((5, 1), (3, 2), (2, 3)))):
        text = rng.choice(MUTATIONS)(rng, text)
    return text
