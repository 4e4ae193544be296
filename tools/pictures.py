"""Take the README's pictures: run a few cells in a real JupyterLab and photograph their output.

``python -m tools.pictures`` writes notebooks/images/*.png and the pages of gallery/ of the same views. A
picture contains the digest of its page, so that a test can compare them. The command needs Chromium and the
`test` extra.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tools.chromium import find
from tools.suite import make_environment

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "notebooks" / "images"
GALLERY = ROOT / "gallery"
START_TIMEOUT_S = 90
CELL_TIMEOUT_MS = 120_000
CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

SETUP = """\
import numpy as np
import gpulab as gl
from gpulab import cp

kernels = cp.RawModule(code=r'''
extern "C" __global__ void collatz(const int* start, int* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long x = start[i];
    int count = 0;
    while (x != 1) {
        if (x % 2 == 0)
            x = x / 2;
        else
            x = 3 * x + 1;
        count++;
    }
    steps[i] = count;
}
''')
collatz = kernels.get_function("collatz")
n = 1_000_000
start = cp.arange(1, n + 1, dtype=cp.int32)
steps = cp.zeros(n, dtype=cp.int32)
arguments = (start, steps, np.int32(n))
"""
# Four chunks that are copied in, computed and copied out on two streams.
CONVEYOR = """\
chunks, streams = 6, [cp.cuda.Stream(non_blocking=True) for _ in range(2)]
pinned = cp.cuda.alloc_pinned_memory(4 * chunks << 20)
host = np.frombuffer(pinned, np.int32, chunks << 20).reshape(chunks, 1 << 20)
host[:] = np.arange(1, 1 + (1 << 20))
rooms = [(cp.empty(1 << 20, cp.int32), cp.empty(1 << 20, cp.int32)) for _ in streams]
cp.cuda.Device().synchronize()
with gl.timeline() as t:
    for chunk in range(chunks):
        stream, (x, y) = streams[chunk % 2], rooms[chunk % 2]
        x.set(host[chunk], stream=stream)
        collatz((4096,), (256,), (x, y, np.int32(1 << 20)), stream=stream)
        y.get(stream=stream, out=host[chunk], blocking=False)
    cp.cuda.Device().synchronize()
t
"""
GRAPH = """\
x, total = cp.ones(1 << 12, cp.float32), cp.zeros((), cp.float32)

def step(x, total):
    for _ in range(6):
        cp.multiply(x, 0.5, out=x)
        cp.add(x, 1, out=x)
    x.sum(out=total)

gl.graph(step, x, total).compare()
"""
# A segment of which every other block is free, and a request that none of them serves.
PUZZLE = """\
gib, pool = 1 << 30, cp.cuda.MemoryPool()
pool.set_limit(size=22 * gib // 10)
with cp.cuda.using_allocator(pool.malloc), gl.allocator() as puzzle:
    workspace = cp.empty(22 * gib // 10 - (1 << 20), cp.uint8)
    del workspace
    arrays = [cp.empty(205 << 20, cp.uint8) for _ in range(10)]
    del arrays[::2]
    try:
        cp.empty(gib, cp.uint8)
    except cp.cuda.memory.OutOfMemoryError:
        pass
puzzle
"""
# A swizzled tile, of which a warp multiplies the first 16 columns.
FRAGMENTS = '''\
product = cp.RawKernel(r"""
__device__ int place(int row, int v) { return row * 8 + (v ^ row % 8); }
extern "C" __global__ void product(const uint4* a, const uint4* b, float* d) {
    __shared__ uint4 left[16 * 8], right[16];
    int lane = threadIdx.x;
    for (int i = lane; i < 128; i += 32) left[place(i / 8, i % 8)] = a[i];
    if (lane < 16) right[lane] = b[lane];
    __syncwarp();
    unsigned from = __cvta_generic_to_shared(&left[place(lane % 16, lane / 16)]), x[4];
    unsigned to = __cvta_generic_to_shared(&right[lane % 16]), y[2];
    float sum[4] = {};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
        : "=r"(y[0]), "=r"(y[1]) : "r"(to));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; ++i) d[32 * i + lane] = sum[i];
}""", "product")
a, b = (cp.arange(n, dtype=cp.float16) / 64 for n in (16 * 64, 16 * 8))
gl.fragments(product, 1, 32, (a, b, cp.zeros(128, cp.float32)))
'''
# Three buffers, with copies two tiles ahead.
PIPELINE = '''\
sums = cp.RawKernel(r"""
#include <cuda_pipeline.h>
extern "C" __global__ void sums(const float4* x, float* y, int tiles) {
    __shared__ float4 buffer[3][128];
    int i = threadIdx.x;
    float sum = 0;
    auto fetch = [&](int t) {
        if (t < tiles) __pipeline_memcpy_async(&buffer[t % 3][i], &x[128 * t + i], 16);
        __pipeline_commit();
    };
    fetch(0);
    fetch(1);
    for (int t = 0; t < tiles; ++t) {
        __pipeline_wait_prior(1);
        __syncthreads();
        fetch(t + 2);
        for (int k = 0; k < 4; ++k) sum += buffer[t % 3][(i + 32 * k) % 128].x;
    }
    y[i] = sum;
}""", "sums")
tiles = 8
gl.pipeline(sums, 1, 128, (cp.ones(512 * tiles, cp.float32), cp.zeros(128, cp.float32), np.int32(tiles)))
'''
# Picture -> the cell whose output it shows.
CELLS = {
    "device_card": "gl.device()",
    "launch_chart": "gl.launch(collatz, grid=(n + 255) // 256, block=256, args=arguments)",
    "warp_stepper": "gl.warps(collatz, grid=(n + 255) // 256, block=256, args=arguments)",
    "occupancy_chart": "gl.occupancy(collatz, block=256)",
    "timeline": CONVEYOR,
    "graph": GRAPH,
    "memory_map": PUZZLE,
    "access": "gl.access(stride=2, offset=3)",
    "fragments": FRAGMENTS,
    "pipeline": PIPELINE,
}
# A view is stepped with the right arrow key until it shows this text.
STEP_TO = {"warp_stepper": "line 11,"}
MAX_STEPS = 200
# The last cell: it saves the pages of the views that the cells before it show.
SAVE = """\
from pathlib import Path
from tools import gallery
folder = Path({folder!r})
pages = gallery.save_pages(folder, {{name: Out[number] for number, name in enumerate({names!r}, start=2)}})
if len(pages) == len(gallery.CELLS):
    gallery.write_index(folder, pages)
