"""``gl.peers``: the connections by which GPUs access the memory of others."""

from __future__ import annotations

from typing import Any

from gpulab import session
from gpulab.views.tables import Cell, Table
from gpulab.words import count, number


class Peers:
    """Table of the connections of GPUs, with a row and a column for each GPU.

    ``record`` has, by pair, whether the first GPU can access the memory of the second one.
    """

    def __init__(self, reach: dict[tuple[int, int], bool], rates: dict[bool, float], origin: str) -> None:
        self.record = reach
        gpus = range(1 + max(a for a, _ in reach))
        texts = {True: "direct", False: "by the host"}
        if rates:
            texts = {True: number(rates[True]), False: f"{number(rates[False])}, host"}

        def cell(pair: tuple[int, int]) -> Cell | None:
            direct = reach[pair]
            return None if pair[0] == pair[1] else Cell(rates.get(direct, direct), texts[direct])

        rows = tuple((f"GPU {a}", *(cell((a, b)) for b in gpus)) for a in gpus)
        self._sentence = f"{count(len(gpus), 'GPU')}, {origin}"
        title = f"From row to column{', GB/s of large copies' if rates else ''}: {self._sentence}"
        self._table = Table(title, ("", *(f"GPU {b}" for b in gpus)), rows)

    def to_pandas(self) -> Any:
        """Return the table as a `pandas.DataFrame`: GB/s, or whether it is direct."""
        return self._table.to_pandas()

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.html()


def peers() -> Peers:
    """Show for each pair of GPUs whether they access each other's memory or copy through the host.

    Returns
    -------
    Peers
        A table. On virtual GPUs it includes the modelled rate of large copies in one direction, in GB/s.
        ``.record`` lists for each pair whether peer access is possible.

    Examples
    --------
    >>> gl.use_device("virtual:H200", count=4, links="pairs")
    >>> gl.peers()
    """
    runtime: Any = session.cp().cuda.runtime
    gpus = range(runtime.getDeviceCount())
    reach = {(a, b): bool(a != b and runtime.deviceCanAccessPeer(a, b)) for a in gpus for b in gpus}
    backend = session.backend()
    rates: dict[bool, float] = {}
    if session.which_device().kind == "virtual":
        rates = {direct: session.peer_gbps(direct) for direct in (True, False)}
    return Peers(reach, rates, backend.provenance.label)
