"""PTX that was compiled in advance for kernels of other packages, for machines without NVRTC.

A package names itself in the group of entry points `ENTRY_POINT_GROUP`. Its file ``data/course_ptx.json.xz``
contains the PTX and the resources of its kernels, for each of a few targets. gpulab-course has such a file;
``make shipped-ptx`` writes it, and a test fails when it is out of date.
"""

from __future__ import annotations

import functools
import hashlib
import json
import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata, resources
from typing import Any

from virtualgpu.compile.cubin import KernelResources

ENTRY_POINT_GROUP = "virtualgpu.shipped_ptx"
FORMAT = "gpulab-ptx"
FORMAT_VERSION = 1
FILE_NAME = "course_ptx.json.xz"
# One target for each architecture in the device table that NVRTC 13 supports.
TARGETS = (75, 80, 90, 100)

# String and character literals stay; comments are removed, except for their line breaks.
_TOKEN_PATTERN = re.compile(
    r'R"(?P<delimiter>[^(\s\\]{0,16})\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    r"|//[^\n]*|/\*.*?\*/",
    re.S,
)
_DEBUG_SECTION_PATTERN = re.compile(r"\.section\s+\.debug\w*\s*\{.*?\}\s*", re.S)
# Names of a file's internal namespace contain the number of the process that compiled it.
_INTERNAL_PATTERN = re.compile(r"_ZN(\d+)(?=_INTERNAL_)")
_FOLDER_PATTERN = re.compile(r'(\.file\s+\d+\s+")[^"]*?([^"/\\]+")')
# `assert` in NVIDIA's headers stores the path of the header, as the bytes of a string.
_STRING_PATTERN = re.compile(r"(\.b8 \$str[\w$]*)\[\d+\] = \{([\d, ]+)\}")
_HEADER_PATH_PATTERN = re.compile(rb"(?:/|[A-Za-z]:[/\\]).*?([^/\\]+\.(?:cu)?h)", re.S)
_COMMENT_LINE_PATTERN = re.compile(r"^\s*//[^\n]*\n", re.M)


@dataclass(frozen=True, slots=True)
class ShippedImage:
    """A program that was compiled in advance for one target. The image contains PTX, mangled names and the
    resources of the kernels.
    """

    ptx: str
    lowered_names: dict[str, str] = field(default_factory=dict)
    resources: dict[str, KernelResources] = field(default_factory=dict)


def find_image(
    code: str, *, target: int, options: Sequence[str] = (), name_expressions: Sequence[str] = ()
) -> ShippedImage | None:
    """Return the compiled image of source code that was compiled in advance. The result is None if there is
    no such image.

    Comments, and spaces at the ends of lines, may differ.
    """
    return get_image(make_key(code, target, options, name_expressions))


def get_image(key: str) -> ShippedImage | None:
    """Return the image with a given key that was compiled in advance, or None. `make_key` computes
    the key.
    """
    image_record = _load_store()["images"].get(key)
    if image_record is None:
        return None
    kernel_resources = {
        name: KernelResources(**resource_values)
        for name, resource_values in image_record["resources"].items()
    }
    return ShippedImage(image_record["ptx"], image_record["lowered_names"], kernel_resources)


def list_targets() -> tuple[int, ...]:
    """Return the compute capabilities for which PTX was compiled in advance, as integers."""
    return tuple(_load_store()["targets"])


def get_compiler_version() -> str:
    """Return the version of the NVRTC that compiled the shipped PTX, such as ``13.5``."""
    return str(_load_store()["nvrtc"])


def list_keys() -> frozenset[str]:
    """Return the keys of all sources that were compiled in advance, as `make_key` computes them."""
    return frozenset(_load_store()["images"])


def make_key(code: str, target: int, options: Sequence[str], name_expressions: Sequence[str]) -> str:
    """Return the key of source code, which is a digest of its text, its target and its options."""
    key_parts = (str(target), *options, "", *name_expressions, "", remove_comments(code))
    return hashlib.sha256("\0".join(key_parts).encode()).hexdigest()[:32]


def pack_images(images: Iterable[tuple[str, ShippedImage]], nvrtc_version: str) -> bytes:
    """Return the bytes of a file that stores the given compiled images. Each item of `images` is a pair of a
    key and an image.
    """
    store_content = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "nvrtc": nvrtc_version,
        "targets": list(TARGETS),
        "images": {key: {**asdict(image), "ptx": strip_ptx(image.ptx)} for key, image in sorted(images)},
    }
    json_text = json.dumps(store_content, sort_keys=True, separators=(",", ":"))
    return lzma.compress(json_text.encode(), preset=9 | lzma.PRESET_EXTREME)


def strip_ptx(ptx: str) -> str:
    """Remove debug sections, comment lines, folder names and process-dependent names from PTX."""
    ptx = _STRING_PATTERN.sub(_remove_header_folder, ptx)
    ptx = _COMMENT_LINE_PATTERN.sub("", _FOLDER_PATTERN.sub(r"\1\2", _DEBUG_SECTION_PATTERN.sub("", ptx)))
    for name_length_text in {match[1] for match in _INTERNAL_PATTERN.finditer(ptx)}:
        ptx = re.sub(
            rf"_ZN{name_length_text}_INTERNAL_.{{{int(name_length_text) - len('_INTERNAL_')}}}",
            "_ZN9_INTERNAL",
            ptx,
        )
    return ptx


def _remove_header_folder(match: re.Match[str]) -> str:
    path_match = _HEADER_PATH_PATTERN.fullmatch(bytes(int(byte) for byte in match[2].split(",")))
    if path_match is None:
        return match[0]
    return f"{match[1]}[{len(path_match[1]) + 1}] = {{{', '.join(map(str, path_match[1]))}}}"


def remove_comments(code: str) -> str:
    """Remove comments and trailing spaces from source text without changing line numbers."""

    def replace_comment(match: re.Match[str]) -> str:
        token = match[0]
        return "\n" * token.count("\n") if token.startswith(("//", "/*")) else token

    return "\n".join(line.rstrip() for line in _TOKEN_PATTERN.sub(replace_comment, code).split("\n")).rstrip()


def unpack_images(data: bytes) -> dict[str, Any]:
    """Return the compiled images that `pack_images` stored. The result is empty if the file has a different
    version.
    """
    store_content = json.loads(lzma.decompress(data))
    if store_content.get("format") == FORMAT and store_content.get("version") == FORMAT_VERSION:
        return dict(store_content)
    return {"nvrtc": "", "targets": list(TARGETS), "images": {}}


@functools.cache
def _load_store() -> dict[str, Any]:
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        file = resources.files(entry_point.value) / "data" / FILE_NAME
        if file.is_file():
            return unpack_images(file.read_bytes())
    return {"nvrtc": "", "targets": list(TARGETS), "images": {}}
