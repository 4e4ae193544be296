"""Textures and surfaces against an H200 and NumPy, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from tools.recordings import FOLDER
from tools.recordings import textures as recorded
from tools.recordings.textures import FLOAT, POINTS, SIGNED, UNSIGNED, TextureCase
from virtualgpu.cuda_errors import CUDARuntimeError, IllegalAddressError
from virtualgpu.errors import NotSupportedError

CASES = tuple(recorded.make_cases())
RECORDED = recorded.read(FOLDER / recorded.FILE)


@pytest.fixture(autouse=True, scope="module")
def virtual() -> Any:
    gl.use_device("virtual:T4")
    yield
    session.use_device("auto")


def test_recorded_cases_differ_by_filter_and_address_mode() -> None:
    contents = [RECORDED[case.name].tobytes() for case in CASES if case.kernel == "two_float" and case.normal]
    assert len(set(contents)) == len(contents) >= 8


def test_a_surface_is_read_and_written() -> None:
    case = CASES[-1]
    texels = recorded.make_contents(case)
    results = recorded.run(cp, case).view(np.float32)[:192].reshape(4, 6, 8)
    shifted = np.zeros((6, 8), np.float32)
    shifted[1:, 2:] = texels[:-1, :-2]
    y, x = np.mgrid[:6, :8]
    clamped = texels[np.minimum(y + 2, 5), np.minimum(x + 3, 7)]
    written = (clamped + np.arange(48).reshape(6, 8)).astype(np.float32)[:, ::-1].copy()
    written[:, 7] = -1
    for result, reference in zip(results, (texels, shifted, clamped, written), strict=True):
        np.testing.assert_array_equal(result, reference)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in RECORDED], ids=lambda case: case.name)
def test_fetches_are_those_of_an_h200(case: TextureCase) -> None:
    result = recorded.run(cp, case)
    recording = RECORDED[case.name]
    if not case.smooth:
        assert result.tobytes() == recording.tobytes()
        return
    # Ties between two roundings: how many, and by how much.
    many = 0
    step = 0.0
    if case.dimensions == 3 and case.memory == "array":
        many = 9
        step = 250 / 256
    elif case.bits == 16 and case.kind == FLOAT:
        many = 1
        step = 2.0**-7
    elif case.bits == 8 and case.kind == SIGNED:
        many = 9
        step = 1.1 / 32767
    differ = np.flatnonzero(result != recording)
    assert differ.size <= many
    apart = result.view(np.float32)[differ] - recording.view(np.float32)[differ]
    assert np.abs(apart).max(initial=0) <= step


def test_surfaces_of_one_and_three_dimensions() -> None:
    solid = CASES[-3]
    line = CASES[-2]
    contents = recorded.make_contents(solid).reshape(6, 5, 8, 2)
    result = recorded.run(cp, solid).view(np.float32).reshape(4, POINTS)
    threads = np.arange(POINTS)
    x = threads % 8
    y = threads // 8 % 5
    z = threads // 40 % 4
    np.testing.assert_array_equal(result[0], contents[z, y, x, 0])
    after = contents.copy()
    after[:4] = np.stack([contents[:4, ..., 1], contents[:4, ..., 0] + 1], axis=-1)
    np.testing.assert_array_equal(result[1:3], after[5 - z, 4 - y, 7 - x].T)
    texels = recorded.make_contents(line)
    result = recorded.run(cp, line).view(np.float32).reshape(4, POINTS)
    padded = np.concatenate([np.zeros(20, np.uint8), texels, np.zeros(4 * POINTS, np.uint8)]).reshape(-1, 4)
    np.testing.assert_array_equal(result[0], padded[:POINTS, 0] + 256.0 * padded[:POINTS, 3])
    texels[:POINTS] = threads * 3 % 256
    for thread in range(11):
        texels[4 * (thread + 50) : 4 * (thread + 50) + 4] = 1, thread, 3, 4
    after = texels.reshape(-1, 4)[np.minimum(threads, 60)]
    np.testing.assert_array_equal(result[1], after[:, 1] + 256.0 * after[:, 2])


CODE = r"""
extern "C" __global__ void rows(cudaTextureObject_t t, float* out, int width, int step)
{
    int i = threadIdx.x;
    out[i] = tex2D<float>(t, step * i % width, step * i / width);
}
extern "C" __global__ void write(cudaSurfaceObject_t s, int x) { surf2Dwrite(1.0f, s, x, 0); }
extern "C" __global__ void gather(cudaTextureObject_t t, float4* o) { *o = tex2Dgather<float4>(t, 0, 0); }
extern "C" __global__ void cube(cudaTextureObject_t t, float* out) { *out = texCubemap<float>(t, 0, 0, 1); }
"""


def picture(width: int = 64, height: int = 32, flags: int = 0) -> Any:
    runtime = cp.cuda.runtime
    texture = cp.cuda.texture
    channels = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindFloat)
    memory = texture.CUDAarray(channels, width, height, 0, flags)
    memory.copy_from(np.arange(width * height, dtype=np.float32).reshape(height, width))
    return texture.ResourceDescriptor(runtime.cudaResourceTypeArray, cuArr=memory)


def textured(**options: Any) -> Any:
    return cp.cuda.texture.TextureObject(picture(), cp.cuda.texture.TextureDescriptor(**options))


def rows(texture: Any, width: int = 8, step: int = 1) -> None:
    """Run the kernel of that name, and wait for it."""
    out = cp.zeros(32, np.float32)
    cp.RawKernel(CODE, "rows")((1,), (32,), (texture, out, np.int32(width), np.int32(step)))
    cp.cuda.Device().synchronize()


@pytest.mark.parametrize(("step", "sectors"), [(1, 4), (2, 8), (8, 32), (64, 32)])
def test_fetches_are_counted_as_reads(step: int, sectors: int) -> None:
    out = cp.zeros(32, np.float32)
    args = (textured(), out, np.int32(64), np.int32(step))
    view = gl.access(cp.RawKernel(CODE, "rows"), 1, 32, args)
    load = next(a for a in view.record.counters.accesses if a.kind == "load")
    assert (load.space, load.requests, load.sectors) == ("global", 1, sectors)
    assert load.text.startswith("tex.2d")
    row = next(index for index, row in enumerate(view.rows) if row.cells[2] == "texture fetch, 4 B")
    view.row = row
    assert view.access is not None
    assert view.access.memory().sectors == sectors
    assert out.get().tolist() == [float(step * i) for i in range(32)]


@pytest.mark.parametrize("handle", [0, 7, 4096 * 90 + 3, 2**63])
def test_an_invalid_handle_is_named(handle: int) -> None:
    with pytest.raises(IllegalAddressError, match=rf"{handle:#x} as a texture object.*TextureObject"):
        rows(np.uint64(handle))
    cp.zeros(4).sum()


def test_freed_textures_and_freed_memory_are_named() -> None:
    old_handle = textured().ptr
    kernel = cp.RawKernel(CODE, "rows")
    out = cp.zeros(32, np.float32)
    other = textured()
    assert other.ptr != old_handle
    with pytest.raises(IllegalAddressError, match="no such object has this handle"):
        rows(np.uint64(old_handle))
    other.device.memory.untrack_allocation(other.ResDesc.cuArr.ptr)
    report = gl.sanitize(kernel, 1, 32, (other, out, np.int32(8), np.int32(1)))
    assert not report.clean
    with pytest.raises(IllegalAddressError, match="freed"):
        rows(other)


def test_uninitialized_texels_are_reported() -> None:
    runtime = cp.cuda.runtime
    texture = cp.cuda.texture
    channels = texture.ChannelFormatDescriptor(32, 0, 0, 0, FLOAT)
    array = cp.empty((32, 64), np.float32)
    array[:4] = 0
    resource = texture.ResourceDescriptor(
        runtime.cudaResourceTypePitch2D, arr=array, chDesc=channels, width=64, height=32, pitchInBytes=256
    )
    handle = texture.TextureObject(resource, texture.TextureDescriptor())
    arguments = handle, cp.zeros(32, np.float32), np.int32(64)
    kernel = cp.RawKernel(CODE, "rows")
    assert gl.sanitize(kernel, 1, 32, (*arguments, np.int32(8))).clean
    report = gl.sanitize(kernel, 1, 32, (*arguments, np.int32(9)))
    assert [hazard.tool for hazard in report.hazards] == ["init"]


def test_surfaces_and_textures_are_not_interchangeable() -> None:
    surface = cp.cuda.texture.SurfaceObject(picture(flags=cp.cuda.runtime.cudaArraySurfaceLoadStore))
    with pytest.raises(IllegalAddressError, match="texture object"):
        rows(surface)
    write = cp.RawKernel(CODE, "write")
    write((1,), (1,), (surface, np.int32(4 * 63)))
    with pytest.raises(IllegalAddressError, match="outside of its surface"):
        gl.launch(write, 1, 1, (surface, np.int32(4 * 64)))
    with pytest.raises(CUDARuntimeError, match="cudaArraySurfaceLoadStore"):
        cp.cuda.texture.SurfaceObject(picture())


@pytest.mark.parametrize("name", ["gather", "cube"])
def test_unsupported_fetches_name_the_alternative(name: str) -> None:
    with pytest.raises(NotSupportedError, match="tex2D"):
        cp.RawKernel(CODE, name)((1,), (1,), (textured(), cp.zeros(4, np.float32)))


def test_descriptors_that_cuda_refuses() -> None:
    runtime = cp.cuda.runtime
    texture = cp.cuda.texture
    whole = texture.ChannelFormatDescriptor(32, 0, 0, 0, runtime.cudaChannelFormatKindSigned)
    words = cp.zeros(1024, np.int32)

    def make(resource: Any, **options: Any) -> Any:
        return texture.TextureObject(resource, texture.TextureDescriptor(**options))

    def line(array: Any, size: int) -> Any:
        return texture.ResourceDescriptor(runtime.cudaResourceTypeLinear, None, array, whole, size)

    pitch = texture.ResourceDescriptor(runtime.cudaResourceTypePitch2D, None, words, whole, 0, 5, 4, 20)
    array = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, texture.CUDAarray(whole, 8))
    for refused, message in (
        (lambda: make(line(words[1:], 64)), "multiple of 512"),
        (lambda: make(line(words, 1 << 30)), "bytes"),
        (lambda: make(line(words, 64), normalizedCoords=1), "tex1Dfetch"),
        (lambda: make(pitch), "multiple of 32"),
        (lambda: make(array, filterMode=1), "NormalizedFloat"),
        (lambda: make(array, readMode=1), "8 and 16 bits"),
        (lambda: make(array, addressModes=(9,)), "addressModes"),
        (lambda: texture.CUDAarray(whole, 200_000), "131072"),
    ):
        with pytest.raises(CUDARuntimeError, match=message):
            refused()
    with pytest.raises(CUDARuntimeError, match="channel descriptor"):
        texture.CUDAarray(texture.ChannelFormatDescriptor(32, 16, 0, 0, FLOAT), 8)
    with pytest.raises(ValueError, match="shape mismatch"):
        array.cuArr.copy_from(np.zeros(9, np.int32))
    with pytest.raises(ValueError, match="dtype mismatch"):
        array.cuArr.copy_from(np.zeros(8, np.float32))
    with pytest.raises(NotImplementedError, match="Mipmapped"):
        texture.ResourceDescriptor(runtime.cudaResourceTypeMipmappedArray)
    with pytest.raises(TypeError, match="where the kernel takes 'float"):
        cp.RawKernel('extern "C" __global__ void f(float x) {}', "f")((1,), (1,), (make(array),))


def test_textures_are_arguments_of_elementwise_kernels() -> None:
    texture = cp.cuda.texture
    runtime = cp.cuda.runtime
    memory = texture.CUDAarray(texture.ChannelFormatDescriptor(32, 0, 0, 0, FLOAT), 16, 4)
    picture = np.random.default_rng(1).random((4, 16), np.float32)
    memory.copy_from(cp.asarray(picture))
    resource = texture.ResourceDescriptor(runtime.cudaResourceTypeArray, memory)
    handle = texture.TextureObject(resource, texture.TextureDescriptor())
    for declared in ("U t", "uint64 t"):
        kernel = cp.ElementwiseKernel(
            f"float32 x, {declared}, int32 width",
            "float32 y",
            "y = x + tex2D<float>(t, i % width + 0.5f, i / width + 0.5f)",
            "add_picture",
        )
        assert (kernel(cp.ones((4, 16), np.float32), handle, 16).get() == picture + 1).all()
    with pytest.raises(TypeError, match=r"t is uint64 .* takes float32"):
        cp.ElementwiseKernel("float32 x, float32 t", "float32 y", "y = x")(cp.ones(3, np.float32), handle)


def test_arrays_are_copied_both_ways_in_a_stream() -> None:
    runtime = cp.cuda.runtime
    texture = cp.cuda.texture
    channels = texture.ChannelFormatDescriptor(16, 16, 0, 0, UNSIGNED)
    used = cp.cuda.Device().mem_info[0]
    memory = texture.CUDAarray(channels, 6, 4, 3, runtime.cudaArrayDefault)
    data = np.random.default_rng(0).integers(0, 60000, (3, 4, 12), dtype=np.uint16)
    stream = cp.cuda.Stream(non_blocking=True)
    memory.copy_from(cp.asarray(data), stream)
    result = cp.zeros_like(cp.asarray(data))
    memory.copy_to(result, stream)
    stream.synchronize()
    assert (result.get() == data).all()
    host = np.zeros_like(data)
    memory.copy_to(host)
    assert (host == data).all()
    assert channels.get_channel_format() == {"x": 16, "y": 16, "z": 0, "w": 0, "f": 1}
    del memory
    assert cp.cuda.Device().mem_info[0] == used
