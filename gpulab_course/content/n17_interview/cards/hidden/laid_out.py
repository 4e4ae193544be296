"""More kernels with one performance flaw, in their instructions or in the layout of their grid."""

from __future__ import annotations

import random

import numpy as np

from gpulab_course.content.n17_interview.cards.hidden.flawed import (
    DEVICES,
    MAX_THREADS_PER_SM,
    SM_COUNTS,
    FlawedKernel,
    _make_float_array,
    _make_kernel_pair,
    _make_zero_array,
    register_family,
)

WORK_LOOP_CODE = "for (int k = 0; k < {many}; k++) v = fmaf(v, 0.999f, 0.5f) + sqrtf(v);"


# --- divergence -------------------------------------------------------------------------------------
@register_family("divergence")
def draw_odd_and_even(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    branch_count = rng.choice([2, 4, 8])
    n = rng.choice([1 << 17, 1 << 18])

    def make_body(branch_expression: str) -> str:
        body_lines = [f"    float v = x[i];\n    int way = {branch_expression};"]
        body_lines += [
            f"    {'else ' if branch_index else ''}if (way == {branch_index}) for (int k = 0; k < 64; k++) "
            f"v = v * {0.5 + branch_index / 16}f + sqrtf(v + {branch_index});"
            for branch_index in range(branch_count)
        ]
        return "\n".join([*body_lines, "    y[i] = v;"])

    code = _make_kernel_pair(
        "const float* x, float* y, int n",
        make_body(f"i % {branch_count}"),
        make_body(f"(i / 32) % {branch_count}"),
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "odd_and_even",
        "divergence",
        device,
        code,
        (_make_float_array(n), _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("divergence")
def draw_uneven_rounds(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    max_rounds = rng.choice([4, 8])
    n = rng.choice([1 << 16, 1 << 17])
    kernel_body = (
        "    float v = x[i];\n    for (int k = 0; k < r[i]; k++) v = v * 0.99f + sqrtf(v);\n    y[i] = v;"
    )
    code = _make_kernel_pair(
        "const float* x, float* y, const int* r, const int* sorted",
        kernel_body,
        kernel_body.replace("r[i]", "sorted[i]"),
    )
    rounds_of_thread = np.random.default_rng(n).integers(1, 32 * max_rounds, n).astype(np.int32)
    rounds_of_thread[::32] = 32 * max_rounds
    # Equal lengths within each warp, and all lengths within each block.
    sorted_rounds = (
        np.sort(rounds_of_thread).reshape(-1, n // 256, 32) if n % 8192 == 0 else np.sort(rounds_of_thread)
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "uneven_rounds",
        "divergence",
        device,
        code,
        (
            _make_float_array(n),
            _make_zero_array(n),
            rounds_of_thread,
            np.ascontiguousarray(sorted_rounds.transpose(1, 0, 2)).reshape(-1),
        ),
        launch_shape,
        launch_shape,
    )


@register_family("divergence")
def draw_one_lane_in_many(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    working_lane_interval = rng.choice([4, 8, 16])
    n = rng.choice([1 << 20, 1 << 21])
    work_code = WORK_LOOP_CODE.format(many=64)
    code = _make_kernel_pair(
        "float* y, int n, int every",
        f"    if (i % every == 0) {{ float v = i; {work_code} y[i / every] = v; }}",
        f"    if (i < n / every) {{ float v = i * every; {work_code} y[i] = v; }}",
    )
    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "one_lane_in_many",
        "divergence",
        device,
        code,
        (_make_zero_array(n), np.int32(n), np.int32(working_lane_interval)),
        launch_shape,
        (n // working_lane_interval // 256, 256, 0),
    )


# --- how the grid lies on the device ----------------------------------------------------------------
def _make_loop_body(round_count: str) -> str:
    return f"    float v = i;\n    for (int k = 0; k < {round_count}; k++) v = fmaf(v, 0.999f, 0.5f);\n    y[i] = v;"


@register_family("tail")
def draw_one_block_too_many(rng: random.Random) -> FlawedKernel:
    device = rng.choice(["A100", "H100", "H200", "T4"])
    threads = 1024
    blocks_per_sm = 1 if device == "T4" else 2
    block_slots = SM_COUNTS[device] * blocks_per_sm
    round_count = rng.choice([1000, 2000, 3000])
    extra_blocks = rng.choice([1, 2, 8])
    blocks = block_slots + extra_blocks
    code = _make_kernel_pair(
        "float* y, int total",
        _make_loop_body(str(round_count)),
        f"    int each = total / (gridDim.x * blockDim.x) + 1;\n{_make_loop_body('each')}",
    )
    return FlawedKernel(
        "one_block_too_many",
        "tail",
        device,
        code,
        (_make_zero_array(blocks * threads), np.int32(blocks * threads * round_count)),
        (blocks, threads, 0),
        (block_slots, threads, 0),
    )


@register_family("tail")
def draw_heavy_block(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    round_count = rng.choice([200, 400])
    work_factor = rng.choice([12, 20, 30])
    blocks = 6 * SM_COUNTS[device]
    code = _make_kernel_pair(
        "float* y, int blocks",
        _make_loop_body(f"(blockIdx.x == blocks - 1 ? {work_factor} * {round_count} : {round_count})"),
        _make_loop_body(f"({round_count} + {work_factor} * {round_count} / blocks)"),
    )
    launch_shape = blocks, 128, 0
    return FlawedKernel(
        "a_heavy_block",
        "tail",
        device,
        code,
        (_make_zero_array(blocks * 128), np.int32(blocks)),
        launch_shape,
        launch_shape,
    )


@register_family("tail")
def draw_triangle(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    wave_count = rng.choice([1, 2])
    blocks = MAX_THREADS_PER_SM.get(device, 1536) // 256 * SM_COUNTS[device] * wave_count
    code = _make_kernel_pair(
        "float* y, int blocks",
        _make_loop_body("8 * blockIdx.x"),
        _make_loop_body("4 * blocks"),
    )
    return FlawedKernel(
        "triangle",
        "tail",
        device,
        code,
        (_make_zero_array(blocks * 256), np.int32(blocks)),
        (blocks, 256, 0),
        (blocks, 256, 0),
    )


@register_family("grid")
def draw_few_blocks(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    blocks = rng.choice([4, 8, 16])
    n = rng.choice([1 << 19, 1 << 20])
    kernel_body = "    for (int k = i; k < n; k += gridDim.x * blockDim.x) y[k] = 2.0f * x[k];"
    return FlawedKernel(
        "few_blocks",
        "grid",
        device,
        _make_kernel_pair("const float* x, float* y, int n", kernel_body, kernel_body),
        (_make_float_array(n), _make_zero_array(n), np.int32(n)),
        (blocks, 256, 0),
        (8 * SM_COUNTS[device], 256, 0),
    )


@register_family("grid")
def draw_one_block(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 17, 1 << 18])
    kernel_body = f"    for (int j = i; j < n; j += gridDim.x * blockDim.x) {{ float v = x[j]; {WORK_LOOP_CODE.format(many=16)} y[j] = v; }}"
    return FlawedKernel(
        "one_block",
        "grid",
        device,
        _make_kernel_pair("const float* x, float* y, int n", kernel_body, kernel_body),
        (_make_float_array(n), _make_zero_array(n), np.int32(n)),
        (1, 1024, 0),
        (4 * SM_COUNTS[device], 256, 0),
    )


@register_family("grid")
def draw_thread_per_row(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    row_count = rng.choice([2048, 4096])
    m = 512
    args = "const float* x, float* y, int rows, int m"
    code = _make_kernel_pair(
        args,
        "    float s = 0;\n    for (int k = 0; k < m; k++) s += x[k * rows + i];\n    y[i] = s;",
        """    __shared__ float t[16][32];
    int row = blockIdx.x * 32 + threadIdx.x; float s = 0;
    for (int k = threadIdx.y; k < m; k += 16) s += x[k * rows + row];
    t[threadIdx.y][threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.y == 0) { for (int k = 1; k < 16; k++) s += t[k][threadIdx.x]; y[row] = s; }""",
    )
    return FlawedKernel(
        "a_thread_a_row",
        "grid",
        device,
        code,
        (_make_float_array(row_count * m), _make_zero_array(row_count), np.int32(row_count), np.int32(m)),
        (row_count // 128, 128, 0),
        (row_count // 32, (32, 16), 0),
    )


@register_family("occupancy")
def draw_much_shared_memory(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    threads = rng.choice([64, 128])
    n = rng.choice([1 << 17, 1 << 18])
    round_count = rng.choice([32, 64])
    kernel_body = f"""    extern __shared__ float s[];
    float v = 0;
    s[threadIdx.x] = x[i];
    for (int k = 0; k < {round_count}; k++) {{ v = fmaf(v, 0.5f, s[(threadIdx.x + int(v)) % {threads}]); }}
    y[i] = v;"""
    launch_shape = n // threads, threads
    return FlawedKernel(
        "much_shared_memory",
        "occupancy",
        device,
        _make_kernel_pair("const float* x, float* y", kernel_body, kernel_body),
        (_make_float_array(n), _make_zero_array(n)),
        (*launch_shape, rng.choice([24, 32, 48]) << 10),
        (*launch_shape, 4 * threads),
    )


@register_family("occupancy")
def draw_small_blocks(rng: random.Random) -> FlawedKernel:
    device = rng.choice(["A100", "H100", "H200", "T4"])
    round_count = rng.choice([16, 32])
    n = rng.choice([1 << 18, 1 << 19])
    kernel_body = f"    float v = x[i];\n    for (int k = 0; k < {round_count}; k++) v = sqrtf(fmaf(v, 0.5f, 1.0f));\n    y[i] = v;"
    return FlawedKernel(
        "small_blocks",
        "occupancy",
        device,
        _make_kernel_pair("const float* x, float* y", kernel_body, kernel_body),
        (_make_float_array(n), _make_zero_array(n)),
        (n // 32, 32, 0),
        (n // 256, 256, 0),
    )


@register_family("occupancy")
def draw_shared_gather(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 17, 1 << 18])
    load_count = rng.choice([4, 6])
    kernel_body = f"""    extern __shared__ float s[];
    int at = i;
    for (int k = 0; k < {load_count}; k++) at = x[at];
    s[threadIdx.x] = at;
    y[i] = s[threadIdx.x];"""
    launch_shape = n // 128, 128
    next_indices = np.roll(np.arange(n), 128 * 77).astype(np.int32)
    return FlawedKernel(
        "shared_gather",
        "occupancy",
        device,
        _make_kernel_pair("const int* x, float* y", kernel_body, kernel_body),
        (next_indices, _make_zero_array(n)),
        (*launch_shape, rng.choice([40, 48]) << 10),
        (*launch_shape, 512),
    )


# --- waiting ----------------------------------------------------------------------------------------
_LOAD_BLOCKS = {"T4": 32, "A100": 64, "RTX 4090": 128, "H100": 128, "H200": 128, "L40S": 128, "RTX 3090": 64}


@register_family("in flight")
def draw_one_load_at_a_time(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 20, 1 << 21])
    threads = rng.choice([32, 64])
    flawed_body = """    float s = 0;
    for (int k = i; k < n; k += gridDim.x * blockDim.x) { s += x[k]; __syncwarp(); __threadfence_block(); }
    y[i] = s;"""
    fixed_body = """    float s = 0;
    int step = gridDim.x * blockDim.x;
    for (int k = i; k < n; k += 4 * step) {
        float a = x[k], b = x[k + step], c = x[k + 2 * step], d = x[k + 3 * step];
        s += a + b + c + d; __syncwarp(); __threadfence_block();
    }
    y[i] = s;"""
    blocks = _LOAD_BLOCKS[device]
    blocks *= 2 if blocks < 128 else 1
    if blocks < SM_COUNTS[device]:
        blocks *= 2
    launch_shape = blocks, threads, 0
    return FlawedKernel(
        "one_load_at_a_time",
        "in flight",
        device,
        _make_kernel_pair("const float* x, float* y, int n", flawed_body, fixed_body),
        (_make_float_array(n), _make_zero_array(blocks * threads), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("in flight")
def draw_byte_copy(rng: random.Random) -> FlawedKernel:
    device = rng.choice(["H100", "H200", "A100"])
    n = rng.choice([1 << 21, 1 << 22])
    code = _make_kernel_pair(
        "const unsigned char* x, unsigned char* y",
        "    y[i] = 255 - x[i];",
        "    uchar4 v = ((const uchar4*)x)[i];\n"
        "    ((uchar4*)y)[i] = make_uchar4(255 - v.x, 255 - v.y, 255 - v.z, 255 - v.w);",
    )
    return FlawedKernel(
        "bytes_by_one",
        "in flight",
        device,
        code,
        (_make_zero_array(n, np.uint8), _make_zero_array(n, np.uint8)),
        (n // 256, 256, 0),
        (n // 1024, 256, 0),
    )


@register_family("in flight")
def draw_step_by_step(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    row_count = rng.choice([64, 128])
    threads = 2 * SM_COUNTS[device] * 128
    flawed_body = f"""    float s = 0;
    for (int k = 0; k < {row_count}; k++) {{ s += x[k * n + i]; __syncthreads(); }}
    y[i] = s;"""
    fixed_body = f"""    float s = 0;
    for (int k = 0; k < {row_count}; k += 4) {{
        float a = x[k * n + i], b = x[(k + 1) * n + i], c = x[(k + 2) * n + i], d = x[(k + 3) * n + i];
        s += a + b + c + d; __syncthreads();
    }}
    y[i] = s;"""
    launch_shape = threads // 128, 128, 0
    return FlawedKernel(
        "step_by_step",
        "in flight",
        device,
        _make_kernel_pair("const float* x, float* y, int n", flawed_body, fixed_body),
        (_make_float_array(threads * row_count), _make_zero_array(threads), np.int32(threads)),
        launch_shape,
        launch_shape,
    )


@register_family("latency")
def draw_long_chain(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    step_count = rng.choice([2048, 4096])
    flawed_body = f"    float v = x[i];\n    for (int k = 0; k < {step_count}; k++) v = fmaf(v, 0.999f, 0.5f);\n    y[i] = v;"
    fixed_body = f"""    float a = x[i], b = a + 1, c = a + 2, d = a + 3;
    for (int k = 0; k < {step_count // 4}; k++) {{
        a = fmaf(a, 0.999f, 0.5f); b = fmaf(b, 0.999f, 0.5f);
        c = fmaf(c, 0.999f, 0.5f); d = fmaf(d, 0.999f, 0.5f);
    }}
    y[i] = a + b + c + d;"""
    n = 2 * SM_COUNTS[device] * 64
    launch_shape = n // 64, 64, 0
    return FlawedKernel(
        "long_chain",
        "latency",
        device,
        _make_kernel_pair("const float* x, float* y", flawed_body, fixed_body),
        (_make_float_array(n), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


@register_family("latency")
def draw_pointer_chase(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    load_count = rng.choice([64, 128])
    n = 2 * SM_COUNTS[device] * 64
    flawed_body = (
        f"    int at = i;\n    for (int k = 0; k < {load_count}; k++) at = next[at];\n    y[i] = at;"
    )
    fixed_body = f"""    int a = i, b = (i + 32) % n, c = (i + 64) % n, d = (i + 96) % n;
    for (int k = 0; k < {load_count // 4}; k++) {{ a = next[a]; b = next[b]; c = next[c]; d = next[d]; }}
    y[i] = a + b + c + d;"""
    next_indices = np.roll(np.arange(n), 32 * 37).astype(np.int32)
    launch_shape = n // 64, 64, 0
    return FlawedKernel(
        "pointer_chase",
        "latency",
        device,
        _make_kernel_pair("const int* next, float* y, int n", flawed_body, fixed_body),
        (next_indices, _make_zero_array(n), np.int32(n)),
        launch_shape,
        launch_shape,
    )


@register_family("latency")
def draw_sum_in_order(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    step_count = rng.choice([1024, 2048])
    fill_code = "    __shared__ float s[256];\n    s[threadIdx.x] = x[i]; s[threadIdx.x + 64] = 1;\n    __syncthreads();\n"
    flawed_body = f"    float v = 0;\n    for (int k = 0; k < {step_count}; k++) v = v * 0.5f + s[(k + int(v)) & 63];\n    y[i] = v;"
    fixed_body = f"""    float a = 0, b = 0, c = 0, d = 0;
    for (int k = 0; k < {step_count // 4}; k++) {{
        a = a * 0.5f + s[(k + int(a)) & 63]; b = b * 0.5f + s[(k + int(b)) & 63];
        c = c * 0.5f + s[(k + int(c)) & 63]; d = d * 0.5f + s[(k + int(d)) & 63];
    }}
    y[i] = a + b + c + d;"""
    n = SM_COUNTS[device] * 64
    launch_shape = n // 64, 64, 0
    return FlawedKernel(
        "sum_in_order",
        "latency",
        device,
        _make_kernel_pair("const float* x, float* y", fill_code + flawed_body, fill_code + fixed_body),
        (_make_float_array(n), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


# --- arithmetic -------------------------------------------------------------------------------------
@register_family("compute")
def draw_doubles_by_accident(rng: random.Random) -> FlawedKernel:
    device = rng.choice(["T4", "RTX 4090", "L40S", "RTX 3090"])
    round_count = rng.choice([16, 32, 64])
    n = rng.choice([1 << 18, 1 << 19])

    def make_body(literal_suffix: str) -> str:
        return f"    float v = x[i];\n    for (int k = 0; k < {round_count}; k++) v = v * 0.999{literal_suffix} + 0.5{literal_suffix};\n    y[i] = v;"

    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "doubles_by_accident",
        "compute",
        device,
        _make_kernel_pair("const float* x, float* y", make_body(""), make_body("f")),
        (_make_float_array(n), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


@register_family("compute")
def draw_variable_division(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    round_count = rng.choice([16, 32])
    n = rng.choice([1 << 18, 1 << 19])
    code = _make_kernel_pair(
        "const int* x, int* y, int size, int bits",
        f"    int v = x[i];\n    for (int k = 0; k < {round_count}; k++) v = (v + k) % (size + (v & 0)) + (v ^ k) / (size + k);\n    y[i] = v;",
        f"    int v = x[i];\n    for (int k = 0; k < {round_count}; k++) v = ((v + k) & (size - 1)) + ((v ^ k) >> bits);\n    y[i] = v;",
    )
    launch_shape = n // 256, 256, 0
    dividends = np.random.default_rng(n).integers(0, 1 << 20, n).astype(np.int32)
    return FlawedKernel(
        "division_by_a_variable",
        "compute",
        device,
        code,
        (dividends, _make_zero_array(n, np.int32), np.int32(1024), np.int32(10)),
        launch_shape,
        launch_shape,
    )


@register_family("compute")
def draw_double_polynomial(rng: random.Random) -> FlawedKernel:
    device = rng.choice(["T4", "RTX 4090", "L40S"])
    term_count = rng.choice([12, 20])
    n = rng.choice([1 << 18, 1 << 19])

    def make_body(type_name: str) -> str:
        term_lines = "\n".join(
            f"    v = v * t + ({type_name}){term_index / 7:.3f};" for term_index in range(term_count)
        )
        return f"    {type_name} t = x[i], v = 1;\n{term_lines}\n    y[i] = v;"

    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "double_polynomial",
        "compute",
        device,
        _make_kernel_pair("const float* x, float* y", make_body("double"), make_body("float")),
        (_make_float_array(n), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


@register_family("compute")
def draw_accurate_functions(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    round_count = rng.choice([4, 8])
    n = rng.choice([1 << 18, 1 << 19])
    first_function, second_function = rng.sample(["exp", "sin", "cos", "pow"], 2)

    def make_call_text(name: str, function_prefix: str) -> str:
        return f"{function_prefix}{name}f(v{', 1.7f' if name == 'pow' else ''})"

    def make_body(function_prefix: str) -> str:
        return f"""    float v = x[i] + 0.5f;
    for (int k = 0; k < {round_count}; k++) v = fabsf({make_call_text(first_function, function_prefix)}) * 0.4f + fabsf({make_call_text(second_function, function_prefix)}) * 0.5f;
    y[i] = v;"""

    launch_shape = n // 256, 256, 0
    return FlawedKernel(
        "accurate_functions",
        "compute",
        device,
        _make_kernel_pair("const float* x, float* y", make_body(""), make_body("__")),
        (_make_float_array(n), _make_zero_array(n)),
        launch_shape,
        launch_shape,
    )


@register_family("launch")
def draw_tiny_grid(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([256, 1024, 4096, 8192])
    threads = rng.choice([64, 128, 256])
    kernel_statement = rng.choice(["y[i] = 2.0f * x[i];", "y[i] += x[i];", "y[i] = fmaxf(x[i], 0.0f);"])
    return FlawedKernel(
        "tiny",
        "launch",
        device,
        _make_kernel_pair("const float* x, float* y", f"    {kernel_statement}"),
        (_make_float_array(n), _make_zero_array(n)),
        (max(1, n // threads), threads, 0),
    )


# --- nothing wrong ----------------------------------------------------------------------------------
@register_family("sound")
def draw_streamed_arrays(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 22, 3 << 21, 1 << 23])
    kernel_statement = rng.choice(["y[i] = 2.0f * x[i] + y[i];", "y[i] = x[i];", "y[i] = fmaxf(x[i], 0.0f);"])
    return FlawedKernel(
        "streamed",
        "sound",
        device,
        _make_kernel_pair("const float* x, float* y", f"    {kernel_statement}"),
        (_make_float_array(n), _make_zero_array(n)),
        (n // 256, 256, 0),
    )


@register_family("sound")
def draw_streamed_by_four(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 22, 1 << 23])
    kernel_body = "    float4 v = x[i];\n    v.x *= 2; v.y *= 2; v.z *= 2; v.w *= 2;\n    y[i] = v;"
    return FlawedKernel(
        "streamed_by_four",
        "sound",
        device,
        _make_kernel_pair("const float4* x, float4* y", kernel_body),
        (_make_float_array(n), _make_zero_array(n)),
        (n // 1024, 256, 0),
    )


@register_family("sound")
def draw_dense_arithmetic(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = 8 * 256 * 8
    n *= rng.choice([16, 32])
    fma_statements = "".join(f"a{k} = fmaf(a{k}, 0.999f, 0.5f); " for k in range(8))
    variable_declarations = ", ".join(f"a{k} = x[i] + {k}" for k in range(8))
    sum_expression = " + ".join(f"a{k}" for k in range(8))
    kernel_body = f"    float {variable_declarations};\n    for (int k = 0; k < 128; k++) {{ {fma_statements}}}\n    y[i] = {sum_expression};"
    return FlawedKernel(
        "dense_arithmetic",
        "sound",
        device,
        _make_kernel_pair("const float* x, float* y", kernel_body),
        (_make_float_array(n), _make_zero_array(n)),
        (n // 256, 256, 0),
    )


_BLOCKS_PER_SM = {"T4": 4, "RTX 4090": 6, "L40S": 6, "RTX 3090": 6}


@register_family("sound")
def draw_summed_by_warps(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([1 << 22, 1 << 23])
    kernel_body = """    float4 v = make_float4(0, 0, 0, 0);
    for (int k = i; k < n; k += gridDim.x * blockDim.x) {
        float4 o = x[k]; v.x += o.x; v.y += o.y; v.z += o.z; v.w += o.w;
    }
    float s = v.x + v.y + v.z + v.w;
    for (int d = 16; d; d /= 2) s += __shfl_down_sync(~0u, s, d);
    __shared__ float w[8];
    if (threadIdx.x % 32 == 0) w[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x == 0) { for (int k = 1; k < 8; k++) s += w[k]; atomicAdd(y, s); }"""
    blocks_per_sm = _BLOCKS_PER_SM.get(device, 8)
    return FlawedKernel(
        "summed_by_warps",
        "sound",
        device,
        _make_kernel_pair("const float4* x, float* y, int n", kernel_body),
        (_make_float_array(n), _make_zero_array(1), np.int32(n // 4)),
        (blocks_per_sm * SM_COUNTS[device], 256, 0),
    )


@register_family("sound")
def draw_padded_transpose(rng: random.Random) -> FlawedKernel:
    device = rng.choice(DEVICES)
    n = rng.choice([2048, 3072])
    code = 'extern "C" __global__ void flawed(const float* x, float* y, int n) {\n    __shared__ float t[32][33];\n    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;\n    for (int k = 0; k < 32; k += 8) t[threadIdx.y + k][threadIdx.x] = x[(r + k) * n + c];\n    __syncthreads();\n    c = blockIdx.y * 32 + threadIdx.x; r = blockIdx.x * 32 + threadIdx.y;\n    for (int k = 0; k < 32; k += 8) y[(r + k) * n + c] = t[threadIdx.x][threadIdx.y + k];\n}'
    return FlawedKernel(
        "padded_transpose",
        "sound",
        device,
        code,
        (_make_float_array(n * n), _make_zero_array(n * n), np.int32(n)),
        ((n // 32, n // 32), (32, 8), 0),
    )
