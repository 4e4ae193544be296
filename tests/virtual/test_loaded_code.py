"""Modules of PTX, function attributes of the driver, and the compiler by handle."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from virtualgpu import cp
from virtualgpu.cuda_errors import IllegalAddressError
from virtualgpu.errors import NotSupportedError
from virtualgpu.model import machine as slot
from virtualgpu.model.machine import Machine
from virtualgpu.records.device import images

pytestmark = pytest.mark.usefixtures("machine")

CODE = r"""
__constant__ float factor;
__device__ int calls;
__device__ float table[3] = {1, 2, 3};
extern "C" __global__ void __launch_bounds__(256) scale(float* x, int n) {
    __shared__ float tile[64];
    extern __shared__ float more[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x % 64] = table[i % 3];
    __syncthreads();
    if (i < n) x[i] = x[i] * factor + tile[threadIdx.x % 64] * 0;
    if (threadIdx.x == 0) atomicAdd(&calls, 1);
}"""
TEMPLATE = "template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }"


@pytest.fixture
def module() -> Any:
    ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
    loaded = cp.cuda.function.Module()
    loaded.load(ptx + b"\0")
    return loaded


def test_a_ptx_module_has_its_own_global_variables(module: Any) -> None:
    runtime = cp.cuda.runtime
    driver = cp.cuda.driver
    three = np.array([3], np.float32)
    runtime.memcpy(driver.moduleGetGlobal(module.ptr, "factor"), three.ctypes.data, 4, 1)
    scale = module.get_function("scale")
    x = cp.ones(600, cp.float32)
    scale((3,), (256,), (x, np.int32(600)))
    np.testing.assert_array_equal(x.get(), np.full(600, 3, np.float32))
    scale.linear_launch(600, (x, np.int32(600)))
    np.testing.assert_array_equal(x.get(), np.full(600, 9, np.float32))
    calls = np.zeros(1, np.int32)
    runtime.memcpy(calls.ctypes.data, module.get_global_var("calls"), 4, 2)
    assert calls[0] == 3 + 5
    table = np.zeros(3, np.float32)
    runtime.memcpy(table.ctypes.data, module.get_global_var("table"), 12, 2)
    assert table.tolist() == [1, 2, 3]
    kernel = cp.RawModule(code=CODE).get_function("scale")
    kernel((3,), (256,), (x, np.int32(600)))
    assert not x.any(), "the source's module has a factor of its own, which is 0"


def test_a_raw_module_can_be_loaded_from_a_ptx_file(tmp_path: Path) -> None:
    file = tmp_path / "scale.ptx"
    file.write_bytes(cp.cuda.compiler.compile_using_nvrtc(CODE)[0])
    module = cp.RawModule(path=str(file))
    assert module.file_path in repr(module)
    factor = cp.ndarray((), np.float32, module.get_global("factor"))
    factor[...] = 3
    x = cp.ones(600, cp.float32)
    scale = module.get_function("scale")
    scale((3,), (256,), (x, np.int32(600)))
    np.testing.assert_array_equal(x.get(), np.full(600, 3, np.float32))
    assert (scale.file_path, scale.shared_size_bytes) == (module.file_path, 256)
    with pytest.raises(cp.cuda.driver.CUDADriverError, match=r"NOT_FOUND.*Its kernels: scale"):
        module.get_function("scales")


def test_function_attributes_are_those_of_ptxas() -> None:
    driver = cp.cuda.driver
    kernel = cp.RawKernel(CODE, "scale")
    handle = kernel.kernel.ptr
    attributes = {number: driver.funcGetAttribute(number, handle) for number in range(10)}
    assert attributes[driver.CU_FUNC_ATTRIBUTE_NUM_REGS] == kernel.num_regs
    assert attributes[driver.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] == kernel.shared_size_bytes == 256
    assert attributes[driver.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] == 256
    assert attributes[driver.CU_FUNC_ATTRIBUTE_BINARY_VERSION] == 80
    assert attributes[driver.CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] == kernel.const_size_bytes
    most = 163 * 1024 - 256
    driver.funcSetAttribute(handle, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
    assert kernel.max_dynamic_shared_size_bytes == most
    kernel.max_dynamic_shared_size_bytes = 50_000
    assert driver.funcGetAttribute(8, handle) == 50_000
    for wrong in ((8, most + 1), (4, 3), (9, 101)):
        with pytest.raises(driver.CUDADriverError, match="CUDA_ERROR_INVALID_VALUE"):
            driver.funcSetAttribute(handle, *wrong)
    with pytest.raises(driver.CUDADriverError, match="INVALID_VALUE"):
        driver.funcGetAttribute(77, handle)
    with pytest.raises(driver.CUDADriverError, match="INVALID_HANDLE"):
        driver.funcGetAttribute(4, kernel.kernel.module.ptr)


def test_register_counts_of_loaded_ptx_are_estimated(module: Any) -> None:
    driver = cp.cuda.driver
    handle = module.get_function("scale").ptr  # which ends here
    with pytest.raises(driver.CUDADriverError, match="INVALID_HANDLE"):
        driver.funcGetAttribute(4, handle)
    scale = module.get_function("scale")
    compiled_kernel = cp.RawKernel(CODE, "scale")
    for number in (0, 1, 2, 3):
        assert driver.funcGetAttribute(number, scale.ptr) == driver.funcGetAttribute(
            number, compiled_kernel.kernel.ptr
        )
    registers = driver.funcGetAttribute(4, scale.ptr)
    assert compiled_kernel.num_regs / 2 <= registers <= compiled_kernel.num_regs * 2
    assert "estimated from PTX" in scale.stats.provenance.label
    assert driver.moduleGetFunction(module.ptr, "scale") != scale.ptr


@pytest.mark.parametrize(
    ("block", "shared", "blocks"), [(256, 0, 8), (64, 20_000, 7), (257, 0, 0), (32, 0, 32)]
)
def test_occupancy_of_a_kernel_handle(block: int, shared: int, blocks: int) -> None:
    kernel = cp.RawKernel(CODE, "scale")
    result = cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, block, shared)
    assert result == blocks
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="at least 1"):
        cp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, 0, 0)


def test_the_potential_block_size_maximizes_resident_threads() -> None:
    kernel = cp.RawKernel(CODE, "scale")
    potential = cp.cuda.driver.occupancyMaxPotentialBlockSize
    assert potential(kernel.kernel.ptr, 0, 0) == (8 * 108, 256)
    assert potential(kernel.kernel.ptr, 0, 100) == (32 * 108, 64)
    assert potential(kernel.kernel.ptr, 40_000, 0) == (4 * 108, 256)


def test_invalid_images_raise_with_cudas_status(module: Any) -> None:
    ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
    first = ptx.index(b".version")
    newer = ptx[:first] + b".version 99.7" + ptx[ptx.index(b"\n", first) :]
    for_b200, _ = cp.cuda.compiler.compile_using_nvrtc(CODE, arch="100")
    empty = cp.cuda.function.Module()
    for image, status in ((newer, 222), (for_b200, 218), (b"nonsense", 218), (b"\x7fELF\x02\x01", 200)):
        with pytest.raises(cp.cuda.driver.CUDADriverError) as refused:
            empty.load(image)
        assert refused.value.status == status
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="load"):
        empty.get_function("scale")
    for ask in (module.get_function, module.get_global_var):
        with pytest.raises(cp.cuda.driver.CUDADriverError) as missing:
            ask("nothing")
        assert missing.value.status == 500


@pytest.mark.parametrize(
    ("target", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("compute_75", (10, 0), True),
        ("compute_90", (8, 9), False),
        ("compute_90a", (9, 0), True),
        ("compute_90a", (10, 0), False),
        ("sm_90a", (9, 0), True),
        ("compute_100f", (10, 3), True),
        ("compute_100f", (12, 0), False),
        ("sm_100", (7, 5), False),
        ("sm_89", (8, 10), True),
    ],
)
def test_targets_run_on_compatible_compute_capabilities(
    target: str, capability: tuple[int, int], runs: bool
) -> None:
    assert images.Part.of(target).runs_on(capability) is runs


def test_the_newest_compatible_cubin_is_preferred_to_ptx() -> None:
    parts = [images.Part.of(name) for name in ("sm_75", "sm_80", "sm_86", "compute_80", "compute_86")]
    choices = {
        capability: images.choose_part(parts, capability) for capability in ((7, 0), (8, 0), (8, 9), (9, 0))
    }
    assert [part and (part.kind, part.number) for part in choices.values()] == [
        None,
        ("cubin", 80),
        ("cubin", 86),
        ("PTX", 86),
    ]
    with pytest.raises(ValueError, match="not a target"):
        images.Part.of("8.0")


def _fat(*entries: tuple[int, int, bytes, int]) -> bytes:
    """A fat binary of (kind, target, data, flags), laid out as fatbinary lays it out."""
    body = b"".join(
        struct.pack("<HHIQ", kind, 0x101, 64, len(data))
        + struct.pack("<12I", 0, 0, 0, target, 0, 0, flags, *[0] * 5)
        + data
        for kind, target, data, flags in entries
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_the_suitable_part_of_a_fat_binary_is_loaded() -> None:
    ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
    elf = b"\x7fELF\x02\x01\x01A\x08".ljust(48, b"\0") + struct.pack("<I", 90 << 8 | 2) + bytes(12)
    module = cp.cuda.Module()
    module.load(_fat((2, 90, elf, 0x11), (1, 80, ptx, 0x11)))
    assert isinstance(module.get_function("scale"), cp.cuda.Function)
    for image in (_fat((2, 90, elf, 0x11)), elf):
        with pytest.raises(cp.cuda.driver.CUDADriverError, match="cubin for sm_90, but") as refused:
            module.load(image)
        assert refused.value.status == 209
    with pytest.raises(NotSupportedError, match="compressed"):
        module.load(_fat((1, 80, b"packed", 0x8011)))
    with pytest.raises(NotSupportedError, match="machine code"):
        module.load(_fat((2, 80, elf, 0x11), (1, 80, ptx, 0x11)))


def test_a_damaged_fat_binary_raises_the_drivers_error(tmp_path: Path) -> None:
    ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
    elf = b"\x7fELF".ljust(100, b"\0")
    whole = _fat((2, 90, elf, 0x11), (1, 80, ptx, 0x11))
    (tmp_path / "damaged.fatbin").write_bytes(whole[:4] + bytes(60))
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="CUDA_ERROR_INVALID_IMAGE"):
        cp.RawModule(path=str(tmp_path / "damaged.fatbin")).get_function("scale")
    for size in (4, 7, 16, 40, 63, 64, 179, 200, 300, len(whole) - 1):
        with pytest.raises(cp.cuda.driver.CUDADriverError, match=r"INVALID_IMAGE|NO_BINARY"):
            cp.cuda.Module().load(whole[:size])
    for start in range(0, 250, 4):  # zeros in a header or in a part: some are loaded, none goes on for ever
        with contextlib.suppress(cp.cuda.driver.CUDADriverError):
            cp.cuda.Module().load(whole[:start] + bytes(4) + whole[start + 4 :])


def test_architecture_specific_ptx_of_another_device_is_refused() -> None:
    ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
    feature_ptx = ptx.replace(b".target sm_80", b".target sm_80a", 1)
    cp.cuda.Module().load(feature_ptx)
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="sm_75a") as refused:
        cp.cuda.Module().load(feature_ptx.replace(b"sm_80a", b"sm_75a"))
    assert refused.value.status == 218


def test_a_module_loads_a_ptx_file(tmp_path: Path) -> None:
    ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
    (tmp_path / "scale.ptx").write_bytes(ptx)
    module = cp.cuda.Module()
    module.load_file(str(tmp_path / "scale.ptx"))
    assert isinstance(module.get_function("scale"), cp.cuda.Function)


def test_kernels_of_a_module_run_on_the_device_that_loaded_it(two_gpus: Machine) -> None:
    with cp.cuda.Device(1):
        ptx, _ = cp.cuda.compiler.compile_using_nvrtc(CODE)
        module = cp.cuda.Module()
        module.load(ptx)
        x = cp.ones(32, cp.float32)
    scale = module.get_function("scale")
    scale((1,), (32,), (x, np.int32(32)))
    assert not x.get().any()
    with pytest.raises(IllegalAddressError, match=r"memory of device 0.*deviceEnablePeerAccess\(0\)"):
        scale((1,), (32,), (cp.ones(32, cp.float32), np.int32(32)))


def test_handles_are_invalid_after_a_change_of_device(module: Any) -> None:
    handle = module.get_function("scale")
    slot.use_device("T4")
    with pytest.raises(cp.cuda.driver.CUDADriverError, match="INVALID_HANDLE"):
        cp.cuda.driver.funcGetAttribute(4, handle.ptr)


# The compiler


def test_nvrtc_compiles_programs_by_handle() -> None:
    nvrtc = cp.cuda.nvrtc
    program = nvrtc.createProgram(TEMPLATE, "twice.cu", (), ())
    nvrtc.addNameExpression(program, "twice<double>")
    nvrtc.compileProgram(program, ("-arch=sm_80",))
    symbol = nvrtc.getLoweredName(program, "twice<double>")
    ptx = nvrtc.getPTX(program)
    assert b".target sm_80" in ptx
    assert nvrtc.getCUBIN(program).startswith(b"\x7fELF")
    nvrtc.destroyProgram(program)
    with pytest.raises(nvrtc.NVRTCError):
        nvrtc.getPTX(program)
    module = cp.cuda.Module()
    module.load(ptx)
    x = cp.arange(4.0)
    module.get_function(symbol)((1,), (4,), (x,))
    assert x.tolist() == [0, 2, 4, 6]


def test_nvrtc_reports_compile_errors() -> None:
    nvrtc = cp.cuda.nvrtc
    program = nvrtc.createProgram("void f() { nothing; }", "wrong.cu", (), ())
    with pytest.raises(nvrtc.NVRTCError, match="NVRTC_ERROR_COMPILATION") as failed:
        nvrtc.compileProgram(program, ())
    assert failed.value.status == 6
    assert "wrong.cu(1)" in nvrtc.getProgramLog(program)
    log = io.StringIO()
    with pytest.raises(cp.cuda.compiler.CompileException, match="nothing"):
        cp.cuda.compiler.compile_using_nvrtc("void f() { nothing; }", log_stream=log)
    assert "nothing" in log.getvalue()
    with pytest.raises(NotSupportedError, match="-I"):
        nvrtc.createProgram("", "", (b"x",), (b"x.h",))
    program = nvrtc.createProgram(CODE, "", (), ())
    nvrtc.compileProgram(program, ("-arch=compute_90",))
    with pytest.raises(RuntimeError, match="sm_XX"):
        nvrtc.getCUBIN(program)


def test_compile_using_nvrtc_returns_names_of_templates() -> None:
    ptx, mapping = cp.cuda.compiler.compile_using_nvrtc(TEMPLATE, name_expressions=("twice<int>",))
    assert mapping["twice<int>"].encode() in ptx
    options = cp._core.core.assemble_cupy_compiler_options(("-DN=3",))
    assert options[:2] == ("-DN=3", "--std=c++17")
    assert "--std=c++17" not in cp._core.core.assemble_cupy_compiler_options(("--std=c++20",))


def test_kernels_can_be_pickled() -> None:
    module = cp.RawModule(code=TEMPLATE, name_expressions=("twice<int>",))
    kernel = pickle.loads(pickle.dumps(module.get_function("twice<int>")))
    x = cp.arange(4, dtype=cp.int32)
    kernel((1,), (4,), (x,))
    assert x.tolist() == [0, 2, 4, 6]
