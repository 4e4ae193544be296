"""Tokens of CUDA C++ source."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulab.views.parts import cuda, palette

KERNEL = """#include <cuda_fp16.h>
// a comment with int and "a text
extern "C" __global__ void scale(const float* x, uint32_t* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  /* for
    while */
    #pragma unroll 1
    if (i < n) y[i] = __float2uint_rn(2.5f * x[i]) + 0xFFu;
}"""
SOURCES = Path(__file__).parents[2] / "gpulab_course" / "content"


def test_tokens_are_classified_by_kind() -> None:
    words: dict[str, set[str]] = {}
    for kind, text in (token for line in cuda.split_tokens(KERNEL) for token in line):
        words.setdefault(kind, set()).add(text)
    assert words["keyword"] == {"extern", "__global__", "const", "if"}
    assert words["type"] == {"void", "float", "uint32_t", "int"}
    assert words["builtin"] == {"blockIdx", "blockDim", "threadIdx"}
    assert words["number"] == {"2.5f", "0xFFu"}
    assert words["call"] == {"scale", "__float2uint_rn"}
    assert words["meta"] == {"#include <cuda_fp16.h>", "    #pragma unroll 1"}
    assert words["string"] == {'"C"'}
    assert words["comment"] == {'// a comment with int and "a text', "/* for", "    while */"}
    assert {f"code-{kind}" for kind in words if kind} <= palette.COLOURS.keys()


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.cu"))[:12], ids=lambda path: path.name)
def test_joined_tokens_equal_the_source(path: Path) -> None:
    code = path.read_text()
    assert ["".join(text for _, text in line) for line in cuda.split_tokens(code)] == code.split("\n")


@pytest.mark.parametrize("code", ["", "\n\n", "x = \"open\n'", "/* open\nint", "µ§ \\ #"])
def test_joined_tokens_equal_incomplete_source(code: str) -> None:
    assert ["".join(text for _, text in line) for line in cuda.split_tokens(code)] == code.split("\n")
