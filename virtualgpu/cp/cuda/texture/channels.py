"""Formats of texels: the number of channels, their bits, and the type of their values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from virtualgpu.cuda_errors import CUDARuntimeError
from virtualgpu.model.memory.textures import FLOAT, SIGNED, UNSIGNED

_CHANNEL_KINDS = {SIGNED: ("int", (8, 16, 32)), UNSIGNED: ("uint", (8, 16, 32)), FLOAT: ("float", (16, 32))}


def make_invalid_value_error(
    reason: str, status: int = 1, name: str = "cudaErrorInvalidValue"
) -> CUDARuntimeError:
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
        self._channel_bits = int(x), int(y), int(z), int(w)
        self._value_kind = int(f)

    def get_channel_format(self) -> dict[str, int]:
        """Return the channel sizes in bits and the value type as a dictionary."""
        return dict(zip("xyzwf", (*self._channel_bits, self._value_kind), strict=True))


@dataclass(frozen=True, slots=True)
class TexelFormat:
    """A checked texel format, with its channel count, channel size in bytes and value type."""

    channel_count: int
    channel_bytes: int
    value_kind: int

    @property
    def size_bytes(self) -> int:
        return self.channel_count * self.channel_bytes

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"{_CHANNEL_KINDS[self.value_kind][0]}{8 * self.channel_bytes}")


def parse_texel(format: ChannelFormatDescriptor) -> TexelFormat:
    """Check a channel format and return it as a `TexelFormat`.

    Raises
    ------
    CUDARuntimeError
        Status 20, ``cudaErrorInvalidChannelDescriptor``, for channels that textures do not support.
    """
    format_fields = format.get_channel_format()
    channel_bits = tuple(format_fields[name] for name in "xyzw")
    used_widths = tuple(width for width in channel_bits if width)
    _, allowed_widths = _CHANNEL_KINDS.get(format_fields["f"], ("", ()))
    if (
        len(used_widths) not in (1, 2, 4)
        or channel_bits[: len(used_widths)] != used_widths
        or len({*used_widths}) > 1
        or used_widths[0] not in allowed_widths
    ):
        raise make_invalid_value_error(
            f"the format has channels of {channel_bits} bits and kind {format_fields['f']}. A texel must "
            "have 1, 2 or 4 channels of equal width: 8, 16 or 32 bits for integers, 16 "
            "or 32 bits for floats.",
            20,
            "cudaErrorInvalidChannelDescriptor",
        )
    return TexelFormat(len(used_widths), used_widths[0] // 8, format_fields["f"])
