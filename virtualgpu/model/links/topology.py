"""Which GPUs of a machine NVLink joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from virtualgpu.model import cost
from virtualgpu.records import DeviceInfo
from virtualgpu.records.traffic.ports import LinkKind

# NVLink bridges between two cards move less than the links of boards with a switch.
_BRIDGE_GBPS = 200.0


def check_links(kind: Any) -> LinkKind | None:
    """Pass on how GPUs are joined, or None, which means: as such GPUs are sold.

    Raises
    ------
    ValueError
        For any other word.
    """
    if kind is not None and kind not in get_args(LinkKind):
        raise ValueError(
            f'`links` is "nvswitch" (all GPUs with each other), "pairs" (0 with 1, 2 with 3, ...) or "host" '
            f"(none: all goes through the host), not {kind!r}."
        )
    found: LinkKind | None = kind
    return found


def chosen(infos: Sequence[DeviceInfo], kind: LinkKind | None = None) -> LinkKind:
    """How GPUs are joined: as asked, else as such GPUs are sold.

    Raises
    ------
    ValueError
        If NVLink is asked for where a GPU has none.
    """
    without = [info.name for info in infos if not info.nvlink_gbps]
    if kind is None:
        if without:
            return "host"
        return "nvswitch" if min(info.nvlink_gbps or 0 for info in infos) >= _BRIDGE_GBPS else "pairs"
    if kind != "host" and without:
        raise ValueError(f'{without[0]} has no NVLink, so links="host" is all that there is for it.')
    return kind


def linked(kind: LinkKind, infos: Sequence[DeviceInfo], first: int, second: int) -> bool:
    """Whether NVLink joins two GPUs."""
    if first == second or kind == "host":
        return False
    near = kind == "nvswitch" or first // 2 == second // 2
    return near and bool(cost.nvlink_gbps(infos[first], infos[second]))
