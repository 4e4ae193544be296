"""The tests of ``gl.graph`` once more, with a real GPU's side; with ``--fake-gpu`` on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from tests.session.test_graph_capture import (  # noqa: F401  (collects these tests here too)
    TestAddresses,
    TestCallable,
    TestCompare,
    TestLaunch,
    TestPool,
    TestRecord,
    TestRefusals,
    TestUpdate,
)
from virtualgpu.records import GraphNode, Provenance

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    yield
    gl.use_device("auto")


@pytest.fixture(autouse=True)
def timed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not check times on a fake GPU, where they have no meaning."""
    if not request.config.getoption("--fake-gpu", default=False):
        return
    monkeypatch.setattr(TestCompare, "check", lambda self, result: None)


def test_provenance_of_a_graph_record_is_measured() -> None:
    x: Any = gl.cp.zeros(4)
    assert gl.graph(lambda x: x.fill(1), x).record.provenance.source == "measured"


class Answers:
    """A driver that returns one node's parameters, records new ones, and knows addresses from 1 GiB on."""

    CUgraph = CUgraphExec = CUdeviceptr = int
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2)

    def __init__(self, kind: str, **params: Any) -> None:
        self.kind, self.params, self.set = kind, SimpleNamespace(**params), list[Any]()

    def __getattr__(self, name: str) -> Any:
        if name.endswith("GetParams"):
            return lambda node: (0, self.params)
        if name.endswith("SetParams"):
            return lambda executable, node, params, *context: self.set.append(params) or (0,)
        raise AttributeError(name)

    def cuGraphNodeGetType(self, node: int) -> Any:
        return 0, SimpleNamespace(name=f"CU_GRAPH_NODE_TYPE_{self.kind}")

    def cuGraphGetNodes(self, graph: int, count: int = 0) -> Any:
        return 0, [7][:count], 1

    def cuGraphGetEdges(self, graph: int, count: int = 0) -> Any:
        return 0, [], [], [], 0

    def cuCtxGetCurrent(self) -> Any:
        return 0, "context"

    def cuPointerGetAttribute(self, attribute: int, address: int) -> Any:
        return (0, 2) if address >= FIRST else (0, 1) if address == PINNED else (1, None)


FIRST = 1 << 30
PINNED = 1 << 20
GRAPH = SimpleNamespace(graph=1, graphExec=2)


@pytest.fixture
def graphs() -> Any:
    """The module, which needs CuPy."""
    pytest.importorskip("cupy")
    from gpulab.real import graphs

    return graphs


def node_of(driver: Answers, graphs: Any, monkeypatch: pytest.MonkeyPatch) -> GraphNode:
    monkeypatch.setattr(graphs, "_import_driver", lambda: driver)
    (node,) = graphs.read_graph(GRAPH, Provenance("measured", "a device")).nodes
    assert isinstance(node, GraphNode)
    return node


@pytest.mark.parametrize(
    ("ends", "kind", "name", "addresses"),
    [
        ({"srcHost": 0x20000, "dstDevice": FIRST}, "HtoD", "Memcpy HtoD", ((), (FIRST,))),
        ({"srcDevice": FIRST, "dstHost": PINNED}, "DtoH", "Memcpy DtoH", ((FIRST,), ())),
        ({"srcDevice": FIRST, "dstDevice": FIRST + 8}, "DtoD", "Memcpy DtoD", ((FIRST,), (FIRST + 8,))),
        ({"srcHost": 0x20000, "dstHost": PINNED}, None, "Memcpy on the host", ((), ())),
        ({"srcHost": None, "dstDevice": FIRST}, "HtoD", "Memcpy HtoD", ((), (FIRST,))),
    ],
)
def test_source_and_destination_of_a_copy_are_read_and_set(
    ends: dict[str, Any],
    kind: str | None,
    name: str,
    addresses: Any,
    graphs: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = {"srcHost": 0, "srcDevice": 0, "dstHost": 0, "dstDevice": 0}
    driver = Answers("MEMCPY", **{**nothing, **ends, "WidthInBytes": 64, "Height": 3, "Depth": 0})
    node = node_of(driver, graphs, monkeypatch)
    assert (node.kind, node.copy_kind, node.name, node.size_bytes) == ("MEMCPY", kind, name, 192)
    assert tuple(parameter.addresses for parameter in node.parameters) == addresses
    assert [parameter.name for parameter in node.parameters] == ["source", "destination"]
    addresses_in_data = [int.from_bytes(parameter.data, "little") for parameter in node.parameters]
    source, target = (ends.get(f"{end}Device") or ends.get(f"{end}Host") or 0 for end in ("src", "dst"))
    assert addresses_in_data == [source, target]
    graphs.set_graph_node(GRAPH, node, GRAPH)
    (params,) = driver.set
    for end, address in (("src", source), ("dst", target)):
        assert getattr(params, f"{end}Device" if f"{end}Device" in ends else f"{end}Host") == address


def test_other_nodes_have_the_names_of_their_kinds(graphs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memset = node_of(Answers("MEMSET", dst=FIRST, elementSize=4, width=10, height=0), graphs, monkeypatch)
    assert (memset.kind, memset.name, memset.size_bytes, memset.addresses) == (
        "MEMSET",
        "Memset",
        40,
        (FIRST,),
    )
    assert memset.parameters[0].name == "destination"
    for kind, record_kind, name in (
        ("HOST", "HOST", "Host function"),
        ("MEM_ALLOC", "MEM_ALLOC", "Mem alloc"),
        ("BATCH_MEM_OP", "OTHER", "Batch mem op"),
    ):
        node = node_of(Answers(kind), graphs, monkeypatch)
        assert (node.kind, node.name, node.parameters) == (record_kind, name, ())
    assert (node.number, node.device_id) == (0, 0)


def test_an_error_of_the_driver_becomes_cupys_error(graphs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Answers("HOST")
    monkeypatch.setattr(graphs, "_import_driver", lambda: driver)
    monkeypatch.setattr(driver, "cuGraphGetNodes", lambda graph, count=0: (1, None, 0), raising=False)
    with pytest.raises(gl.cp.cuda.driver.CUDADriverError) as refused:
        graphs.read_graph(GRAPH, Provenance("measured", ""))
    assert refused.value.status == 1

    def absent() -> Any:
        raise ImportError

    monkeypatch.setattr(graphs, "_import_driver", absent)
    record = graphs.read_graph(GRAPH, Provenance("measured", ""))
    assert (record.nodes, record.note) == (
        (),
        "Nodes are not available: the package cuda-bindings is not installed.",
    )