"""
DIGEST = "Page-SHA-256"


def compute_page_digest(name: str) -> str:
    """Return the digest of a page of the gallery."""
    return hashlib.sha256((GALLERY / f"{name}.html").read_bytes()).hexdigest()


def read_digest(name: str) -> str | None:
    """Return the digest of the page that was saved with a picture; None if the picture has none."""
    with Image.open(IMAGES / f"{name}.png") as picture:
        return picture.info.get(DIGEST)


def add_digest(name: str) -> None:
    """Store a digest of the gallery page in the README picture of the same name."""
    path = IMAGES / f"{name}.png"
    png_texts = PngInfo()
    png_texts.add_text(DIGEST, compute_page_digest(name))
    with Image.open(path) as picture:
        picture.load()
        picture.save(path, pnginfo=png_texts, optimize=True)


def silence_news(folder: Path) -> None:
    """Answer JupyterLab's question about news, whose window would cover the picture."""
    settings_folder = folder / "jupyter" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings_folder.mkdir(parents=True)
    (settings_folder / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}\n')


@contextmanager
def serve_jupyterlab(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Serve a folder with JupyterLab on a free port; yield its address with the token."""
    log = folder / "jupyter.log"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    with log.open("w") as output:
        server_process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            address = re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", log.read_text())
            if address:
                break
            if server_process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"JupyterLab did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield address[0]
    finally:
        server_process.terminate()
        server_process.wait(timeout=30)


def run_all(page: Any) -> None:
    """Run all cells, and repeat the command until JupyterLab starts to run them."""
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=CELL_TIMEOUT_MS)
    prompt = page.locator(".jp-Cell").first.locator(".jp-InputPrompt").filter(has_text=re.compile(r"[*\d]"))
    for _ in range(5):
        if page.locator(".jp-Dialog").count():  # a slow kernel makes JupyterLab ask
            page.keyboard.press("Escape")
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_timeout(3000)
        if prompt.count():
            return
    raise SystemExit("JupyterLab did not run the cells.")


def take_pictures(page: Any, address: str, names: list[str]) -> None:
    """Run the notebook and photograph the named cells' output."""
    page.goto(address.replace("/lab?", "/lab/tree/pictures.ipynb?"))
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=CELL_TIMEOUT_MS)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=CELL_TIMEOUT_MS)
    run_all(page)
    # A cell that runs for seconds shows a message about it until it ends.
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=CELL_TIMEOUT_MS)
    for cell_index, name in enumerate(names, start=1):
        cell = page.locator(f'.jp-Cell[data-windowed-list-index="{cell_index}"]')
        cell.scroll_into_view_if_needed()
        output = cell.locator(".jp-OutputArea-output:visible").last  # the picture beside a view is hidden
        output.wait_for(timeout=CELL_TIMEOUT_MS)
        output.scroll_into_view_if_needed()
        page.wait_for_timeout(1500)
        expected_text = STEP_TO.get(name)
        if expected_text:
            output.locator("[tabindex='0']").first.focus()
            for _ in range(MAX_STEPS):
                if expected_text in output.inner_text():
                    break
                page.keyboard.press("ArrowRight")
        page.wait_for_timeout(500)
        output.screenshot(path=IMAGES / f"{name}.png")
        print(f"notebooks/images/{name}.png", flush=True)
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for(timeout=CELL_TIMEOUT_MS)


def main() -> None:
    """Take the pictures named on the command line, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(CELLS)}")
    names = parser.parse_args().names or list(CELLS)
    browser_path = find()
    if browser_path is None:
        raise SystemExit("The pictures need Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    sources = [SETUP, *(CELLS[name] for name in names), SAVE.format(folder=str(GALLERY), names=names)]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    IMAGES.mkdir(exist_ok=True)
    for name in names:  # a page of an earlier version must not remain if the last cell fails
        (GALLERY / f"{name}.html").unlink(missing_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="gpulab-pictures-"))
    try:
        nbformat.write(notebook, folder / "pictures.ipynb")
        silence_news(folder)
        with (
            serve_jupyterlab(folder, make_environment(str(folder))) as address,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(executable_path=browser_path, args=CHROMIUM_OPTIONS)
            page = browser.new_page(viewport={"width": 1400, "height": 1600}, device_scale_factor=1)
            take_pictures(page, address, names)
            browser.close()
        for name in names:
            add_digest(name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
