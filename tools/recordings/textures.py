"""Record texture fetches and surfaces of a GPU bit by bit, for tests of the virtual GPU.

``python -m tools.recordings.textures --out FILE`` runs every case with CuPy, in a few seconds.
"""

from __future__ import annotations

import argparse
import base64
import json
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FORMAT = "gpulab-textures"
FILE = "textures_h200.json"
POINTS = 192
WRAP, CLAMP, MIRROR, BORDER = range(4)
SIGNED, UNSIGNED, FLOAT = range(3)

CODE = r"""
#include <cuda_fp16.h>
template <class T> struct Parts;
#define PARTS(T, N, A) template <> struct Parts<T> { static const int n = N; \
    static __device__ float at(T v, int k) { return A; } };
PARTS(float, 1, v) PARTS(int, 1, __int_as_float(v)) PARTS(unsigned, 1, __uint_as_float(v))
PARTS(float4, 4, (&v.x)[k])
PARTS(uchar4, 4, __int_as_float((&v.x)[k])) PARTS(short2, 2, __int_as_float((&v.x)[k]))
PARTS(signed char, 1, __int_as_float(v)) PARTS(unsigned short, 1, __int_as_float(v))
template <class T> __device__ void keep(float* out, int n, int i, T v)
{
    for (int k = 0; k < Parts<T>::n; ++k) out[k * n + i] = Parts<T>::at(v, k);
}
#define FETCH(NAME, T) \
extern "C" __global__ void line_##NAME(cudaTextureObject_t t, const float* at, float* out, int n) \
{ int i = threadIdx.x; if (i < n) keep<T>(out, n, i, tex1Dfetch<T>(t, (int)at[i])); } \
extern "C" __global__ void one_##NAME(cudaTextureObject_t t, const float* at, float* out, int n) \
{ int i = threadIdx.x; if (i < n) keep<T>(out, n, i, tex1D<T>(t, at[i])); } \
extern "C" __global__ void two_##NAME(cudaTextureObject_t t, const float* at, float* out, int n) \
{ int i = threadIdx.x; if (i < n) keep<T>(out, n, i, tex2D<T>(t, at[i], at[n + i])); } \
extern "C" __global__ void three_##NAME(cudaTextureObject_t t, const float* at, float* out, int n) \
{ int i = threadIdx.x; if (i < n) keep<T>(out, n, i, tex3D<T>(t, at[i], at[n + i], at[2 * n + i])); } \
extern "C" __global__ void layers_##NAME(cudaTextureObject_t t, const float* at, float* out, int n) \
{ int i = threadIdx.x, k = 2 * n + i; \
  if (i < n) keep<T>(out, n, i, tex2DLayered<T>(t, at[i], at[n + i], (int)at[k])); }
FETCH(float, float) FETCH(float4, float4) FETCH(int, int) FETCH(unsigned, unsigned)
FETCH(uchar4, uchar4) FETCH(short2, short2) FETCH(schar, signed char) FETCH(ushort, unsigned short)
extern "C" __global__ void surfaces(cudaSurfaceObject_t s, const float* at, float* out, int n)
{
    int i = threadIdx.x, x = i % 8, y = i / 8;
    if (i >= 48) return;
    float v;
    surf2Dread(&v, s, 4 * x, y);
    out[i] = v;
    surf2Dread(&v, s, 4 * (x - 2), y - 1, cudaBoundaryModeZero);
    out[48 + i] = v;
    surf2Dread(&v, s, 4 * (x + 3), y + 2, cudaBoundaryModeClamp);
    out[96 + i] = v;
    __syncthreads();
    surf2Dwrite(v + i, s, 4 * (7 - x), y);
    surf2Dwrite(-1.0f, s, 4 * (x + 7), y, cudaBoundaryModeZero);
    __syncthreads();
    surf2Dread(&v, s, 4 * x, y);
    out[144 + i] = v;
}
extern "C" __global__ void surfaces_3d(cudaSurfaceObject_t s, const float* at, float* out, int n)
{
    int i = threadIdx.x, x = i % 8, y = i / 8 % 5, z = i / 40 % 4;
    float2 v;
    surf3Dread(&v, s, 8 * x, y, z);
    out[i] = v.x;
    __syncthreads();
    surf3Dwrite(make_float2(v.y, v.x + 1), s, 8 * x, y, z);
    __syncthreads();
    surf3Dread(&v, s, 8 * (7 - x), 4 - y, 5 - z, cudaBoundaryModeClamp);
    out[n + i] = v.x;
    out[2 * n + i] = v.y;
}
extern "C" __global__ void surfaces_1d(cudaSurfaceObject_t s, const float* at, float* out, int n)
{
    int i = threadIdx.x;
    uchar4 v;
    surf1Dread(&v, s, 4 * (i - 5), cudaBoundaryModeZero);
    out[i] = v.x + 256 * v.w;
    __syncthreads();
    surf1Dwrite((unsigned char)(i * 3), s, i, cudaBoundaryModeZero);
    surf1Dwrite(make_uchar4(1, i, 3, 4), s, 4 * (i + 50), cudaBoundaryModeZero);
    __syncthreads();
    surf1Dread(&v, s, 4 * i, cudaBoundaryModeClamp);
    out[n + i] = v.y + 256 * v.z;
}
"""


