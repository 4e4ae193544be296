"""``gl.check_streams`` on programs that are right and on programs that are wrong."""

from __future__ import annotations

import linecache
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import gpulab as gl
from gpulab import session
from tests.session.stream_patterns import RIGHT, WRONG


def checked(program: Any) -> Any:
    with gl.check_streams() as report:
        program(gl.cp)
    return report


@pytest.mark.parametrize("name", RIGHT)
def test_correct_programs_have_no_findings(name: str) -> None:
    report = checked(RIGHT[name])
    assert not report.findings, report.describe()


# Messages of some kinds; other kinds name what one side does while the other may still be reading or writing.
MESSAGES = {
    "used after it was freed": r" uses .+, whose memory was freed or given to another array",
    "freed too early": r" is freed.* while .+ may still be (reading|writing) it",
    "reused too early": r" was freed.*, and .+ uses its memory again .*while .+ may still be ",
}
BY_THE_HOST = r"^The host .+ while .+ may still be (reading|writing) it"
BY_A_STREAM = r"^(?!The host ).+ (writes|reads) .+ while .+ may still be (reading|writing) it"


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_program_has_the_expected_findings(name: str) -> None:
    program, kinds = WRONG[name]
    report = checked(program)
    assert {finding.kind for finding in report.findings} == kinds, report.describe()
    for finding in report.findings:
        message = MESSAGES.get(finding.kind, BY_A_STREAM if finding.second.stream else BY_THE_HOST)
        assert re.search(message, finding.message), finding.message
        for use in (finding.first, finding.second):
            assert use.source is not None
            assert use.source.file == "stream_patterns.py"
            assert use.source.text == linecache.getline(program.__code__.co_filename, use.source.line).strip()


@pytest.fixture(autouse=True)
def a_virtual_t4() -> Iterator[None]:
    with session.on_device("virtual:T4"):
        yield


def race(cp: Any) -> None:
    """Two lines without order."""
    x = cp.arange(100)
    with cp.cuda.Stream(non_blocking=True) as stream:
        x += 1
    stream.synchronize()


def test_checks_nest_and_each_sees_its_own_block() -> None:
    cp = gl.cp
    a = cp.cuda.Stream(non_blocking=True)
    b = cp.cuda.Stream(non_blocking=True)
    x = cp.zeros(10)
    cp.cuda.Device().synchronize()
    with gl.check_streams() as outer:
        with a:
            x += 1
        with gl.check_streams() as inner, b:
            x += 2
        with a:
            x += 3
    assert not inner.findings
    assert len(outer.findings) == 2
    assert repr(outer) == f"{outer.findings[0].message} (and 1 more)"
    assert inner.record.operations == 1


def test_check_does_not_keep_arrays_alive() -> None:
    """Names are looked up in frames, which must not keep a function's arrays."""
    cp = gl.cp
    pool = cp.get_default_memory_pool()

    def uses() -> int:
        x = cp.ones(1000)
        y = x * 2
        used = pool.used_bytes()
        del x
        z = y + 1
        del y, z
        return int(used - pool.used_bytes())

    with gl.check_streams():
        assert uses() == 2 * 8192


def test_streams_and_arrays_have_the_names_of_the_program() -> None:
    cp = gl.cp
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
    arrays = {"x": cp.zeros(8)}
    cp.cuda.Device().synchronize()
    with gl.check_streams() as report:
        for stream in streams:
            with stream:
                arrays["x"] += 1
    (finding,) = report.findings
    assert finding.array == "arrays['x']"
    assert (finding.first.stream, finding.second.stream) == ("streams[0]", "streams[1]")
    assert finding.remedy == "streams[1].wait_event(streams[0].record())"


