"""Digest of the header files that the learner wrote, so that outdated compilations are not reused."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_INCLUDE_PATTERN = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_FOLDER_PATTERN = re.compile(r"(?:-I|--include-path=)(.+)")


def hash_headers(code: str, options: Sequence[str] = ()) -> str:
    """Return a hash of all files that source code includes from the current folder or an ``-I`` folder.

    The hash is an empty string if no files are included.

    Parameters
    ----------
    code
        CUDA C++.
    options
        NVRTC's options, whose ``-I`` folders are the learner's own.
    """
    if "include" not in code:
        return ""
    folders = [Path(match[1]) for option in options if (match := _FOLDER_PATTERN.fullmatch(option))]
    digest = hashlib.sha256()
    visited_paths: set[Path] = set()
    for path in _find_included_files(code, [Path(), *folders], folders, visited_paths):
        digest.update(f"{path}:".encode() + path.read_bytes())
    return digest.hexdigest() if visited_paths else ""


def _find_included_files(
    source_code: str, quote_folders: list[Path], folders: list[Path], visited_paths: set[Path]
) -> Iterator[Path]:
    for quoted_name, angle_name in _INCLUDE_PATTERN.findall(source_code):
        search_folders = quote_folders if quoted_name else folders
        path = next(
            (p for folder in search_folders if (p := folder / (quoted_name or angle_name)).is_file()), None
        )
        if path is not None and path not in visited_paths:
            visited_paths.add(path)
            yield path
            included_code = path.read_text(encoding="utf-8", errors="replace")
            yield from _find_included_files(
                included_code, [path.parent, *quote_folders], folders, visited_paths
            )
