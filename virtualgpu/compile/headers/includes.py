"""A learner's own headers: what was compiled before they changed is not to be used again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_FOLDER = re.compile(r"(?:-I|--include-path=)(.+)")


def stamp(code: str, options: Sequence[str] = ()) -> str:
    """A digest of the files that a source includes from the current folder and those of ``-I``; "" for none.

    Parameters
    ----------
    code
        CUDA C++.
    options
        NVRTC's options, whose ``-I`` folders are the learner's own.
    """
    if "include" not in code:
        return ""
    folders = [Path(found[1]) for option in options if (found := _FOLDER.fullmatch(option))]
    digest = hashlib.sha256()
    seen: set[Path] = set()
    for path in _files(code, [Path(), *folders], folders, seen):
        digest.update(f"{path}:".encode() + path.read_bytes())
    return digest.hexdigest() if seen else ""


def _files(code: str, quoted: list[Path], folders: list[Path], seen: set[Path]) -> Iterator[Path]:
    for name, angled in _INCLUDE.findall(code):
        places = quoted if name else folders
        path = next((p for folder in places if (p := folder / (name or angled)).is_file()), None)
        if path is not None and path not in seen:
            seen.add(path)
            yield path
            inner = path.read_text(encoding="utf-8", errors="replace")
            yield from _files(inner, [path.parent, *quoted], folders, seen)
