"""Launches that start in several Python threads at once, in a process that has launched nothing before."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from virtualgpu.compile import nvrtc
from virtualgpu.compile.interruptible import set_stack_size
from virtualgpu.engine.run.stopwatch import Stopwatch

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

# Making worker threads is slowed down, so that all threads meet there.
PROGRAM = r"""
import concurrent.futures, threading, time
import numpy as np
import gpulab as gl
from gpulab import cp

made = []
make = concurrent.futures.ThreadPoolExecutor.__init__
def slowly(self, *args, **named):
    made.append(threading.get_ident())
    time.sleep(0.1)
    make(self, *args, **named)
concurrent.futures.ThreadPoolExecutor.__init__ = slowly

CODE = '''__device__ int calls;
extern "C" __global__ void inc(float* p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
  if (i == 0) atomicAdd(&calls, 1);
}'''
kernel = cp.RawKernel(CODE, "inc")
gate, right, wrong = threading.Barrier(8), [], []

def launch(x):
    kernel((20,), (256,), (x, np.int32(5000)))

def plain(x):
    launch(x)

def captured(x):
    with cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        launch(x)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()

def work(number):
    try:
        gate.wait()
        for turn in range(5):
            x = cp.full(5000, number, cp.float32)
            HOW(x)
            right.append(bool((x.get() == number + 1).all()))
    except BaseException as error:
        wrong.append(repr(error))

def together():
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

if TIMED:
    with gl.timeline():
        together()
else:
    together()
print(len(made), right.count(True), wrong, threading.stack_size())
"""


@pytest.mark.parametrize(
    ("launcher", "timed"),
    [("captured", False), ("plain", True)],
    ids=["captures", "timeline"],
)
def test_first_launches_in_eight_threads(launcher: str, timed: bool) -> None:
    program = PROGRAM.replace("HOW", launcher).replace("TIMED", str(timed))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n")[-2:] == ["1 40 [] 0", ""], done.stdout + done.stderr


def test_a_stopwatch_keeps_the_time_of_an_ended_thread() -> None:
    watches: list[Stopwatch] = []

    def compute() -> None:
        watches.append(Stopwatch())
        while watches[0].spent_s < 0.02:
            pass

    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    for _ in range(20):  # the system forgets a thread a moment after Python
        assert watches[0].spent_s >= 0.02
        time.sleep(0.002)


def test_a_stopped_stopwatch_does_not_advance() -> None:
    watch = Stopwatch()
    watch.stop()
    before_s = watch.spent_s
    sum(range(200_000))
    assert watch.spent_s == before_s


def test_only_one_thread_at_a_time_changes_the_stack_size() -> None:
    gate = threading.Barrier(4)

    def change(size_bytes: int) -> None:
        gate.wait()
        for _ in range(50):
            with set_stack_size(size_bytes):
                time.sleep(0.0002)
                assert threading.stack_size() == size_bytes

    size_bytes_before = threading.stack_size()
    failed: list[BaseException] = []

    def run(size_bytes: int) -> None:
        try:
            change(size_bytes)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(n << 20,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert threading.stack_size() == size_bytes_before
