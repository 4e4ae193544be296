"""Formats of texels: the number of channels, their bits, and the type of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model.memory.textures import FLOAT, SIGNED, UNSIGNED

_CHANNEL_KINDS = {SIGNED: ("int", (8, 16, 32)), UNSIGNED: ("uint", (8, 16, 32)), FLOAT: ("float", (16, 32))}


def invalid(reason: str, status: int = 1, name: str = "cudaErrorInvalidValue") -> CUDARuntimeError:
    """Return CUDA's error for an invalid value. The string `reason` is added to the error message."""
    status_text = {1: "invalid argument", 20: "invalid channel descriptor"}[status]
    return CUDARuntimeError(status, name, f"{status_text}: {reason}")


class ChannelFormatDescriptor:
    """The format of a texel, which consists of the channel sizes in bits and the value type. A missing
    channel has 0 bits.

    Parameters
    ----------
    x, y, z, w : int
        Bits of the channels.
    f : int
        ``cp.cuda.runtime.cudaChannelFormatKindSigned``, ``...Unsigned`` or ``...Float``.
    """

    def __init__(self, x: int, y: int, z: int, w: int, f: int) -> None:
        self._bits = int(x), int(y), int(z), int(w)
        self._kind = int(f)

    def get_channel_format(self) -> dict[str, int]:
        """Return the channel sizes in bits and the value type as a dictionary."""
        return dict(zip("xyzwf", (*self._bits, self._kind), strict=True))


@dataclass(frozen=True, slots=True)
class Texel:
    """A checked texel format, with its channel count, channel size in bytes and value type."""

    channels: int
    channel_bytes: int
    kind: int

    @property
    def size_bytes(self) -> int:
        return self.channels * self.channel_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"{_CHANNEL_KINDS[self.kind][0]}{8 * self.channel_bytes}")


def texel_of(format: ChannelFormatDescriptor) -> Texel:
    """Check a channel format and return it as a `Texel`.

    Raises
    ------
    CUDARuntimeError
        Status 20, ``cudaErrorInvalidChannelDescriptor``, for channels that textures do not support.
    """
    fields = format.get_channel_format()
    bits = tuple(fields[name] for name in "xyzw")
    used_widths = tuple(width for width in bits if width)
    _, widths = _CHANNEL_KINDS.get(fields["f"], ("", ()))
    if (
        len(used_widths) not in (1, 2, 4)
        or bits[: len(used_widths)] != used_widths
        or len({*used_widths}) > 1
        or used_widths[0] not in widths
    ):
        raise invalid(
            f"the format has channels of {bits} bits and kind {fields['f']}. A texel must "
            "have 1, 2 or 4 channels of equal width: 8, 16 or 32 bits for integers, 16 "
            "or 32 bits for floats.",
            20,
            "cudaErrorInvalidChannelDescriptor",
        )
    return Texel(len(used_widths), used_widths[0] // 8, fields["f"])
