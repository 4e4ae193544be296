"""Cache of compiled code on disk: PTX, cubins and disassembled machine code.

A key is a digest of everything that the result depends on, so entries never become stale. If there are too
many entries, the least recently used ones are deleted. The cache is optional: if its folder cannot be read
or written, compilations only take longer.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

_log = logging.getLogger(__name__)
# Entries are 1 to 100 kB.
MAX_ENTRIES = 2000


def get_cache_folder() -> Path:
    """Return the folder of the compilation cache: ``GPULAB_CACHE_DIR`` or the user's cache folder."""
    folder_setting = os.environ.get("GPULAB_CACHE_DIR")
    return Path(folder_setting).expanduser() if folder_setting else user_cache_path("gpulab")


def get_shared_folder() -> Path | None:
    """Return the read-only cache folder that all users of this computer share. The environment variable
    ``GPULAB_CACHE_SHARED`` sets its path.
    """
    folder_setting = os.environ.get("GPULAB_CACHE_SHARED")
    return Path(folder_setting).expanduser() if folder_setting else None


def make_key(*parts: str) -> str:
    """Return the key of a cache entry, which is a digest of all strings that determine its contents."""
    digest = hashlib.sha256()
    for key_part in parts:
        digest.update(f"{len(key_part)}:".encode())
        digest.update(key_part.encode())
    return digest.hexdigest()


def load_entry(kind: str, name: str) -> bytes | None:
    """Return the bytes of a cache entry, or None if the entry is missing, damaged or not trusted."""
    shared_folder = get_shared_folder()
    entry_bytes = _read_entry(get_cache_folder() / kind, name)
    return (
        entry_bytes
        if entry_bytes is not None or shared_folder is None
        else _read_entry(shared_folder / kind, name)
    )


def _read_entry(folder: Path, name: str) -> bytes | None:
    try:
        with os.fdopen(_open_entry(folder, name), "rb") as file:
            # The open file is checked, not its path, which may point elsewhere a moment later.
            if not _is_trusted(os.fstat(file.fileno()), stat.S_ISREG):
                return None
            data = file.read()
            with contextlib.suppress(OSError):
                os.utime(file.fileno() if os.utime in os.supports_fd else folder / name)
    except OSError:
        return None
    # Bad machine code would crash the process, for example from a truncated file or from another user's file.
    return data[32:] if _make_signature(name, data[32:]) == data[:32] else None


def _open_entry(folder: Path, name: str) -> int:
    """Open a cache entry without following a link or blocking on a pipe.

    Raises
    ------
    OSError
        If there is no such file, or other users may write to its folder.
    """
    if not hasattr(os, "getuid"):
        return os.open(folder / name, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    folder_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not _is_trusted(os.fstat(folder_descriptor), stat.S_ISDIR):
            raise PermissionError(f"Other users can write to {folder}, so its files are not trusted.")
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_descriptor)
    finally:
        os.close(folder_descriptor)


def _is_trusted(file_status: os.stat_result, is_expected_kind: Callable[[int], bool]) -> bool:
    """Return whether only this user and root can write a file or folder.

    Cached code is executed, so that other users must not be able to change it.
    """
    if not is_expected_kind(file_status.st_mode):
        return False
    return not hasattr(os, "getuid") or (
        file_status.st_uid in (os.getuid(), 0) and not file_status.st_mode & 0o022
    )


def _make_signature(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + data).digest()


def store_entry(kind: str, name: str, data: bytes) -> None:
    """Store a cache entry. Readers see either the complete file or no file."""
    folder = get_cache_folder() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_mode & 0o022:
            folder.chmod(0o755)  # created under a umask that lets the group write
        replace_file(folder / name, _make_signature(name, data) + data)
        entry_paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
        if len(entry_paths) > MAX_ENTRIES:
            for oldest_path in sorted(entry_paths, key=lambda p: p.stat().st_mtime)[: MAX_ENTRIES // 10]:
                oldest_path.unlink(missing_ok=True)
    except OSError as error:
        _log.info("Compiled code is not stored in %s, and will be compiled again: %s", folder, error)


def replace_file(path: Path, data: bytes, durable: bool = False) -> None:
    """Replace a file atomically, so that readers see either the old or the new contents.

    With ``durable=True``, the function waits until the data are on the disk.

    Raises
    ------
    OSError
        If the folder is missing or may not be written.
    """
    file_descriptor, temporary_path = tempfile.mkstemp(dir=path.parent, prefix=".")
    try:
        with os.fdopen(file_descriptor, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file_descriptor)
        Path(temporary_path).replace(path)
    except OSError:
        Path(temporary_path).unlink(missing_ok=True)
        raise
