"""Kernels with one performance flaw, drawn from a seed, together with a version without the flaw.

Each family of kernels generates a source with two kernels, ``flawed`` and ``mended``, which have the same
parameters, for a random size and device. There are also kernels without a flaw. This module is independent of
the diagnosis that must find the flaw.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

DEVICES = ("T4", "A100", "RTX 4090", "H100", "H200", "L40S", "RTX 3090")
SM_COUNTS = {"T4": 40, "A100": 108, "RTX 4090": 128, "H100": 132, "H200": 132, "L40S": 142, "RTX 3090": 82}
MAX_THREADS_PER_SM = {"T4": 1024, "A100": 2048, "H100": 2048, "H200": 2048}  # per SM; 1,536 for other devices
LaunchExtents = int | tuple[int, int]


@dataclass(frozen=True)
class FlawedKernel:
    """A kernel with a performance flaw and the launch of its fixed version, or a kernel without a flaw."""

    family: str
    cause: str
    device: str
    code: str
    arguments: tuple[Any, ...]
    flawed_launch: tuple[LaunchExtents, LaunchExtents, int]
    mended_launch: tuple[LaunchExtents, LaunchExtents, int] | None = None

    def launch(self, cp: Any, version_name: str) -> tuple[Any, ...]:
        """Return the kernel of the ``"flawed"`` or ``"mended"`` version, with its launch configuration and
        arguments.
        """
        launch_shape = self.flawed_launch if version_name == "flawed" else self.mended_launch
        assert launch_shape is not None
        args = tuple(
            cp.asarray(argument) if isinstance(argument, np.ndarray) else argument
            for argument in self.arguments
        )
        kernel = cp.RawModule(code=self.code).get_function(version_name)
        if launch_shape[2] > 48 << 10:
            kernel.max_dynamic_shared_size_bytes = launch_shape[2]
        return kernel, launch_shape[0], launch_shape[1], args, launch_shape[2]


KernelFamily = Callable[[random.Random], FlawedKernel]
FAMILIES: dict[str, list[KernelFamily]] = {}


def register_family(cause: str) -> Callable[[KernelFamily], KernelFamily]:
    """Return a decorator for a function that draws random kernels with this flaw."""

    def add_to_family(draw_case: KernelFamily) -> KernelFamily:
        FAMILIES.setdefault(cause, []).append(draw_case)
        return draw_case

    return add_to_family


def draw_flawed_kernel(seed: int | str, cause: str, family_index: int) -> FlawedKernel:
    """Draw a random kernel with this flaw from the family with this index."""
    rng = random.Random(f"{seed} {cause} {family_index}")
    families = FAMILIES[cause]
    return families[family_index % len(families)](rng)


def _make_kernel_pair(args: str, flawed_body: str, fixed_body: str = "", preamble: str = "") -> str:
    """Return the CUDA source of the kernels ``flawed`` and ``mended`` with these bodies."""
    index_line = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    source_parts = [preamble]
    for name, kernel_body in (("flawed", flawed_body), ("mended", fixed_body)):
        if kernel_body:
            source_parts.append(
                f'extern "C" __global__ void {name}({args}) {{\n    {index_line}\n{kernel_body}\n}}'
            )
    return "\n".join(source_parts)


def _make_float_array(n: int) -> np.ndarray:
    return np.random.default_rng(n).random(n, np.float32)


def _make_zero_array(n: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(n, dtype)


# --- uncoalesced ------------------------------------------------------------------------------------
@register_family("uncoalesced")
def draw_rows_one_thread_each(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    m = rng.choice([32, 48, 64])
    n = rng.choice([1 << 15, 1 << 16, 3 << 15])
    code = _make_kernel_pair(
        "const float* x, float* y, int n, int m",
        "    float s = 0;\n    for (int j = 0; j < m; j++)\n        s += x[i * m + j];\n    y[i] = s;",
        "    float s = 0;\n    for (int j = 0; j < m; j++)\n        s += x[j * n + i];\n    y[i] = s;",
    )
    launch_shape = n // 128, 128, 0
    return FlawedKernel(
        "rows_one_thread_each",
        "uncoalesced",
        device,
        code,
        (_make_float_array(n * m), _make_zero_array(n), np.int32(n), np.int32(m)),
        launch_shape,
        launch_shape,
    )


@register_family("uncoalesced")
def draw_strided_copy(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    stride = rng.choice([4, 8, 16, 32])
    n = rng.choice([1 << 18, 1 << 19])
    code = _make_kernel_pair(
        "const float* x, float* y, int stride",
        "    y[i] = 2.0f * x[i * stride];",
        "    y[i] = 2.0f * x[i];",
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "strided_copy",
        "uncoalesced",
        device,
        code,
        (_make_float_array(n * stride), _make_zero_array(n), np.int32(stride)),
        launch_shape,
        launch_shape,
    )


@register_family("uncoalesced")
def draw_transposed_copy(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1024, 1536, 2048])
    args = "const float* x, float* y, int n"
    code = "\n".join(
        [
            f'extern "C" __global__ void flawed({args}) {{',
            "    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;",
            "    y[c * n + r] = x[r * n + c];",
            "}",
            f'extern "C" __global__ void mended({args}) {{',
            "    __shared__ float t[32][33];",
            "    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;",
            "    for (int k = 0; k < 32; k += 8) t[threadIdx.y + k][threadIdx.x] = x[(r + k) * n + c];",
            "    __syncthreads();",
            "    c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;",
            "    for (int k = 0; k < 32; k += 8) y[(r + k) * n + c] = t[threadIdx.x][threadIdx.y + k];",
            "}",
        ]
    )
    return FlawedKernel(
        "transposed_copy",
        "uncoalesced",
        device,
        code,
        (_make_float_array(n * n), _make_zero_array(n * n), np.int32(n)),
        ((n // 32, n // 8), (32, 8), 0),
        ((n // 32, n // 32), (32, 8), 0),
    )


@register_family("uncoalesced")
def draw_array_of_structs(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    field_count = rng.choice([6, 8, 12])
    n = rng.choice([1 << 18, 1 << 19])
    code = _make_kernel_pair(
        "const float* x, float* y, int n",
        f"    y[i] = x[i * {field_count}] + x[i * {field_count} + 1];",
        "    y[i] = x[i] + x[n + i];",
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "array_of_structs",
        "uncoalesced",
        device,
        code,
        (_make_float_array(n * field_count), _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


# --- re-reading -------------------------------------------------------------------------------------
@register_family("re-reading")
def draw_naive_product(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([512, 640, 768])
    tile_side = 16
    args = "const float* a, const float* b, float* c, int n"
    code = "\n".join(
        [
            f'extern "C" __global__ void flawed({args}) {{',
            f"    int x = blockIdx.x * {tile_side} + threadIdx.x, y = blockIdx.y * {tile_side} + threadIdx.y;",
            "    float s = 0;",
            "    for (int k = 0; k < n; k++)",
            "        s += a[y * n + k] * b[k * n + x];",
            "    c[y * n + x] = s;",
            "}",
            f'extern "C" __global__ void mended({args}) {{',
            f"    __shared__ float p[{tile_side}][{tile_side}], q[{tile_side}][{tile_side}];",
            "    int tx = threadIdx.x, ty = threadIdx.y;",
            f"    int x = blockIdx.x * {tile_side} + tx, y = blockIdx.y * {tile_side} + ty;",
            "    float s = 0;",
            f"    for (int k = 0; k < n; k += {tile_side}) {{",
            "        p[ty][tx] = a[y * n + k + tx]; q[ty][tx] = b[(k + ty) * n + x];",
            "        __syncthreads();",
            f"        for (int j = 0; j < {tile_side}; j++) s += p[ty][j] * q[j][tx];",
            "        __syncthreads();",
            "    }",
            "    c[y * n + x] = s;",
            "}",
        ]
    )
    launch_shape = (n // tile_side, n // tile_side), (tile_side, tile_side), 0
    return FlawedKernel(
        "naive_product",
        "re-reading",
        device,
        code,
        (_make_float_array(n * n), _make_float_array(n * n), _make_zero_array(n * n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("re-reading")
def draw_all_pairs(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 16, 1 << 17])
    m = rng.choice([256, 512])
    code = _make_kernel_pair(
        "const float4* p, float* out, int m",
        """    float4 me = p[i]; float s = 0;
    for (int j = 0; j < m; j++) {
        float4 o = p[j];
        s += fabsf(me.x - o.x) + fabsf(me.y - o.y) * o.w;
    }
    out[i] = s;""",
        """    __shared__ float4 t[128];
    float4 me = p[i]; float s = 0;
    for (int k = 0; k < m; k += 128) {
        t[threadIdx.x] = p[k + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 128; j++) {
            float4 o = t[j];
            s += fabsf(me.x - o.x) + fabsf(me.y - o.y) * o.w;
        }
        __syncthreads();
    }
    out[i] = s;""",
    )
    launch_shape = n // 128, 128, 0
    return FlawedKernel(
        "all_pairs",
        "re-reading",
        device,
        code,
        (_make_float_array(4 * n), _make_zero_array(n), np.int32(m)),
        launch_shape,
        launch_shape,
    )


@register_family("re-reading")
def draw_wide_filter(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    filter_radius = rng.choice([16, 24, 32])
    n = rng.choice([1 << 19, 1 << 20])
    code = _make_kernel_pair(
        "const float* x, const float* w, float* y, int n",
        f"""    float s = 0;
    for (int k = -{filter_radius}; k <= {filter_radius}; k++) {{
        int at = min(max(i + k, 0), n - 1);
        s += x[at] * w[k + {filter_radius}];
    }}
    y[i] = s;""",
        f"""    __shared__ float t[256 + 2 * {filter_radius}], v[2 * {filter_radius} + 1];
    for (int k = threadIdx.x; k < 256 + 2 * {filter_radius}; k += 256)
        t[k] = x[min(max(int(blockIdx.x * 256) + k - {filter_radius}, 0), n - 1)];
    if (threadIdx.x <= 2 * {filter_radius}) v[threadIdx.x] = w[threadIdx.x];
    __syncthreads();
    float s = 0;
    for (int k = 0; k <= 2 * {filter_radius}; k++) s += t[threadIdx.x + k] * v[k];
    y[i] = s;""",
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "wide_filter",
        "re-reading",
        device,
        code,
        (_make_float_array(n), _make_float_array(2 * filter_radius + 1), _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


# --- bank conflicts ---------------------------------------------------------------------------------
@register_family("bank conflicts")
def draw_unpadded_tile(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([512, 1024])
    round_count = rng.choice([8, 16])

    def make_body(pad_columns: int) -> str:
        return f"""    __shared__ float t[32][{32 + pad_columns}];
    int x = threadIdx.x & 31, y = threadIdx.x >> 5;
    for (int k = y; k < 32; k += 8) t[k][x] = in[(blockIdx.x * 32 + k) * 32 + x];
    __syncthreads();
    float s = 0;
    for (int r = 0; r < {round_count}; r++)
        for (int k = y; k < 32; k += 8) s += t[x][(k + r) & 31];
    out[i] = s;"""

    launch_shape = n, 256, 0
    return FlawedKernel(
        "unpadded_tile",
        "bank conflicts",
        device,
        _make_kernel_pair("const float* in, float* out", make_body(0), make_body(1)),
        (_make_float_array(n * 1024), _make_zero_array(n * 256)),
        launch_shape,
        launch_shape,
    )


@register_family("bank conflicts")
def draw_records_of_a_thread(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    field_count = rng.choice([8, 16])
    n = rng.choice([1 << 17, 1 << 18])

    def make_body(index: str) -> str:
        return f"""    __shared__ float s[128 * {field_count}];
    for (int k = 0; k < {field_count}; k++) s[{index}] = x[i] + k;
    __syncthreads();
    float v = 0;
    for (int r = 0; r < 8; r++)
        for (int k = 0; k < {field_count}; k++) {{ v += s[{index}]; s[{index}] = v; }}
    y[i] = v;"""

    code = _make_kernel_pair(
        "const float* x, float* y",
        make_body(f"threadIdx.x * {field_count} + k"),
        make_body("k * 128 + threadIdx.x"),
    )
    launch_shape = n // 128, 128, 0
    return FlawedKernel(
        "records_of_a_thread",
        "bank conflicts",
        device,
        code,
        (_make_float_array(n), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


@register_family("bank conflicts")
def draw_strided_table(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    stride = rng.choice([4, 8, 16])
    n = rng.choice([1 << 18, 1 << 19])

    def make_body(index: str) -> str:
        return f"""    __shared__ float t[128 * {stride}];
    for (int k = threadIdx.x; k < 128 * {stride}; k += 128) t[k] = x[k];
    __syncthreads();
    float s = 0;
    for (int r = 0; r < 64; r++) s += t[{index}];
    y[i] = s;"""

    code = _make_kernel_pair(
        "const float* x, float* y",
        make_body(f"((threadIdx.x + r) & 127) * {stride}"),
        make_body("(threadIdx.x + r) & 127"),
    )
    launch_shape = n // 128, 128, 0
    return FlawedKernel(
        "strided_table",
        "bank conflicts",
        device,
        code,
        (_make_float_array(128 * stride), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


# --- atomics ----------------------------------------------------------------------------------------
def _make_sum_bodies(type_name: str, add_format: str, n: int) -> tuple[str, str]:
    """Return two kernel bodies for a sum: one atomic per thread, and one atomic per warp."""
    flawed_body = f"    for (int k = i; k < n; k += gridDim.x * blockDim.x) {add_format.format(to='out', value='x[k]')};"
    fixed_body = f"""    {type_name} s = 0;
    for (int k = i; k < n; k += gridDim.x * blockDim.x) s += x[k];
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0) {add_format.format(to="out", value="s")};"""
    return flawed_body, fixed_body


@register_family("atomics")
def draw_one_sum(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 17, 1 << 18, 1 << 19])
    flawed_body, fixed_body = _make_sum_bodies("float", "atomicAdd({to}, {value})", n)
    launch_shape = 2 * SM_COUNTS[device], 256, 0
    return FlawedKernel(
        "one_sum",
        "atomics",
        device,
        _make_kernel_pair("const float* x, float* out, int n", flawed_body, fixed_body),
        (_make_float_array(n), _make_zero_array(1), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("atomics")
def draw_few_bins(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    bin_count = rng.choice([8, 16, 64])
    n = rng.choice([1 << 18, 1 << 19])
    code = _make_kernel_pair(
        "const int* x, float* out, int n",
        f"    for (int k = i; k < n; k += gridDim.x * blockDim.x) atomicAdd(out + (x[k] & {bin_count - 1}), 1.0f);",
        f"""    __shared__ float s[{bin_count}];
    if (threadIdx.x < {bin_count}) s[threadIdx.x] = 0;
    __syncthreads();
    for (int k = i; k < n; k += gridDim.x * blockDim.x) atomicAdd(s + (x[k] & {bin_count - 1}), 1.0f);
    __syncthreads();
    if (threadIdx.x < {bin_count}) atomicAdd(out + threadIdx.x, s[threadIdx.x]);""",
    )
    launch_shape = 2 * SM_COUNTS[device], 256, 0
    bin_indices = np.random.default_rng(n).integers(0, bin_count, n).astype(np.int32)
    return FlawedKernel(
        "few_bins",
        "atomics",
        device,
        code,
        (bin_indices, _make_zero_array(bin_count), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("atomics")
def draw_counted_matches(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 19, 1 << 20])
    code = _make_kernel_pair(
        "const float* x, float* out, int n",
        "    for (int k = i; k < n; k += gridDim.x * blockDim.x)\n        if (x[k] > 0.5f) atomicAdd(out, x[k]);",
        """    float s = 0;
    for (int k = i; k < n; k += gridDim.x * blockDim.x) if (x[k] > 0.5f) s += x[k];
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, s);""",
    )
    launch_shape = 2 * SM_COUNTS[device], 256, 0
    return FlawedKernel(
        "counted_matches",
        "atomics",
        device,
        code,
        (_make_float_array(n), _make_zero_array(1), np.int32(n)),
        launch_shape,
        launch_shape,
    )


# --- spills -----------------------------------------------------------------------------------------
@register_family("spills")
def draw_local_histogram(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 16, 1 << 17])
    last_lines_format = "    float s = 0;\n    for (int k = 0; k < 16; k++) s += k * {0};\n    y[i] = s;"
    code = _make_kernel_pair(
        "const int* x, float* y, int n",
        "    int c[16];\n    for (int k = 0; k < 16; k++) c[k] = 0;\n"
        "    for (int k = 0; k < 64; k++) c[x[k * n + i] & 15]++;\n" + last_lines_format.format("c[k]"),
        "    __shared__ int c[16][128];\n    for (int k = 0; k < 16; k++) c[k][threadIdx.x] = 0;\n"
        "    for (int k = 0; k < 64; k++) c[x[k * n + i] & 15][threadIdx.x]++;\n"
        + last_lines_format.format("c[k][threadIdx.x]"),
    )
    launch_shape = n // 128, 128, 0
    bin_indices = np.random.default_rng(n).integers(0, 16, n * 64).astype(np.int32)
    return FlawedKernel(
        "local_histogram",
        "spills",
        device,
        code,
        (bin_indices, _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("spills")
def draw_local_table(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 18, 1 << 19])
    table_size = rng.choice([32, 64])
    code = _make_kernel_pair(
        "const float* x, float* y, int n",
        f"""    float t[{table_size}];
    for (int k = 0; k < {table_size}; k++) t[k] = x[i] * k;
    float s = 0;
    int at = int(x[i] * {table_size - 1});
    for (int k = 0; k < {table_size}; k++) {{ s += t[at]; at = (at * 5 + 3) & {table_size - 1}; }}
    y[i] = s;""",
        f"""    float v = x[i], s = 0;
    int at = int(v * {table_size - 1});
    for (int k = 0; k < {table_size}; k++) {{ s += v * at; at = (at * 5 + 3) & {table_size - 1}; }}
    y[i] = s;""",
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "local_table",
        "spills",
        device,
        code,
        (_make_float_array(n), _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("spills")
def draw_local_queue(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 17, 1 << 18])
    round_count = rng.choice([64, 96])

    def make_body(declaration: str, element_format: str) -> str:
        return f"""    {declaration}
    for (int k = 0; k < 16; k++) {element_format.format("k")} = x[i] + k;
    int head = i & 15;
    for (int k = 0; k < {round_count}; k++) {{
        {element_format.format("head & 15")} += {element_format.format("(head + 5) & 15")};
        head += 3;
    }}
    y[i] = {element_format.format("head & 15")};"""

    code = _make_kernel_pair(
        "const float* x, float* y, int n",
        make_body("float q[16];", "q[{0}]"),
        make_body("__shared__ float q[16][128];", "q[{0}][threadIdx.x]"),
    )
    launch_shape = n // 128, 128, 0
    return FlawedKernel(
        "local_queue",
        "spills",
        device,
        code,
        (_make_float_array(n), _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )
