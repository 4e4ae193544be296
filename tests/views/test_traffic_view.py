"""Traffic view: bars of bytes and time by kernel, in the colours of the graph."""

from __future__ import annotations

from gpulab.views import TrafficView
from gpulab.views.parts.palette import KERNEL_COLOURS
from tests.views import synthetic
from tests.views.synthetic import items
from virtualgpu.records.traffic import Expression, KernelSet, Traffic


def expression(
    name: str, kernel: int, size_bytes: int, time_ns: int, after: tuple[int, ...] = ()
) -> Expression:
    return Expression(
        name=name, kind="map", kernel=kernel, read_bytes=size_bytes, time_ns=time_ns, after=after
    )


def traffic(kernels: int = 2) -> Traffic:
    """Two expressions for each kernel of half their size."""
    rows = [
        expression(f"e{n}", n // 2, 100 * (1 + n), 10 * (1 + n), (n - 1,) if n else ())
        for n in range(2 * kernels)
    ]
    fused = [expression(f"kernel {n + 1}", n, 50 * (1 + n), 5 * (1 + n)) for n in range(kernels)]

    def way(name: str, parts: list[Expression]) -> KernelSet:
        size_bytes = sum(part.read_bytes for part in parts)
        return KernelSet(
            way=name,
            kernels=len(parts),
            moved_bytes=size_bytes,
            flop=0,
            time_ns=sum(part.time_ns for part in parts),
        )

    by_hand = KernelSet(way="by hand", kernels=1, moved_bytes=40, flop=0, note="not generated")
    ways = (way("as written", rows), way("fused", fused), by_hand)
    return Traffic(
        provenance=synthetic.MODELLED,
        function="f",
        expressions=tuple(rows),
        edges=(),
        ways=ways,
        kernels=tuple(fused),
    )


def bars(record: Traffic) -> dict[float, list[tuple[float, float, str]]]:
    """By row, the start, width and colour of each part."""
    (rects,) = items(TrafficView(record).draw(), "rects")
    rows: dict[float, list[tuple[float, float, str]]] = {}
    for x0, x1, y0, colour in zip(rects["x0"], rects["x1"], rects["y0"], rects["colour"], strict=True):
        rows.setdefault(y0, []).append((x0, x1 - x0, rects["colours"][colour]))
    return rows


def test_bars_and_graph_nodes_share_the_colours_of_kernels() -> None:
    record = traffic(kernels=8)
    written, fused, by_hand = bars(record).values()
    expected = [KERNEL_COLOURS[min(kernel, len(KERNEL_COLOURS) - 1)] for kernel in range(8)]
    assert [colour for _, _, colour in sorted(fused)] == 2 * expected
    assert [colour for _, _, colour in sorted(written)][:16:2] == expected
    assert by_hand[0][2] not in KERNEL_COLOURS
    (nodes,) = items(TrafficView(record).draw(), "nodes")
    colours = dict(zip(nodes["text"], (nodes["colours"][index] for index in nodes["colour"]), strict=True))
    assert [colours[f"e{2 * kernel}"] for kernel in range(8)] == expected
