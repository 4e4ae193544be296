"""Record the load of a GPU during notebook 09's programs: NVML and GPM, with ``nvidia-smi`` for comparison.

``python -m tools.recordings.load FOLDER`` on a GPU that runs nothing else writes ``h200_monitor.json`` (for
``gpulab/data/recordings``) and ``smi.json`` (for ``gpulab_course/content/n09_profiling``), and prints what
``nvidia-smi -q`` reports of power and clocks during the product of random numbers.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpulab.lab.monitor.recorder import LoadRecorder, make_recorder
from gpulab.views._saving import data_to_json
from gpulab.views.monitor.monitor_text import make_phase_table as table
from gpulab_course.content.n09_profiling.phases import PRODUCT, phases

DMON = "nvidia-smi dmon -s pucm -d 1"
QUERIED = (
    "utilization.gpu",
    "utilization.memory",
    "power.draw.instant",
    "clocks.current.sm",
    "temperature.gpu",
    "clocks_event_reasons.active",
)
QUERY = f"nvidia-smi --query-gpu={','.join(QUERIED)} --format=csv -lms 1000"
# Headings and columns of dmon's lines that are kept.
SHOWN = {
    "pwr": "pwr (W)",
    "gtemp": "gtemp (C)",
    "sm": "sm (%)",
    "mem": "mem (%)",
    "mclk": "mclk (MHz)",
    "pclk": "pclk (MHz)",
    "fb": "fb (MB)",
}


class Lines:
    """Lines printed by a command, each with the time of its arrival."""

    def __init__(self, command: str) -> None:
        master, slave = pty.openpty()  # a terminal, so that the command keeps no lines back
        self.lines: list[tuple[float, str]] = []
        self._process = subprocess.Popen(command.split(), stdout=slave, stderr=slave)
        os.close(slave)
        self._stream = os.fdopen(master, encoding="utf-8", errors="replace")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._stream:
                self.lines.append((time.perf_counter(), line.strip()))
        except OSError:  # the command has ended
            return

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def last_of(self, begin_s: float, end_s: float) -> str:
        """Return the last line that starts with a digit and was printed between two times."""
        candidates = [line for time_s, line in self.lines if begin_s < time_s <= end_s and line[:1].isdigit()]
        return candidates[-1] if candidates else ""


def main(folder: Path) -> None:
    """Run the programs, and write the readings."""
    named_phases = phases()
    for name, run_phase in named_phases[6:]:  # compile, and let cuBLAS choose, before anything is read
        if "loader" not in name:
            run_phase()
    time.sleep(5)
    load_recorder = make_recorder(10.0)
    assert isinstance(load_recorder, LoadRecorder), "this needs a real GPU"
    dmon_lines = Lines(DMON)
    query_lines = Lines(QUERY)
    load_recorder.start()
    phase_starts = list[tuple[str, float]]()
    profiler_report = ""
    for name, run_phase in (*named_phases, ("idle again", lambda: time.sleep(3))):
        load_recorder.mark(name)
        phase_starts.append((name, time.perf_counter()))
        run_phase()
        if name == PRODUCT:
            smi_process = subprocess.Popen(
                ["nvidia-smi", "-q", "-d", "POWER,PERFORMANCE,CLOCK"], stdout=subprocess.PIPE, text=True
            )
            run_phase()
            profiler_report = smi_process.communicate()[0]
    record = load_recorder.stop()
    phase_starts.append(("", time.perf_counter()))
    for lines in (dmon_lines, query_lines):
        lines.stop()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "h200_monitor.json").write_text(
        _put_fields_on_lines(data_to_json(record.as_data())), encoding="utf-8"
    )
    smi_json = json.dumps(
        _make_smi_tables(record, phase_starts, dmon_lines, query_lines), indent=1, ensure_ascii=False
    )
    smi_json = re.sub(
        r"\[[^\[\]]*\]", lambda cells: re.sub(r"\s*\n\s*", "", cells[0]), smi_json
    )  # a list per line
    (folder / "smi.json").write_text(smi_json + "\n", encoding="utf-8")
    print(table(record).text())
    print(profiler_report)


def _make_smi_tables(
    record: Any, phase_starts: list[tuple[str, float]], dmon: Lines, query: Lines
) -> dict[str, Any]:
    column_names = next(line.lstrip("# ").split() for _, line in dmon.lines if "pclk" in line)
    column_indices = [column_names.index(name) for name in SHOWN]
    rows: dict[str, list[Any]] = {"dmon": [], "query": []}
    for (name, begin_s), (_, end_s) in pairwise(phase_starts):
        cells = dmon.last_of(begin_s, end_s).split()
        rows["dmon"].append([name, [cells[index] for index in column_indices] if cells else []])
        rows["query"].append([name, [cell.strip() for cell in query.last_of(begin_s, end_s).split(",")]])
    units_line = next(line for _, line in query.lines if line.startswith("utilization"))
    return {
        "device": record.provenance.device,
        "date": record.date,
        "driver": record.driver,
        "dmon": {
            "command": f"{DMON}, some of its columns",
            "headings": list(SHOWN.values()),
            "rows": rows["dmon"],
        },
        "query": {
            "command": "nvidia-smi --query-gpu=... --format=csv -lms 1000",
            "headings": [cell.strip() for cell in units_line.split(",")],
            "rows": rows["query"],
        },
    }


def _put_fields_on_lines(text: str) -> str:
    """Return a record as JSON with one line for each column, and six digits of each number."""
    record_data = json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))
    columns = record_data.pop("columns")
    field_lines = [
        f' "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in record_data.items()
    ]
    column_lines = [
        f'  "{name}": {json.dumps(value, separators=(",", ":"))}' for name, value in columns.items()
    ]
    return "{\n" + ",\n".join(field_lines) + ',\n "columns": {\n' + ",\n".join(column_lines) + "\n }\n}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
