"""``cuda.bindings.driver`` over the graphs of a virtual GPU: what `gpulab.real.graphs` asks of it.

Structures, enumerations and pointers to pointers are as the real package has them, so that reading and
writing a node's parameters is tested to the byte.
"""

from __future__ import annotations

import ctypes
import importlib
import sys
from dataclasses import replace
from enum import IntEnum
from types import ModuleType, SimpleNamespace
from typing import Any

CUresult = IntEnum(
    "CUresult",
    {"CUDA_SUCCESS": 0, "CUDA_ERROR_INVALID_VALUE": 1, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE": 910},
)
SUCCESS, INVALID_VALUE, UPDATE_FAILURE = CUresult
_KINDS = {"KERNEL": 0, "MEMCPY": 1, "MEMSET": 2, "HOST": 3, "MEM_ALLOC": 10, "MEM_FREE": 11}
CUgraphNodeType = IntEnum(
    "CUgraphNodeType", {f"CU_GRAPH_NODE_TYPE_{name}": number for name, number in _KINDS.items()}
)
CUpointer_attribute = IntEnum("CUpointer_attribute", {"CU_POINTER_ATTRIBUTE_MEMORY_TYPE": 2})
Result = IntEnum("CUgraphExecUpdateResult", {"TOPOLOGY_CHANGED": 2, "NODE_TYPE_CHANGED": 3, "PARAMETERS": 5})
CUgraph = CUgraphExec = CUdeviceptr = int


class _Node(int):
    """A handle: of node `number` of a graph."""

    graph: Any
    number: int


def install(package: str) -> None:
    """Let ``from cuda.bindings import driver`` mean this, over the virtual GPU `package`."""
    module = ModuleType("cuda.bindings.driver")
    for name in (
        "CUgraph",
        "CUgraphExec",
        "CUdeviceptr",
        "CUgraphNodeType",
        "CUpointer_attribute",
        "CUresult",
    ):
        setattr(module, name, globals()[name])
    facet = _Driver(package)
    for name in dir(facet):
        if name.startswith("cu"):
            setattr(module, name, getattr(facet, name))
    bindings = ModuleType("cuda.bindings")
    bindings.driver = module  # type: ignore[attr-defined]
    sys.modules["cuda.bindings"], sys.modules["cuda.bindings.driver"] = bindings, module
    sys.modules["cuda.core"] = None  # type: ignore[assignment]  # needs the real one


class _Driver:
    def __init__(self, package: str) -> None:
        self._slot = importlib.import_module(f"{package}.model.machine")
        self._error = importlib.import_module(f"{package}.cuda_errors").CUDADriverError
        self._provenance = importlib.import_module("virtualgpu.records").Provenance("measured", "")

    def _graph(self, handle: int) -> Any:
        return self._slot.current().graphs[handle]

    def _record(self, node: _Node) -> Any:
        return node.graph._make_record(self._provenance).nodes[node.number]

    def cuGraphGetNodes(self, graph: int, count: int = 0) -> Any:
        owner = self._graph(graph)
        nodes = []
        for number in range(len(owner._nodes)):
            nodes.append(_Node(0x7000_0000 + (graph << 8) + 16 * number))
            nodes[-1].graph = owner
            nodes[-1].number = number
        return 0, nodes[:count], len(nodes)

    def cuGraphGetEdges(self, graph: int, count: int = 0) -> Any:
        nodes = self.cuGraphGetNodes(graph, 1 << 20)[1]
        edges = self._graph(graph)._make_record(self._provenance).edges
        ends = [[nodes[edge[end]] for edge in edges[:count]] for end in (0, 1)]
        return 0, *ends, [None] * len(ends[0]), len(edges)

    def cuGraphNodeGetType(self, node: _Node) -> Any:
        return 0, CUgraphNodeType[f"CU_GRAPH_NODE_TYPE_{self._record(node).kind}"]

    def cuGraphKernelNodeGetParams(self, node: _Node) -> Any:
        record = self._record(node)
        values = [ctypes.create_string_buffer(p.data, len(p.data)) for p in record.parameters]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*map(ctypes.addressof, values))
        params = SimpleNamespace(
            func=node, kern=0, ctx=0, sharedMemBytes=record.shared_bytes, extra=0, kept=values
        )
        params.pointers, params.kernelParams = pointers, ctypes.addressof(pointers)
        for which in ("grid", "block"):
            for axis, size in zip("XYZ", getattr(record, which) or (1, 1, 1), strict=True):
                setattr(params, f"{which}Dim{axis}", size)
        return 0, params

    def cuFuncGetName(self, function: _Node) -> Any:
        return 0, self._record(function).name.encode()

    def cuFuncGetParamInfo(self, function: _Node, number: int) -> Any:
        parameters = self._record(function).parameters
        if number >= len(parameters):
            return INVALID_VALUE, 0, 0
        return 0, parameters[number].offset, len(parameters[number].data)

    def cuPointerGetAttribute(self, attribute: int, address: int) -> Any:
        for device in self._slot.current().devices:
            if 0 <= address - device.memory.base_address < device.memory.arena_bytes:
                return 0, 2
        return INVALID_VALUE, None

    def cuGraphMemsetNodeGetParams(self, node: _Node) -> Any:
        record = self._record(node)
        return 0, SimpleNamespace(dst=record.addresses[0], elementSize=1, width=record.size_bytes, height=1)

    def cuGraphMemcpyNodeGetParams(self, node: _Node) -> Any:
        record = self._record(node)
        ends = {p.name: p.addresses[0] for p in record.parameters}
        return 0, SimpleNamespace(
            srcDevice=ends.get("source", 0),
            dstDevice=ends.get("destination", 0),
            srcHost=0x1000,
            dstHost=0x2000,
            WidthInBytes=record.size_bytes,
            Height=1,
            Depth=1,
        )

    def cuCtxGetCurrent(self) -> Any:
        return 0, object()

    def cuGraphExecKernelNodeSetParams(self, executable: int, node: _Node, params: Any) -> Any:
        record = self._record(node)
        count = len(record.parameters)
        pointers = (ctypes.c_void_p * max(1, count)).from_address(params.kernelParams)
        datas = [
            ctypes.string_at(pointers[index] or 0, len(p.data)) for index, p in enumerate(record.parameters)
        ]
        shape = {
            which: tuple(getattr(params, f"{which}Dim{axis}") for axis in "XYZ")
            for which in ("grid", "block")
            if getattr(record, which)
        }
        parameters = [self._with(p, data) for p, data in zip(record.parameters, datas, strict=True)]
        changed = replace(record, **shape, shared_bytes=params.sharedMemBytes, parameters=tuple(parameters))
        return self._set(executable, changed)

    def cuGraphExecMemsetNodeSetParams(self, executable: int, node: _Node, params: Any, ctx: object) -> Any:
        record = self._record(node)
        return self._set(
            executable, replace(record, parameters=(self._at(record.parameters[0], params.dst),))
        )

    def cuGraphExecMemcpyNodeSetParams(self, executable: int, node: _Node, params: Any, ctx: object) -> Any:
        record = self._record(node)
        fields = {"source": "srcDevice", "destination": "dstDevice"}
        changed = tuple(self._at(p, getattr(params, fields[p.name])) for p in record.parameters)
        return self._set(executable, replace(record, parameters=changed))

    def cuGraphExecUpdate(self, executable: int, graph: int) -> Any:
        try:
            self._graph(executable)._update(self._graph(graph))
        except self._error:
            return UPDATE_FAILURE, None  # as cuda-bindings 13.3 does
        return SUCCESS, SimpleNamespace(result=0)

    def _set(self, executable: int, record: Any) -> Any:
        try:
            self._graph(executable)._set_node(record)
        except self._error as error:
            return (error.status,)
        return (0,)

    def _at(self, parameter: Any, address: int) -> Any:
        return self._with(parameter, int(address).to_bytes(8, "little"))

    def _with(self, parameter: Any, data: bytes) -> Any:
        words = [int.from_bytes(data[offset : offset + 8], "little") for offset in range(0, len(data) - 7, 8)]
        pointers = tuple(word for word in words if self.cuPointerGetAttribute(2, word)[0] == 0)
        return replace(parameter, data=data, addresses=pointers)
