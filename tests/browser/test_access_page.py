"""The access microscope's page: its rule, words and pictures are Python's, and its sliders need no kernel."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.views._base import read_module
from gpulab.views.access import access_text, picture
from gpulab.views.parts.pack import pack
from tests.counters import cases, patterns
from tests.counters.test_microscope import traced
from tests.views.test_access import transposed
from virtualgpu.records.access import Access, AccessPattern, Rule

pytestmark = pytest.mark.browser

TWIN = """globalThis.twin = { memoryCost, bankCost, offsetsOf, patternOf, expression, notes, lanesPlot,
    memoryPlot, banksPlot, laneSentences, figures };
    const unused ="""
PAGE = json.loads(json.dumps(access_text.PAGE_TEXTS))
RULES: tuple[Rule, ...] = ("load", "store", "atomic", "count", "swap")


def random_access(seed: int) -> Access:
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 2, 4, 8, 16]))
    units = rng.integers(0, int(rng.choice([3, 32, 100, 5000])), 32)
    if seed % 3 == 0:
        units = np.repeat(units, 2)[:32]  # neighbours that agree
    mask = rng.random(32) < rng.choice([0.3, 0.9, 1.0])
    places = np.where(mask, 123695058125056 + units * size, -1)
    return Access(tuple(places.tolist()), size, ("global", "const", "local")[seed % 3], RULES[seed % 5])


def plain(box: Any) -> Any:
    return json.loads(json.dumps(pack(box)[0]))


def test_javascript_cost_rule_equals_the_python_rule(open_saved: Any) -> None:
    page = open_saved(gl.access())
    code = read_module("access/view").replace("export default", TWIN)
    page.add_script_tag(content=code, type="module")
    page.wait_for_function("globalThis.twin !== undefined")
    accesses = [random_access(seed) for seed in range(60)]
    answer_ = page.evaluate(
        """([all, said]) => JSON.stringify(all.map((a) => {
            const say = twin.laneSentences(said, a, true, true);
            const of = (rows) => twin.figures(a, rows);
            return [twin.memoryCost(a), twin.bankCost(a), say,
                [...of(a.space === "const" ? said.constant : said.memory), ...of(said.banks)],
                twin.notes(said, a, true, true),
                [twin.lanesPlot(a, say), twin.memoryPlot(a, say), twin.banksPlot(a, say)]]; }))""",
        [[asdict(access) for access in accesses], PAGE],
    )
    for access, result in zip(accesses, json.loads(answer_), strict=True):
        memory = access.memory()
        banks = access.banks()
        say = access_text.make_lane_sentences(access, True, True)
        figures = [*access_text.make_memory_figures(access), *access_text.make_bank_figures(access)]
        for name, value in result[0].items():
            assert value == getattr(memory, name), (name, access)
        pieces = [[p.lane, p.row, p.depth, p.bank, p.banks] for p in access.pieces()]
        assert result[1].pop("pieces") == pieces, access
        assert all(value == getattr(banks, name) for name, value in result[1].items()), access
        assert result[2:5] == [say, [list(f) for f in figures], access_text.explain_rules(access, True, True)]
        plots = (picture.draw_lanes, picture.draw_memory, picture.draw_banks)
        for plot_, plot in zip(result[5], plots, strict=True):
            assert plot_ == plain(plot(access, say))
    rng = np.random.default_rng(1)
    patterns = [
        AccessPattern(
            *(int(rng.integers(0, top)) for top in (4097, 70)),
            int(rng.choice([1, 2, 4, 8, 16])),
            int(rng.integers(0, 33)),
            bool(rng.integers(2)),
        )
        for _ in range(40)
    ]
    plain_ones = [AccessPattern(pattern.stride, pattern.offset % 32) for pattern in patterns]
    result = page.evaluate(
        """([all, plain, said]) => [all.map((p) => [twin.offsetsOf(p), twin.expression(said, p)]),
            plain.map((a) => twin.patternOf({addresses: a, size_bytes: 4}))]""",
        [
            [{name: getattr(p, name) for name in p.__slots__} for p in patterns],
            [p.find_lane_offsets() for p in plain_ones],
            PAGE,
        ],
    )
    assert result[0] == [[list(p.find_lane_offsets()), access_text.make_expression(p)] for p in patterns]
    assert [AccessPattern(**fields) for fields in result[1]] == plain_ones


@pytest.mark.parametrize(
    "group",
    ["shared_load_4", "shared_load_16", "shared_atom_4", "shared_cas_4", "global_load_16", "global_atom_4"],
)
def test_compiled_python_and_javascript_access_costs_agree(group: str, open_saved: Any) -> None:
    """Compiled code counts random accesses; Python and the page compute costs from the addresses."""
    rng = np.random.default_rng(len(group))
    accesses = []
    counted = []
    for count in (2, 5, 16, 40, 100, 512):
        places = rng.integers(0, count, 32).astype(np.int32)
        if count % 8 == 0:
            places = np.repeat(places, 2)[:32]  # neighbours that agree
        masks = {2: 0xF, 5: 0xFFFFFFFF, 16: 0xFF00, 40: 0xFFFFFFFF}  # some parts of a warp take no part
        mask = np.uint32(masks.get(count, int(rng.integers(1, 1 << 32))))
        arrays = (places, mask, np.zeros(2048 * 16, np.uint8))
        (trace,) = traced(cases.source(patterns.FILE), group, 32, arrays, patterns.SHARED_BYTES)
        for index in range(len(trace)):
            result = trace.counters.accesses[trace.site[index]]
            if result.requests == 1:
                accesses.append(trace.access(index))
                counted.append(result)
    assert {group.partition("_")[0], "global"} == {access.space for access in accesses}
    page = open_saved(gl.access())
    page.add_script_tag(content=read_module("access/view").replace("export default", TWIN), type="module")
    page.wait_for_function("globalThis.twin !== undefined")
    answer_ = page.evaluate(
        "all => all.map((a) => ({ ...twin.memoryCost(a), ...twin.bankCost(a) }))", [*map(asdict, accesses)]
    )
    names = {"shared": ("wavefronts", "ideal_wavefronts"), "global": ("sectors",)}
    for access, compiled, page_cost in zip(accesses, counted, answer_, strict=True):
        python_cost = asdict(access.memory()) | asdict(access.banks())
        for name in (*names[access.space], "bytes_requested"):
            assert getattr(compiled, name) == python_cost[name] == page_cost[name], (name, access)


def figures_of(page: Any) -> list[str]:
    return page.locator(".gl-panel:not([hidden]) .gl-figure b").all_text_contents()


def test_sliders_work_without_python(open_saved: Any) -> None:
    page = open_saved(gl.access(stride=31), 1024, 700, dark=True)
    assert figures_of(page) == ["32", "12.5 %", "31", "1", "no"]
    page.get_by_label("Stride").press("ArrowRight")
    assert figures_of(page) == ["32", "12.5 %", "32", "32", "32-way"]
    page.get_by_label("Padding a row").press("ArrowRight")
    assert figures_of(page)[3:] == ["1", "no"]
    page.get_by_label("Padding a row").press("Home")
    page.get_by_label("Swizzle").press(" ")
    assert figures_of(page)[3:] == ["1", "no"]
    assert "e % 32 ^ e / 32 % 32" in page.locator(".gl-pattern").text_content()
    page.get_by_label("The 32 lanes").press("ArrowRight")
    assert page.locator(".gl-lane-said").text_content().startswith("Lane 1 accesses bytes 132 to 135")
    page.get_by_label("Show").select_option("shared")
    assert len(figures_of(page)) == 2
    box = page.locator(".gpulab-view").bounding_box()
    assert box["height"] < 690


def test_accesses_of_a_kernel_are_selected_and_edited_by_keyboard(open_saved: Any) -> None:
    view = transposed(warp=7)
    page = open_saved(view, 1024, 700)
    assert figures_of(page) == ["32", "32-way"]
    page.locator(".gl-accesses tr.gl-chosen button").press("ArrowDown")
    view.row = 1
    assert view.access is not None
    figures = access_text.make_memory_figures(view.access)
    assert figures_of(page) == [figure.value for figure in figures]
    page.keyboard.press("Home")
    page.get_by_text("Edit this access").press("Enter")
    page.get_by_label("Padding a row").press("ArrowRight")
    assert figures_of(page) == ["1", "no"]
    assert page.locator(".gl-which").text_content().endswith("edited")
    page.get_by_text("As traced").press("Enter")
    assert figures_of(page) == ["32", "32-way"]
