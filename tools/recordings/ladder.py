"""Record the memory ladder of a GPU for the package: ``python -m tools.recordings.ladder``."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Sequence
from pathlib import Path

import gpulab as gl
from gpulab import session
from gpulab.lab.memory import hierarchy
from gpulab.views import LadderChart
from tools.recordings.traces import SHIPPED
from virtualgpu.records.io import as_recorded, save


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the ladder of the session's GPU."""
    parser = argparse.ArgumentParser(prog="ladder", description=__doc__)
    parser.add_argument("--out", type=Path, default=SHIPPED / "ladders")
    parser.add_argument("--device", default="cuda", help="for a trial: a virtual one")
    options = parser.parse_args(arguments)
    device = gl.use_device(options.device).device
    prefix = re.sub(r"\W+", "_", device.lower().removeprefix("nvidia ")).split("_")[0]
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    driver = session.backend().device_info().driver
    record = as_recorded(hierarchy.measure_hierarchy(), f"{date}, driver {driver}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = save(record, options.out / f"{prefix}.npz")
    print(f"{path.name}: {path.stat().st_size:,} bytes")
    print(LadderChart([record]).describe())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
