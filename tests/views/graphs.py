"""Records of graphs, as a GPU might have given them."""

from __future__ import annotations

from typing import Any

import numpy as np

from virtualgpu.records import (
    Activity,
    GraphArray,
    GraphComparison,
    GraphNode,
    GraphRecord,
    NodeParameter,
    Provenance,
    Timeline,
)

WHERE = Provenance("measured", "NVIDIA H200")
CUB = (
    "_ZN3cub43CUB_300102_SM_750_800_860_890_900_1000_12006detail6reduce28DeviceReduceSingleTileKernelINS2_10"
    "policy_hubIfjN4cuda3std3__44plusIvEEE10Policy1000EPfSC_jS9_ffNS7_8identityEEEvT0_T1_T2_T3_T4_T6_"
)  # as an H200 named it
X = 0x7000_0000
OLD = 0x7100_0000


def kernel(number: int, name: str = "add", grid: int = 4, address: int = X) -> GraphNode:
    parameters = (
        NodeParameter(address.to_bytes(8, "little"), 0, "x", "float*", (address,)),
        NodeParameter(np.float32(2.5).tobytes(), 8, "y", "float"),
    )
    return GraphNode(
        number=number,
        kind="KERNEL",
        name=name,
        grid=(grid, 1, 1),
        block=(256, 1, 1),
        shared_bytes=0,
        parameters=parameters,
    )


def graph(*nodes: GraphNode, edges: Any = None, **fields: Any) -> GraphRecord:
    if edges is None:
        edges = [(n, n + 1) for n in range(len(nodes) - 1)]
    return GraphRecord(WHERE, nodes, tuple(edges), (GraphArray("a", X, 4096, "float32", (1024,)),), **fields)


def chain(count: int) -> GraphRecord:
    return graph(*map(kernel, range(count)))


def timeline(record: GraphRecord, as_graph: bool) -> Timeline:
    step = 1_000 if as_graph else 4_000
    activities = tuple(
        Activity(
            kind="CONCURRENT_KERNEL",
            name=node.name,
            device_id=0,
            stream_id=7,
            correlation_id=n + 1,
            start_ns=n * step,
            end_ns=n * step + 800 + n,
            graph_id=5 if as_graph else 0,
            graph_node_id=n if as_graph else 0,
        )
        for n, node in enumerate(record.nodes)
    )
    return Timeline(
        provenance=WHERE, method="CUPTI", start_ns=0, end_ns=len(activities) * step, activities=activities
    )


def compared(record: GraphRecord) -> GraphComparison:
    nodes = len(record.nodes)
    return GraphComparison(
        provenance=WHERE,
        nodes=nodes,
        repeats=10,
        eager_device_ns=4_000.0 * nodes,
        graph_device_ns=1_000.0 * nodes,
        eager_host_ns=3_900.0 * nodes,
        graph_host_ns=1_600.0,
        eager=timeline(record, as_graph=False),
        replay=timeline(record, as_graph=True),
    )
