"""Traces that ship with the package, and their index: of corpus kernels, and of what the notebooks show.

The notebooks are run on virtual GPUs, and every launch that ``gl.launch`` shows there is noted with its
arguments and made again on the real GPU: what a learner without one sees first has its recorded counterpart.
``gpulab record --note FILE`` notes them for ``gpulab record --shown FILE`` on a GPU machine that has CuPy and
NumPy but not what notebooks need.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import gpulab
from gpulab import session
from gpulab.lab.recorded import FORMAT, INDEX, RecordedLaunch, in_words
from tools.cells import cells, notebooks, run
from tools.corpus import Case
from virtualgpu.errors import UnknownDeviceError
from virtualgpu.model.choice import DEFAULT_DEVICE
from virtualgpu.protocol import Blocks, Launch, Warp, kernel_source
from virtualgpu.records import KernelSource
from virtualgpu.records.io import VERSION, as_recorded, save

# Where they lie: in the package.
SHIPPED = Path(gpulab.__file__).parent / "data" / "recordings"
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Shown:
    """A launch to make again: its kernel as source, its arrays NumPy's. `title` names the record's file."""

    title: str
    launch: Launch

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells launches apart."""
        launch = self.launch
        return (launch.source, launch.grid, launch.block, launch.shared_bytes, in_words(launch.args))


def shown_to_learners(device: str) -> list[Shown]:
    """What the notebooks show on the default virtual GPU, and on one like `device` if the table has it."""
    devices = [DEFAULT_DEVICE]
    with contextlib.suppress(UnknownDeviceError):
        devices.append(session.table_info(device).name)
    return shown_in_notebooks([f"virtual:{name}" for name in devices])


def note_shown(path: Path, device: str) -> None:
    """Note them in a file, for a GPU machine that cannot run the notebooks itself."""
    path.write_bytes(zlib.compress(pickle.dumps(shown_to_learners(device))))


def read_shown(path: Path) -> list[Shown]:
    """What `note_shown` noted. The file is trusted: it is the developer's own."""
    return list(pickle.loads(zlib.decompress(path.read_bytes())))


def shown_in_notebooks(devices: Iterable[str]) -> list[Shown]:
    """Run all notebooks on some virtual GPUs; every launch they show, each once. Answers are not judged."""
    found: dict[tuple[Any, ...], Shown] = {}
    with (
        tempfile.TemporaryDirectory(prefix="gpulab-") as scratch,
        mock.patch.dict(os.environ, GPULAB_HOME=scratch),  # not the learner's own progress
        mock.patch.object(gpulab, "check", return_value=None),
    ):
        for device in devices:
            for path in notebooks():
                if not any("gl.launch(" in source for source in cells(path)):
                    continue
                session.use_device(device)
                with _noted(found, path.name[:2]):
                    run(list(cells(path)), path.name)
    return list(found.values())


@contextlib.contextmanager
def _noted(found: dict[tuple[Any, ...], Shown], number: str) -> Iterator[None]:
    launch: Callable[..., Any] = gpulab.launch

    def noting(kernel: Any, grid: Any, block: Any, args: Sequence[Any] = (), **named: Any) -> Any:
        cp = session.cp()
        host = tuple(cp.asnumpy(arg) if isinstance(arg, cp.ndarray) else arg for arg in args)
        chart = launch(kernel, grid, block, args, **named)
        trace = chart.trace
        source = kernel_source(kernel)
        title = f"{number}_{source.name}_{'x'.join(map(str, trace.grid))}"
        shown = Shown(title, Launch(source, trace.grid, trace.block, host, trace.shared_bytes))
        if shown.key not in found:
            alike = sum(f"{each.title}_".startswith(f"{title}_") for each in found.values())
            found[shown.key] = replace(shown, title=f"{title}_{alike + 1}") if alike else shown
        return chart

    setattr(gpulab, "launch", noting)  # noqa: B010
    try:
        yield
    finally:
        setattr(gpulab, "launch", launch)  # noqa: B010


def record_blocks(launches: Iterable[Shown], out: Recorder) -> None:
    """Make launches on the session's GPU; of `REPEATS` warm ones the record has the one of median span."""
    backend = session.backend()
    cp = session.cp()
    for shown in launches:
        source = shown.launch.source
        kernel = cp.RawKernel(source.code, source.name, options=source.options)
        traces = []
        for _ in range(1 + REPEATS):  # the first pays for code and clocks
            launch = replace(shown.launch, kernel=kernel, args=on_device(shown.launch.args, cp))
            traces.append(backend.observe(launch, Blocks()))
        trace = sorted(traces[1:], key=lambda trace: trace.span_ns)[REPEATS // 2]
        out.keep(shown.title, "blocks", trace, shown.launch.args, source)


def record_warps(cases: Iterable[Case], seed: int, out: Recorder) -> None:
    """Trace warp 1 of block 1 of some cases on the session's GPU."""
    backend = session.backend()
    cp = session.cp()
    for c in cases:
        args = c.make_args(seed).values
        kernel = cp.RawKernel(c.code, c.kernel, options=c.options)
        launch = Launch.of(kernel, c.grid, c.block, on_device(args, cp), c.shared_bytes)
        warp = backend.observe(launch, Warp((1, 0, 0), 1))
        # A warp's trace holds its code itself.
        out.keep(c.name, "warp", warp, args, KernelSource(c.kernel, "", c.options))


def on_device(args: Sequence[Any], cp: Any) -> tuple[Any, ...]:
    """A launch's arguments with their arrays on the device; a struct becomes an array, as CuPy wants it."""

    def placed(arg: Any) -> Any:
        if isinstance(arg, np.ndarray):
            return cp.asarray(arg)
        return np.array(arg) if isinstance(arg, np.void) else arg

    return tuple(map(placed, args))


@dataclass(slots=True)
class Recorder:
    """Writes records of one GPU into a folder, and the index of what it wrote.

    ``prefix`` opens their names (``"h200"``); ``versions`` is what stands behind the date in captions.
    """

    folder: Path
    prefix: str
    date: str
    versions: str
    entries: list[RecordedLaunch] = field(default_factory=list)

    def keep(self, title: str, what: str, trace: Any, args: Sequence[Any], source: KernelSource) -> None:
        """Write a trace as a record of this GPU."""
        record = as_recorded(trace, f"{self.date}, {self.versions}")
        path = save(record, self.folder / f"{self.prefix}_{title}_{what}.npz")
        self.entries.append(
            RecordedLaunch(
                path.stem,
                what,
                record.provenance.device,
                self.date,
                trace.kernel_name,
                trace.grid,
                trace.block,
                getattr(trace, "shared_bytes", 0),
                in_words(args),
                source.code,
                source.options,
            )
        )

    def write_index(self) -> Path:
        """Put this GPU's entries into the folder's index, in the place of those it had."""
        path = self.folder / INDEX
        known = json.loads(path.read_text(encoding="utf-8"))["launches"] if path.is_file() else []
        others = [one for one in known if not one["name"].startswith(f"{self.prefix}_")]
        launches = [*others, *map(asdict, self.entries)]
        content = {"format": FORMAT, "version": VERSION, "launches": launches}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path
