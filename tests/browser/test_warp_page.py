"""The warp stepper in a page of its own: what it looks up is what the record says, without JupyterLab."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from gpulab.views import WarpStepper
from gpulab.views.parts import palette
from gpulab.views.warp.states import ACTIVE, INACTIVE, PREDICATED_OFF
from tests.trace_state import registers_at, shared_at
from tests.views import synthetic
from virtualgpu.protocol import Block, Launch
from virtualgpu.records import BlockTrace

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CODE = r"""
__device__ __noinline__ double power(double base, int times)
{
    double result = 1;
    #pragma unroll 1
    for (int k = 0; k < times; ++k) result *= base;
    return result;
}
extern "C" __global__ void mixed(int* x, int n)
{
    __shared__ double wide[64];
    __shared__ unsigned char bytes[70];
    __shared__ int counts[4];
    int t = threadIdx.x;
    if (t < 4) counts[t] = t;
    wide[t] = power(-1.5, t & 3);
    if (t & 1) bytes[t] = 3 * t;
    __syncthreads();
    #pragma unroll 1
    for (int i = 0; i < n; ++i) {
        #pragma unroll 1
        for (int j = 0; j <= (t & 3); ++j) atomicAdd(&counts[j], (int)wide[63 - t]);
        bytes[t ^ 1] = i;
    }
    __syncthreads();
    x[t] = counts[t & 3] + bytes[t];
}
"""
REGISTERS = """[...document.querySelectorAll('.gl-register')].map(row => row.title)"""
WORDS = """[...document.querySelectorAll('.gl-words td')].filter(cell => cell.dataset.state !== 'none')
    .map(cell => [cell.title, cell.dataset.state])"""
SHOWN = """[document.querySelector('.gl-sentence').textContent,
    [...document.querySelectorAll('.gl-lane')].map(lane => lane.dataset.state)]"""
STEP = """step => { const slider = document.querySelector('input[type=range]');
    slider.value = step; slider.dispatchEvent(new Event('input')); }"""


@pytest.fixture(scope="module")
def block() -> Iterator[BlockTrace]:
    gl.use_device("virtual:A100")
    args = (cp.arange(64, dtype=np.int32), np.int32(5))
    yield session.backend().observe(Launch.of(cp.RawKernel(CODE, "mixed"), 1, 64, args), Block())
    session.use_device("auto")


def states(active: int, executed: int) -> list[str]:
    return [
        "active" if executed >> lane & 1 else "off" if active >> lane & 1 else "inactive"
        for lane in range(32)
    ]


def number_of(bits: int, kind: str) -> float | str:
    """A register's bits as the number that they stand for."""
    if kind == "pred":
        return "true" if bits & 1 else "false"
    if kind[0] == "f":
        code, integer_code = ("<f", "<I") if kind == "f32" else ("<d", "<Q")
        return float(struct.unpack(code, struct.pack(integer_code, bits & (1 << int(kind[1:])) - 1))[0])
    width = int(kind[1:])
    value = bits & (1 << width) - 1
    return value - (1 << width) if kind[0] == "s" and value >> (width - 1) else value


def overlaps(page: Any) -> list[list[str]]:
    """Pairs of parts of the view that lie on each other."""
    pairs: list[list[str]] = page.evaluate(
        """() => {
            const parts = ['head', 'groups', 'timeline', 'legend', 'sentence', 'listing', 'lanes',
                'lanes-note', 'register-panel', 'access', 'shared', 'caption']
                .map(name => [name, document.querySelector(`.gl-${name}`)?.getBoundingClientRect()])
                .filter(([, box]) => box);
            return parts.flatMap(([name, box], index) => parts.slice(index + 1)
                .filter(([, other]) => box.left < other.right - 1 && other.left < box.right - 1
                    && box.top < other.bottom - 1 && other.top < box.bottom - 1)
                .map(([other]) => [name, other])); }"""
    )
    return pairs


