"""Topology of NVLink: the pairs of GPUs in a machine that it connects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from virtualgpu.model import cost
from virtualgpu.records import DeviceInfo
from virtualgpu.records.traffic.ports import LinkTopology

# NVLink bridges between two cards are slower than the links of boards with a switch.
_MAX_BRIDGE_GBPS = 200.0


def check_links(kind: Any) -> LinkTopology | None:
    """Return the name of a topology after checking that it is valid. The result is None if ``kind`` is None,
    which stands for the usual topology.

    Raises
    ------
    ValueError
        For any other name.
    """
    if kind is not None and kind not in get_args(LinkTopology):
        raise ValueError(
            '`links` must be "nvswitch" (links between all GPUs), "pairs" (links between '
            'GPUs 0 and 1, 2 and 3, ...) or "host" (no links: all copies go through the '
            f"host), not {kind!r}."
        )
    checked_kind: LinkTopology | None = kind
    return checked_kind


def choose_topology(infos: Sequence[DeviceInfo], kind: LinkTopology | None = None) -> LinkTopology:
    """Return the topology with the given name, or the usual one of machines with these GPUs.

    Raises
    ------
    ValueError
        If NVLink is requested but a GPU has none.
    """
    gpus_without_nvlink = [info.name for info in infos if not info.nvlink_gbps]
    if kind is None:
        if gpus_without_nvlink:
            return "host"
        return "nvswitch" if min(info.nvlink_gbps or 0 for info in infos) >= _MAX_BRIDGE_GBPS else "pairs"
    if kind != "host" and gpus_without_nvlink:
        raise ValueError(f'{gpus_without_nvlink[0]} has no NVLink, so only links="host" is possible.')
    return kind


def has_nvlink(kind: LinkTopology, infos: Sequence[DeviceInfo], first: int, second: int) -> bool:
    """Return whether two GPUs are connected by NVLink."""
    if first == second or kind == "host":
        return False
    is_pair = kind == "nvswitch" or first // 2 == second // 2
    return is_pair and bool(cost.nvlink_gbps(infos[first], infos[second]))
