"""The course's kernels compiled in advance: complete, current, and enough where NVRTC is missing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab.diagnosis.checks import check_nvrtc, check_virtual_gpu
from tools import shipped_ptx
from tools.cells import list_notebooks
from tools.corpus import CASES, Case, list_kernel_files, read_kernel_code
from tools.recordings.record import run_case
from virtualgpu.compile import nvrtc, shipped
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.records import KernelSource


@pytest.fixture
def without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which the compiler's library is not found."""
    monkeypatch.setattr(nvrtc, "_load_library", lambda: FileNotFoundError("no libnvrtc"))
    shipped_ptx.forget()
    session.use_device("virtual:A100")
    yield
    shipped_ptx.forget()
    session.use_device("auto")


def kernel_of(c: Case) -> Any:
    return session.cp().RawKernel(c.code, c.kernel, options=c.options)


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC, to compare with")
def test_kernels_of_doctor_and_readme_are_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of each notebook checks the same for the kernels of the notebook."""
    monkeypatch.setenv("GPULAB_HOME", str(tmp_path))
    images: list[shipped_ptx.CompiledImage] = []
    try:
        with shipped_ptx.record_images(images):
            shipped_ptx.run_doctor_and_readme()
    finally:
        session.use_device("auto")
    assert images
    assert not shipped_ptx.find_problems("doctor and README", images)
    other = replace(images[0], ptx=images[0].ptx + "// and more\n.visible .entry more() { ret; }\n")
    unknown = replace(images[0], request=replace(images[0].request, code="// of nobody\nint k;"))
    for problems in (
        [unknown, *images],
        images[1:],
        *([[other, *images[1:]]] if shipped_ptx.has_same_compiler() else []),
    ):
        assert shipped_ptx.find_problems("doctor and README", problems)


def test_no_unused_kernel_is_shipped() -> None:
    asked = shipped_ptx.list_file_keys().union(*shipped_ptx.read_compiled_keys().values())
    assert len(shipped.list_keys()) == len(asked) * len(shipped.TARGETS), "run `make shipped-ptx`"
    of = [
        shipped_ptx.make_title(path.name, each)
        for path in list_notebooks()
        for each in shipped_ptx.list_devices(path.name)
    ]
    assert shipped_ptx.read_compiled_keys().keys() <= {*of, "doctor and README"}


FROM_FILES = shipped_ptx.list_file_requests()


@pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC, to compare with")
@pytest.mark.parametrize("number", range(len(FROM_FILES)))
def test_kernels_from_files_are_shipped(number: int) -> None:
    request, (target, *others) = FROM_FILES[number], shipped.TARGETS
    assert {request.key(each) for each in others} <= shipped.list_keys(), "run `make shipped-ptx`"
    image = shipped.get_image(request.key(target))
    assert image is not None, "run `make shipped-ptx`"
    if shipped_ptx.has_same_compiler():
        now = nvrtc.compile_ptx(request.code, target=target, options=request.options)
        assert image.ptx == shipped.strip_ptx(now.ptx)


@pytest.mark.parametrize("target", shipped.TARGETS)
@pytest.mark.parametrize("file", list_kernel_files())
def test_corpus_is_shipped_for_every_target(file: str, target: int) -> None:
    image = shipped.find_image(read_kernel_code(file), target=target, options=nvrtc.CUPY_OPTIONS)
    assert image is not None, "run `make shipped-ptx`"
    module = parse(image.ptx)
    assert set(module.entries) == set(image.resources)
    assert module.target == f"sm_{target}"
    assert all(0 < needs.registers_per_thread <= 255 for needs in image.resources.values())


def test_shipped_file_lists_all_targets() -> None:
    assert shipped.list_targets() == shipped.TARGETS
    assert shipped.get_compiler_version()


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("c", [c for c in CASES if c.reference], ids=lambda c: c.name)
def test_the_corpus_runs_without_nvrtc(c: Case) -> None:
    assert c.reference is not None
    assert not nvrtc.is_available()
    arguments = c.make_args(1)
    expected = c.reference(arguments.values)
    outputs, _ = run_case(c, arguments, kernel_of(c))
    for result, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(result.ravel(), np.ravel(wanted), rtol=c.rtol, atol=c.rtol)


@pytest.mark.usefixtures("without_nvrtc")
def test_registers_and_occupancy_are_known_without_nvrtc() -> None:
    source = KernelSource("matmul_tiled", read_kernel_code("matmul.cu"))
    stats = session.backend().kernel_stats(source)
    assert stats.static_shared_bytes == 2048
    assert stats.registers_per_thread > 16
    assert "compiled in advance by NVRTC for sm_80" in stats.provenance.label
    occupancy = session.backend().occupancy(source, 256)
    assert occupancy.blocks_per_sm == 65536 // (256 * -(-stats.registers_per_thread // 8) * 8)


@pytest.mark.usefixtures("without_nvrtc")
@pytest.mark.parametrize("device", ["T4", "V100", "L4", "H200", "B200"])
def test_every_device_finds_a_target_without_nvrtc(device: str) -> None:
    session.use_device(f"virtual:{device}")
    cp = session.cp()
    a = cp.arange(300, dtype=cp.float32)
    c = cp.zeros(300, dtype=cp.float32)
    cp.RawKernel(read_kernel_code("vector_add.cu"), "vector_add")((2,), (256,), (a, a, c, np.int32(300)))
    np.testing.assert_array_equal(cp.asnumpy(c), 2 * np.arange(300, dtype=np.float32))


@pytest.mark.usefixtures("without_nvrtc")
def test_error_of_a_changed_kernel_suggests_where_to_compile() -> None:
    code = read_kernel_code("vector_add.cu")
    changed = session.cp().RawKernel(code.replace("+", "-", 1), "vector_add")
    with pytest.raises(nvrtc.NvrtcMissingError, match=r"pip install nvidia-cuda-nvrtc.*Binder"):
        changed.compile()
    with pytest.raises(nvrtc.NvrtcMissingError, match="not found"):
        nvrtc.compile_cubin(code, target=80)


@pytest.mark.usefixtures("without_nvrtc")
def test_doctor_reports_precompiled_kernels_without_nvrtc() -> None:
    assert check_nvrtc()[0] == "missing"
    status, text, _ = check_virtual_gpu()
    assert status == "ok"
    assert "compiled in advance" in text


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda code: "// a new comment\n" + code.split("\n", 1)[1], True),
        (lambda code: code.replace("\n", "   \n"), True),
        (lambda code: code + "\n\n/* the\nend */\n", True),
        (lambda code: "\n" + code, False),  # line numbers would be off
        (lambda code: code.replace("float", "double"), False),
        (lambda code: code.replace("vector_add", "vector_sum"), False),
    ],
)
def test_shipped_ptx_is_found_if_only_comments_differ(change: Any, same: bool) -> None:
    code = read_kernel_code("vector_add.cu")
    assert code.startswith("//")
    image = shipped.find_image(change(code), target=80, options=nvrtc.CUPY_OPTIONS)
    assert (image is not None) is same
    assert shipped.find_image(code, target=80) is None, "options count"


def test_comment_marks_in_strings_are_kept() -> None:
    code = 'a("// no", \'"\', R"x(/* neither\n)" */)x"); // but this\n/* and\nthis */ b'
    assert shipped.remove_comments(code) == 'a("// no", \'"\', R"x(/* neither\n)" */)x");\n\n b'


def test_process_numbers_are_removed_from_names() -> None:
    names = (
        "_ZN45_INTERNAL_00000000_9_kernel_cu_ff6e0fe2_292024cuda3std3__45__cpo9iter_swapE",
        "_ZN44_INTERNAL_00000000_9_kernel_cu_ee908c4c_94334cuda3std3__45__cpo9iter_swapE",
    )
    stripped = {
        shipped.strip_ptx(f".global .align 1 .b8 {name}[1];\nmov.u64 %rd1, {name};") for name in names
    }
    name = "_ZN9_INTERNAL4cuda3std3__45__cpo9iter_swapE"
    assert stripped == {f".global .align 1 .b8 {name}[1];\nmov.u64 %rd1, {name};"}


def test_stripping_removes_debug_sections_and_paths() -> None:
    code = "#include <cooperative_groups.h>\n" + read_kernel_code("vector_add.cu")
    ptx = nvrtc.compile_ptx(code, target=90).ptx
    stripped = shipped.strip_ptx(ptx)
    assert ".section" not in stripped
    assert str(Path(sys.prefix)) not in stripped
    assert len(stripped) < len(ptx)
    whole = parse(ptx).functions["vector_add"]
    short = parse(stripped).functions["vector_add"]
    assert [(i.text, i.line) for i in short.instructions] == [(i.text, i.line) for i in whole.instructions]


def test_packed_file_is_read_back_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    image = shipped.find_image(read_kernel_code("saxpy.cu"), target=75, options=nvrtc.CUPY_OPTIONS)
    assert image is not None
    packed = shipped.pack_images([("key", image)], "13.0")
    monkeypatch.setattr(shipped, "_load_store", lambda: shipped.unpack_images(packed))
    assert shipped.get_image("key") == image
    assert shipped.list_keys() == {"key"}
    assert shipped.get_compiler_version() == "13.0"


def test_file_of_another_version_is_ignored() -> None:
    import json
    import lzma

    other = lzma.compress(json.dumps({"format": "gpulab-ptx", "version": 99, "images": {"k": {}}}).encode())
    assert shipped.unpack_images(other)["images"] == {}


@pytest.mark.parametrize("folder", ["/opt/a b/include/", "C:\\cuda\\include\\"])
def test_folders_of_headers_in_assertions_are_removed(folder: str) -> None:
    def stored(text: str) -> str:
        return f".global .align 1 .b8 $str$1[{len(text) + 1}] = {{{', '.join(map(str, text.encode()))}}};"

    kept = stored("size == 4 / 8 || is_shared")
    assert shipped.strip_ptx(stored(f"{folder}cuda_pipeline.h") + kept) == stored("cuda_pipeline.h") + kept
