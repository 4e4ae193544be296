"""A sentence about the share of the published tensor core rate that ``mma.sync`` reaches."""

from __future__ import annotations

from collections.abc import Mapping

from gpulab.words import listing, percent


def describe_mma_sync(shares: Mapping[str, float]) -> str:
    """Return a sentence with the share of the published rate that mma.sync reached for each number format. If
    there are no shares, return an empty string.
    """
    if not shares:
        return ""
    rates = listing([f"{percent(share)} of the published rate for {name}" for name, share in shares.items()])
    return (
        f"On an H200, mma.sync reached {rates} (recorded). Only wgmma (Hopper) and tcgen05 (Blackwell) reach "
        "more."
    )
