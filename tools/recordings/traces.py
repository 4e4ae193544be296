"""Record the package's traces and their index: of corpus kernels, and of the notebooks' launches.

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
from gpulab.lab.recorded import INDEX_FILE_NAME, INDEX_FORMAT, RecordedLaunch, describe_arguments
from tools.cells import list_notebooks, read_cells, run
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
class ShownLaunch:
    """A launch to repeat, with its kernel's source and NumPy arrays. `title` is the record's name."""

    title: str
    launch: Launch

    @property
    def key(self) -> tuple[Any, ...]:
        """The key that identifies a launch."""
        launch = self.launch
        return (
            launch.source,
            launch.grid,
            launch.block,
            launch.shared_bytes,
            describe_arguments(launch.args),
        )


def list_shown_launches(device: str) -> list[ShownLaunch]:
    """Return the notebooks' launches on the default virtual GPU, and on one of the same model as `device`."""
    devices = [DEFAULT_DEVICE]
    with contextlib.suppress(UnknownDeviceError):
        devices.append(session.find_table_info(device).name)
    return run_notebooks([f"virtual:{name}" for name in devices])


def write_shown_launches(path: Path, device: str) -> None:
    """Write the notebooks' launches to a file, for a GPU machine that cannot run the notebooks."""
    path.write_bytes(zlib.compress(pickle.dumps(list_shown_launches(device))))


def read_shown(path: Path) -> list[ShownLaunch]:
    """Read launches from `write_shown_launches`; the file is trusted, because it is the developer's own."""
    return list(pickle.loads(zlib.decompress(path.read_bytes())))


def run_notebooks(devices: Iterable[str]) -> list[ShownLaunch]:
    """Run all notebooks on some virtual GPUs, and return each launch once; answers are not judged."""
    launches: dict[tuple[Any, ...], ShownLaunch] = {}
    with (
        tempfile.TemporaryDirectory(prefix="gpulab-") as scratch_folder,
        mock.patch.dict(os.environ, GPULAB_HOME=scratch_folder),  # not the learner's own progress
        mock.patch.object(gpulab, "check", return_value=None),
    ):
        for device in devices:
            for path in list_notebooks():
                if not any("gl.launch(" in source for source in read_cells(path)):
                    continue
                session.use_device(device)
                with _note_launches(launches, path.name[:2]):
                    run(list(read_cells(path)), path.name)
    return list(launches.values())


@contextlib.contextmanager
def _note_launches(launches: dict[tuple[Any, ...], ShownLaunch], number: str) -> Iterator[None]:
    launch: Callable[..., Any] = gpulab.launch

    def note_launch(kernel: Any, grid: Any, block: Any, args: Sequence[Any] = (), **keywords: Any) -> Any:
        cp = session.cp()
        host_args = tuple(cp.asnumpy(arg) if isinstance(arg, cp.ndarray) else arg for arg in args)
        chart = launch(kernel, grid, block, args, **keywords)
        trace = chart.trace
        source = kernel_source(kernel)
        title = f"{number}_{source.name}_{'x'.join(map(str, trace.grid))}"
        new_launch = ShownLaunch(
            title, Launch(source, trace.grid, trace.block, host_args, trace.shared_bytes)
        )
        if new_launch.key not in launches:
            same_title_count = sum(
                f"{other_launch.title}_".startswith(f"{title}_") for other_launch in launches.values()
            )
            launches[new_launch.key] = (
                replace(new_launch, title=f"{title}_{same_title_count + 1}")
                if same_title_count
                else new_launch
            )
        return chart

    setattr(gpulab, "launch", note_launch)  # noqa: B010
    try:
        yield
    finally:
        setattr(gpulab, "launch", launch)  # noqa: B010


def record_blocks(launches: Iterable[ShownLaunch], recorder: Recorder) -> None:
    """Record launches on the session's GPU. Of `REPEATS` warm runs, the run of median duration is stored."""
    backend = session.backend()
    cp = session.cp()
    for launch_of_notebook in launches:
        source = launch_of_notebook.launch.source
        kernel = cp.RawKernel(source.code, source.name, options=source.options)
        traces = []
        for _ in range(1 + REPEATS):  # the first pays for code and clocks
            launch = replace(
                launch_of_notebook.launch,
                kernel=kernel,
                args=copy_to_device(launch_of_notebook.launch.args, cp),
            )
            traces.append(backend.observe(launch, Blocks()))
        trace = sorted(traces[1:], key=lambda trace: trace.span_ns)[REPEATS // 2]
        recorder.keep(launch_of_notebook.title, "blocks", trace, launch_of_notebook.launch.args, source)


def record_warps(cases: Iterable[Case], seed: int, recorder: Recorder) -> None:
    """Trace warp 1 of block 1 of some cases on the session's GPU."""
    backend = session.backend()
    cp = session.cp()
    for case in cases:
        args = case.make_args(seed).values
        kernel = cp.RawKernel(case.code, case.kernel, options=case.options)
        launch = Launch.of(kernel, case.grid, case.block, copy_to_device(args, cp), case.shared_bytes)
        warp = backend.observe(launch, Warp((1, 0, 0), 1))
        # A warp's trace holds its code itself.
        recorder.keep(case.name, "warp", warp, args, KernelSource(case.kernel, "", case.options))


def copy_to_device(args: Sequence[Any], cp: Any) -> tuple[Any, ...]:
    """Return a launch's arguments with arrays on the device; a struct becomes an array, as CuPy requires."""

    def placed(arg: Any) -> Any:
        if isinstance(arg, np.ndarray):
            return cp.asarray(arg)
        return np.array(arg) if isinstance(arg, np.void) else arg

    return tuple(map(placed, args))


@dataclass(slots=True)
class Recorder:
    """Writer of one GPU's records into a folder, with their index.

    ``prefix`` opens their names (``"h200"``); ``versions`` is what stands behind the date in captions.
    """

    folder: Path
    prefix: str
    date: str
    versions: str
    entries: list[RecordedLaunch] = field(default_factory=list)

    def keep(self, title: str, kind: str, trace: Any, args: Sequence[Any], source: KernelSource) -> None:
        """Write a trace as a record of this GPU."""
        record = as_recorded(trace, f"{self.date}, {self.versions}")
        path = save(record, self.folder / f"{self.prefix}_{title}_{kind}.npz")
        self.entries.append(
            RecordedLaunch(
                path.stem,
                kind,
                record.provenance.device,
                self.date,
                trace.kernel_name,
                trace.grid,
                trace.block,
                getattr(trace, "shared_bytes", 0),
                describe_arguments(args),
                source.code,
                source.options,
            )
        )

    def write_index(self) -> Path:
        """Replace this GPU's entries in the folder's index."""
        path = self.folder / INDEX_FILE_NAME
        entries_in_index = json.loads(path.read_text(encoding="utf-8"))["launches"] if path.is_file() else []
        other_entries = [
            entry for entry in entries_in_index if not entry["name"].startswith(f"{self.prefix}_")
        ]
        launches = [*other_entries, *map(asdict, self.entries)]
        content = {"format": INDEX_FORMAT, "version": VERSION, "launches": launches}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path
