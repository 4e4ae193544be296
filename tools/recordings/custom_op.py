"""Record what a custom operator of PyTorch does and costs, for notebook 12.

``python -m tools.recordings.custom_op FILE`` on a GPU with PyTorch and CuPy runs `PROGRAM`, which the
notebook shows, and writes a JSON file: the program, the results of ``opcheck``, the errors of results and
gradients, the graphs of Dynamo, the kernels of each version, and its time per call in µs.
"""

from __future__ import annotations

import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

PROGRAM = '''\
import cupy as cp
import numpy as np
import torch

code = r"""
extern "C" __global__
void affine_gelu(const float* x, const float* w, const float* b, float* y, int columns, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i] * w[i % columns] + b[i % columns];
    y[i] = v / (1.0f + expf(v * (v * v * -0.0713548f - 1.5957691f)));
}
"""
kernel = cp.RawKernel(code, "affine_gelu")


def launch(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    assert x.dtype == w.dtype == b.dtype == torch.float32  # the kernel reads floats
    x, w, b = x.contiguous(), w.contiguous(), b.contiguous()
    n, columns = x.numel(), x.shape[-1]
    y = torch.empty(x.shape, device=x.device)
    pointers = [tensor.data_ptr() for tensor in (x, w, b, y)]
    with cp.cuda.Stream.from_external(torch.cuda.current_stream()):  # the stream that PyTorch uses
        kernel(((n + 255) // 256,), (256,), (*pointers, np.int32(columns), np.int32(n)))
    return y


affine_gelu = torch.library.custom_op("gpulab::affine_gelu", launch, mutates_args=(), device_types="cuda")


@affine_gelu.register_fake
def fake(x, w, b):  # an empty result with the right shape, dtype and layout
    return torch.empty(x.shape, device=x.device)


def keep(ctx, inputs, output):  # called after the forward pass
    ctx.save_for_backward(*inputs)


def backward(ctx, dy):
    x, w, b = ctx.saved_tensors
    v = x * w + b
    s = torch.sigmoid(v * (1.5957691 + 0.0713548 * v * v))  # the result is v * s
    dv = dy * s * (1 + v * (1 - s) * (1.5957691 + 0.2140644 * v * v))
    return dv * w, (dv * x).sum(0), dv.sum(0)


affine_gelu.register_autograd(backward, setup_context=keep)


def expressions(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    v = x * w + b
    return v / (1 + torch.exp(v * (v * v * -0.0713548 - 1.5957691)))
'''
CALLS = 200
ROUNDS = 15


def time_us(torch: Any, call: Callable[[], object]) -> float:
    """Return the time of one call in µs: the median of rounds of many calls, until the GPU is idle."""
    times_us = []
    for _ in range(ROUNDS + 3):
        torch.cuda.synchronize()
        start_ns = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        times_us.append((time.perf_counter_ns() - start_ns) / CALLS / 1000)
    return round(statistics.median(times_us[3:]), 2)


def list_kernels(torch: Any, call: Callable[[], object]) -> list[str]:
    """Return the names of the kernels that one call runs, from PyTorch's profiler."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    cuda_device_type = torch.autograd.DeviceType.CUDA
    events = sorted(
        (e for e in profile.events() if e.device_type == cuda_device_type), key=lambda e: e.time_range.start
    )
    return [event.name for event in events]


def explain_graph(torch: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Return how Dynamo traces a function: graphs, graph breaks, their reasons, and the nodes."""
    torch._dynamo.reset()
    explanation = torch._dynamo.explain(function)(*arguments)
    nodes = [
        str(node.target)
        for graph_module in explanation.graphs
        for node in graph_module.graph.nodes
        if node.op.startswith("call")
    ]
    reasons = [str(reason.reason).splitlines()[0] for reason in explanation.break_reasons]
    torch._dynamo.reset()
    return {
        "graphs": explanation.graph_count,
        "breaks": explanation.graph_break_count,
        "reasons": reasons,
        "nodes": nodes,
    }


