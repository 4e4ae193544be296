"""``gl.peers``: the links over which GPUs access the memory of other GPUs."""

from __future__ import annotations

from typing import Any

from gpulab import session, views

_LINK_NAMES = {"nvswitch": "NVSwitch", "pairs": "NVLink"}


def peers() -> views.PeersChart:
    """Show how each pair of GPUs exchanges data, either by direct memory access or through the host.

    Returns
    -------
    PeersChart
        A picture of the links, and a table. On virtual GPUs it includes the modelled rate of large copies in
        one direction, in GB/s. ``.record`` lists for each pair whether peer access is possible.

    Examples
    --------
    >>> gl.use_device("virtual:H200", count=4, links="pairs")
    >>> gl.peers()
    """
    runtime: Any = session.cp().cuda.runtime
    gpus = range(runtime.getDeviceCount())
    has_access = {(a, b): bool(a != b and runtime.deviceCanAccessPeer(a, b)) for a in gpus for b in gpus}
    device = session.which_device()
    gbps_by_access: dict[bool, float] = {}
    if device.kind == "virtual":
        gbps_by_access = {is_direct: session.compute_peer_gbps(is_direct) for is_direct in (True, False)}
    return views.PeersChart(
        has_access, gbps_by_access, session.backend().provenance, _LINK_NAMES.get(device.links, "direct")
    )
