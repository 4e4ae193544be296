"""Inputs of every tensor-core instruction: random ones, and every kind that is hard to add rightly.

They are drawn from raw words of PCG64, which no version of NumPy changes, so that an H200's sums of the same
inputs can be kept as digests (``tensor_core_sums_h200.json``).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

FMT = {  # exponent bits, fraction bits, has infinity, shift of the code within its container
    "f16": (5, 10, True, 0, 16),
    "bf16": (8, 7, True, 0, 16),
    "tf32": (8, 10, True, 13, 32),
    "e4m3": (4, 3, False, 0, 8),
    "e5m2": (5, 2, True, 0, 8),
    "f32": (8, 23, True, 0, 32),
}
# name: (input a, input b, c/d kind, shape, ptx opcode)
KINDS = {
    "f16_k16": ("f16", "f16", "f32", (16, 8, 16), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    "f16_k8": ("f16", "f16", "f32", (16, 8, 8), "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"),
    "f16_k16_h": ("f16", "f16", "f16", (16, 8, 16), "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"),
    "bf16_k16": ("bf16", "bf16", "f32", (16, 8, 16), "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    "bf16_k8": ("bf16", "bf16", "f32", (16, 8, 8), "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"),
    "tf32_k8": ("tf32", "tf32", "f32", (16, 8, 8), "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
    "tf32_k4": ("tf32", "tf32", "f32", (16, 8, 4), "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"),
    "e4m3_k32": ("e4m3", "e4m3", "f32", (16, 8, 32), "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    "e5m2_k32": ("e5m2", "e5m2", "f32", (16, 8, 32), "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32"),
    "mixed_k32": ("e4m3", "e5m2", "f32", (16, 8, 32), "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32"),
}
CLASSES = (
    "near",
    "spread",
    "wide",
    "cancel",
    "subnormal",
    "tiny",
    "special",
    "overflow",
    "zeros",
    "probe",
    "c_far",
    "any",
    "c_special",
)


def raw(seed: int, n: int) -> Any:
    return np.random.PCG64(seed).random_raw(n)


def field(bits: Any, low: int, width: int) -> Any:
    return (bits >> np.uint64(low)) & np.uint64((1 << width) - 1)


def between(bits: Any, low: int, high: int) -> Any:
    """Whole numbers low..high from bits 0..31 (uint64)."""
    return low + ((bits & np.uint64(0xFFFFFFFF)) % np.uint64(high - low + 1)).astype(np.int64)


def make(fmt: str, cls: str, seed: int, shape: Any) -> Any:
    """Codes of a format (unshifted), of a class."""
    eb, fb, inf, _, _ = FMT[fmt]
    bias = 2 ** (eb - 1) - 1
    top = 2**eb - 1
    n = int(np.prod(shape))
    b = raw(seed, n)
    sign = field(b, 63, 1).astype(np.int64)
    frac = (
        field(b, 40, fb if fb <= 20 else 20).astype(np.int64)
        if fb <= 20
        else (field(b, 32, 23)).astype(np.int64)
    )
    hi_e = top - 1 if inf else top
    reach = {"near": 2, "spread": 6, "cancel": 2, "probe": 12, "c_far": 2, "c_special": 2}.get(cls)
    if cls == "any":
        e = between(b, 0, top)
        if not inf:
            frac = np.where((e == top) & (frac == 7), 6, frac) if seed % 2 else frac
    elif cls == "wide":
        e = between(b, 1, hi_e)
        if eb == 8 and fmt != "f32":
            e = between(b, bias - 40, bias + 40)
    elif cls == "subnormal":
        e = np.where(field(b, 36, 1) == 1, 0, between(b, 0, 3))
    elif cls == "tiny":
        e = between(b, max(0, bias - 70), max(2, bias - 55)) if eb == 8 else between(b, 0, 2)
    elif cls == "overflow":
        e = between(b, bias + 60, bias + 64) if eb == 8 else between(b, hi_e - 2, hi_e)
        if not inf:
            frac = np.minimum(frac, 6)
    elif cls == "zeros":
        e = np.where(field(b, 36, 2) == 0, bias, 0)
        frac = np.where(e == 0, 0, frac)
    else:
        reach = 2 if reach is None else reach
        e = np.clip(bias + between(b, -reach, reach), 1, hi_e)
    if not inf and cls in ("near", "spread", "wide", "cancel", "probe"):
        frac = np.where(e == top, np.minimum(frac, 6), frac)
    if cls == "probe":
        frac = np.where(field(b, 37, 1) == 0, 0, frac)
    code = (sign << (eb + fb)) | (e << fb) | frac
    if cls == "special":
        pick = field(b, 20, 12)
        special = (
            [top << fb, (1 << eb + fb) | (top << fb), (top << fb) | 1, (top << fb) | (1 << fb - 1)]
            if inf
            else [(top << fb) | 7, (1 << eb + fb) | (top << fb) | 7, 0, 1 << eb + fb]
        )
        for k, s in enumerate(special):
            code = np.where(pick == k * 7 + 1, s, code)
        code = np.where(pick % np.uint64(29) == 3, 0, code)
    return code.reshape(shape)


def inputs(kind: str, cls: str, seed: int, tiles: int) -> Any:
    fa, fb_, fc, (m, n, k), _ = KINDS[kind]
    base = (abs(hash_of(kind + cls)) + seed * 10) % 2**62
    a = make(fa, cls, base, (tiles, m, k))
    b = make(fb_, cls, base + 1, (tiles, k, n))
    ccls = {"cancel": "near", "probe": "spread", "c_far": "wide"}.get(cls, cls)
    if cls == "c_special":
        ccls = "special"
    c = make(fc, ccls, base + 2, (tiles, m, n))
    if cls in ("near", "spread") and seed % 3 == 0:
        c = np.zeros_like(c)
    if cls == "c_far" and fc == "f32":
        s = raw(base + 3, c.size).reshape(c.shape)
        c = (c & ~(255 << 23)) | (between(s, 127 - 45, 127 + 45) << 23)
    if cls == "cancel":  # products come in pairs of opposite sign; some pairs differ in the last place
        half = k // 2
        eb = FMT[fb_][0]
        fbits = FMT[fb_][1]
        a[:, :, half:] = a[:, :, :half]
        flip = b[:, :half, :] ^ (1 << eb + fbits)
        last = (raw(base + 4, flip.size).reshape(flip.shape) & np.uint64(3)) == 0
        b[:, half:, :] = np.where(last, flip ^ 1, flip)
        order = np.argsort(raw(base + 5, k))
        a = a[:, :, order]
        b = b[:, order, :]
    return a, b, c


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "little")


def places(part: str, shape: Any, bits: int) -> Any:
    """Row and column of each element that a lane holds, in the order of registers (PTX ISA)."""
    m, n, k = shape
    lane = np.arange(32)[:, None]
    g = lane >> 2
    t = lane & 3
    if part in "cd":
        i = np.arange(4)
        return g + 8 * (i >> 1), 2 * t + (i & 1)
    per = 32 // bits  # elements of a register
    if part == "a":
        i = np.arange(m * k // 32)
        r = i // per
        return g + 8 * (r & 1), per * t + i % per + 4 * per * (r >> 1)
    i = np.arange(k * n // 32)
    r = i // per
    return per * t + i % per + 4 * per * r, g + 0 * i


def pack(codes: Any, part: str, shape: Any, fmt: str) -> Any:
    bits = FMT[fmt][4]
    shift = FMT[fmt][3]
    rows, cols = places(part, shape, bits)
    elements = (codes[:, rows, cols].astype(np.uint64) << np.uint64(shift)).astype(
        np.uint32
    )  # tiles, 32, elements
    per = 32 // bits
    elements = elements.reshape(len(codes), 32, -1, per)
    out = np.zeros(elements.shape[:3], np.uint32)
    for j in range(per):
        out |= elements[..., j] << np.uint32(j * bits)
    return np.ascontiguousarray(out)


def source(kind: str) -> str:
    fa, fb_, fc, (m, n, k), op = KINDS[kind]
    na = m * k * FMT[fa][4] // 1024
    nb = k * n * FMT[fb_][4] // 1024
    nc = 4 if fc == "f32" else 2

    def reg(first: int, count: int) -> str:
        return ",".join(f"%{first + j}" for j in range(count))

    ins = ", ".join(
        [f'"r"(a[{j}])' for j in range(na)]
        + [f'"r"(b[{j}])' for j in range(nb)]
        + [f'"r"(c[{j}])' for j in range(nc)]
    )
    outs = ", ".join(f'"=r"(d[{j}])' for j in range(nc))
    cons = "f" if fc == "f32" else "r"
    ins = ins.replace('"r"(c[', f'"{cons}"(c[')
    outs = outs.replace('"=r"', f'"={cons}"')
    kind_c = "float" if fc == "f32" else "unsigned"
    operands = (reg(0, nc), reg(nc, na), reg(nc + na, nb), reg(nc + na + nb, nc))
    text = f"{op} " + ",".join("{" + operand + "}" for operand in operands) + ";"
    parameters = f"const unsigned* A, const unsigned* B, const {kind_c}* C, {kind_c}* D"
    return f'''extern "C" __global__ void go({parameters}) {{
    long long w = blockIdx.x, l = threadIdx.x; unsigned a[{na}], b[{nb}]; {kind_c} c[{nc}], d[{nc}];
    for (int i = 0; i < {na}; ++i) a[i] = A[(w * 32 + l) * {na} + i];
    for (int i = 0; i < {nb}; ++i) b[i] = B[(w * 32 + l) * {nb} + i];
    for (int i = 0; i < {nc}; ++i) c[i] = C[(w * 32 + l) * {nc} + i];
    asm volatile("{text}" : {outs} : {ins});
    for (int i = 0; i < {nc}; ++i) D[(w * 32 + l) * {nc} + i] = d[i];
}}'''


def on_gpu(cp: Any, kernel: Any, kind: str, a: Any, b: Any, c: Any) -> Any:
    fa, fb_, fc, shape, _ = KINDS[kind]
    tiles = len(a)
    pa = pack(a, "a", shape, fa)
    pb = pack(b, "b", shape, fb_)
    pc = pack(c, "c", shape, fc)
    kind_c = np.float32 if fc == "f32" else np.uint32
    d = cp.empty(pc.shape, kind_c)
    kernel((tiles,), (32,), (cp.asarray(pa), cp.asarray(pb), cp.asarray(pc.view(kind_c)), d))
    d = d.get().view(np.uint32)
    rows, cols = places("d", shape, 32)
    if fc == "f16":
        d = np.stack([d & 0xFFFF, d >> 16], -1).reshape(tiles, 32, 4)
    out = np.zeros((tiles, shape[0], shape[1]), np.uint32)
    out[:, rows, cols] = d
    return out
