"""Timeline view without a browser: rows, lanes, arrows, frames, texts, and pixels of the picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import traitlets

from gpulab.views import TimelineView
from gpulab.views.parts import palette, picture
from gpulab.views.parts.boxes import slider
from gpulab.views.parts.items import Tracks
from gpulab.views.parts.palette import KERNEL_COLOURS
from gpulab.views.parts.plots import make_time_ticks, plot
from gpulab.views.timeline.chart import draw_chart, find_tracks, make_panels
from gpulab.views.timeline.lanes import TimelinePanel
from gpulab.views.timeline.steered import SteeredTimeline
from tests.views import timelines
from tests.views.synthetic import MEASURED
from virtualgpu.records import Advice, Synchronization, Timeline


def rgb(name: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(palette.find_hex(name)[1:]))


def items(record: Timeline, *others: Timeline) -> list[dict]:
    return [item.wire() for item in draw_chart(make_panels([record, *others]), "label").items]


@pytest.mark.parametrize("streams", [1, 4, 12, 30])
def test_bars_in_one_lane_do_not_overlap(streams: int) -> None:
    record = timelines.overlapped(streams, 3 * streams)
    (lanes,) = make_panels([record])
    assert lanes.start.size == len(record.activities) + len(record.calls) + 2 + len(record.ranges)
    for row in range(len(lanes.row_keys)):
        for lane in range(lanes.lane_counts[row]):
            mine = (lanes.row == row) & (lanes.lane == lane)
            assert mine.any()
            if lanes.lane_counts[row] < 8:
                assert (lanes.start[mine][1:] >= lanes.end[mine][:-1]).all()
    pixels_ = draw_chart([lanes], "label")
    assert pixels_.height <= 276 + 40
    assert len(lanes.folded_row_keys) == max(0, streams - 12 + bool(streams > 12) * 0) or streams == 30
    names = [lanes.row_name(place) for place in lanes.row_keys]
    assert names[:5] == ["NVTX", "", "", "host calls", "host waits"]
    if streams == 30:
        assert names[-1] == f"{len(lanes.folded_row_keys)} more streams"
        assert len(lanes.row_keys) - 5 == 30 - len(lanes.folded_row_keys) + 1
        assert ("stream", 0, 36) not in lanes.folded_row_keys, "it has an operation more than the others"


def test_track_columns_equal_the_record() -> None:
    record = timelines.overlapped()
    track = items(record)[0]
    assert (np.diff(track["x0"]) >= 0).all()
    by_number = {each.correlation_id: each for each in record.activities}
    streams = {"default stream": 7, "stream 1": 8, "stream 2": 9, "stream 3": 10}
    numbers = set()
    colour_of_name: dict[str, set[str]] = {}
    for index in range(track["x0"].size):
        activity = by_number.get(int(track["operation"][index]))
        row = track["row_names"][track["row"][index]]
        if activity is None or row == "host calls":
            continue
        numbers.add(activity.correlation_id)
        assert streams[row] == activity.stream_id
        assert (track["x0"][index], track["x1"][index]) == (activity.start_ns, activity.end_ns)
        assert track["names"][track["name"][index]] == activity.name
        assert track["size"][index] == activity.size_bytes
        colour = track["colours"][track["colour"][index]]
        if activity.copy_kind:
            assert colour == {"HtoD": "good", "DtoH": "warn"}[activity.copy_kind]
        else:
            colour_of_name.setdefault(activity.name, set()).add(colour)
    assert numbers == set(by_number)
    assert all(len(colours) == 1 for colours in colour_of_name.values())
    assert len({*map(frozenset, colour_of_name.values())}) == min(len(colour_of_name), len(KERNEL_COLOURS))
    square, cube = (
        {int(c) for c, n in zip(track["colour"], track["name"], strict=True) if track["names"][n] == name}
        for name in ("square", "cube")
    )
    assert len(square) == len(cube) == 1
    assert square != cube


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Memcpy HtoD (Host -> Device)", "H2D"),
        ("[CUDA memcpy DtoD]", "D2D"),
        ("Memset (Device)", "Memset"),
        (timelines.LONG, "vectorized_elementwise_kernel"),
        ("scale(float const*, float*, int)", "scale"),
        ("softmax_warp", "softmax_warp"),
        ("void (anonymous namespace)::fill<int>(int*)", "fill"),
    ],
)
def test_bars_have_short_names(name: str, short: str) -> None:
    record_ = timelines.alone()
    record = replace(record_, activities=(replace(record_.activities[0], name=name),))
    assert items(record)[0]["shorts"] == [short]
    assert items(record)[0]["names"] == [name]


def test_an_event_wait_is_an_arrow_from_end_to_start() -> None:
    record = timelines.overlapped()
    by_number = {activity.correlation_id: activity for activity in record.activities}
    (waiting,) = [activity for activity in record.activities if activity.name == "sum"]
    (source,) = (by_number[number] for number in waiting.after)
    (lanes,) = make_panels([record])
    assert lanes.arrows == ([(record.activities.index(source), record.activities.index(waiting))], [])
    (arrow,) = [item for item in items(record) if item["item"] == "rules"]
    assert (arrow["x0"].tolist(), arrow["x1"].tolist()) == ([source.end_ns], [waiting.start_ns])
    assert arrow["y0"][0] < arrow["y1"][0], "from the default stream down to stream 3"
    # CUPTI tells the wait and the event's operations, not what each operation followed.
    cupti = replace(
        record,
        method="CUPTI",
        activities=tuple(replace(activity, after=()) for activity in record.activities),
    )
    assert TimelinePanel(cupti, 4).arrows == lanes.arrows
    # Without the wait the order is still there, but nobody asked for it.
    silent = replace(record, synchronizations=())
    assert TimelinePanel(silent, 4).arrows == ([], lanes.arrows[0])


def test_a_wait_delays_only_later_operations() -> None:
    ops = (
        timelines.copy(7, 1, 0, 100, "HtoD"),
        timelines.kernel(8, 2, 150, 250, "before"),
        timelines.kernel(8, 3, 260, 300, "after"),
    )
    calls = tuple(
        timelines.HostCall("cudaLaunchKernel", index, index + 1, 1, n)
        for n, index in ((1, 1), (2, 5), (3, 20))
    )
    wait = Synchronization(
        type="STREAM_WAIT_EVENT",
        device_id=0,
        stream_id=8,
        start_ns=10,
        end_ns=11,
        event_stream_id=7,
        after=(1,),
    )
    record = Timeline(
        provenance=MEASURED,
        method="CUPTI",
        start_ns=0,
        end_ns=300,
        activities=ops,
        calls=calls,
        synchronizations=(wait,),
    )
    assert TimelinePanel(record, 4).arrows[0] == [(0, 2)]


def test_launches_of_graphs_are_framed() -> None:
    once = timelines.tiny_kernels(10, graph=True)
    second = tuple(
        replace(
            activity,
            start_ns=activity.start_ns + 100_000,
            end_ns=activity.end_ns + 100_000,
            correlation_id=activity.correlation_id + 10,
        )
        for activity in once.activities
    )
    record = replace(once, activities=once.activities + second, end_ns=once.end_ns + 100_000)
    first = once.activities[0].start_ns
    last = once.activities[-1].end_ns
    place = ("stream", 0, 7)
    assert TimelinePanel(record, 4).graph_launches == {
        (place, 3, 0): (first, last),
        (place, 3, 1): (first + 100_000, last + 100_000),
    }
    (frames,) = [item for item in items(record) if item["item"] == "rects"]
    assert frames["x0"].tolist() == [first - once.start_ns, first + 100_000 - once.start_ns]
    assert frames["outline"] is True


def test_two_timelines_share_an_axis_and_both_start_at_zero() -> None:
    eager = timelines.tiny_kernels()
    graph = timelines.tiny_kernels(graph=True)
    view = TimelineView(eager, graph, names=("eager", "graph"))
    assert view.record == (eager, graph)
    track = view.draw().boxes[1].items[0].wire() if not view.summary else None
    assert track is not None
    for panel, record in enumerate((eager, graph)):
        mine = (track["panel"] == panel) & (track["operation"] >= 0)
        starts = {activity.start_ns - record.start_ns for activity in record.activities}
        assert starts <= set(track["x0"][mine].tolist())
    texts = [text for item in view.draw().boxes[1].items if item.kind == "labels" for text in item.text]
    assert "eager: 322 µs, measured on NVIDIA H200" in texts
    assert "graph: 129 µs, measured on NVIDIA H200" in texts
    view.close()


class Chunks(SteeredTimeline):
    """A slider for the number of chunks; more than eight do not work."""

    chunks = traitlets.Int(2).tag(sync=True)

    def __init__(self) -> None:
        super().__init__(timelines.empty())
        self.steer(slider("Chunks", "chunks", [2, 4, 16], ["2", "4", "16"]))

    def describe_settings(self) -> str:
        return f"The run with {self.chunks} chunks"

    def show_timeline(self) -> None:
        if self.chunks > 8:
            raise ValueError("too many")
        record = timelines.overlapped(2, self.chunks)
        self.show(record, names=("run",), summary=f"{self.chunks} chunks.", faults=[(0, 2)])


def test_a_slider_shows_another_timeline_or_an_error() -> None:
    view = Chunks()
    assert [control["trait"] for control in view.controls] == ["chunks"]
    assert (view.pictured, view.pictures) == ({"chunks": 2}, 0)
    assert len(view.record.activities) == 7
    before = view.scene
    view.chunks = 4
    assert (view.pictured, view.pictures, view.error) == ({"chunks": 4}, 1, "")
    assert view.describe().startswith("Timeline of 13 operations")
    assert "\n4 chunks.\nrun: " in view.describe()
    assert "red arrows: 1 read" in str(view.scene)
    assert view.scene != before
    pixels_ = view.scene
    view.chunks = 16
    assert view.error == "The run with 16 chunks failed. ValueError: too many"
    assert (view.pictured, view.pictures) == ({"chunks": 4}, 2), "the page is answered all the same"
    assert view.scene == pixels_
    view.close()


def test_lost_records_and_limits_are_noted() -> None:
    record = replace(timelines.alone(), lost=12, method="events", note="Copies are not seen.")
    view = TimelineView(record)
    assert "event pairs" in view.caption
    assert "12 records lost" in view.caption
    assert view.caption.endswith("Copies are not seen.")
    view.close()
    nothing = TimelineView(timelines.empty())
    assert repr(nothing).startswith("Timeline of 0 operations on 0 streams in 0 ns")
    assert nothing.png()
    nothing.close()


def test_a_pixel_has_the_dominant_colour_scaled_by_busy_share() -> None:
    """Compares with a reference painter that samples a thousand points of each pixel."""
    random = np.random.default_rng(8)
    edges = np.sort(random.choice(np.arange(100_000), 1_200, replace=False)).astype(np.int64)
    start = edges[::2]
    end = edges[1::2]
    start = np.append(start, [99_000])
    end = np.append(np.minimum(end, 98_000), [99_000])
    end = np.maximum(start, end)
    colour = random.integers(0, 3, start.size)
    zero = np.zeros(start.size, np.int64)
    item = Tracks(
        x0=start,
        x1=end,
        row=zero,
        lane=zero,
        colour=colour,
        colours=["accent", "good", "warn"],
        tops=[0.0],
        heights=[10.0],
        lanes=[1],
        row_names=["stream"],
        columns={"names": ["k"], "shorts": ["k"], "name": zero},
    )
    box = plot(10, (0, 100_000), item, left=0, right=0)
    pen = picture.Pen(100, 10)
    picture.lay_out(box, 100)[1](pen, 0, 0)
    pixels_ = np.asarray(pen.image)[10]
    points = np.full(100_000, -1)
    for a, b, c in zip(start, end, colour, strict=True):
        points[a:b] = c
    wrong = 0
    for x in range(200):
        points_ = points[500 * x : 500 * (x + 1)]
        owners, many = np.unique(points_[points_ >= 0], return_counts=True)
        if not owners.size:
            expected = {rgb("panel")} if x != 198 else {rgb(f"{item.colours[colour[-1]]}-pale")}
        else:
            name = item.colours[owners[many.argmax()]]
            expected = (
                {rgb(name)}
                if many.sum() > 260
                else {rgb(f"{name}-pale")}
                if many.sum() < 240
                else {rgb(name), rgb(f"{name}-pale")}
            )
        wrong += tuple(pixels_[x].tolist()) not in expected
        assert x != 198 or tuple(pixels_[x].tolist()) in expected, "one of no length shows, too"
    assert wrong <= 4, "a bar of more than five pixels leaves its last one to the ground"


@pytest.mark.parametrize(
    ("low", "high", "title", "first"),
    [
        (0, 649_000, "time since the start (µs)", "0"),
        (0, 2.5e9, "time since the start (s)", "0.0"),
        (0, 900, "time since the start (ns)", "0"),
        (12_345_600, 12_345_900, "time since the start + 12,345 µs (ns)", "600"),
        (7.2e9, 7.2e9 + 3e6, "time since the start + 7 s (ms)", "200.0"),
    ],
)
def test_the_unit_of_the_axis_suits_the_visible_range(
    low: float, high: float, title: str, first: str
) -> None:
    name, ticks = make_time_ticks(low, high, 8, "the start")
    assert name == title
    assert ticks[0][1] == first
    assert all(low <= index <= high for index, _ in ticks)
    assert 4 <= len(ticks) <= 9
    assert len({text for _, text in ticks}) == len(ticks), "no two ticks have one text"


def test_data_of_30_000_operations_is_below_a_size_limit() -> None:
    view = TimelineView(timelines.many(30_000))
    view.png()
    view.close()
    assert len(view.data) < 1_800_000


def test_bars_with_advice_have_their_source_lines() -> None:
    record = timelines.overlapped()
    source = next(call.source for call in record.calls if call.source is not None)
    advice = (Advice("pin", "Pin the buffer.", 1000, (source,)), Advice("overlap", "Overlap it.", 500))
    view = TimelineView(record, advice=advice)
    assert all(piece.text in view.describe() for piece in advice)
    track = find_tracks(draw_chart(view.panels, "", advice=advice))
    (line,), none = track.columns["advised"]
    assert str(source) in track.columns["lines"][line]
    assert none == []
    view.close()


def test_measured_rows_are_named_by_timeline_and_stream() -> None:
    panels = make_panels([timelines.overlapped(2, 3), timelines.overlapped(2, 3)], ("eager", ""))
    track = find_tracks(draw_chart(panels, ""))
    names = [name for name in track.columns["measured"] if name]
    assert names[:2] == ["eager, host calls", "eager, host waits"]
    assert names[-1] == "timeline 2, stream 1"
    assert len(names) == 8
