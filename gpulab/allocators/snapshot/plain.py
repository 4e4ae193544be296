"""Read pickles of plain data without running any code that they contain."""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from typing import IO, Any, NoReturn

from virtualgpu.errors import GpulabError

GZIP_SIGNATURE = b"\x1f\x8b"


class SnapshotError(GpulabError, ValueError):
    """Error for a file that is not a memory snapshot, is damaged, or would run code. The message states the
    reason.
    """


class _PlainUnpickler(pickle.Unpickler):
    """Unpickler of numbers, strings, lists, tuples, sets and dictionaries, which rejects all other data.

    Every object that is not built in comes from a class or a function that the pickle names, and each of
    them is refused, so that there is nothing that the rest of the pickle could call.
    """

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(
            f"This pickle would run {f'{module}.{name}'[:80]!r} while it is read. "
            "Snapshots do not contain code, so the file was rejected before any code ran."
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise SnapshotError(
            "This pickle refers to objects outside the file, which snapshots never do, "
            "so the file was rejected."
        )


def load_pickle(file: IO[bytes]) -> Any:
    """Load plain data from a pickle file, which may be compressed with gzip.

    Raises
    ------
    SnapshotError
        If the pickle names a class or a function, or is damaged.

    Notes
    -----
    A hostile pickle can still waste memory or time: read it in a process with limits.
    """
    is_compressed = file.read(2) == GZIP_SIGNATURE
    file.seek(0)
    if is_compressed:
        file = gzip.GzipFile(fileobj=file)  # type: ignore[assignment]
    try:
        snapshot_data = _PlainUnpickler(file, buffers=None, fix_imports=False, encoding="bytes").load()
    except SnapshotError:
        raise
    except MemoryError:
        raise
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        struct.error,
        UnicodeError,
        RecursionError,
        ImportError,
        zlib.error,
        gzip.BadGzipFile,
    ) as error:
        problem_text = (
            "is cut off" if isinstance(error, EOFError) or "truncated" in str(error) else "is damaged"
        )
        raise SnapshotError(
            f"This pickle {problem_text} ({type(error).__name__}: {str(error)[:80]})."
        ) from None
    try:
        next_byte = file.read(1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SnapshotError(f"This pickle is damaged ({type(error).__name__}: {str(error)[:80]}).") from None
    if next_byte:
        raise SnapshotError("This pickle has data after its end: it is damaged, or it is not a snapshot.")
    return snapshot_data