def main(file: Path) -> None:
    """Run the notebook's program, and write its results and its times."""
    cupy, torch = (importlib.import_module(name) for name in ("cupy", "torch"))
    with tempfile.TemporaryDirectory() as scratch_folder:
        Path(scratch_folder, "custom_op.py").write_text(PROGRAM, encoding="utf-8")
        sys.path.insert(0, scratch_folder)
        program = importlib.import_module("custom_op")
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(64, 1024, device="cuda", generator=generator)
    w, b = torch.linspace(0.5, 1.5, 1024, device="cuda"), torch.linspace(-1, 1, 1024, device="cuda")
    record: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "cupy": cupy.__version__,
        "rows": len(x),
        "columns": x.shape[1],
        "program": PROGRAM,
    }

    def checked(name: str, function: Callable[[], Any]) -> None:
        try:
            record[name] = function()
        except Exception as error:
            record[name] = {"error": f"{type(error).__name__}: {str(error)[:600]}"}
            print(name, record[name])

    trainable_tensors = [
        t[:4].clone().requires_grad_() if t is x else t.clone().requires_grad_() for t in (x, w, b)
    ]
    checked("opcheck", lambda: torch.library.opcheck(program.affine_gelu, tuple(trainable_tensors)))
    checked("errors", lambda: compute_errors(torch, program, trainable_tensors))

    compiled_functions = {
        "expressions": lambda x, w, b: torch.relu(program.expressions(2 * x, w, b)) + 1,
        "custom_op": lambda x, w, b: torch.relu(program.affine_gelu(2 * x, w, b)) + 1,
        "plain": lambda x, w, b: torch.relu(program.launch(2 * x, w, b)) + 1,
    }
    for name, function in compiled_functions.items():
        checked(f"graph of {name}", partial(explain_graph, torch, function, (x, w, b)))
        checked(f"kernels of {name}", partial(list_kernels, torch, partial(function, x, w, b)))
        checked(f"compiled kernels of {name}", partial(list_compiled_kernels, torch, function, (x, w, b)))

    operator_without_fake = torch.library.custom_op(
        "gpulab::fakeless", program.launch, mutates_args=(), device_types="cuda"
    )
    checked(
        "without register_fake",
        lambda: explain_graph(torch, lambda x: operator_without_fake(2 * x, w, b), (x,)),
    )

    y = torch.empty_like(x)
    arguments = (*map(cupy.asarray, (x, w, b, y)), cupy.int32(1024), cupy.int32(x.numel()))
    grid, block = (x.numel() // 256,), (256,)
    x_with_gradient = x.clone().requires_grad_()
    calls: dict[str, Callable[[], object]] = {
        "raw launch": lambda: program.kernel(grid, block, arguments),
        "launch(x, w, b)": lambda: program.launch(x, w, b),
        "affine_gelu(x, w, b)": lambda: program.affine_gelu(x, w, b),
        "affine_gelu(x, w, b), x requires a gradient": lambda: program.affine_gelu(x_with_gradient, w, b),
        "expressions(x, w, b)": lambda: program.expressions(x, w, b),
    }
    times_us: dict[str, Any] = {}
    record["times_us"] = times_us
    for name, call in calls.items():
        times_us[name] = time_us(torch, call)
    for name in ("affine_gelu", "expressions"):
        for mode in ("default", "reduce-overhead"):
            call = compile_function(torch, getattr(program, name), mode)
            for _ in range(5):
                call(x, w, b)
            times_us[f"{name}, compiled, {mode}"] = time_us(torch, partial(call, x, w, b))
    captured_graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured_graph):
        program.affine_gelu(x, w, b)
    times_us["CUDA graph of affine_gelu, replay"] = time_us(torch, captured_graph.replay)
    large_tensor = torch.randn(65536, 1024, device="cuda", generator=generator)
    functions = {
        f"{name}(x, w, b)": getattr(program, name) for name in ("launch", "affine_gelu", "expressions")
    }
    functions["expressions, compiled, default"] = compile_function(torch, program.expressions, "default")
    record["large_us"] = {
        name: time_us(torch, partial(function, large_tensor, w, b)) for name, function in functions.items()
    }
    record_json = json.dumps(record, indent=1, ensure_ascii=False)
    file.write_text(record_json + "\n", encoding="utf-8")
    print(record_json)


def compile_function(torch: Any, function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """Return a function of ``torch.compile`` that only calls `function`."""

    def call(x: Any, w: Any, b: Any) -> Any:
        return function(x, w, b)

    torch._dynamo.reset()
    compiled_function: Callable[..., Any] = torch.compile(call, mode=mode)
    return compiled_function


def list_compiled_kernels(torch: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[str]:
    """Return the kernels of one call of the compiled function."""
    torch._dynamo.reset()
    kernel_names = list_kernels(torch, partial(torch.compile(function), *arguments))
    torch._dynamo.reset()
    return kernel_names


def compute_errors(torch: Any, program: Any, tensors: list[Any]) -> dict[str, float]:
    """Return the largest differences of the result and the gradients from those of PyTorch's operations."""
    tensors_of_functions = []
    for function in (program.affine_gelu, program.expressions):
        y = function(*tensors)
        tensors_of_functions.append([y, *torch.autograd.grad((y * y).sum(), tensors)])
    tensor_names = ("result", "gradient of x", "gradient of w", "gradient of b")
    named_tensor_pairs = zip(tensor_names, *tensors_of_functions, strict=True)
    return {
        name: float((operator_value - torch_value).abs().max())
        for name, operator_value, torch_value in named_tensor_pairs
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
