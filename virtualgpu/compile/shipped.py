"""PTX of the course's own kernels, made in advance: what runs where NVRTC is not installed.

One file holds, for every kernel of the course and each of a few targets, what NVRTC made of it and
what ptxas needs for it. ``make shipped-ptx`` writes it, and a test says when that is due.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

from virtualgpu.compile.cubin import KernelResources

FORMAT = "gpulab-ptx"
VERSION = 1
FILE = "course_ptx.json.xz"
# One for each architecture that devices of the table have and NVRTC 13 compiles for.
TARGETS = (75, 80, 90, 100)

# String and character literals stay; comments go, but for their line breaks.
_TOKENS = re.compile(
    r'R"(?P<delimiter>[^(\s\\]{0,16})\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    r"|//[^\n]*|/\*.*?\*/",
    re.S,
)
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug\w*\s*\{.*?\}\s*", re.S)
# A name of the namespace that belongs to one file alone holds the number of the process that compiled it.
_INTERNAL = re.compile(r"_ZN(\d+)(?=_INTERNAL_)")
_FOLDER = re.compile(r'(\.file\s+\d+\s+")[^"]*?([^"/\\]+")')
_COMMENT_LINE = re.compile(r"^\s*//[^\n]*\n", re.M)


@dataclass(frozen=True, slots=True)
class ShippedImage:
    """What a source became for one target: PTX, mangled names, and what its kernels need."""

    ptx: str
    lowered_names: dict[str, str] = field(default_factory=dict)
    resources: dict[str, KernelResources] = field(default_factory=dict)


def find(
    code: str, *, target: int, options: Sequence[str] = (), name_expressions: Sequence[str] = ()
) -> ShippedImage | None:
    """Look up a source that was compiled in advance; None if it was not.

    Comments may differ, and spaces at the ends of lines.
    """
    return image(key_of(code, target, options, name_expressions))


def image(key: str) -> ShippedImage | None:
    """What ships under a key of `key_of`; None if nothing does."""
    stored = _store()["images"].get(key)
    if stored is None:
        return None
    found = {name: KernelResources(**values) for name, values in stored["resources"].items()}
    return ShippedImage(stored["ptx"], stored["lowered_names"], found)


def targets() -> tuple[int, ...]:
    """Compute capabilities there is PTX for, as integers."""
    return tuple(_store()["targets"])


def compiler() -> str:
    """Version of the NVRTC that made it, such as ``13.5``."""
    return str(_store()["nvrtc"])


def keys() -> frozenset[str]:
    """Digests of everything there is PTX for, to compare with `key_of`."""
    return frozenset(_store()["images"])


def key_of(code: str, target: int, options: Sequence[str], name_expressions: Sequence[str]) -> str:
    """Digest of one request."""
    parts = (str(target), *options, "", *name_expressions, "", plain(code))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def pack(images: Iterable[tuple[str, ShippedImage]], nvrtc: str) -> bytes:
    """The file that holds `images`, which are given by key."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "nvrtc": nvrtc,
        "targets": list(TARGETS),
        "images": {key: {**asdict(image), "ptx": strip(image.ptx)} for key, image in sorted(images)},
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


def strip(ptx: str) -> str:
    """PTX without debug sections, comment lines, the folders of its source files and process numbers."""
    ptx = _COMMENT_LINE.sub("", _FOLDER.sub(r"\1\2", _DEBUG_SECTION.sub("", ptx)))
    for length in {found[1] for found in _INTERNAL.finditer(ptx)}:
        ptx = re.sub(rf"_ZN{length}_INTERNAL_.{{{int(length) - len('_INTERNAL_')}}}", "_ZN9_INTERNAL", ptx)
    return ptx


def plain(code: str) -> str:
    """Source text without comments and without spaces at line ends; lines keep their numbers."""

    def keep(found: re.Match[str]) -> str:
        text = found[0]
        return "\n" * text.count("\n") if text.startswith(("//", "/*")) else text

    return "\n".join(line.rstrip() for line in _TOKENS.sub(keep, code).split("\n")).rstrip()


def unpack(data: bytes) -> dict[str, Any]:
    """Read what `pack` wrote; a file of another version is as good as none."""
    content = json.loads(lzma.decompress(data))
    if content.get("format") == FORMAT and content.get("version") == VERSION:
        return dict(content)
    return {"nvrtc": "", "targets": list(TARGETS), "images": {}}


@functools.cache
def _store() -> dict[str, Any]:
    file = resources.files("virtualgpu") / "data" / FILE
    if not file.is_file():
        return {"nvrtc": "", "targets": list(TARGETS), "images": {}}
    return unpack(file.read_bytes())
