"""Run the test suite in stages, all of them even if one fails, and sum up.

``python -m tools.suite lint types unit notebooks browser`` runs those stages with the Python that runs this
file. Tests that are spread over all cores come first; what takes one core runs beside them and after them,
as many at a time as there are cores. Browser tests mostly wait, and must not be kept waiting: they run beside
all others, which give way to them. Each stage's time, its processor time and pytest's closing line are
repeated at the end; the exit status is 1 if any stage failed. Of tests that are much alike a fixed sample
runs (`tools.sample`), and with ``GPULAB_TEST_ALL=1`` all of them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools import lowest, sample

ROOT = Path(__file__).resolve().parent.parent
PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected)")
NO_TESTS_COLLECTED = 5


@dataclass
class Result:
    """The result of one stage of the test suite."""

    name: str
    ok: bool
    seconds: float
    closing: str
    processor_s: float = 0.0


Show = Callable[[str], None]


def print_text(text: str) -> None:
    """Print text, and flush the output immediately."""
    print(text, flush=True)


def tee(
    command: list[str], environment: dict[str, str], show: Show = print_text
) -> tuple[int, list[str], float]:
    """Run a command with its output shown as it comes; return its status, lines and processor time."""
    show(f"\n$ {' '.join(command)}".replace(sys.executable, "python"))
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            show(line.rstrip("\n"))
            lines.append(line.rstrip())
        spent_s = 0.0
        if hasattr(os, "wait4"):
            _, status, resource_usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            spent_s = resource_usage.ru_utime + resource_usage.ru_stime
    return process.returncode, lines, spent_s


def read_counts(line: str) -> dict[str, int]:
    """Return the counts in a line of pytest's summary, such as ``3 passed, 1 skipped in 0.5s``."""
    counts_by_name: Counter[str] = Counter()
    for count_text, name in PYTEST_COUNT.findall(line):
        counts_by_name[name.removesuffix("s") if name == "errors" else name] += int(count_text)
    return dict(counts_by_name)


def make_pytest_command(*arguments: str) -> list[str]:
    """Return a pytest command line."""
    return [sys.executable, "-m", "pytest", *arguments]


def notebooks() -> list[str]:
    """Return the course's notebooks, in order."""
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


def count_cores() -> int:
    """Return the number of parallel test processes: 1 on a GPU, so that tests do not disturb each other."""
    on_gpu = os.environ.get("GPULAB_DEVICE", "").startswith("cuda")
    return 1 if on_gpu else min(os.cpu_count() or 1, 8)


def make_worker_options() -> list[str]:
    """Return pytest options for parallel tests, with a worker for each core.

    Tests often wait, but other stages run at the same time, and each worker collects all tests again.
    """
    if count_cores() == 1 or importlib.util.find_spec("xdist") is None:
        return []
    return ["-n", str(count_cores()), "--dist", "worksteal"]


def make_lint_commands() -> list[list[str]]:
    ruff_command = [sys.executable, "-m", "ruff"]
    checked_folders = [
        name
        for name in ("gpulab", "gpulab_course", "virtualgpu", "tests", "notebooks", "tools", "docs")
        if (ROOT / name).exists()
    ]
    return [
        [*ruff_command, "check", *checked_folders],
        [*ruff_command, "format", "--check", *checked_folders],
    ]


def site() -> list[list[str]]:
    """Return commands that build the site, slides and handouts. Broken links are errors."""
    python_command = [sys.executable, "-m"]
    return [
        [*python_command, "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", "build/site"],
        [*python_command, "tools.slides", "build/site/slides"],
        [*python_command, "tools.handout", "build/site/slides"],
    ]


def make_type_commands() -> list[list[str]]:
    return [[sys.executable, "-m", "mypy"]]


def make_unit_commands() -> list[list[str]]:
    # All tests in `tests/gpu` need a GPU. Collecting them would cost each worker seconds.
    return [
        make_pytest_command(
            *make_worker_options(), "-m", "not browser", "--without-gpu", "--ignore=tests/gpu", "tests"
        )
    ]


