"""Compiled code kept on disk by content: PTX, cubins, machine code.

A key is a digest of everything the result depends on, so entries never go stale; those whose last use
is longest ago leave when there are many. Nothing here is needed for correct work: a folder that cannot
be read or written only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
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
    """An entry's bytes, or None where there is none, only a damaged one, or one that others have made."""
    common = shared()
    found = _read(directory() / kind / name, name)
    return found if found is not None or common is None else _read(common / kind / name, name)


def _read(path: Path, name: str) -> bytes | None:
    try:
        data = path.read_bytes()
        status = path.stat()
    except OSError:
        return None
    # What is loaded runs: a folder that others may write must not lend them this process.
    if hasattr(os, "getuid") and (status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022):
        return None
    # Bad machine code would crash the process: a file cut short, or another's under this name.
    if _signed(name, data[32:]) != data[:32]:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return data[32:]


def _signed(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + data).digest()


def store(kind: str, name: str, data: bytes) -> None:
    """Keep an entry; the file appears whole or not at all."""
    with contextlib.suppress(OSError):
        folder = directory() / kind
        folder.mkdir(parents=True, exist_ok=True)
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