@dataclass(frozen=True, slots=True)
class TextureCase:
    """A texture and the fetches from it.

    ``shape`` is width, height, depth; ``memory`` is ``array``, ``layers``, ``linear`` or ``pitch``.
    """

    kernel: str
    shape: tuple[int, int, int]
    bits: int = 32
    channels: int = 1
    kind: int = FLOAT
    memory: str = "array"
    modes: tuple[int, ...] = (CLAMP, CLAMP, CLAMP)
    smooth: bool = False
    share: bool = False
    normal: bool = False
    border: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return " ".join(f"{value}" for value in asdict(self).values())

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(f"{('int', 'uint', 'float')[self.kind]}{self.bits}")

    @property
    def dimensions(self) -> int:
        return 1 + (self.shape[1] > 0) + (self.shape[2] > 0)


def make_cases() -> Iterator[TextureCase]:
    """Return every case, in a fixed order."""
    line_shape = (61, 0, 0)
    picture_shape = (16, 12, 0)
    solid_shape = (8, 5, 6)
    for name, bits, channels, kind in (
        ("float", 32, 1, FLOAT),
        ("float4", 32, 4, FLOAT),
        ("int", 32, 1, SIGNED),
        ("unsigned", 32, 1, UNSIGNED),
        ("uchar4", 8, 4, UNSIGNED),
        ("short2", 16, 2, SIGNED),
        ("schar", 8, 1, SIGNED),
        ("ushort", 16, 1, UNSIGNED),
    ):
        yield TextureCase(f"line_{name}", line_shape, bits, channels, kind, "linear")
        yield TextureCase(f"two_{name}", picture_shape, bits, channels, kind)
    yield TextureCase("line_float", line_shape, 16, 1, FLOAT, "linear")
    for is_smooth in (False, True):
        for is_normalized in (False, True):
            for address_mode in (WRAP, CLAMP, MIRROR, BORDER):
                common_fields: dict[str, Any] = {
                    "smooth": is_smooth,
                    "normal": is_normalized,
                    "border": (-3.5, 2.0, 7.0, 1.0),
                }
                for kernel, shape in (("one", line_shape), ("two", picture_shape), ("three", solid_shape)):
                    yield TextureCase(f"{kernel}_float", shape, modes=(address_mode,) * 3, **common_fields)
        yield TextureCase("two_float", picture_shape, memory="pitch", smooth=is_smooth)
        yield TextureCase("two_float4", picture_shape, channels=4, smooth=is_smooth)
        yield TextureCase("layers_float", solid_shape, memory="layers", smooth=is_smooth)
        yield TextureCase("one_float", line_shape, bits=16, smooth=is_smooth)
        for kind in (SIGNED, UNSIGNED):
            for bits in (8, 16):
                yield TextureCase("two_float", picture_shape, bits, 1, kind, smooth=is_smooth, share=True)
    for kind in (SIGNED, UNSIGNED):
        name = "int" if kind == SIGNED else "unsigned"
        border_fields: dict[str, Any] = {"modes": (BORDER,) * 3, "border": (9.0, 1.0, 1.0, 1.0)}
        yield TextureCase(f"two_{name}", picture_shape, 32, 1, kind, **border_fields)
    yield TextureCase("surfaces_3d", (8, 5, 6), channels=2, memory="surface")
    yield TextureCase("surfaces_1d", (61, 0, 0), 8, 4, UNSIGNED, memory="surface")
    yield TextureCase("surfaces", (8, 6, 0), memory="surface")


def make_contents(case: TextureCase) -> npt.NDArray[Any]:
    """Return texels in the layout of CuPy's `CUDAarray`, with the channels of a texel side by side."""
    width, height, depth = case.shape
    shape = (*(extent for extent in (depth, height) if extent), case.channels * width)
    rng = np.random.default_rng(sum(case.shape) + case.bits)
    if case.kind == FLOAT:
        values: npt.NDArray[Any] = rng.integers(-1000, 1000, shape) / 8
        return values.astype(case.dtype)
    info = np.iinfo(case.dtype)
    texels = rng.integers(info.min, info.max, shape, dtype=case.dtype, endpoint=True)
    texels.flat[:2] = info.min, info.max
    return texels


