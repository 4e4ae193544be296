"""Views of several GPUs, of fused expressions, of formats and of layers, from records made by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from gpulab.analysis.formats import BF16, E4M3, E5M2, FORMATS, FP16, FP64
from gpulab.views import CollectiveView, PrecisionView, TrafficView
from gpulab.views.layers.view import LayersView
from tests.views import synthetic
from virtualgpu.records.libraries.layers import CallLayers
from virtualgpu.records.traffic import Expression, FusionBoundary, KernelSet, Traffic
from virtualgpu.records.traffic.collective import Collective, CollectiveStep, Move, Operation
from virtualgpu.records.traffic.ports import Crossing

MIB = 1 << 20
KNOWN = {
    "device": "H200",
    "ranks": "one process each",
    "all_reduce": [
        {"size_bytes": 4096, "nccl_us": 31.5, "ring_us": 87.0, "tree_us": 0},
        {"size_bytes": 8192, "nccl_us": 40.0},
    ],
}


def ring(gpus: int, sums: int, gathers: int) -> list[list[Move]]:
    """Each GPU sends a chunk to the next: first to be added there, then to be kept."""
    return [
        [Move((c + index) % gpus, (c + index + 1) % gpus, c, add=index < sums) for c in range(gpus)]
        for index in range(sums + gathers)
    ]


def collective(
    steps: Sequence[Sequence[Move]], gpus: int, operation: Operation = "all-reduce", **fields: Any
) -> Collective:
    """Each step takes a microsecond for each move, and half of it for the busiest port."""
    bounds = [1024 * index // gpus for index in range(gpus + 1)]
    crossings = []
    begins = []
    now = 0
    for moves in steps:
        begins.append(len(crossings))
        crossings += [
            Crossing(
                name="copy",
                source=move_.source,
                target=move_.target,
                size_bytes=4096 // gpus,
                over="PCIe" if move_.source > 2 else "NVLink",
                start_ns=now,
                end_ns=now + 500,
            )
            for move_ in moves
        ]
        now += 1000
    result = tuple(
        CollectiveStep(tuple(moves), 1000 * len(moves), 500 * len(moves) * (index % 2))
        for index, moves in enumerate(steps)
    )
    defaults = {"algorithm": "ring", "right": (True,) * gpus, **fields}
    return Collective.of(
        synthetic.MODELLED,
        "nvswitch",
        bounds,
        crossings,
        operation=operation,
        steps=result,
        begins=tuple(begins),
        **defaults,
    )


def _wrong() -> Collective:
    """A GPU adds what it has already, to two others at once; most goes through GPU 0."""
    steps = [
        [Move(rank, 0, chunk, add=True) for rank in (1, 2, 3) for chunk in range(4)],
        [Move(0, rank, chunk) for rank in (1, 2) for chunk in range(4)],
        [Move(1, 3, 0, add=True), Move(2, 3, 1), Move(2, 0, 1, add=True)],
    ]
    return collective(
        steps, 4, algorithm="own", right=(False, True, True, False), bytes_are="as the model has them"
    )


def _at(view: Any, step: int) -> Any:
    view.step = step
    return view


def _opaque() -> Collective:
    result = collective([[]], 4, "reduce-scatter", algorithm="NCCL", opaque=True, in_one_go_ns=34_000)
    return replace(result, provenance=synthetic.MEASURED)


# --- expressions ------------------------------------------------------------------------------------


def traffic() -> Traffic:
    """Every kind of expression, an edge for each reason, two edges for one, and views between."""

    def expression(
        name: str, kind: str, *after: int, kernel: int = -1, read: int = 0, written: int = 0
    ) -> Expression:
        moved = {"read_bytes": read * MIB, "written_bytes": written * MIB}
        took = 1000 * (read + written)
        return Expression(name=name, kind=kind, after=after, time_ns=took, kernel=kernel, **moved)

    expressions = (
        expression("x", "input"),
        expression("x * 2", "elementwise", 0, kernel=0, read=4, written=4),
        expression("T", "view", 1),
        expression("sum", "reduce", 2, kernel=0, read=4),
        expression("w @ y", "matmul", 1, 3, kernel=1, read=9, written=1),
        expression("host", "host", 4),
        expression("custom", "kernel", 5, 0, kernel=2, read=2, written=2),
        expression("y", "input"),
        *(expression(f"e{index}", "elementwise", index + 7, kernel=index + 3, read=1) for index in range(6)),
    )
    edges = (
        FusionBoundary(3, 4, "a product needs all of it"),
        FusionBoundary(1, 4, "a product needs all of it"),
        FusionBoundary(4, 6, "a kernel of one's own"),
        *(FusionBoundary(7 + index, 8 + index, f"reason {index}") for index in range(6)),
    )
    ways = (
        KernelSet(way="as written", kernels=1, moved_bytes=64 * MIB, flop=900, time_ns=33_000),
        KernelSet(way="fused", kernels=3, moved_bytes=32 * MIB, flop=900, time_ns=None, note="by hand"),
        KernelSet(way="at best", kernels=0, moved_bytes=0, flop=900, time_ns=0),
    )
    return Traffic(
        provenance=synthetic.MODELLED,
        function="step",
        expressions=expressions,
        edges=edges,
        ways=ways,
        sources=(("x * 2; sum", "__global__ f"), ("w @ y", "")),
        folded=("2 * 3",),
        breaks=("if x > 0",),
    )


def no_traffic() -> Traffic:
    expression = replace(
        traffic(), expressions=traffic().expressions[:1], edges=(), sources=(), folded=(), breaks=()
    )
    return replace(
        expression,
        ways=(
            KernelSet(way="as written", kernels=0, moved_bytes=0, flop=0),
            KernelSet(way="fused", kernels=0, moved_bytes=0, flop=0),
        ),
    )


# --- layers -----------------------------------------------------------------------------------------


def followed(many: int = 7) -> list[CallLayers]:
    """One stack of a few symbols, one with more than are drawn, and layers of which nothing was seen."""
    first = CallLayers(
        provenance=synthetic.MEASURED,
        package="CuPy",
        call="x @ w",
        note="",
        layers=(
            (("cupy.matmul", 1),),
            (("cublas: cublasGemmEx", 2), ("cublas: cublasSetStream", 1)),
            (),
            (("cuLaunchKernel", 1),),
            (("a_kernel_of_a_very_long_name_indeed", 1), ("exactly_26_characters_long", 3)),
        ),
    )
    symbols = tuple((f"cuCall{index}", index + 1) for index in range(many))
    second = CallLayers(
        provenance=synthetic.MODELLED,
        package="PyTorch",
        call="x @ w",
        note="The driver is not asked.",
        layers=((("torch.mm", 1), ("torch.add", 1)), (), symbols, symbols[:6], symbols[:5]),
    )
    return [first, second]


ALL: dict[str, Callable[[], Any]] = {
    "collective ring": lambda: _at(CollectiveView(collective(ring(4, 3, 3), 4), [KNOWN]), 3),
    "collective in one go": lambda: _at(CollectiveView(collective(ring(2, 1, 1), 2, in_one_go_ns=5_000)), 2),
    "collective of nine": lambda: _at(CollectiveView(collective(ring(9, 8, 0), 9, "reduce-scatter")), 8),
    "collective all-gather": lambda: _at(
        CollectiveView(collective(ring(3, 0, 2), 3, "all-gather"), [KNOWN]), 0
    ),
    "collective wrong": lambda: _at(CollectiveView(_wrong()), 3),
    "collective of a library": lambda: CollectiveView(_opaque()),
    "traffic": lambda: TrafficView(traffic()),
    "traffic of nothing": lambda: TrafficView(no_traffic()),
    "precision": lambda: PrecisionView(Fraction(1, 10), FORMATS),
    "precision moved": lambda: _moved(PrecisionView(Fraction(-3), (FP64, FP16)), 5, -20),
    "precision of much": lambda: _moved(PrecisionView(Fraction(10**400), (BF16, E4M3)), 0, 1),
    "precision of the largest": lambda: _moved(PrecisionView(Fraction(BF16.largest), (FP64, BF16)), 3, 0),
    "precision of little": lambda: PrecisionView(Fraction(-1, 10**400), (FP16, E5M2)),
    "precision of 0": lambda: _moved(PrecisionView(Fraction(0), (FP16, E4M3)), -3, 0),
    "precision of infinity": lambda: PrecisionView(float("-inf"), FORMATS),
    "precision of no number": lambda: PrecisionView(float("nan"), FORMATS),
    "layers": lambda: LayersView(followed()),
    "layers of one call": lambda: LayersView(followed()[1:]),
}


def _moved(view: Any, step: int, power: int) -> Any:
    view.step = step
    view.power = power
    return view
