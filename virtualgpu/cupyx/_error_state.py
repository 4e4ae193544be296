"""``cupyx.errstate``: settings of error checks, of which CuPy supports only ``linalg``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from virtualgpu.model import machine as _machine

_DEFAULT_SETTINGS: dict[str, str | None] = {
    "divide": None,
    "over": None,
    "under": None,
    "invalid": None,
    "linalg": "ignore",
}


def geterr() -> dict[str, str | None]:
    """Return the error settings of the calling thread. As in CuPy, only the setting ``linalg`` exists."""
    return dict(getattr(_machine.current().thread_state, "error_state", _DEFAULT_SETTINGS))


def seterr(
    *,
    divide: None = None,
    over: None = None,
    under: None = None,
    invalid: None = None,
    linalg: str | None = None,
) -> dict[str, str | None]:
    """Change the error settings, and return the previous ones. The value of ``linalg`` is ``"ignore"`` or
    ``"raise"``.

    The virtual GPU's linear algebra detects failures without a copy to the host, so it always raises
    ``LinAlgError``.

    Raises
    ------
    NotImplementedError
        For any other setting, as in CuPy.
    """
    previous_settings = geterr()
    if any(setting is not None for setting in (divide, over, under, invalid)):
        raise NotImplementedError("only `linalg` can be set: arithmetic on a GPU does not raise errors")
    if linalg not in (None, "ignore", "raise"):
        raise NotImplementedError(f'linalg must be "ignore" or "raise", not {linalg!r}')
    _machine.current().thread_state.error_state = {
        **previous_settings,
        "linalg": linalg or previous_settings["linalg"],
    }
    return previous_settings


@contextmanager
def errstate(
    *,
    divide: None = None,
    over: None = None,
    under: None = None,
    invalid: None = None,
    linalg: str | None = None,
) -> Iterator[None]:
    """Change the error settings for a ``with`` block, like `seterr`."""
    previous_settings = seterr(divide=divide, over=over, under=under, invalid=invalid, linalg=linalg)
    try:
        yield
    finally:
        seterr(linalg=previous_settings["linalg"])
