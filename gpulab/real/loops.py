"""A captured graph that repeats itself on the device: the body of a conditional node of cuda.core."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import cupy

from virtualgpu.records.graph import NotAvailable

# The condition is set on the device. CUDA's own declaration of the function is not among NVRTC's headers.
_CODE = r"""
extern "C" __device__ __cudart_builtin__ void CUDARTAPI
cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned int value);
extern "C" __global__ void again(cudaGraphConditionalHandle handle, const int* flag, int* turns, int most) {
    cudaGraphSetConditional(handle, ++*turns < most && *flag != 0);
}"""
_LEAST_DRIVER = 12040  # with while nodes


def loop(graph: Any, flag: Any, turns: Any, most: int) -> Callable[[Any], None] | NotAvailable:
    """Runs a graph at least once, and again while ``flag[0]`` is not 0 after it.

    Parameters
    ----------
    graph
        A ``cupy.cuda.Graph`` without host functions and memory nodes.
    flag, turns
        Arrays of one int32 each; `turns` counts how often it ran.
    most
        It ends after so many turns.

    Returns
    -------
    callable or NotAvailable
        Launches it in a stream.

    Raises
    ------
    CUDADriverError
        As CUDA refuses the graph.
    """
    if find_spec("cuda.core") is None or find_spec("cuda.core.graph") is None:
        return NotAvailable("Conditional nodes", "cuda.core, from version 1.0 on, is not installed")
    if cupy.cuda.runtime.driverGetVersion() < _LEAST_DRIVER:
        return NotAvailable("Conditional nodes", "the driver is older than CUDA 12.4")
    from cuda.bindings import driver
    from cuda.core.graph import GraphDefinition

    from gpulab.real.graphs import checked

    definition = GraphDefinition()
    condition = definition.create_condition(default_value=1)
    body = driver.CUgraph(int(definition.while_loop(condition).body.handle))
    (child,) = checked(driver.cuGraphAddChildGraphNode(body, None, 0, driver.CUgraph(graph.graph)))
    kernel = cupy.RawKernel(_CODE, "again").kernel
    values = (
        ctypes.c_uint64(int(condition.handle)),
        ctypes.c_void_p(flag.data.ptr),
        ctypes.c_void_p(turns.data.ptr),
        ctypes.c_int(most),
    )
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    params = driver.CUDA_KERNEL_NODE_PARAMS()
    params.func = driver.CUfunction(kernel.ptr)
    for axis in "XYZ":
        setattr(params, f"gridDim{axis}", 1)
        setattr(params, f"blockDim{axis}", 1)
    params.kernelParams = ctypes.addressof(pointers)
    checked(driver.cuGraphAddKernelNode(body, [child], 1, params))
    executable = definition.instantiate()

    def launch(stream: Any, _kept: Any = (graph, definition, kernel)) -> None:
        turns.data.memset_async(0, 4, stream)
        handle = driver.CUgraphExec(int(executable.handle))
        checked(driver.cuGraphLaunch(handle, driver.CUstream(stream.ptr)))

    return launch
