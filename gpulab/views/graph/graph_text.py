"""Sentences about a graph's nodes, arrays and costs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from gpulab.views.graph.folding import Group
from gpulab.words import count, duration, listing, noun, number, shape, size
from virtualgpu.records import DanglingArray, Dim3, GraphComparison, GraphNode, GraphRecord, NodeParameter

MOST_PARAMETERS = 8
_TYPES = {
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
_KINDS = {
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
# CuPy's own kernels: cupy_multiply__float32_float32_float32.
_LENGTH = re.compile(r"\d+")
_OF_CUPY = re.compile(r"cupy_(\w+?)(?:__\w+)?")


def name_of(node: GraphNode) -> str:
    """Return the text of a node."""
    if node.kind == "KERNEL":
        own = _OF_CUPY.fullmatch(node.name)
        return own[1] if own else _bare(node.name)
    return f"copy {node.copy_kind or ''}".strip() if node.kind == "MEMCPY" else node.name.lower()


def _bare(name: str) -> str:
    """Return the function's own name: ``scale`` of ``_Z5scalePf``, without its namespaces."""
    at = 3 if name.startswith("_ZN") else 2
    while name.startswith("_Z") and (length := _LENGTH.match(name, at)):
        at = length.end() + int(length[0])
        own = name[length.end() : at]
    return own if name.startswith("_Z") and at > 3 else name


def detail_of(node: GraphNode) -> str:
    """Return the smaller line on a node: grid and block, or the number of bytes."""
    if node.grid and node.block:
        return f"<<<{_extent(node.grid)}, {_extent(node.block)}>>>"
    return size(node.size_bytes) if node.size_bytes else ""


def _extent(dim: Dim3) -> str:
    text = shape(dim)
    return f"({text.replace(' × ', ', ')})" if "×" in text else text


def group_text(group: Group) -> tuple[str, str]:
    """Return the text of a group, in two lines."""
    names = list(map(name_of, group.pattern))
    if group.times == 1:
        return names[0], detail_of(group.pattern[0])
    if len(names) == 1:
        return f"{number(group.times)} × {names[0]}", detail_of(group.pattern[0])
    return f"{number(group.times)} × {count(len(names), 'node')}", ", ".join(names)


def group_sentence(record: GraphRecord, group: Group, took_ns: Mapping[int, float]) -> str:
    """Return one sentence about a node or a group."""
    took = [took_ns[member] for member in group.members if member in took_ns]
    time = f"; {duration(sum(took))} in the replay" if took else ""
    if group.times == 1:
        source = group.pattern[0].source
        line = f"; {source}: {source.text}" if source else ""
        return f"{node_sentence(record, group.pattern[0])}{time}{line}."
    names = " → ".join(map(name_of, group.pattern))
    one = ", ".join(filter(None, (names, detail_of(group.pattern[0]))))
    pattern = f"({names})" if len(group.pattern) > 1 else one
    how = "side by side" if group.is_fan else "one after the other"
    first = min(group.members)
    last = max(group.members)
    return f"{number(group.times)} × {pattern}, {how}: nodes {first} to {last}{time}."


def node_sentence(record: GraphRecord, node: GraphNode) -> str:
    """A node's kind, name, shape and parameters."""
    called = "" if node.kind in ("HOST", "MEMSET") else f" {node.copy_kind or node.name}"
    parts = [f"Node {node.number}: {_KINDS[node.kind]}{called}"]
    if node.grid and node.block:
        parts.append(f"grid {shape(node.grid)}, block {shape(node.block)}")
    if node.shared_bytes:
        parts.append(f"{size(node.shared_bytes)} of shared memory")
    if node.size_bytes:
        parts.append(size(node.size_bytes))
    values = [parameter_text(record, parameter) for parameter in node.parameters]
    more = len(values) - MOST_PARAMETERS
    told = [*values[:MOST_PARAMETERS], *([f"{more} more"] if more > 0 else [])]
    if told:
        parts.append(f"with {', '.join(told)}")
    return ", ".join(parts)


def parameter_text(record: GraphRecord, parameter: NodeParameter) -> str:
    """Return ``x = a (float32 1,024)`` for a named array, the value of a number, or the bytes."""
    called = f"{parameter.name} = " if parameter.name else ""
    if parameter.addresses:
        return called + " and ".join(_place(record, address) for address in parameter.addresses)
    kind = _TYPES.get(parameter.type)
    if kind and np.dtype(kind).itemsize == len(parameter.data):
        return f"{called}{np.frombuffer(parameter.data, kind)[0]:g}"
    if len(parameter.data) > 16:
        return f"{called}{count(len(parameter.data), 'byte')}"
    return f"{called}0x{int.from_bytes(parameter.data, 'little'):x}"


def _place(record: GraphRecord, address: int) -> str:
    array = record.array_at(address)
    if array is None:
        return f"temporary at {address:#x}"
    into = address - array.address
    extents = " × ".join(map(number, array.shape)) or "scalar"
    return f"{array.name}{f' + {number(into)} B' if into else ''} ({array.dtype} {extents})"


def first_elements(values: Sequence[float]) -> str:
    """Return the first elements of an array, as text for a sentence."""
    return f"[{', '.join(f'{value:g}' for value in values)}, …]" if values else "…"


def dangling_sentence(dangling: DanglingArray) -> str:
    """Return the consequence of a dangling array, and the remedy."""
    name = dangling.array.name
    nodes = list(map(str, dangling.nodes))
    users = listing(nodes if len(nodes) <= 4 else [*nodes[:3], f"{len(nodes) - 3} more"])
    who = f"{noun(len(nodes), 'node')} {users} still {noun(len(nodes), 'uses', 'use')}"
    then = f"{first_elements(dangling.in_graph)} at {dangling.array.address:#x}"
    now = (
        f"{name} is now {first_elements(dangling.now)} at {dangling.address_now:#x}"
        if dangling.address_now is not None
        else f"{name} is no array any more"
    )
    return (
        f"{name} dangles: {who} {then}, but {now}. Write {name}[...] = new instead of {name} = new, or call "
        f"g.update({f'{name}={name}' if name.isidentifier() else f'**{{{name!r}: {name}}}'})."
    )


def sentence(record: GraphRecord, name: str) -> str:
    """Return one sentence with the numbers of nodes, steps and edges, and the device."""
    names = listing([array.array.name for array in record.dangling])
    dangling = f"; {names} {noun(len(record.dangling), 'dangles', 'dangle')}" if names else ""
    return (
        f"Graph of {name}: {count(len(record.nodes), 'node')} in {count(record.depth, 'step')}, "
        f"{count(len(record.edges), 'edge')}{dangling}; captured on {record.provenance.device}."
    )


def costs(comparison: GraphComparison) -> str:
    """Return the cost of a node and of a launch, with and without the graph."""
    node = duration(comparison.graph_node_ns)
    eager = duration(comparison.eager_node_ns)
    host = duration(comparison.graph_host_ns)
    before = duration(comparison.eager_host_ns)
    return (
        f"Per node {node} in the graph, {eager} piece by piece: "
        f"{number(comparison.speedup, 2)} times as fast. "
        f"Host per run {host} instead of {before} (mean of {count(comparison.repeats, 'run')})."
    )


def cost_sentence(comparison: GraphComparison) -> str:
    """Return the cost in a sentence, with the origin of the numbers."""
    return f"{costs(comparison)[:-2]}; {comparison.provenance.label})."