def make_coordinates(case: TextureCase) -> npt.NDArray[np.float32]:
    """Return coordinates (3, POINTS) inside and outside the texture, between texels, and near their edges."""
    rng = np.random.default_rng(case.dimensions)
    coordinate_rows: list[npt.NDArray[Any]] = []
    for extent in (max(n, 1) for n in case.shape):
        random_points = rng.uniform(-0.75 * extent, 1.75 * extent, POINTS - 96)
        random_points[:2] = 1e9, -1e9
        edge_coordinates = rng.integers(-2, extent + 2, 48) + rng.choice(
            [0.0, 2.0**-10, -(2.0**-10), 0.5, 1e-6], 48
        )
        fraction_coordinates = rng.integers(0, extent, 48) + rng.integers(0, 512, 48) / 512
        coordinate_rows.append(
            np.concatenate([random_points, edge_coordinates, fraction_coordinates])
            / (extent if case.normal else 1)
        )
    if case.kernel.startswith("line"):
        coordinate_rows[0] = np.arange(POINTS) - 8.0
    if case.kernel.startswith("layers"):
        coordinate_rows[2] = np.array(rng.integers(-2, case.shape[2] + 2, POINTS), np.float64)
    return np.array(coordinate_rows, np.float32)


def run(cp: Any, case: TextureCase) -> npt.NDArray[np.uint32]:
    """Return the bits of every output of a case on a device."""
    runtime = cp.cuda.runtime
    texture = cp.cuda.texture
    channel_bits = [case.bits] * case.channels + [0] * (4 - case.channels)
    channel_format = texture.ChannelFormatDescriptor(*channel_bits, case.kind)
    contents, (width, height, depth) = make_contents(case), case.shape
    output = cp.zeros(4 * POINTS, np.float32)
    points = cp.asarray(make_coordinates(case))
    if case.memory in ("linear", "pitch"):
        array = cp.asarray(contents)
        array_fields: dict[str, Any] = {"arr": array, "chDesc": channel_format}
        if case.memory == "linear":
            resource = texture.ResourceDescriptor(
                runtime.cudaResourceTypeLinear, sizeInBytes=array.nbytes, **array_fields
            )
        else:
            resource = texture.ResourceDescriptor(
                runtime.cudaResourceTypePitch2D,
                width=width,
                height=height,
                pitchInBytes=contents.strides[0],
                **array_fields,
            )
    else:
        flags = {"layers": 1, "surface": 2}.get(case.memory, 0)
        memory = texture.CUDAarray(channel_format, width, height, depth, flags)
        memory.copy_from(contents)
        resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=memory)
    if case.memory == "surface":
        texture_or_surface = texture.SurfaceObject(resource)
    else:
        texture_description = texture.TextureDescriptor(
            case.modes,
            int(case.smooth),
            int(case.share),
            borderColors=case.border or None,
            normalizedCoords=int(case.normal),
        )
        texture_or_surface = texture.TextureObject(resource, texture_description)
    kernel = cp.RawModule(code=CODE, options=("-std=c++17",)).get_function(case.kernel)
    kernel((1,), (POINTS,), (texture_or_surface, points, output, np.int32(POINTS)))
    result_bits: npt.NDArray[np.uint32] = output.get().view(np.uint32)
    return result_bits


def read(path: Path) -> dict[str, npt.NDArray[np.uint32]]:
    """Return the recorded bits by name of the case."""
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["format"] != FORMAT:
        raise ValueError(f"{path} holds no recording of textures.")
    return {
        name: np.frombuffer(zlib.decompress(base64.b64decode(encoded_bits)), np.uint32)
        for name, encoded_bits in data["cases"].items()
    }


def main() -> None:
    """Record all cases on the current GPU."""
    import cupy

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(FILE))
    options = parser.parse_args()
    encoded_results = {}
    failed_names = []
    for case in make_cases():
        try:
            result_bits = run(cupy, case)
        except Exception as error:
            failed_names.append(f"{case.name}: {type(error).__name__}: {error}")
            continue
        encoded_results[case.name] = base64.b64encode(zlib.compress(result_bits.tobytes(), 9)).decode()
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    data = {"format": FORMAT, "version": 1, "device": device, "cases": encoded_results}
    options.out.write_text(json.dumps(data, indent=0), encoding="utf-8")
    print(
        f"{len(encoded_results)} cases on {device}, {len(failed_names)} failed", *failed_names[:8], sep="\n"
    )


if __name__ == "__main__":
    main()