def by_instruction(view: WarpStepper) -> WarpStepper:
    view.by_line = view.fold = False
    return view


def test_lane_colours_equal_those_of_the_static_picture(open_saved: Any) -> None:
    page = open_saved(by_instruction(WarpStepper(synthetic.warp_trace(n=24))))
    colours = dict[str, str]()
    for step in range(14):
        page.evaluate(STEP, step)
        colours |= dict(
            page.evaluate(
                "[...document.querySelectorAll('.gl-lane')]"
                ".map(lane => [lane.dataset.state, getComputedStyle(lane).backgroundColor])"
            )
        )
    for state in (ACTIVE, INACTIVE, PREDICATED_OFF):
        red, green, blue = bytes.fromhex(palette.find_hex(state.colour)[1:])
        assert colours[state.key] == f"rgb({red}, {green}, {blue})", state.name


def test_sentence_and_lanes_of_every_step_equal_pythons(open_saved: Any) -> None:
    trace = synthetic.warp_trace(n=24)
    view = by_instruction(WarpStepper(trace, synthetic.measured_blocks(trace)))
    page = open_saved(view)
    for step in range(len(trace)):
        page.evaluate(STEP, step)
        sentence, lanes = page.evaluate(SHOWN)
        assert sentence == view.steps.sentence(step)
        assert lanes == states(int(trace.active_mask[step]), int(trace.executed_mask[step]))
    assert page.locator(".gl-confirmation").first.text_content().startswith("Masks confirmed by NVIDIA H200")
    verdict = page.locator(".gl-verdict")
    page.evaluate(STEP, 9)
    assert page.locator(".gl-heading").first.text_content().startswith("Registers of lane 0")
    assert verdict.text_content() == "24 passes, at best 1 (24×)"
    page.evaluate(STEP, 4)
    assert verdict.text_content() == "6 sectors, at best 3 (2×)"
    assert view.steps.access_texts[0].heading == "Sectors: global load · 4 bytes per lane × 24 lanes"


