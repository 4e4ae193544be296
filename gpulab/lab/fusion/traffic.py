"""``gl.traffic``: the bytes that each expression of a function moves, and expressions that can be fused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpulab import session, views
from gpulab._deprecated import accept_old_parameters
from gpulab.lab._base import PicturedResult
from gpulab.lab.fusion.compiler.code import GeneratedKernel
from gpulab.lab.fusion.compiler.plan import Plan
from gpulab.lab.fusion.compiler.program import Program
from gpulab.lab.fusion.compiler.trace import Node, trace_function
from gpulab.lab.timeline import timeline
from gpulab.words import count, number, size
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import SECTOR_BYTES
from virtualgpu.records.launch.roofline import Roofline, RooflinePoint
from virtualgpu.records.traffic import Expression, FusionBoundary, KernelSet, Traffic

AS_WRITTEN = "as written"
ELEMENTWISE = "ElementwiseKernel"
REDUCTION = "fuse, ReductionKernel"
BY_HAND = "RawKernel, one block per row"


@accept_old_parameters
def traffic(fn: Callable[..., Any], *args: Any) -> TrafficReport:
    """Show the bytes that each array expression of a function reads and writes, and which expressions can be
    fused.

    The function is called once with stand-ins for its arrays, which record every operation. Then the recorded
    operations run on copies of the arguments, expression by expression and as fused kernels.

    Parameters
    ----------
    fn
        A function of arrays, which uses CuPy under the name ``cp``. Kernels that it launches itself stay
        unchanged.
    args
        The arguments of the function: device arrays, and values of other types.

    Returns
    -------
    TrafficReport
        The graph of expressions in the colours of their kernels; **fusion boundaries** (red edges), with the
        reasons why two expressions are not fused; bytes and times of each way to build kernels; and the
        generated CUDA C++. ``.record`` holds the data (`virtualgpu.records.traffic.Traffic`). Bytes follow
        from the arrays, each counted once for each kernel that reads or writes it; those of a `RawKernel` are
        counted by the virtual GPU. Times are measured on a real GPU, modelled on a virtual one.

    Raises
    ------
    TypeError
        If `fn` is not a function.
    GpulabError
        If the function cannot be traced: it neither returns nor changes an array, or passes arrays to code
        that does not support stand-ins.

    Examples
    --------
    >>> def scaled(x, w, b):
    ...     return cp.tanh(x * w + b)
    >>> x = cp.ones((64, 256), dtype=cp.float32)
    >>> gl.traffic(scaled, x, x[0], x[1])
    """
    cp = session.cp()
    arg_copies = [argument.copy() if isinstance(argument, cp.ndarray) else argument for argument in args]
    trace = trace_function(fn, *arg_copies)
    arrays = [argument for argument in args if isinstance(argument, cp.ndarray)]
    single_plan, map_plan, fused_plan, row_plan = (
        Plan(trace, way_name) for way_name in ("single", "maps", "reductions", "rows")
    )
    programs = Program(single_plan), Program(map_plan), Program(fused_plan)
    measured_runs = [_run_with_traffic(program, arrays) for program in programs]
    kernel_runs = {
        node_numbers[0]: kernel_run
        for node_numbers, kernel_run in zip(single_plan.groups, measured_runs[0], strict=True)
    }
    kernel_of_node = {n: index for index, node_numbers in enumerate(fused_plan.groups) for n in node_numbers}
    expressions = tuple(
        _make_expression(node, single_plan, kernel_runs.get(node.number), kernel_of_node.get(node.number, -1))
        for node in trace.nodes
    )
    flop = sum(expression.flop for expression in expressions)
    node_bytes = {
        index: expression.read_bytes + expression.written_bytes
        for index, expression in enumerate(expressions)
    }
    kernel_bytes = {n.number: node_bytes[n.number] for n in trace.nodes if n.kind == "kernel"}
    plans = {AS_WRITTEN: single_plan, ELEMENTWISE: map_plan, REDUCTION: fused_plan, BY_HAND: row_plan}
    time_ns_by_way = {
        way_name: sum(time_ns for _, time_ns in kernel_runs)
        for way_name, kernel_runs in zip(plans, measured_runs, strict=False)
    }
    kernel_sets = tuple(
        KernelSet(
            way=way_name,
            kernels=len(plan.groups),
            flop=flop,
            time_ns=time_ns_by_way.get(way_name),
            moved_bytes=sum(node_bytes.values())
            if plan is single_plan
            else plan.count_moved_bytes(kernel_bytes),
            note=""
            if way_name in time_ns_by_way
            else "not generated: write this kernel by hand, with whole rows in each block",
        )
        for way_name, plan in plans.items()
    )
    return TrafficReport(
        Traffic(
            provenance=session.backend().provenance,
            function=trace.name,
            expressions=expressions,
            edges=tuple(
                FusionBoundary(edge.first_number, edge.second_number, edge.reason)
                for edge in fused_plan.edges
            ),
            ways=kernel_sets,
            kernels=tuple(
                _make_kernel_record(fused_plan, index, expressions, kernel_run, kernel_bytes)
                for index, kernel_run in enumerate(measured_runs[2])
            ),
            sources=tuple(_find_kernel_source(programs[2], index) for index in range(len(fused_plan.groups))),
            folded=tuple(f"{name} = {value}" for name, value in trace.folded_calls),
            breaks=tuple(trace.break_reasons),
        )
    )


class TrafficReport(PicturedResult):
    """The memory traffic of a function, displayed as a picture."""

    def __init__(self, record: Traffic) -> None:
        self.record = record

    @property
    def source(self) -> str:
        """The complete CUDA C++ source of all generated kernels."""
        return "\n\n".join(code for _, code in self.record.sources if code)

    def roofline(self) -> views.RooflineChart:
        """A roofline chart with one point per expression and one point per fused kernel.

        The byte counts are computed from the array sizes, for an L2 cache that is empty at first.
        """
        record = self.record
        expressions = [expression for expression in record.expressions if expression.kernel >= 0]
        roofline_points = [
            RooflinePoint(
                name=expression.name,
                provenance=record.provenance,
                flops={"f32": expression.flop},
                size_bytes={"DRAM": expression.read_bytes + expression.written_bytes},
                time_ns=expression.time_ns,
            )
            for expression in (*expressions, *record.kernels)
            if expression.flop and expression.time_ns
        ]
        return views.RooflineChart(Roofline(ceilings=session.find_ceilings(), points=tuple(roofline_points)))

    def _make_picture(self) -> views.TrafficView:
        return views.TrafficView(self.record)

    def __repr__(self) -> str:
        unfused_way = self.record.way(AS_WRITTEN)
        fused_way = self.record.way(REDUCTION)
        boundaries_text = count(len(self.record.edges), "fusion boundary", "fusion boundaries")
        return (
            f"{self.record.function}: {count(unfused_way.kernels, 'pass', 'passes')} moving "
            f"{size(unfused_way.moved_bytes)} as written, {number(fused_way.kernels)} moving "
            f"{size(fused_way.moved_bytes)} fused, {boundaries_text}."
        )


def _run_with_traffic(program: Program, args: Sequence[Any]) -> list[tuple[tuple[str, ...], int]]:
    """Run a program, and return the names of the kernels and their time in ns for each group."""
    time_range = session.cupyx().profiler.time_range
    program([array.copy() for array in args])  # compiles
    copies = [array.copy() for array in args]
    with timeline() as recorded_timeline:  # which waits at its end
        program(copies, lambda index: time_range(f"step {index}"))
    kernel_runs: list[tuple[tuple[str, ...], int]] = []
    range_by_name = {nvtx_range.name: nvtx_range for nvtx_range in recorded_timeline.record.ranges}
    for index in range(len(program.plan.groups)):
        step_range = range_by_name[f"step {index}"]
        correlation_ids = {
            host_call.correlation_id
            for host_call in recorded_timeline.record.calls
            if step_range.start_ns <= host_call.start_ns < step_range.end_ns
        }
        activities = [
            activity
            for activity in recorded_timeline.record.activities
            if activity.correlation_id in correlation_ids - {0}
        ]
        kernel_runs.append(
            (
                tuple(activity.name for activity in activities),
                sum(activity.end_ns - activity.start_ns for activity in activities),
            )
        )
    return kernel_runs


def _make_expression(
    node: Node, plan: Plan, kernel_run: tuple[tuple[str, ...], int] | None, kernel: int
) -> Expression:
    bytes_moved: Sequence[int] = (0, 0)
    if kernel_run is not None:
        read_bytes = sum(n.nbytes for n in plan.find_reads([node.number]))
        bytes_moved = _count_kernel_bytes(plan, node) or (read_bytes, node.nbytes)
    return Expression(
        name=node.name,
        kind=node.kind,
        after=node.read_numbers,
        launches=kernel_run[0] if kernel_run else (),
        read_bytes=bytes_moved[0],
        written_bytes=bytes_moved[1],
        flop=_count_flop(plan, node),
        time_ns=kernel_run[1] if kernel_run else 0,
        kernel=kernel,
    )


def _make_kernel_record(
    plan: Plan,
    index: int,
    expressions: Sequence[Expression],
    kernel_run: tuple[tuple[str, ...], int],
    kernel_bytes: Mapping[int, int],
) -> Expression:
    """Return the launches, bytes, operations and time of a fused kernel in the form of one `Expression`."""
    node_numbers = plan.groups[index]
    is_counted = node_numbers[0] in kernel_bytes
    return Expression(
        name=f"kernel {index + 1}",
        kind="kernel",
        launches=kernel_run[0],
        read_bytes=kernel_bytes[node_numbers[0]]
        if is_counted
        else sum(n.nbytes for n in plan.find_reads(node_numbers)),
        written_bytes=0 if is_counted else sum(n.nbytes for n in plan.find_writes(node_numbers)),
        flop=sum(expressions[n].flop for n in node_numbers),
        time_ns=kernel_run[1],
        kernel=index,
    )


def _count_kernel_bytes(plan: Plan, node: Node) -> list[int] | None:
    """Return the bytes that a `RawKernel` reads and writes, from sectors that the virtual GPU counts."""
    if not isinstance(node.call, session.cp().RawKernel):
        return None
    grid, block, args = (_copy_node_arguments(plan, argument) for argument in node.args)
    launch = Launch.of(node.call, grid, block, args, node.kwargs.get("shared_mem", 0))
    counters = session.observe(launch, Counters()).record
    return [
        SECTOR_BYTES * counters.total("sectors", "global", access_kind) for access_kind in ("load", "store")
    ]


def _copy_node_arguments(plan: Plan, value: Any) -> Any:
    if type(value) in (tuple, list):
        return tuple(_copy_node_arguments(plan, element) for element in value)
    result = getattr(plan.nodes[value.number], "result", value) if hasattr(value, "number") else value
    return result.copy() if isinstance(result, session.cp().ndarray) else result


def _count_flop(plan: Plan, node: Node) -> int:
    """Return the number of operations of an expression: one per element that it computes or sums."""
    if node.kind == "map":
        return 0 if node.name in ("copy", "copyto", "astype") else math.prod(node.shape)
    input_shapes = [plan.nodes[n].shape for n in node.read_numbers]
    if node.kind == "reduce":
        return sum(map(math.prod, input_shapes))
    if node.kind == "matmul" and input_shapes:
        return math.prod(node.shape) * _count_element_flop(node, input_shapes[0], input_shapes[-1])
    return 0


def _count_element_flop(node: Node, left_shape: Sequence[int], right_shape: Sequence[int]) -> int:
    """Return the operations per result element of a matrix multiplication: two per term of its sum."""
    if node.name in ("matmul", "einsum"):  # of many matrices, too
        return 2 * left_shape[-1]
    sum_length = math.isqrt(math.prod(left_shape) * math.prod(right_shape) // max(math.prod(node.shape), 1))
    return 2 * sum_length if sum_length > 1 else 1


def _find_kernel_source(program: Program, index: int) -> tuple[str, str]:
    kernel: GeneratedKernel | None = program.kernels[index]
    node_names = [program.plan.nodes[n].name for n in program.plan.groups[index]]
    if kernel is None:
        reason_text = f" {program.refusal_of_group[index]}" if index in program.refusal_of_group else ""
        return f"{', '.join(node_names)}: runs as written.{reason_text}", ""
    return kernel.operation, kernel.source
