"""Programs: the kernels of a plan, which can run with other arrays of the same shapes and types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from gpulab import session
from gpulab.lab.fusion.compiler.code import GeneratedKernel, NoCodeError, generate_kernel
from gpulab.lab.fusion.compiler.plan import Plan
from gpulab.lab.fusion.compiler.trace import Node, Ref, Value

Around = Callable[[int], AbstractContextManager[Any]]


class Program:
    """The kernels of a fusion plan, which run one after the other.

    Attributes
    ----------
    kernels : list
        The generated kernel of each group of the plan. If it is None, the original calls of the group run.
    refused : dict
        For the index of a group, the expression that cannot be translated into C++.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernels: list[GeneratedKernel | None] = []
        self.refused: dict[int, str] = {}
        for index, group in enumerate(plan.groups):
            kernel = None
            if all(plan.nodes[n].kind in ("map", "reduce") for n in group) and plan.way not in (
                "rows",
                "single",
            ):
                try:
                    kernel = generate_kernel(plan, group, f"{_identifier(plan.trace.name)}_{index}")
                except NoCodeError as error:
                    self.refused[index] = str(error)
            self.kernels.append(kernel)

    def __call__(self, args: Sequence[Any], around: Around | None = None) -> Any:
        """Run all groups in order. `around` returns a context manager for each group."""
        value_of_node = self._input_values(args)
        pending_streams: dict[int, Any] = {}  # streams that nobody has waited for yet, by their handles
        for group_index, (group, kernel) in enumerate(zip(self.plan.groups, self.kernels, strict=True)):
            with (
                (around or _no_context)(group_index),
                self._enter_stream(self.plan.nodes[group[0]], pending_streams),
            ):
                self._run(group, kernel, value_of_node)
        self._wait(pending_streams)
        current_stream = session.cp().cuda.get_current_stream()
        for stream in {id(n.stream): n.stream for n in self.plan.nodes if n.stream is not None}.values():
            stream.wait_event(current_stream.record())  # its memory is given back while others still read it
        return _replace_values(self.plan.trace.returned, lambda number: self._get(value_of_node, number))

    def _input_values(self, args: Sequence[Any]) -> dict[int, Any]:
        arrays = [argument for argument in args if isinstance(argument, self.plan.trace.cp.ndarray)]
        input_numbers = [n.number for n in self.plan.nodes if n.kind == "input"]
        return dict(zip(input_numbers, arrays, strict=True))

    def _run(self, group: Sequence[int], kernel: GeneratedKernel | None, env: dict[int, Any]) -> None:
        if kernel is None:
            for node_number in group:
                node = self.plan.nodes[node_number]
                assert node.call is not None
                result = node.call(
                    *self._replace_refs(node.args, env), **self._replace_refs(node.kwargs, env)
                )
                env[node_number] = result if node.writes is None else self._get(env, node.writes)
            return
        input_arrays = [self._get(env, n) for n in kernel.input_nodes]
        output_arrays = []
        for node_number in kernel.output_nodes:
            node = self.plan.nodes[node_number]
            in_place = node.writes is not None
            output_arrays.append(
                self._target(env, node) if in_place else session.cp().empty(node.shape, node.dtype)
            )
        if kernel.axis is None and not kernel.keepdims and not _is_reduction(self.plan, group):
            kernel.kernel(*input_arrays, *output_arrays)
        elif len(output_arrays) == 1:
            kernel.kernel(*input_arrays, out=output_arrays[0], axis=kernel.axis, keepdims=kernel.keepdims)
        else:
            output_arrays = list(kernel.kernel(*input_arrays, axis=kernel.axis, keepdims=kernel.keepdims))
        env.update(zip(kernel.output_nodes, output_arrays, strict=True))

    def _target(self, env: dict[int, Any], node: Node) -> Any:
        """Return the array that an in-place expression changes."""
        while node.writes is not None and node.writes not in env:
            node = self.plan.nodes[node.writes]
            if node.kind == "view" and node.writes is None:
                return self._get(env, node.number)
        return env[node.writes if node.writes is not None else node.number]

    def _get(self, env: dict[int, Any], node_number: int) -> Any:
        if node_number not in env:
            node = self.plan.nodes[node_number]
            if node.writes is not None:
                env[node_number] = self._get(env, node.writes)
            elif node.kind == "host":
                env[node_number] = self._get(env, node.before[0])
            else:
                assert node.call is not None
                env[node_number] = node.call(
                    *self._replace_refs(node.args, env), **self._replace_refs(node.kwargs, env)
                )
        return env[node_number]

    def _replace_refs(self, value: Any, env: dict[int, Any]) -> Any:
        if isinstance(value, Ref):
            return self._get(env, value.number)
        if isinstance(value, dict):
            return {key: self._replace_refs(element, env) for key, element in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._replace_refs(element, env) for element in value)
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
            self._wait(pending_streams)
        return stack

    def _wait(self, pending_streams: dict[int, Any]) -> None:
        current_stream = session.cp().cuda.get_current_stream()
        for stream in pending_streams.values():
            current_stream.wait_event(stream.record())
        pending_streams.clear()


def _no_context(_: int) -> AbstractContextManager[Any]:
    return nullcontext()


def _is_reduction(plan: Plan, group: Sequence[int]) -> bool:
    return any(plan.nodes[n].kind == "reduce" for n in group)


def _identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "unnamed"


def _replace_values(value: Any, get: Callable[[int], Any]) -> Any:
    """Return the function's result, in which the stand-ins are replaced by the arrays of this call."""
    if isinstance(value, Value):
        return get(value._node.number)
    if type(value) in (tuple, list):
        return type(value)(_replace_values(element, get) for element in value)
    if isinstance(value, dict):
        return {key: _replace_values(element, get) for key, element in value.items()}
    return value