def test_registers_and_shared_memory_equal_the_trace(block: BlockTrace, open_saved: Any) -> None:
    view = by_instruction(WarpStepper(block, warp=1))
    page = open_saved(view)
    trace = view.trace
    rng = np.random.default_rng(5)
    assert trace.detail is not None
    assert trace.detail.depth.any()
    writing = np.flatnonzero(np.isin(trace.detail.sequence, block.shared.sequence))
    chosen = [*rng.integers(0, len(trace), 16).tolist(), *rng.choice(writing, 8, replace=False).tolist()]
    for step in [0, len(trace) - 1, *chosen]:
        lane = int(rng.integers(32))
        page.evaluate(STEP, step)
        page.locator(".gl-lane").nth(lane).click()
        registers = {}
        for title in page.evaluate(REGISTERS):
            name, kind, value = title.split(",")[0].replace("(", "").replace(") =", "").split()
            registers[name] = (kind, value)
        expected = {
            name: int(register.value[lane])
            for name, register in registers_at(trace, step).items()
            if register.written[lane]
        }
        assert registers.keys() == expected.keys()
        for name, (kind, value) in registers.items():
            number = number_of(expected[name], kind)
            assert value == number if isinstance(number, str) else float(value) == pytest.approx(number)
        sequence = int(trace.detail.sequence[step])
        memory, written = shared_at(block.shared, sequence)
        page.locator("select[aria-label='Read words as']").select_option("hex")
        words = page.evaluate(WORDS)
        size = -(-memory.size // 4)
        assert len(words) == size
        padded = np.append(memory, np.full(4 * size - memory.size, 0xFF, np.uint8)).view("<u4")
        written_words = np.append(written, np.zeros(4 * size - memory.size, bool)).reshape(-1, 4).any(axis=1)
        for index, (text, state) in enumerate(words):
            assert (state == "never") == (not written_words[index])
            assert not written_words[index] or int(text, 16) == int(padded[index])
        before, _ = shared_at(block.shared, sequence - 1)
        changed = {index for index, (_, state) in enumerate(words) if state == "changed"}
        assert set((np.flatnonzero(memory != before) // 4).tolist()) <= changed
        page.locator("select[aria-label='Read words as']").select_option("stored")
        if written.any():
            wide = {title for title, _ in page.evaluate(WORDS)}
            assert {"-1.5", "2.25"} <= wide or sequence < int(np.median(trace.detail.sequence))


def test_keyboard_moves_equal_pythons_moves(block: BlockTrace, open_saved: Any) -> None:
    view = by_instruction(WarpStepper(block, warp=0))
    page = open_saved(view)
    listing = page.locator(".gl-listing")
    keys = {
        "ArrowDown": "next_line",
        "ArrowUp": "previous_line",
        "PageDown": "next_access",
        "PageUp": "previous_access",
        "i": "next_iteration",
        "Shift+I": "previous_iteration",
        "o": "past_loop",
    }
    rng = np.random.default_rng(2)
    for step in rng.integers(0, len(view.trace), 12).tolist():
        for key, move in keys.items():
            page.evaluate(STEP, step)
            listing.press(key)
            sentence = page.locator(".gl-sentence").text_content()
            assert sentence == view.steps.sentence(int(view.steps.moves[move][step]))
    looping = int(view.steps.loops.turn_begin[view.steps.loops.turns(1)[1]])
    page.evaluate(STEP, looping)
    iteration = view.steps.loops.words[view.steps.loops.turn[looping]]
    assert f", {iteration}:" in page.locator(".gl-sentence").text_content()
    now = int(view.trace.detail.sequence[looping])
    listing.press("]")
    view.warp = 1
    view.step = int(np.searchsorted(view.trace.detail.sequence, now, side="right")) - 1
    assert page.locator(".gl-sentence").text_content() == view.steps.sentence(view.step)


def test_folded_loops_have_fewer_steps(block: BlockTrace, open_saved: Any) -> None:
    page = open_saved(by_instruction(WarpStepper(block)))
    slider = page.locator("input[type=range]").first
    whole = int(slider.get_attribute("max"))
    fold = page.locator("button", has_text="Fold loops")
    fold.click()
    assert int(slider.get_attribute("max")) < whole
    fold.click()
    assert int(slider.get_attribute("max")) == whole


def test_play_stops_at_the_end_and_can_be_restarted(open_saved: Any) -> None:
    view = WarpStepper(synthetic.warp_trace(repeat=300))
    page = open_saved(view)
    visits = len(view.steps.visits)
    page.evaluate(STEP, visits - 3)
    page.locator("[data-move=play]").click()
    page.wait_for_selector("[data-move=play]:has-text('Play')", timeout=5000)
    ended = view.steps.sentence(len(view.trace) - 1, by_line=True)
    assert page.locator(".gl-sentence").text_content() == ended
    # From the end Play begins anew; "fast" crosses any trace in some seconds.
    page.locator("select[aria-label=Speed]").select_option("fast")
    page.locator("[data-move=play]").click()
    page.wait_for_function(
        "end => document.querySelector('.gl-sentence').textContent === end", arg=ended, timeout=15_000
    )


def test_sentence_and_lanes_of_every_line_equal_pythons(block: BlockTrace, open_saved: Any) -> None:
    view = WarpStepper(block)
    view.fold = False
    page = open_saved(view)
    steps = view.steps
    for visit in range(len(steps.visits)):
        page.evaluate(STEP, visit)
        sentence, lanes = page.evaluate(SHOWN)
        assert sentence == steps.sentence(int(steps.visits.begin[visit]), by_line=True)
        assert lanes == states(int(steps.visits.active_mask[visit]), int(steps.visits.lane_mask[visit]))
        current = page.locator("[aria-current=step] .gl-line-number").text_content()
        assert int(current) == steps.visits.line[visit]


def test_click_and_enter_on_a_line_move_to_its_next_visit(block: BlockTrace, open_saved: Any) -> None:
    view = WarpStepper(block)
    view.fold = False
    page = open_saved(view)
    visits = view.steps.visits
    line = int(np.bincount(visits.line).argmax())
    index = np.flatnonzero(visits.line == line)
    row = page.locator(".gl-line.gl-ran").filter(has=page.get_by_role("button", name=f"line {line}:"))
    row.locator("code").click()
    for visit in (index[0], index[1]):
        sentence = view.steps.sentence(int(visits.begin[visit]), by_line=True)
        assert page.locator(".gl-sentence").text_content() == sentence
        row.locator("button").focus()
        page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.textContent")
    assert int(focused) == min(n for n in visits.line.tolist() if n > line)
    page.evaluate(STEP, int(index[-1]))
    row.locator("code").click()  # no later step of this line: its first
    assert page.locator(".gl-sentence").text_content() == view.steps.sentence(
        int(visits.begin[index[0]]), by_line=True
    )


@pytest.mark.parametrize(
    ("width", "height", "dark"), [(640, 579, False), (820, 599, True), (1400, 900, False)]
)
def test_essential_elements_fit_on_one_screen(
    block: BlockTrace, open_saved: Any, width: int, height: int, dark: bool
) -> None:
    """Buttons, the current line and the lanes are visible together, not clipped and not overlapping."""
    from tests.browser.conftest import PICTURES

    page = open_saved(WarpStepper(block), width, height, dark)
    page.locator(".gl-listing").press("PageDown")
    page.screenshot(path=PICTURES / f"warp_page_{width}_{'dark' if dark else 'light'}.png")
    boxes = page.evaluate(
        """['.gl-groups', '.gl-timeline', '.gl-legend', '.gl-sentence', '.gl-lanes',
            '.gl-current', '[data-move=past-loop]'].map(selector => {
                const box = document.querySelector(selector).getBoundingClientRect();
                return [box.left, box.top, box.right, box.bottom]; })"""
    )
    assert all(left >= 0 and bottom <= height for left, _, _, bottom in boxes)
    assert overlaps(page) == []
    clipped = page.evaluate(
        """[...document.querySelectorAll('.gl-lane .gl-value, button, .gl-sentence, td')]
            .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map(e => e.textContent)"""
    )
    assert clipped == []
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide[0] <= wide[1]


@pytest.mark.parametrize(("width", "height"), [(1024, 700), (933, 600), (1400, 900)])
def test_the_whole_block_fits_into_the_window(
    block: BlockTrace, browser: Any, tmp_path: Path, width: int, height: int
) -> None:
    """Play, source, lanes and shared memory are in sight together, without scrolling."""
    view = WarpStepper(block, warp=1)
    view.step = int(view.steps.accesses[-1])
    path = view.save(tmp_path / "block.html")
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(path.as_uri())
    page.wait_for_function("document.querySelector('.gl-page')?.style.getPropertyValue('--gl-zoom')")
    # The page has a line that a view in a notebook does not have.
    page.evaluate("document.querySelector('.gl-saved').remove(); dispatchEvent(new Event('resize'))")
    page.wait_for_timeout(100)
    assert overlaps(page) == []
    bottom = page.evaluate(
        """Math.max(...['[data-move=play]', '.gl-current', '.gl-lanes', '.gl-words', '.gl-caption']
            .map(selector => document.querySelector(selector).getBoundingClientRect().bottom))"""
    )
    assert bottom <= height
    assert page.evaluate("document.documentElement.scrollHeight") <= height
    page.close()


@pytest.mark.parametrize("by_line", [False, True], ids=["instruction", "line"])
@pytest.mark.parametrize("fold", [False, True], ids=["all", "folded"])
def test_overview_strip_and_slider_have_the_same_axis(
    block: BlockTrace, open_saved: Any, by_line: bool, fold: bool
) -> None:
    """A click in the middle of a column selects its step; the column's height is the number of its lanes."""
    view = WarpStepper(block)
    view.by_line = by_line
    view.fold = fold
    page = open_saved(view)
    steps = view.steps
    slider = page.locator("input[type=range]")
    count = int(slider.get_attribute("max")) + 1
    assert fold or count == (len(steps.visits) if by_line else len(steps))
    canvas = page.locator(".gl-timeline canvas")
    box = canvas.bounding_box()
    sentences = {
        steps.sentence(step, by_line): int(
            steps.visits.lane_mask[steps.visits.visit_of_step[step]]
            if by_line
            else steps.trace.executed_mask[step]
        ).bit_count()
        for step in (steps.visits.begin.tolist() if by_line else range(len(steps)))
    }
    for index in {0, 1, count // 3, count // 2, count - 2, count - 1}:
        x = box["width"] * (index + 0.5) / count
        page.mouse.click(box["x"] + x, box["y"] + box["height"] / 3)
        assert int(slider.input_value()) == index
        lanes = sentences[page.locator(".gl-sentence").text_content()]
        blue = canvas.evaluate(
            """(canvas, [x, colour]) => {
                const scale = canvas.width / canvas.clientWidth;
                const height = Math.round(36 * scale);
                const data = canvas.getContext("2d").getImageData(Math.floor(x * scale), 0, 1, height).data;
                const is = (y) => colour.every((part, index) => Math.abs(data[4 * y + index] - part) < 8);
                return Array.from({length: height}, (_, y) => y).filter(is).length / height; }""",
            [x, list(bytes.fromhex(palette.find_hex(ACTIVE.colour)[1:]))],
        )
        assert blue == pytest.approx(lanes / 32, abs=0.06)


def test_fast_key_presses_are_all_applied_in_a_long_trace(open_saved: Any) -> None:
    view = WarpStepper(synthetic.warp_trace(n=24, repeat=1_400))
    view.by_line = False
    page = open_saved(view)
    slider = page.locator("input[type=range]")
    start = int(slider.input_value())
    page.evaluate(
        """async () => { const listing = document.querySelector('.gl-listing');
            for (let n = 0; n < 40; n += 1) {
                listing.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));
                await new Promise(done => setTimeout(done, 5));
            } }"""
    )
    assert int(slider.input_value()) == start + 40


WATCHED = r"""
extern "C" __global__ void stray(int* rows, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    #pragma unroll 1
    for (int k = 0; k <= (i & 3); ++k) sum += k;
    if (i <= n) rows[i] = sum;
}
"""


def watching(**options: Any) -> WarpStepper:
    gl.use_device("virtual:A100")
    rows = cp.zeros(64, dtype=np.int32)
    options = {"watch": ["i", "rows[i + 1]", "sum * 2"], "stop": ["write sum", "any(i >= n)"]} | options
    return gl.warps(cp.RawKernel(WATCHED, "stray"), 1, 64, (rows, np.int32(63)), warp=1, **options)


@pytest.mark.parametrize("by_line", [False, True], ids=["instruction", "line"])
def test_keys_move_to_the_next_and_previous_stop(open_saved: Any, by_line: bool) -> None:
    view = watching()
    view.by_line = by_line
    page = open_saved(view)
    steps = view.steps
    listing = page.locator(".gl-listing")
    sentence = page.locator(".gl-sentence")
    name = "_visit" if by_line else ""
    index = view.step
    way = [view.step]
    assert sentence.text_content() == steps.sentence(index, by_line)
    assert "Stop " in sentence.text_content()
    while (to := int(steps.moves[f"next_stop{name}"][index])) != index:
        listing.press("s")
        assert sentence.text_content() == steps.sentence(to, by_line)
        index = to
        way.append(index)
    assert len(way) > 3
    assert page.locator("[data-move=next-stop]").get_attribute("aria-disabled") == "true"
    for to in reversed(way[:-1]):
        listing.press("Shift+S")
        assert sentence.text_content() == steps.sentence(to, by_line)
    page.locator("[data-move=next-stop]").click()
    assert sentence.text_content() == steps.sentence(way[1], by_line)
    page.locator("[data-move=previous-stop]").click()
    assert sentence.text_content() == steps.sentence(way[0], by_line)


def test_watched_values_equal_the_record(open_saved: Any) -> None:
    view = by_instruction(watching(stop="write rows[63]"))
    page = open_saved(view)
    assert page.locator(".gl-sentence").text_content() == view.steps.sentence(view.step)
    for step in range(len(view.trace)):
        page.evaluate(STEP, step)
        for lane in (0, 3, 31):
            page.locator(".gl-lane").nth(lane).click()
            rows_ = page.evaluate(
                "[...document.querySelectorAll('.gl-watch')].map(row => [row.children[0].textContent, "
                "row.children[2].textContent])"
            )
            view.step = step
            view.lane = lane
            parts_ = [line.partition(f" in lane {lane}: ") for line in view.describe().splitlines()[-3:]]
            assert rows_ == [[name, text] for name, _, text in parts_]


def test_a_saved_page_lists_its_stops(open_saved: Any) -> None:
    page = open_saved(watching())
    note = page.locator(".gl-confirmation").first.text_content()
    assert note.startswith("Stop at write sum: ")
    assert "Stop at any(i >= n): never." not in note
    assert "s and S next and previous stop" in page.locator(".gl-note").all_text_contents()[-2]
    without = open_saved(watching(watch=[], stop=[]))
    assert without.locator("[data-move=next-stop]").count() == 0


FOLD = r"""
extern "C" __global__ void fold(int* out)
{
    __shared__ int box[64];
    int t = threadIdx.x;
    box[t] = 1;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (t < half) box[t] += box[t + half];
        __syncthreads();
    }
    if (t == 0) *out = box[0];
}
"""


@pytest.mark.parametrize("options", [(), ("-G",)], ids=["optimized", "for debugging"])
def test_an_optimized_out_variable_has_advice_on_how_to_keep_it(
    open_saved: Any, options: tuple[str, ...]
) -> None:
    gl.use_device("virtual:A100")
    kernel = cp.RawKernel(FOLD, "fold", options=options)
    view = gl.warps(kernel, 1, 64, (cp.zeros(1, dtype=np.int32),), whole_block=True)
    view.step = int(np.flatnonzero(view.steps.line == 9)[-1])
    row = open_saved(view).locator(".gl-register").filter(has_text="half").first
    text = row.locator(".gl-register-value").text_content()
    if options:
        assert int(text) == 1
        assert "Optimized out" not in view.describe()
    else:
        assert text.startswith("optimized out; compile with -G")
        assert 'options=("-G",)' in row.get_attribute("title")
        assert "Optimized out: half." in view.describe()


@pytest.mark.parametrize(("width", "height", "dark"), [(640, 700, False), (1024, 700, True)])
def test_watch_expressions_are_fully_visible(open_saved: Any, width: int, height: int, dark: bool) -> None:
    """A few watch expressions are all visible, and no elements overlap."""
    from tests.browser.conftest import PICTURES

    page = open_saved(watching(), width, height, dark)
    page.screenshot(path=PICTURES / f"watch_{width}_{'dark' if dark else 'light'}.png")
    clipped = page.evaluate(
        """[...document.querySelectorAll('.gl-watch span, button, .gl-sentence')]
            .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map(e => e.textContent)"""
    )
    assert clipped == []
    assert overlaps(page) == []
    bottom = page.evaluate("document.querySelector('.gl-registers').getBoundingClientRect().bottom")
    rows = page.evaluate(
        "[...document.querySelectorAll('.gl-watch')].map(row => row.getBoundingClientRect().bottom)"
    )
    assert len(rows) == 3
    assert max(rows) <= bottom + 1