@pytest.mark.parametrize("order", ["none", "event", "host"])
def test_peer_copy_must_wait_for_writes_on_the_other_device(order: str) -> None:
    with session.on_device("virtual:T4", count=2), gl.check_streams() as report:
        cp = gl.cp
        with cp.cuda.Device(0):
            a = cp.cuda.Stream(non_blocking=True)
            x = cp.zeros(100, cp.float32)
            a.wait_event(cp.cuda.Stream.null.record())
            with a:
                x += 1
                ready = a.record()
        with cp.cuda.Device(1):
            b = cp.cuda.Stream(non_blocking=True)
            if order == "event":
                b.wait_event(ready)
            elif order == "host":
                ready.synchronize()
            with b:
                y = x.copy()
            b.synchronize()
            y.get()
    kinds = [finding.kind for finding in report.findings]
    assert kinds == (["read after write"] if order == "none" else []), report.describe()
    if kinds:
        assert report.findings[0].remedy == "with cp.cuda.Device(0): e = a.record()\nb.wait_event(e)"


def test_a_peer_copy_in_the_default_streams_waits_for_both_devices() -> None:
    with session.on_device("virtual:T4", count=2), gl.check_streams() as report:
        cp = gl.cp
        with cp.cuda.Device(0):
            x = cp.zeros(100, cp.float32)
        with cp.cuda.Device(1):
            y = x.copy()
            y += 1
        with cp.cuda.Device(0):
            x += 1
    assert not report.findings, report.describe()


def test_threads_have_default_streams_of_their_own() -> None:
    cp = gl.cp
    x = cp.zeros(100)
    cp.cuda.Device().synchronize()

    def adds() -> None:
        with cp.cuda.Stream.ptds:
            cp.add(x, 1, out=x)

    with gl.check_streams() as report:
        adds()
        thread = threading.Thread(target=adds)
        thread.start()
        thread.join()
    assert [finding.kind for finding in report.findings] == ["read after write"]


def test_findings_are_shown_as_html_and_text() -> None:
    with gl.check_streams() as report:
        race(gl.cp)
    bundle, _ = report._repr_mimebundle_() or ({}, {})
    assert bundle["text/plain"] == report.describe()
    remedy = "stream.wait_event(cp.cuda.Stream.null.record())"
    for part in ("read after write", "x = cp.arange(100)", "x += 1", remedy):
        assert part in bundle["text/html"]
        assert part in report.describe()
    assert "\n" not in repr(report)
    assert " more)" not in repr(report)
    with gl.check_streams() as clean:
        gl.cp.ones(3)
    assert "Nothing found in 1 operation" in repr(clean)


def test_thousands_of_ordered_operations_have_no_findings() -> None:
    cp = gl.cp
    streams = [cp.cuda.Stream(non_blocking=True) for _ in range(4)]
    x = cp.zeros(4 * 1000, cp.float32)
    cp.cuda.Device().synchronize()
    with gl.check_streams() as report:
        for number in range(1_100):
            for lane, stream in enumerate(streams):
                with stream:
                    index = 4 * (number % 1000) + lane
                    x[index : index + 1].fill(number)
    assert not report.findings


WIDE = r"""
extern "C" __global__ void wide(float4* out, const char* in) {
    float first = in[threadIdx.x];
    out[threadIdx.x] = make_float4(first, 0, 0, 0);
}"""


@pytest.mark.parametrize("byte", [0, 7, 15, 31])
def test_every_byte_of_a_vector_store_is_checked(byte: int) -> None:
    kernel = gl.cp.RawKernel(WIDE, "wide")

    def program(cp: Any) -> None:
        x = cp.zeros(48, cp.int8)
        y = cp.zeros(48, cp.int8)
        one = cp.cuda.Stream(non_blocking=True)
        two = cp.cuda.Stream(non_blocking=True)
        cp.cuda.Device().synchronize()
        with one:
            kernel((1,), (2,), (x, y))
        with two:
            y[40:41] = x[byte : byte + 1]
        cp.cuda.Device().synchronize()
        with two:
            y[40:41] = x[32:33]  # which the kernel does not write
        with one:
            kernel((1,), (2,), (x, y))
        cp.cuda.Device().synchronize()

    (finding,) = checked(program).findings
    assert finding.kind == "read after write"
