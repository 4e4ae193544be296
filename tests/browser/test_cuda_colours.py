"""CUDA C++ in strings of Python cells is in colour in a real JupyterLab, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpulab.views.parts import palette

pytestmark = [pytest.mark.browser, pytest.mark.slow]

KERNEL = '''code = r"""
#include <cuda_fp16.h>
// a comment with int and "a text
extern "C" __global__ void scale(const float* x, uint32_t* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  /* for
    while */
    if (i < n) y[i] = __float2uint_rn(2.5f * x[i]) + 0xFFu;
}"""
for i in range(3): "int"'''
PROSE = 'text = r"""\nIt is a float for each int (so to speak).\n"""'
FAULTY = '''wrong = r"""
extern "C" __global__ void f(float* x) {
    int i = threadIdx.x;
    x[i + 100000] = 1;
}"""
unclear = r"""
extern "C" __global__ void g(float* x) {
    int i = threadIdx.x
    x[i] = 1;
}"""'''
LAUNCH = 'gl.launch(cp.RawKernel(wrong, "f"), 1, 32, (cp.zeros(32, "float32"),))'
COMPILE = """import gpulab as gl
from gpulab import cp
try:
    cp.RawKernel(unclear, "g").compile()
except Exception as error:
    print(error)"""
CHECK = 'gl.check("00-saxpy", judged)'
JUDGED = '''judged = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = a * x[i] + y[i];
}"""'''
PLAIN = "x = 'extern __global__ void f() {}'"


@pytest.fixture(scope="module")
def cells(lab: Any) -> Iterator[Any]:
    with lab.notebook("colours.ipynb", [KERNEL, PROSE, PLAIN]):
        lab.page.wait_for_selector(".jp-Cell .gpulab-cuda-keyword", timeout=60_000)
        yield lab.page


def painted(page: Any, kind: str) -> list[str]:
    texts = page.locator(f".jp-Cell .gpulab-cuda-{kind}").all_text_contents()
    return [str(text) for text in texts]


def test_stored_pictures_are_dark_in_a_dark_theme_before_a_cell_runs(cells: Any) -> None:
    """The extension has the same style rule as the views (`palette.css`)."""
    rule = cells.evaluate(
        """() => [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules])
          .find((rule) => rule.cssText.includes("needs-light-background") && rule.cssText.includes("invert"))
          ?.style.filter"""
    )
    assert rule == "invert(0.87) hue-rotate(180deg)"
    assert rule in palette.make_css()


def test_each_token_kind_is_highlighted(cells: Any) -> None:
    words = {"const", "extern", "__global__", "if"}
    assert set(painted(cells, "keyword")) == words
    assert set(painted(cells, "type")) == {"void", "float", "uint32_t", "int"}
    assert set(painted(cells, "builtin")) == {"blockIdx", "blockDim", "threadIdx"}
    assert painted(cells, "number") == ["2.5f", "0xFFu"]
    assert painted(cells, "call") == ["scale", "__float2uint_rn"]
    assert painted(cells, "meta") == ["#include <cuda_fp16.h>"]
    assert painted(cells, "string") == ['"C"']
    assert painted(cells, "comment") == ['// a comment with int and "a text', "/* for", "    while */"]


def test_strings_without_cuda_code_are_not_highlighted(cells: Any) -> None:
    for number in (1, 2):
        assert cells.locator(".jp-Cell").nth(number).locator("[class*=gpulab-cuda]").count() == 0
    assert "".join(
        cells.locator(".jp-Cell").nth(0).locator(".cm-line").all_text_contents()
    ) == KERNEL.replace("\n", "")


def test_token_colours_are_distinguishable_in_both_themes(cells: Any, lab: Any) -> None:
    colour = """kind => {
        let found = document.querySelector(`.gpulab-cuda-${kind}`);
        while (found.firstElementChild) found = found.firstElementChild;
        return getComputedStyle(found).color;
    }"""
    colours = []
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        lab.command("apputils:change-theme", {"theme": theme})
        cells.wait_for_function(
            f"document.body.dataset.jpThemeName === '{theme}' && !document.querySelector('.jp-mod-loading')"
        )
        cells.wait_for_timeout(300)
        colours.append(
            {kind: cells.evaluate(colour, kind) for kind in ("keyword", "type", "number", "comment")}
        )
        assert len(set(colours[-1].values())) >= 3, colours
        lab.picture(f"cuda_{theme.split()[1].lower()}")
    assert colours[0] != colours[1]


def test_highlighting_is_updated_after_an_edit(cells: Any) -> None:
    line = cells.locator(".jp-Cell").nth(0).locator(".cm-line", has_text="0xFFu")
    line.click()
    cells.keyboard.press("End")
    cells.keyboard.type(" return;")
    cells.wait_for_function(
        "[...document.querySelectorAll('.gpulab-cuda-keyword')].some(e => e.textContent === 'return')"
    )


def test_brackets_match_in_a_string(cells: Any) -> None:
    line = cells.locator(".jp-Cell").nth(0).locator(".cm-line", has_text="__global__")
    line.click()
    cells.keyboard.press("Home")
    for _ in 'extern "C" __global__ void scale':
        cells.keyboard.press("ArrowRight")
    cells.wait_for_function("document.querySelectorAll('.cm-matchingBracket').length === 2")
    assert cells.locator(".cm-matchingBracket").all_text_contents() == ["(", ")"]


@pytest.fixture
def faults(lab: Any) -> Iterator[Any]:
    with lab.notebook("faults.ipynb", [FAULTY, JUDGED, COMPILE, CHECK, LAUNCH]):
        yield lab


def test_faulty_lines_are_marked_until_they_are_edited(faults: Any) -> None:
    page = faults.page
    marked = page.locator(".gpulab-cuda-fault")
    page.wait_for_function("document.querySelectorAll('.gpulab-cuda-fault').length === 3", timeout=60_000)
    texts = [text.strip() for text in marked.all_text_contents()]
    assert texts == ["x[i + 100000] = 1;", "x[i] = 1;", "y[i] = a * x[i] + y[i];"]
    assert "names this line" in marked.first.get_attribute("title")
    faults.picture("cuda_faults")
    marked.first.click()
    page.keyboard.press("End")
    page.keyboard.type(" // mended")
    page.wait_for_function("document.querySelectorAll('.gpulab-cuda-fault').length === 2")
    faults.command("notebook:clear-all-cell-outputs")
    page.wait_for_function("document.querySelectorAll('.gpulab-cuda-fault').length === 0")
    assert faults.problems == []


def test_page_has_no_errors(cells: Any, lab: Any) -> None:
    assert lab.problems == []
