"""Compiled code kept on disk by content: PTX, cubins, machine code.

A key is a digest of everything the result depends on, so entries never go stale; those whose last use
is longest ago leave when there are many. Nothing here is needed for correct work: a folder that cannot
be read or written only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

# Entries are 1 to 100 kB.
MAX_ENTRIES = 2000


def directory() -> Path:
    """Where entries are kept: ``GPULAB_CACHE_DIR``, or the user's cache folder."""
    chosen = os.environ.get("GPULAB_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else user_cache_path("gpulab")


def shared() -> Path | None:
    """Where one may keep what all on this computer use and none of them changes: ``GPULAB_CACHE_SHARED``."""
    chosen = os.environ.get("GPULAB_CACHE_SHARED")
    return Path(chosen).expanduser() if chosen else None


def key(*parts: str) -> str:
    """Digest of everything an entry depends on."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()


def load(kind: str, name: str) -> bytes | None:
    """Return an entry's bytes; None if it is missing or damaged, or could be another user's."""
    common = shared()
    data = _read(directory() / kind, name)
    return data if data is not None or common is None else _read(common / kind, name)


def _read(folder: Path, name: str) -> bytes | None:
    try:
        with os.fdopen(_opened(folder, name), "rb") as file:
            # The open file is checked, not its path, which may lead elsewhere a moment later.
            if not _is_trusted(os.fstat(file.fileno()), stat.S_ISREG):
                return None
            data = file.read()
            with contextlib.suppress(OSError):
                os.utime(file.fileno() if os.utime in os.supports_fd else folder / name)
    except OSError:
        return None
    # Bad machine code would crash the process: a file cut short, or another's under this name.
    return data[32:] if _signed(name, data[32:]) == data[:32] else None


def _opened(folder: Path, name: str) -> int:
    """Open an entry, without following a link or waiting for a pipe's other end.

    Raises
    ------
    OSError
        If there is no such file, or other users may write to its folder.
    """
    if not hasattr(os, "getuid"):
        return os.open(folder / name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    within = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_trusted(os.fstat(within), stat.S_ISDIR):
            raise PermissionError(f"Other users may write to {folder}.")
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=within)
    finally:
        os.close(within)


def _is_trusted(status: os.stat_result, is_kind: Callable[[int], bool]) -> bool:
    """Return whether only this user and root can write a file or folder. What is loaded from it runs."""
    if not is_kind(status.st_mode):
        return False
    return not hasattr(os, "getuid") or (status.st_uid in (os.getuid(), 0) and not status.st_mode & 0o022)


def _signed(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + data).digest()


def store(kind: str, name: str, data: bytes) -> None:
    """Keep an entry; the file appears whole or not at all."""
    with contextlib.suppress(OSError):
        folder = directory() / kind
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_mode & 0o022:
            folder.chmod(0o755)  # made under a umask that lets the group write
        replace_file(folder / name, _signed(name, data) + data)
        kept = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        if len(kept) > MAX_ENTRIES:
            for old in sorted(kept, key=lambda p: p.stat().st_mtime)[: MAX_ENTRIES // 10]:
                old.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes, durable: bool = False) -> None:
    """Write a file in one step: whoever reads it meanwhile sees the old one or the new one, never half of it.

    With `durable` it is on the disk, and not only on its way, when this returns.

    Raises
    ------
    OSError
        If the folder is missing or may not be written.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(handle)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
