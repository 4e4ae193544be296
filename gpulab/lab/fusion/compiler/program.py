"""Programs: the kernels of a plan, which can run with other arrays of the same shapes and types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from gpulab import session
from gpulab.lab.fusion.compiler.code import GeneratedKernel, NoCodeError, generate_kernel
from gpulab.lab.fusion.compiler.plan import Plan
from gpulab.lab.fusion.compiler.trace import Node, NodeRef, Value

GroupContext = Callable[[int], AbstractContextManager[Any]]


class Program:
    """The kernels of a fusion plan, which run one after the other.

    Attributes
    ----------
    kernels : list
        The generated kernel of each group of the plan. If it is None, the original calls of the group run.
    refusal_of_group : dict
        For the index of a group, the expression that cannot be translated into C++.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernels: list[GeneratedKernel | None] = []
        self.refusal_of_group: dict[int, str] = {}
        for index, group in enumerate(plan.groups):
            kernel = None
            if all(plan.nodes[n].kind in ("map", "reduce") for n in group) and plan.fusion_mode not in (
                "rows",
                "single",
            ):
                try:
                    kernel = generate_kernel(plan, group, f"{_make_identifier(plan.trace.name)}_{index}")
                except NoCodeError as error:
                    self.refusal_of_group[index] = str(error)
            self.kernels.append(kernel)

    def __call__(self, args: Sequence[Any], make_group_context: GroupContext | None = None) -> Any:
        """Run all groups in order. `make_group_context` returns a context manager for each group."""
        value_of_node = self._make_input_values(args)
        pending_streams: dict[int, Any] = {}  # streams that nobody has waited for yet, by their handles
        for group_index, (group, kernel) in enumerate(zip(self.plan.groups, self.kernels, strict=True)):
            with (
                (make_group_context or _make_null_context)(group_index),
                self._enter_stream(self.plan.nodes[group[0]], pending_streams),
            ):
                self._run_group(group, kernel, value_of_node)
        self._wait_for_streams(pending_streams)
        current_stream = session.cp().cuda.get_current_stream()
        for stream in {id(n.stream): n.stream for n in self.plan.nodes if n.stream is not None}.values():
            stream.wait_event(current_stream.record())  # its memory is given back while others still read it
        return _replace_values(
            self.plan.trace.returned_value, lambda number: self._find_value(value_of_node, number)
        )

    def _make_input_values(self, args: Sequence[Any]) -> dict[int, Any]:
        arrays = [argument for argument in args if isinstance(argument, self.plan.trace.cp.ndarray)]
        input_numbers = [n.number for n in self.plan.nodes if n.kind == "input"]
        return dict(zip(input_numbers, arrays, strict=True))

    def _run_group(
        self, group: Sequence[int], kernel: GeneratedKernel | None, value_of_node: dict[int, Any]
    ) -> None:
        if kernel is None:
            for node_number in group:
                node = self.plan.nodes[node_number]
                assert node.call is not None
                result = node.call(
                    *self._replace_node_refs(node.args, value_of_node),
                    **self._replace_node_refs(node.kwargs, value_of_node),
                )
                value_of_node[node_number] = (
                    result
                    if node.overwritten_number is None
                    else self._find_value(value_of_node, node.overwritten_number)
                )
            return
        input_arrays = [self._find_value(value_of_node, n) for n in kernel.input_nodes]
        output_arrays = []
        for node_number in kernel.output_nodes:
            node = self.plan.nodes[node_number]
            in_place = node.overwritten_number is not None
            output_arrays.append(
                self._find_target_array(value_of_node, node)
                if in_place
                else session.cp().empty(node.shape, node.dtype)
            )
        if kernel.axis is None and not kernel.keepdims and not _is_reduction(self.plan, group):
            kernel.kernel(*input_arrays, *output_arrays)
        elif len(output_arrays) == 1:
            kernel.kernel(*input_arrays, out=output_arrays[0], axis=kernel.axis, keepdims=kernel.keepdims)
        else:
            output_arrays = list(kernel.kernel(*input_arrays, axis=kernel.axis, keepdims=kernel.keepdims))
        value_of_node.update(zip(kernel.output_nodes, output_arrays, strict=True))

    def _find_target_array(self, value_of_node: dict[int, Any], node: Node) -> Any:
        """Return the array that an in-place expression changes."""
        while node.overwritten_number is not None and node.overwritten_number not in value_of_node:
            node = self.plan.nodes[node.overwritten_number]
            if node.kind == "view" and node.overwritten_number is None:
                return self._find_value(value_of_node, node.number)
        return value_of_node[node.overwritten_number if node.overwritten_number is not None else node.number]

    def _find_value(self, value_of_node: dict[int, Any], node_number: int) -> Any:
        if node_number not in value_of_node:
            node = self.plan.nodes[node_number]
            if node.overwritten_number is not None:
                value_of_node[node_number] = self._find_value(value_of_node, node.overwritten_number)
            elif node.kind == "host":
                value_of_node[node_number] = self._find_value(value_of_node, node.read_numbers[0])
            else:
                assert node.call is not None
                value_of_node[node_number] = node.call(
                    *self._replace_node_refs(node.args, value_of_node),
                    **self._replace_node_refs(node.kwargs, value_of_node),
                )
        return value_of_node[node_number]

    def _replace_node_refs(self, value: Any, value_of_node: dict[int, Any]) -> Any:
        if isinstance(value, NodeRef):
            return self._find_value(value_of_node, value.number)
        if isinstance(value, dict):
            return {key: self._replace_node_refs(element, value_of_node) for key, element in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._replace_node_refs(element, value_of_node) for element in value)
        return value

    def _enter_stream(self, node: Node, pending_streams: dict[int, Any]) -> AbstractContextManager[Any]:
        """Return a context with a node's device and stream, which wait for work in other streams."""
        cp = session.cp()
        stack = ExitStack()
        if node.device is not None:
            stack.enter_context(cp.cuda.Device(node.device))
        current_stream = cp.cuda.get_current_stream()
        if node.stream is not None:
            if node.stream.ptr not in pending_streams:
                node.stream.wait_event(current_stream.record())
            stack.enter_context(node.stream)
            pending_streams[node.stream.ptr] = node.stream
        elif pending_streams:
            self._wait_for_streams(pending_streams)
        return stack

    def _wait_for_streams(self, pending_streams: dict[int, Any]) -> None:
        current_stream = session.cp().cuda.get_current_stream()
        for stream in pending_streams.values():
            current_stream.wait_event(stream.record())
        pending_streams.clear()


def _make_null_context(_: int) -> AbstractContextManager[Any]:
    return nullcontext()


def _is_reduction(plan: Plan, group: Sequence[int]) -> bool:
    return any(plan.nodes[n].kind == "reduce" for n in group)


def _make_identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "unnamed"


def _replace_values(value: Any, find_array: Callable[[int], Any]) -> Any:
    """Return the function's result, in which the stand-ins are replaced by the arrays of this call."""
    if isinstance(value, Value):
        return find_array(value._node.number)
    if type(value) in (tuple, list):
        return type(value)(_replace_values(element, find_array) for element in value)
    if isinstance(value, dict):
        return {key: _replace_values(element, find_array) for key, element in value.items()}
    return value
