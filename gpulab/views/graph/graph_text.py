"""Sentences about a graph's nodes, arrays and costs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from gpulab.views.graph.folding import NodeGroup
from gpulab.views.timeline.chart import CUPY_KERNEL_PATTERN
from gpulab.words import count, duration, listing, noun, number, shape, size
from virtualgpu.records import DanglingArray, Dim3, GraphComparison, GraphNode, GraphRecord, NodeParameter

MAX_PARAMETERS = 8
_TYPE_NAMES = {
    "float": "f4",
    "double": "f8",
    "int": "i4",
    "unsigned int": "u4",
    "unsigned": "u4",
    "long long": "i8",
    "unsigned long long": "u8",
    "size_t": "u8",
    "int64_t": "i8",
    "int32_t": "i4",
    "uint32_t": "u4",
    "char": "i1",
    "bool": "?",
}
_KIND_NAMES = {
    "KERNEL": "kernel",
    "MEMCPY": "copy",
    "MEMSET": "memory set",
    "HOST": "host function",
    "GRAPH": "child graph",
    "EMPTY": "empty node",
    "WAIT_EVENT": "wait for an event",
    "EVENT_RECORD": "event",
    "MEM_ALLOC": "allocation",
    "MEM_FREE": "free",
    "CONDITIONAL": "conditional node",
    "OTHER": "node",
}
_DIGITS_PATTERN = re.compile(r"\d+")


def name_node(node: GraphNode) -> str:
    """Return the name that is shown on a graph node."""
    if node.kind == "KERNEL":
        match = CUPY_KERNEL_PATTERN.fullmatch(node.name)
        return match[1] if match else _demangle(node.name)
    return f"copy {node.copy_kind or ''}".strip() if node.kind == "MEMCPY" else node.name.lower()


def _demangle(name: str) -> str:
    """Return the function name in a mangled C++ symbol, without namespaces: ``scale`` for ``_Z5scalePf``."""
    char_index = 3 if name.startswith("_ZN") else 2
    while name.startswith("_Z") and (length := _DIGITS_PATTERN.match(name, char_index)):
        char_index = length.end() + int(length[0])
        base_name = name[length.end() : char_index]
    return base_name if name.startswith("_Z") and char_index > 3 else name


def format_detail(node: GraphNode) -> str:
    """Return the second line of text on a graph node, which is the grid and block or the number of bytes."""
    if node.grid and node.block:
        return f"<<<{_format_extent(node.grid)}, {_format_extent(node.block)}>>>"
    return size(node.size_bytes) if node.size_bytes else ""


def _format_extent(dim: Dim3) -> str:
    shape_text = shape(dim)
    return f"({shape_text.replace(' × ', ', ')})" if "×" in shape_text else shape_text


def group_text(group: NodeGroup) -> tuple[str, str]:
    """Return the two lines of text on a group of graph nodes."""
    node_names = list(map(name_node, group.pattern))
    if group.repetitions == 1:
        return node_names[0], format_detail(group.pattern[0])
    if len(node_names) == 1:
        return f"{number(group.repetitions)} × {node_names[0]}", format_detail(group.pattern[0])
    return f"{number(group.repetitions)} × {count(len(node_names), 'node')}", ", ".join(node_names)


def group_sentence(record: GraphRecord, group: NodeGroup, node_times_ns: Mapping[int, float]) -> str:
    """Return one sentence about a graph node or a group of graph nodes."""
    times_ns = [node_times_ns[node_number] for node_number in group.members if node_number in node_times_ns]
    time_text = f"; {duration(sum(times_ns))} in the replay" if times_ns else ""
    if group.repetitions == 1:
        source_line = group.pattern[0].source
        line_text = f"; {source_line}: {source_line.text}" if source_line else ""
        return f"{node_sentence(record, group.pattern[0])}{time_text}{line_text}."
    names = " → ".join(map(name_node, group.pattern))
    node_text = ", ".join(filter(None, (names, format_detail(group.pattern[0]))))
    pattern_text = f"({names})" if len(group.pattern) > 1 else node_text
    arrangement = "side by side" if group.is_fan else "one after the other"
    first_node = min(group.members)
    last_node = max(group.members)
    nodes_text = f"nodes {first_node} to {last_node}"
    return f"{number(group.repetitions)} × {pattern_text}, {arrangement}: {nodes_text}{time_text}."


def node_sentence(record: GraphRecord, node: GraphNode) -> str:
    """Return a sentence with the kind, the name, the launch configuration and the parameters of a graph
    node.
    """
    name_text = "" if node.kind in ("HOST", "MEMSET") else f" {node.copy_kind or node.name}"
    phrases = [f"Node {node.number}: {_KIND_NAMES[node.kind]}{name_text}"]
    if node.grid and node.block:
        phrases.append(f"grid {shape(node.grid)}, block {shape(node.block)}")
    if node.shared_bytes:
        phrases.append(f"{size(node.shared_bytes)} of shared memory")
    if node.size_bytes:
        phrases.append(size(node.size_bytes))
    parameter_texts = [parameter_text(record, parameter) for parameter in node.parameters]
    omitted_count = len(parameter_texts) - MAX_PARAMETERS
    shown_parameters = [
        *parameter_texts[:MAX_PARAMETERS],
        *([f"{omitted_count} more"] if omitted_count > 0 else []),
    ]
    if shown_parameters:
        phrases.append(f"with {', '.join(shown_parameters)}")
    return ", ".join(phrases)


def parameter_text(record: GraphRecord, parameter: NodeParameter) -> str:
    """Return a kernel parameter as text with its array or value, such as ``x = a (float32 1,024)``."""
    prefix = f"{parameter.name} = " if parameter.name else ""
    if parameter.addresses:
        return prefix + " and ".join(_array_text(record, address) for address in parameter.addresses)
    dtype_name = _TYPE_NAMES.get(parameter.type)
    if dtype_name and np.dtype(dtype_name).itemsize == len(parameter.data):
        return f"{prefix}{np.frombuffer(parameter.data, dtype_name)[0]:g}"
    if len(parameter.data) > 16:
        return f"{prefix}{count(len(parameter.data), 'byte')}"
    return f"{prefix}0x{int.from_bytes(parameter.data, 'little'):x}"


def _array_text(record: GraphRecord, address: int) -> str:
    array = record.array_at(address)
    if array is None:
        return f"temporary at {address:#x}"
    offset_bytes = address - array.address
    extents_text = " × ".join(map(number, array.shape)) or "scalar"
    return (
        f"{array.name}{f' + {number(offset_bytes)} B' if offset_bytes else ''} ({array.dtype} {extents_text})"
    )


def first_elements(values: Sequence[float]) -> str:
    """Return the first elements of an array as text, for use in a sentence."""
    return f"[{', '.join(f'{value:g}' for value in values)}, …]" if values else "…"


def dangling_sentence(dangling_array: DanglingArray) -> str:
    """Return a sentence about a variable that no longer refers to an array of the graph. The sentence
    includes the remedy.
    """
    name = dangling_array.array.name
    nodes = list(map(str, dangling_array.nodes))
    users_list = listing(nodes if len(nodes) <= 4 else [*nodes[:3], f"{len(nodes) - 3} more"])
    users_text = f"{noun(len(nodes), 'node')} {users_list} still {noun(len(nodes), 'uses', 'use')}"
    old_text = f"{first_elements(dangling_array.in_graph)} at {dangling_array.array.address:#x}"
    new_text = (
        f"{name} is now {first_elements(dangling_array.now)} at {dangling_array.address_now:#x}"
        if dangling_array.address_now is not None
        else f"{name} is no longer an array"
    )
    argument_text = f"{name}={name}" if name.isidentifier() else f"**{{{name!r}: {name}}}"
    return (
        f"{name} dangles: {users_text} {old_text}, but {new_text}. "
        f"Write {name}[...] = new instead of {name} = new, or call g.update({argument_text})."
    )


def describe_graph(record: GraphRecord, name: str) -> str:
    """Return a sentence about a graph with its numbers of nodes, steps and edges, and its device."""
    names = listing([array.array.name for array in record.dangling])
    dangling_text = f"; {names} {noun(len(record.dangling), 'dangles', 'dangle')}" if names else ""
    return (
        f"Graph of {name}: {count(len(record.nodes), 'node')} in {count(record.depth, 'step')}, "
        f"{count(len(record.edges), 'edge')}{dangling_text}; captured on {record.provenance.device}."
    )


def compare_costs(comparison: GraphComparison) -> str:
    """Return a text that compares the times per node and per run with and without the graph."""
    node_time = duration(comparison.graph_node_ns)
    eager_time = duration(comparison.eager_node_ns)
    host_time = duration(comparison.graph_host_ns)
    eager_host_time = duration(comparison.eager_host_ns)
    return (
        f"Per node {node_time} in the graph, {eager_time} piece by piece: "
        f"{number(comparison.speedup, 2)} times as fast. "
        f"Host per run {host_time} instead of {eager_host_time} (mean of {count(comparison.repeats, 'run')})."
    )


def cost_sentence(comparison: GraphComparison) -> str:
    """Return a sentence with the costs of the graph and the origin of these numbers."""
    return f"{compare_costs(comparison)[:-2]}; {comparison.provenance.label})."
