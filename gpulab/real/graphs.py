"""Read and change the nodes, edges and parameters of a captured graph through CUDA's driver."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, get_args

import cupy

from virtualgpu.records import CopyKind, GraphNode, GraphRecord, NodeKind, NodeParameter, Provenance
from virtualgpu.records.graph import ADDRESS_BYTES

NO_BINDINGS_NOTE = "Nodes are not available: the package cuda-bindings is not installed."
_NODE_KINDS = get_args(NodeKind)
_COPY_KINDS: dict[tuple[bool, bool], CopyKind] = {
    (False, True): "HtoD",
    (True, False): "DtoH",
    (True, True): "DtoD",
}
_DEVICE_MEMORY = 2  # CU_MEMORYTYPE_DEVICE
_MIN_ADDRESS = 1 << 16
_ERROR_UPDATE_FAILURE = 910


def _import_driver() -> Any:
    from cuda.bindings import driver

    return driver


def read_graph(graph: Any, provenance: Provenance) -> GraphRecord:
    """Return the nodes and edges of a graph of the type ``cupy.cuda.Graph``."""
    try:
        driver = _import_driver()
    except ImportError:
        return GraphRecord(provenance, (), (), note=NO_BINDINGS_NOTE)
    handles = _read_handles(graph)
    index_of_handle = {int(handle): index for index, handle in enumerate(handles)}
    nodes = tuple(_read_node(index, handle) for index, handle in enumerate(handles))
    raw_graph = driver.CUgraph(graph.graph)
    edge_count = check_result(driver.cuGraphGetEdges(raw_graph))[-1]
    start_nodes, end_nodes, *_ = (
        check_result(driver.cuGraphGetEdges(raw_graph, edge_count)) if edge_count else ((), ())
    )
    node_pairs = zip(start_nodes[:edge_count], end_nodes[:edge_count], strict=True) if edge_count else ()
    edges = sorted((index_of_handle[int(a)], index_of_handle[int(b)]) for a, b in node_pairs)
    return GraphRecord(provenance, nodes, tuple(edges))


def set_graph_node(graph: Any, node: GraphNode, template: Any) -> None:
    """Set the parameters of a graph node for all later launches of the graph.

    Values that the record does not contain, such as the kernel's handle, are copied from the graph
    `template`.

    Raises
    ------
    CUDADriverError
        If CUDA rejects the parameters.
    """
    driver = _import_driver()
    handle = _read_handles(graph)[node.number]
    template_handle = _read_handles(template)[node.number]
    executable = driver.CUgraphExec(graph.graphExec)
    if node.kind == "KERNEL":
        assert node.grid is not None
        assert node.block is not None
        node_params = check_result(driver.cuGraphKernelNodeGetParams(template_handle))[0]
        node_params.gridDimX, node_params.gridDimY, node_params.gridDimZ = node.grid
        node_params.blockDimX, node_params.blockDimY, node_params.blockDimZ = node.block
        node_params.sharedMemBytes = node.shared_bytes
        value_buffers = [
            ctypes.create_string_buffer(value.data, len(value.data)) for value in node.parameters
        ]
        value_pointers = (ctypes.c_void_p * max(1, len(value_buffers)))(
            *(ctypes.addressof(value) for value in value_buffers)
        )
        node_params.kernelParams = ctypes.addressof(value_pointers)
        check_result(driver.cuGraphExecKernelNodeSetParams(executable, handle, node_params))
        return
    first_parameter, *other_parameters = node.parameters
    if node.kind == "MEMSET":
        node_params = check_result(driver.cuGraphMemsetNodeGetParams(template_handle))[0]
        node_params.dst = driver.CUdeviceptr(_parse_address(first_parameter))
        check_result(driver.cuGraphExecMemsetNodeSetParams(executable, handle, node_params, _find_context()))
    elif node.kind == "MEMCPY":
        node_params = check_result(driver.cuGraphMemcpyNodeGetParams(template_handle))[0]
        for name, parameter in (("src", first_parameter), ("dst", other_parameters[0])):
            if parameter.addresses:
                setattr(node_params, f"{name}Device", driver.CUdeviceptr(_parse_address(parameter)))
            else:
                setattr(node_params, f"{name}Host", _parse_address(parameter))
        check_result(driver.cuGraphExecMemcpyNodeSetParams(executable, handle, node_params, _find_context()))


def copy_parameters(graph: Any, source_graph: Any) -> None:
    """Copy the parameters of `source_graph` to a graph with the same nodes and edges, by
    ``cuGraphExecUpdate``.

    Raises
    ------
    CUDADriverError
        Status 910, if the graphs differ in more than parameters.
    """
    driver = _import_driver()
    update_status, *_ = driver.cuGraphExecUpdate(
        driver.CUgraphExec(graph.graphExec), driver.CUgraph(source_graph.graph)
    )
    if int(update_status) == _ERROR_UPDATE_FAILURE:
        # cuda-bindings gives no reason with this status.
        empty_provenance = Provenance("measured", "")
        raise _make_cuda_error(
            update_status,
            read_graph(graph, empty_provenance).find_update_obstacle(
                read_graph(source_graph, empty_provenance)
            ),
        )
    check_result((update_status,))


def _read_handles(graph: Any) -> list[Any]:
    driver = _import_driver()
    handle = driver.CUgraph(graph.graph)
    node_count = check_result(driver.cuGraphGetNodes(handle))[-1]
    return (
        list(check_result(driver.cuGraphGetNodes(handle, node_count))[0][:node_count]) if node_count else []
    )


def _read_node(node_number: int, handle: Any) -> GraphNode:
    driver = _import_driver()
    node_kind = check_result(driver.cuGraphNodeGetType(handle))[0].name.removeprefix("CU_GRAPH_NODE_TYPE_")
    device_id = int(cupy.cuda.Device().id)
    if node_kind == "KERNEL":
        node_params = check_result(driver.cuGraphKernelNodeGetParams(handle))[0]
        kernel_function = (
            node_params.func
            if int(node_params.func)
            else check_result(driver.cuKernelGetFunction(node_params.kern))[0]
        )
        return GraphNode(
            number=node_number,
            kind="KERNEL",
            name=check_result(driver.cuFuncGetName(kernel_function))[0].decode(),
            grid=(node_params.gridDimX, node_params.gridDimY, node_params.gridDimZ),
            block=(node_params.blockDimX, node_params.blockDimY, node_params.blockDimZ),
            shared_bytes=node_params.sharedMemBytes,
            parameters=tuple(_read_parameters(kernel_function, int(node_params.kernelParams or 0))),
            device_id=device_id,
        )
    if node_kind == "MEMSET":
        node_params = check_result(driver.cuGraphMemsetNodeGetParams(handle))[0]
        size_bytes = node_params.elementSize * node_params.width * max(1, node_params.height)
        return GraphNode(
            number=node_number,
            kind=node_kind,
            name="Memset",
            parameters=(_make_pointer_parameter("destination", int(node_params.dst)),),
            size_bytes=size_bytes,
            device_id=device_id,
        )
    if node_kind == "MEMCPY":
        node_params = check_result(driver.cuGraphMemcpyNodeGetParams(handle))[0]
        copy_addresses = [_read_copy_address(node_params, name) for name in ("src", "dst")]
        source_pointer, target_pointer = map(
            _make_pointer_parameter, ("source", "destination"), copy_addresses
        )
        copy_kind = _COPY_KINDS.get((bool(source_pointer.addresses), bool(target_pointer.addresses)))
        size_bytes = node_params.WidthInBytes * max(1, node_params.Height) * max(1, node_params.Depth)
        name = f"Memcpy {copy_kind or 'on the host'}"
        return GraphNode(
            number=node_number,
            kind=node_kind,
            name=name,
            parameters=(source_pointer, target_pointer),
            size_bytes=size_bytes,
            copy_kind=copy_kind,
            device_id=device_id,
        )
    name = "Host function" if node_kind == "HOST" else node_kind.replace("_", " ").capitalize()
    return GraphNode(
        number=node_number,
        kind=node_kind if node_kind in _NODE_KINDS else "OTHER",
        name=name,
        device_id=device_id,
    )


def _read_parameters(function: Any, pointers_address: int) -> Iterator[NodeParameter]:
    """Return the parameters of a kernel, which are read through the pointers at `pointers_address`."""
    driver = _import_driver()
    parameter_index = 0
    while pointers_address:
        status, offset, size_bytes = driver.cuFuncGetParamInfo(function, parameter_index)
        if int(status):
            return  # that was the last one
        value_address = ctypes.c_void_p.from_address(
            pointers_address + parameter_index * ctypes.sizeof(ctypes.c_void_p)
        ).value
        parameter_bytes = (
            ctypes.string_at(value_address or 0, size_bytes) if value_address else bytes(size_bytes)
        )
        address_chunks = (
            parameter_bytes[start : start + ADDRESS_BYTES]
            for start in range(0, size_bytes - ADDRESS_BYTES + 1, ADDRESS_BYTES)
        )
        addresses = [int.from_bytes(address_data, "little") for address_data in address_chunks]
        yield NodeParameter(parameter_bytes, int(offset), addresses=tuple(filter(_is_on_device, addresses)))
        parameter_index += 1


def _read_copy_address(copy_params: Any, name: str) -> int:
    """Return the address of the source or the destination of a copy."""
    host_address = getattr(copy_params, f"{name}Host")
    device_address = int(getattr(copy_params, f"{name}Device"))
    return device_address or int(host_address or 0)


def _make_pointer_parameter(name: str, address: int) -> NodeParameter:
    return NodeParameter(
        address.to_bytes(ADDRESS_BYTES, "little"),
        name=name,
        addresses=(address,) if _is_on_device(address) else (),
    )


def _parse_address(parameter: NodeParameter) -> int:
    return int.from_bytes(parameter.data, "little")


def _is_on_device(address: int) -> bool:
    """Return whether a number is an address in a device's memory."""
    if address < _MIN_ADDRESS:
        return False
    driver = _import_driver()
    memory_type_attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    with suppress(OverflowError):
        status, memory_type_code = driver.cuPointerGetAttribute(
            memory_type_attribute, driver.CUdeviceptr(address)
        )
        return int(status) == 0 and int(memory_type_code) == _DEVICE_MEMORY
    return False


def _find_context() -> Any:
    return check_result(_import_driver().cuCtxGetCurrent())[0]


def check_result(driver_result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the results of a driver call without its status. If the status is an error, raise the
    corresponding CuPy error.
    """
    status, *values = driver_result
    if int(status):
        raise _make_cuda_error(status)
    return tuple(values)


def _make_cuda_error(status: Any, reason: str = "") -> Exception:
    """Return CuPy's error for a status of the driver."""
    error = cupy.cuda.driver.CUDADriverError(int(status))
    if reason:
        error.args = (f"{error}: {reason}.",)
    exception: Exception = error
    return exception