def make_speed_commands() -> list[list[str]]:
    """Return the command that compares processor times with their limits."""
    return [[sys.executable, "-m", "tools.bench.table", "--check"]]


def make_fast_commands() -> list[list[str]]:
    return [
        make_pytest_command(
            *make_worker_options(), "-m", "not browser and not slow", "--without-gpu", "tests"
        )
    ]


def notebook_cells() -> list[list[str]]:
    # Lax: a cell must run; its output is compared only where the cell asks for it (NBVAL_CHECK_OUTPUT).
    options = ("--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=240", "-p", "no:cacheprovider")
    paths = notebooks()
    return [make_pytest_command("-p", "tests.kernels", *options, *paths)] if paths else []


def make_browser_commands() -> list[list[str]]:
    return [make_pytest_command("-m", "browser", "tests/browser")]


# Tests for a GPU of which a stand-in can pass most, and which no other place tests.
ON_THE_STAND_IN = (
    "check_streams_gpu",
    "device",
    "graphs_gpu",
    "judge_gpu",
    "pools_gpu",
    "profile_gpu",
    "public",
    "several_gpu",
    "timeline_gpu",
    "trace_files_gpu",
    "traces",
)


def make_fake_gpu_commands() -> list[list[str]]:
    """Return the command that tests the code for real GPUs on a virtual GPU."""
    plugin_arguments = ("-p", "tests.real.fake_gpu", "--fake-gpu", "-p", "no:cacheprovider")
    gpu_tests = [f"tests/gpu/test_{name}.py" for name in ON_THE_STAND_IN]
    return [make_pytest_command(*plugin_arguments, "-m", "gpu", "tests/real", "tests/session", *gpu_tests)]


def make_gpu_commands() -> list[list[str]]:
    return [make_pytest_command("-m", "gpu", "tests")]


# What a processor decides beside each instruction alone, which `test_every_instruction` takes to
# the lower levels: textures, fused steps and random programs. The lowest level also computes conversions and
# roundings in other ways, because it lacks instructions for them.
OF_PROCESSORS = ("engine/test_contraction.py", "virtual/test_textures.py", "fuzz/test_fuzz.py")
OF_THE_LOWEST_LEVEL = (
    "engine/test_conversions.py",
    "engine/test_rounding.py",
    "engine/test_narrow_types.py",
    "engine/test_half_atomics.py",
)


def make_processor_commands() -> list[list[str]]:
    """Return commands that test the processor-specific code, for the most common processor levels."""
    from virtualgpu.engine.machine import processor

    commands = []
    levels = processor.list_feature_levels()
    for level in sample.draw_sample(levels[:2], 2):
        if missing_features := processor.find_missing_features(level):
            print(f"skipped {level}: this processor lacks {', '.join(missing_features)}", flush=True)
            continue
        pytest_options = (
            f"--processor={level}",
            # What NVIDIA's compiler fuses is the same for all processors.
            "-k",
            "not machine_code",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:nbval",
            *(f"tests/{name}" for name in OF_PROCESSORS),
            *(f"tests/{name}" for name in OF_THE_LOWEST_LEVEL if level == levels[0] or not sample.is_on()),
        )
        commands.append(make_pytest_command(*pytest_options))
    return commands


def make_oldest_commands() -> list[list[str]]:
    """Return commands that test the wheels with the oldest allowed packages."""
    test_groups = (("session", "teach/test_store.py"), ("views", "ptx", "teach/test_widgets.py"))
    test_paths = [f"tests/{name}" for group in sample.draw_sample(test_groups, 2) for name in group]
    pytest_options = ("-m", "not browser and not slow", "--without-gpu", *test_paths)
    # Older packages may be slower; the order of streams leans on none of them.
    pytest_options = (
        "-k",
        "not (processor_time or check_streams or stream_orders or graph_capture)",
        *pytest_options,
    )
    run_tests = make_pytest_command("-p", "no:cacheprovider", *pytest_options)
    return [[sys.executable, "-m", "tools.lowest"], [str(lowest.PYTHON), *run_tests[1:]]]


