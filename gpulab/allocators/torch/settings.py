"""Settings of PyTorch's caching allocator, in the notation of ``PYTORCH_CUDA_ALLOC_CONF``."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from virtualgpu.errors import GpulabError, did_you_mean

MIB = 1 << 20
MIN_BLOCK_BYTES = 512
SMALL_REQUEST_BYTES = MIB
SMALL_SEGMENT_BYTES = 2 * MIB
MIN_LARGE_REQUEST_BYTES = 10 * MIB
LARGE_ROUNDING_BYTES = 2 * MIB
# `roundup_power2_divisions` has an entry for each power of two from 1 MiB to 32 GiB, the last one also for
# what is above.
_POWER_INTERVALS = 16
_IGNORED_SETTINGS = {
    "backend",
    "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_use_background_threads",
    "graph_capture_record_stream_reuse",
}
"""Settings of PyTorch that do not change the positions of blocks."""


class SettingsError(GpulabError, ValueError):
    """Error for a setting that PyTorch would reject or that has no effect. The message contains the name of
    the setting.
    """


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of PyTorch's caching allocator. The default values are those of PyTorch.

    Parameters
    ----------
    max_split_size_mb : int or None
        Blocks of this size in MiB, or larger ones, are not split and are kept for requests of that size. The
        minimum is `large_segment_size_mb`.
    max_non_split_rounding_mb : int or None
        Number of MiB by which such a block can be larger than its request; None means
        `large_segment_size_mb`.
    roundup_power2_divisions : tuple of int
        Number of steps between a power of two and the next one, to which sizes are rounded up:
        16 entries for 1 MiB, 2 MiB, ... 32 GiB and above; 0 and 1 round up to 512 bytes.
    garbage_collection_threshold : float
        If more than this part of the memory fraction is in use, old cached blocks are released; 0: off.
    expandable_segments : bool
        Whether each stream and pool has one growing range of addresses instead of segments of fixed size.
    large_segment_size_mb : int
        Size of the segments for requests from 1 to 10 MiB, and of an expandable segment's large pages.
    per_process_memory_fraction : float
        The part of the device's memory that the allocator can use.

    Examples
    --------
    >>> Settings.parse("max_split_size_mb:64,expandable_segments:True").max_split_size_mb
    64
    """

    max_split_size_mb: int | None = None
    max_non_split_rounding_mb: int | None = None
    roundup_power2_divisions: tuple[int, ...] = (0,) * _POWER_INTERVALS
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    large_segment_size_mb: int = 20
    per_process_memory_fraction: float = 1.0

    def __post_init__(self) -> None:
        size_mb = self.large_segment_size_mb
        if size_mb <= MIN_LARGE_REQUEST_BYTES // MIB:
            raise SettingsError(f"large_segment_size_mb:{size_mb} is too small: it must be more than 10.")
        if self.expandable_segments and size_mb * MIB % LARGE_ROUNDING_BYTES:
            raise SettingsError(
                f"large_segment_size_mb:{size_mb} is odd: expandable segments need whole "
                "pages of 2 MiB, and PyTorch's first allocation would fail with a CUDA "
                "driver error."
            )
        for name in ("max_split_size_mb", "max_non_split_rounding_mb"):
            value = getattr(self, name)
            if value is not None and value < size_mb:
                raise SettingsError(f"{name}:{value} is too small: it must be at least {size_mb}.")
        if not 0 <= self.garbage_collection_threshold < 1:
            raise SettingsError(
                f"garbage_collection_threshold:{self.garbage_collection_threshold} is not between 0 and 1."
            )
        if not 0 <= self.per_process_memory_fraction <= 1:
            raise SettingsError(
                f"per_process_memory_fraction:{self.per_process_memory_fraction} is not between 0 and 1."
            )
        invalid_divisions = [n for n in self.roundup_power2_divisions if n < 0 or n & (n - 1)]
        if invalid_divisions or len(self.roundup_power2_divisions) != _POWER_INTERVALS:
            raise SettingsError(
                f"roundup_power2_divisions must contain {_POWER_INTERVALS} powers of two (or 0 "
                "for off), not "
                f"{invalid_divisions[0] if invalid_divisions else len(self.roundup_power2_divisions)}."
            )

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Parse allocator settings in the notation of ``PYTORCH_CUDA_ALLOC_CONF``, such as
        ``name:value,name:value``.

        Options of the host allocator and of locks are accepted, but have no effect.

        Raises
        ------
        SettingsError
            If PyTorch would reject the text, or if it selects another allocator (``backend``).
        """
        parsed_values: dict[str, Any] = {}
        for name, value in _split_settings(text):
            match name:
                case "max_split_size_mb" | "max_non_split_rounding_mb" | "large_segment_size_mb":
                    parsed_values[name] = _parse_integer(name, value)
                case "garbage_collection_threshold" | "per_process_memory_fraction":
                    parsed_values[name] = _parse_number(name, value)
                    if name == "garbage_collection_threshold" and parsed_values[name] <= 0:
                        raise SettingsError(f"{name}:{value} is not between 0 and 1.")
                case "expandable_segments":
                    parsed_values[name] = _parse_flag(name, value)
                case "roundup_power2_divisions":
                    parsed_values[name] = _parse_divisions(value)
                case "backend" if value != "native":
                    raise SettingsError(
                        f"backend:{value} is another allocator. This model supports only backend:native."
                    )
                case _ if name in _IGNORED_SETTINGS:
                    pass
                case _:
                    setting_names = [field.name for field in fields(cls)]
                    raise SettingsError(
                        f"PyTorch's allocator has no setting {name!r}.{did_you_mean(name, setting_names)}"
                    )
        return cls(**parsed_values)

    @classmethod
    def of(cls, text: str = "", **settings: Any) -> Settings:
        """Return the allocator settings in a string such as ``name:value``. Keyword arguments override the
        settings of the string.

        Examples
        --------
        >>> Settings.of(expandable_segments=True).text
        'expandable_segments:True'
        """
        names = {field.name for field in fields(cls)}
        for name in settings:
            if name not in names:
                raise SettingsError(
                    f"PyTorch's allocator has no setting {name!r}.{did_you_mean(name, names)}"
                )
        division_counts = settings.get("roundup_power2_divisions")
        if isinstance(division_counts, int):
            settings["roundup_power2_divisions"] = (division_counts,) * _POWER_INTERVALS
        return replace(cls.parse(text), **settings)

    @property
    def text(self) -> str:
        """Return the settings as text in the notation that `parse` reads. Settings with default values are
        omitted.
        """
        setting_texts = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name == "roundup_power2_divisions":
                value = "[" + ",".join(f"{1 << i}:{n}" for i, n in enumerate(value)) + "]"
            setting_texts.append(f"{field.name}:{value}")
        return ",".join(setting_texts)

    @property
    def max_split_bytes(self) -> int:
        """The smallest block size in bytes that the allocator does not split."""
        return (1 << 64) - 1 if self.max_split_size_mb is None else self.max_split_size_mb * MIB

    @property
    def max_rounding_bytes(self) -> int:
        """The maximum difference in bytes between the size of an unsplit block and the request."""
        return (self.max_non_split_rounding_mb or self.large_segment_size_mb) * MIB

    @property
    def large_segment_bytes(self) -> int:
        return self.large_segment_size_mb * MIB

    def round_size(self, size_bytes: int) -> int:
        """Return the block size in bytes for a request of `size_bytes` bytes."""
        if size_bytes < MIN_BLOCK_BYTES:
            return MIN_BLOCK_BYTES
        floor_log2 = size_bytes.bit_length() - 1
        division_count = self.roundup_power2_divisions[min(max(floor_log2 - 20, 0), _POWER_INTERVALS - 1)]
        if division_count > 1 and size_bytes > MIN_BLOCK_BYTES * division_count:
            step_bytes = (1 << floor_log2) // division_count
            return (size_bytes + step_bytes - 1) // step_bytes * step_bytes
        return (size_bytes + MIN_BLOCK_BYTES - 1) // MIN_BLOCK_BYTES * MIN_BLOCK_BYTES

    def segment_bytes(self, rounded_bytes: int) -> int:
        """Return the number of bytes to allocate on the device if no cached block is large enough."""
        if rounded_bytes <= SMALL_REQUEST_BYTES:
            return SMALL_SEGMENT_BYTES
        if rounded_bytes < MIN_LARGE_REQUEST_BYTES:
            return self.large_segment_bytes
        return (rounded_bytes + LARGE_ROUNDING_BYTES - 1) // LARGE_ROUNDING_BYTES * LARGE_ROUNDING_BYTES

    def splits_block(self, block_bytes: int, rounded_bytes: int, is_small: bool, is_expandable: bool) -> bool:
        """Return whether the allocator splits a block of `block_bytes` for a request of `rounded_bytes`."""
        remaining_bytes = block_bytes - rounded_bytes
        if is_small or is_expandable:
            return remaining_bytes >= MIN_BLOCK_BYTES
        return rounded_bytes < self.max_split_bytes and remaining_bytes > SMALL_REQUEST_BYTES


def _split_settings(text: str) -> list[tuple[str, str]]:
    """Split settings into names and values; commas inside brackets do not separate settings."""
    name_value_pairs: list[tuple[str, str]] = []
    remaining_text = "".join(text.split())
    while remaining_text:
        name, colon, remaining_text = remaining_text.partition(":")
        if not name or not colon or not remaining_text or set(name) & set(",[]"):
            raise SettingsError(f"{text!r} is not a list of settings. Write a list as name:value,name:value.")
        if remaining_text.startswith("["):
            value, bracket, remaining_text = remaining_text.partition("]")
            if not bracket or (remaining_text and not remaining_text.startswith(",")):
                raise SettingsError(
                    f"The list of {name} in {text!r} has no closing bracket before the next comma."
                )
            name_value_pairs.append((name, value + bracket))
            remaining_text = remaining_text[1:]
        else:
            value, _, remaining_text = remaining_text.partition(",")
            name_value_pairs.append((name, value))
    return name_value_pairs


def _parse_integer(name: str, value: str) -> int:
    if not value.isascii() or not value.isdecimal() or len(value) > 15:
        raise SettingsError(f"{name}:{value} is not an integer number of MiB.")
    return int(value)


def _parse_number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise SettingsError(f"{name}:{value} is not a number between 0 and 1.") from None


def _parse_flag(name: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise SettingsError(f"{name}:{value} is neither True nor False.")
    return value == "True"


def _parse_divisions(value: str) -> tuple[int, ...]:
    """Parse a value such as ``4`` or ``[256:1,512:2,>:8]``. In a list, the number before each colon is an
    upper limit of the size in MiB, and the number after it is the number of divisions.
    """
    if not value.startswith("["):
        division_count = _parse_integer("roundup_power2_divisions", value)
        if not division_count or division_count & (division_count - 1):
            raise SettingsError(f"roundup_power2_divisions:{value} is not a power of two.")
        return (division_count,) * _POWER_INTERVALS
    divisions_by_power = [0] * _POWER_INTERVALS
    last_index: int | None = None
    for interval_text in value[1:-1].split(","):
        size_text, colon, division_text = interval_text.partition(":")
        if not colon:
            raise SettingsError(
                f"{interval_text!r} in roundup_power2_divisions does not have the form size_mb:divisions."
            )
        division_count = _parse_integer("roundup_power2_divisions", division_text)
        if division_count & (division_count - 1):
            raise SettingsError(
                f"roundup_power2_divisions has {division_count} divisions, which is not a power of two."
            )
        if size_text == ">":
            first_power = 0 if last_index is None else last_index + 1
            divisions_by_power[first_power:] = [division_count] * (_POWER_INTERVALS - first_power)
            continue
        bound_mb = _parse_integer("roundup_power2_divisions", size_text)
        if not bound_mb or bound_mb & (bound_mb - 1):
            raise SettingsError(
                f"roundup_power2_divisions has an entry for {size_text} MiB, which is not a power of two."
            )
        power_index = min(bound_mb.bit_length() - 1, _POWER_INTERVALS - 1)
        if last_index is None:
            divisions_by_power[:power_index] = [division_count] * power_index
        divisions_by_power[power_index] = division_count
        last_index = power_index
    return tuple(divisions_by_power)
