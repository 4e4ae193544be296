"""A source over which NVRTC ends its process costs a learner an error message, not the notebook."""

from __future__ import annotations

import pytest

from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
TEMPLATE = "template <typename T> __global__ void f({0}* a, T b) {{ a[0] = b; }}"


@pytest.mark.parametrize("name", ["uint32_t", "half", "foo"])
def test_a_pointer_to_an_undeclared_type_is_a_compile_error(name: str) -> None:
    with pytest.raises(nvrtc.NvrtcCompileError, match=rf'kernel.cu\(1\).*identifier "{name}" is undefined'):
        nvrtc.compile_ptx(TEMPLATE.format(name), target=90, name_expressions=["f<float>"])


def test_ordinary_compile_error_reports_its_line() -> None:
    code = TEMPLATE.format("int").replace("a[0] = b", "\n a[0] = c")
    with pytest.raises(nvrtc.NvrtcCompileError, match=r'kernel.cu\(2\).*"c" is undefined'):
        nvrtc.compile_ptx(code, target=90, name_expressions=["f<float>"])


def test_templates_without_errors_compile() -> None:
    image = nvrtc.compile_ptx(TEMPLATE.format("int"), target=90, name_expressions=["f<float>", "f<int>"])
    assert set(image.lowered_names) == {"f<float>", "f<int>"}
    assert all(name in image.ptx for name in image.lowered_names.values())