# What a notebook's kernel imports.
COURSE = ("anywidget", "filelock", "ipykernel", "llvmlite", "matplotlib", "numpy", "platformdirs")
NEEDS = {
    "lint": ("ruff",),
    "site": ("sphinx", "myst_nb", "furo", "sphinx_revealjs"),
    "types": ("mypy",),
    "speed": ("llvmlite",),
    "unit": ("pytest",),
    "fast": ("pytest",),
    "notebooks": ("pytest", "nbval", *COURSE),
    "browser": ("pytest",),
    "fake-gpu": ("pytest",),
    "gpu": ("pytest",),
    "processors": ("pytest", "llvmlite"),
    "lowest": ("uv", "hatchling", "xdist"),
}
# Stages that take all cores, and the one that others give way to.
SPREAD = ("unit", "fast", "gpu")
IN_FRONT = "browser"
STAGES: dict[str, Callable[[], list[list[str]]]] = {
    "lint": make_lint_commands,
    "site": site,
    "types": make_type_commands,
    "speed": make_speed_commands,
    "unit": make_unit_commands,
    "fast": make_fast_commands,
    "notebooks": notebook_cells,
    "browser": make_browser_commands,
    "fake-gpu": make_fake_gpu_commands,
    "gpu": make_gpu_commands,
    "processors": make_processor_commands,
    "lowest": make_oldest_commands,
}


