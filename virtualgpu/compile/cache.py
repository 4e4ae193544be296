"""Compiled code kept on disk by content: PTX, cubins, machine code.

A key is a digest of everything the result depends on, so entries never go stale; the oldest leave
when there are many. Nothing here is needed for correct work: a folder that cannot be read or
written only costs time.
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
    return Path(chosen) if chosen else user_cache_path("gpulab")


def key(*parts: str) -> str:
    """Digest of everything an entry depends on."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()


def load(kind: str, name: str) -> bytes | None:
    """An entry's bytes, or None where there is none (or only a damaged one)."""
    try:
        data = (directory() / kind / name).read_bytes()
    except OSError:
        return None
    # The digest guards against a file cut short: bad machine code would crash the process.
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def store(kind: str, name: str, data: bytes) -> None:
    """Keep an entry; the file appears whole or not at all."""
    with contextlib.suppress(OSError):
        folder = directory() / kind
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / name, hashlib.sha256(data).digest() + data)
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