def make_environment(scratch: str) -> dict[str, str]:
    """Return environment variables that separate tests from the learner's files, with one shared cache."""
    environment = dict(os.environ)
    environment["GPULAB_HOME"] = str(Path(scratch) / "gpulab")
    environment["JUPYTER_CONFIG_DIR"] = str(Path(scratch) / "jupyter")
    environment.setdefault("GPULAB_CACHE_DIR", str(ROOT / ".cache" / "tests"))
    environment["IPYTHONDIR"] = str(Path(scratch) / "ipython")
    environment["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    # Tests run on all cores already. Threads of OpenBLAS would wait for each other, and take processor time.
    environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    if environment.get(sample.ALL):
        environment.pop(sample.VARIABLE, None)
    else:
        environment[sample.VARIABLE] = "1"
    # Hundreds of processes import the same modules: none of them should compile those again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # A notebook's kernel finds this checkout, whatever is installed.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return environment


def find_kernel_obstacle(environment: dict[str, str]) -> str:
    """Return the reason why gpulab cannot be used in a notebook, or an empty string if it can."""
    command = [sys.executable, "-c", "from gpulab import cp; cp.arange(3)"]
    process = subprocess.run(command, cwd=ROOT / "notebooks", env=environment, capture_output=True, text=True)
    if process.returncode == 0:
        return ""
    last_line = (process.stderr.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
    return f"Nothing can run: {sys.executable} cannot use gpulab in a notebook ({last_line})"


def list_missing_packages(name: str) -> list[str]:
    """Return the names of the packages that a stage needs and that are not installed."""
    return [package for package in NEEDS[name] if importlib.util.find_spec(package) is None]


def run(
    name: str, environment: dict[str, str], show: Show = print_text, commands: list[list[str]] | None = None
) -> Result:
    """Run one stage, or some of its commands."""
    show(f"\n=== {name} " + "=" * (90 - len(name)))
    start_s = time.perf_counter()
    if missing_packages := list_missing_packages(name):
        return Result(name, False, 0.0, f"pip install {' '.join(missing_packages)}")
    if name in ("gpu", "notebooks") and (reason := find_kernel_obstacle(environment)):
        show(reason)
        return Result(name, False, 0.0, reason)
    ok = True
    summaries = []
    spent_s = 0.0
    for command in STAGES[name]() if commands is None else commands:
        status, lines, processor_s = tee(command, environment, show)
        spent_s += processor_s
        if "pytest" in command:
            summaries.append(
                next((line.strip("= ") for line in reversed(lines) if read_counts(line)), "no test ran")
            )
            ok &= status in (0, NO_TESTS_COLLECTED)
        else:
            ok &= status == 0
    return Result(name, ok, time.perf_counter() - start_s, "; ".join(summaries), spent_s)


def split_stage(name: str) -> list[list[list[str]]]:
    """Return the commands of a stage in groups that can run independently of each other."""
    if list_missing_packages(name):
        return [[]]
    commands = STAGES[name]()
    return [[command] for command in commands] if name == "processors" and commands else [commands]


def merge_results(results: list[Result]) -> Result:
    """Combine the results of the parts of a stage."""
    return Result(
        results[0].name,
        all(result.ok for result in results),
        sum(result.seconds for result in results),
        "; ".join(result.closing for result in results if result.closing),
        sum(result.processor_s for result in results),
    )


def make_nice_command(command: list[str]) -> list[str]:
    """Return a command that runs with a lower priority."""
    return ["nice", *command] if shutil.which("nice") else command


def run_all(stages: Sequence[str], environment: dict[str, str]) -> list[Result]:
    """Run stages in parallel. The output of background stages is shown when they have ended."""
    names = list(dict.fromkeys(stages))
    lower_priority = make_nice_command if IN_FRONT in names and len(names) > 1 else list
    results_by_name: dict[str, list[Result]] = {name: [] for name in names}
    waiting_jobs = deque(
        (name, [lower_priority(command) for command in commands])
        for name in names
        if name not in (*SPREAD, IN_FRONT)
        for commands in split_stage(name)
    )
    is_live = len(names) == 1 or count_cores() == 1
    output_lock = threading.Lock()

    def run_stage(name: str, commands: list[list[str]] | None = None) -> None:
        messages: list[str] = []
        results_by_name[name].append(
            run(name, environment, print_text if is_live else messages.append, commands)
        )
        with output_lock:
            print_text("\n".join(messages))

    def run_jobs() -> None:
        while True:
            try:
                name, commands = waiting_jobs.popleft()
            except IndexError:
                return
            run_stage(name, commands)

    with ThreadPoolExecutor(count_cores() + 2) as executor:
        futures = [executor.submit(run_stage, IN_FRONT)] if IN_FRONT in names else []
        try:
            futures += [executor.submit(run_jobs) for _ in range(count_cores() > 1)]
            for name in names:
                if name in SPREAD:
                    commands = [lower_priority(command) for command in STAGES[name]()]
                    results_by_name[name].append(run(name, environment, print_text, commands))
            futures += [executor.submit(run_jobs) for _ in range(max(count_cores() - 1, 1))]
            for future in futures:
                future.result()
        finally:
            waiting_jobs.clear()
    return [merge_results(results_by_name[name]) for name in names]


def summarise(results: list[Result]) -> str:
    """Return the table of stages and one line with the totals."""
    lines = ["", "=== summary " + "=" * 83]
    outcome_counts = {"passed": 0, "failed": 0, "skipped": 0}
    for result in results:
        state_text = "ok" if result.ok else "FAILED"
        time_text = f"{result.seconds:6.0f} s {result.processor_s:6.0f} s of processors"
        lines.append(f"{result.name:10} {state_text:7} {time_text}  {result.closing}")
        result_counts = read_counts(result.closing)
        outcome_counts["passed"] += result_counts.get("passed", 0)
        outcome_counts["failed"] += result_counts.get("failed", 0) + result_counts.get("error", 0)
        outcome_counts["skipped"] += result_counts.get("skipped", 0)
    lines.append(
        f"{outcome_counts['passed']} passed, {outcome_counts['failed']} failed, {outcome_counts['skipped']} "
        "skipped"
    )
    return "\n".join(lines)


def main() -> None:
    """Run the stages named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", choices=list(STAGES))
    stages = parser.parse_args().stages
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch:
        environment = make_environment(scratch)
        if sample.VARIABLE in environment:
            os.environ[sample.VARIABLE] = environment[sample.VARIABLE]  # commands of stages are made here
            print_text(
                "Tests that are much alike are tried in a fixed sample; make test-all tries all of them."
            )
        results = run_all(stages, environment)
    print(summarise(results), flush=True)
    raise SystemExit(0 if all(result.ok for result in results) else 1)


if __name__ == "__main__":
    main()
