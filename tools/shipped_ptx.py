"""Compile the course's kernels in advance, for machines without NVRTC.

Which kernels those are is found out by running everything that compiles one: the corpus, the notebooks
with their folded solutions, the README's example and ``gpulab doctor``. Which of these compiles what is
written beside it (`COMPILED`): a notebook's test runs it once more and compares.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tools.cells import ROOT, cells, notebooks, run

DEVICE = "virtual:A100"
# A kernel of notebook 02 is told how many blocks an SM of this device can hold.
ELSEWHERE = {"02": ("virtual:T4", "virtual:RTX 4090")}
COMPILED = ROOT / "tools" / "shipped_ptx.tsv"

_FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """One source that something asked NVRTC to compile."""

    code: str
    options: tuple[str, ...]
    name_expressions: tuple[str, ...] = ()

    def key(self, target: int) -> str:
        """What its image ships under."""
        from virtualgpu.compile import shipped

        return shipped.key_of(self.code, target, self.options, self.name_expressions)


@dataclass(frozen=True)
class Made:
    """What NVRTC made of a request for a target."""

    request: Request
    target: int
    ptx: str
    lowered_names: dict[str, str]


def of_files() -> list[Request]:
    """What the corpus, the course's folders, what learners call and random numbers are compiled from."""
    from tools.corpus import CASES
    from tools.corpus.workloads import WORKLOADS
    from virtualgpu.compile import nvrtc
    from virtualgpu.cp._random import bits

    found = [Request(c.code, (*c.options, *nvrtc.CUPY_OPTIONS)) for c in CASES]
    found += [Request(w.code, nvrtc.CUPY_OPTIONS) for w in WORKLOADS]
    found += [Request(code, nvrtc.CUPY_OPTIONS) for code in course_kernels()]
    for code, options in map(bits.source, bits.STRUCTS):
        found.append(Request(code, (*options, *nvrtc.CUPY_OPTIONS)))
    return list({request.key(0): request for request in found}.values())


def of_course() -> dict[str, list[Request]]:
    """What each notebook compiles on each of its devices, and what doctor and README do."""
    from gpulab import session

    found: dict[str, list[Made]] = {}
    with kernels_alone():
        with recorded(found.setdefault("doctor and README", [])):
            doctor_and_readme()
        for path in notebooks():
            for device in devices(path.name):
                session.use_device("virtual:V100")
                session.use_device(device)  # a fresh one, whose pool holds nothing of the notebook before
                forget()
                with recorded(found.setdefault(title(path.name, device), [])):
                    run(list(cells(path)), path.name)
    return {name: [made.request for made in each] for name, each in found.items()}


def devices(name: str) -> tuple[str, ...]:
    """The devices for which a notebook's kernels are compiled: on others they are the same."""
    return (*ELSEWHERE.get(name[:2], ()), DEVICE)


def title(name: str, device: str) -> str:
    """What `COMPILED` calls a notebook on a device."""
    return f"{name} on {device.removeprefix('virtual:')}"


def doctor_and_readme() -> None:
    """Run what a learner may run before the first notebook."""
    from gpulab import session
    from gpulab.diagnosis import doctor

    forget()
    doctor()
    session.use_device(DEVICE)
    run(_FENCED.findall((ROOT / "README.md").read_text(encoding="utf-8"))[:1], "README.md")


def forget() -> None:
    """Let everything be asked for again that this process has compiled."""
    from virtualgpu.compile import nvrtc
    from virtualgpu.launch import compiled

    compiled._compile.cache_clear()
    nvrtc._compile_both.cache_clear()


def course_kernels() -> list[str]:
    """The kernel files of the corpus, of the course's folders and of what learners call."""
    from gpulab_course import folders
    from tools.corpus import kernel_code, kernel_files

    called = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "gpulab" / "lab").rglob("*.cu"))]
    return [*map(kernel_code, kernel_files()), *folders.kernels().values(), *called]


@contextlib.contextmanager
def recorded(found: list[Made]) -> Iterator[None]:
    """Note every source that is compiled meanwhile and does compile."""
    from virtualgpu.compile import nvrtc

    def noting(compile_it: Any) -> Any:
        def noted(code: str, *, target: int, options: Sequence[str] = (), **more: Any) -> Any:
            image = compile_it(code, target=target, options=options, **more)
            request = Request(code, tuple(options), tuple(more.get("name_expressions", ())))
            ptx = image[0] if isinstance(image, tuple) else image
            found.append(Made(request, target, ptx.ptx, ptx.lowered_names))
            return image

        return noted

    before = {name: getattr(nvrtc, name) for name in ("compile_ptx", "compile_both")}
    for name, compile_it in before.items():
        setattr(nvrtc, name, noting(compile_it))
    try:
        yield
    finally:
        for name, compile_it in before.items():
            setattr(nvrtc, name, compile_it)


@contextlib.contextmanager
def kernels_alone() -> Iterator[None]:
    """Let ``gl.check`` judge kernels only: what other answers compile, they compile in another process."""
    import gpulab
    from gpulab_course import folders
    from gpulab_course.teach.judge import KernelExercise

    check = gpulab.check

    def checked(exercise_id: str, answer: Any) -> Any:
        is_kernel = isinstance(folders.exercise(exercise_id), KernelExercise)
        return check(exercise_id, answer) if is_kernel else None

    setattr(gpulab, "check", checked)  # noqa: B010
    try:
        yield
    finally:
        setattr(gpulab, "check", check)  # noqa: B010


def main() -> int:
    """Write both files."""
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch:
        os.environ.update(GPULAB_HOME=scratch, GPULAB_DEVICE=DEVICE, MPLBACKEND="Agg")
        course = of_course()
        lines = [f"{name}\t{key}\n" for name, each in course.items() for key in sorted(own(each))]
        COMPILED.write_text("".join(lines), encoding="utf-8")
        return write([*of_files(), *(r for each in course.values() for r in each)])


def write(requests: Sequence[Request]) -> int:
    """Compile every request for every target."""
    from virtualgpu.compile import nvrtc, shipped
    from virtualgpu.compile.cubin import kernel_resources

    wanted = list({request.key(0): request for request in requests}.values())
    made: dict[str, shipped.ShippedImage] = {}
    for r in wanted:
        for target in shipped.TARGETS:
            asked: dict[str, Any] = {"options": r.options, "name_expressions": r.name_expressions}
            image = nvrtc.compile_ptx(r.code, target=target, **asked)
            resources = kernel_resources(nvrtc.compile_cubin(r.code, target=target, **asked).cubin)
            made[r.key(target)] = shipped.ShippedImage(image.ptx, image.lowered_names, resources)
    version = ".".join(map(str, nvrtc.version()))
    path = ROOT / "virtualgpu" / "data" / shipped.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shipped.pack(made.items(), version))
    summary = f"{len(wanted)} sources for {len(shipped.TARGETS)} targets by NVRTC {version}"
    print(f"{summary}: {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes")
    return 0


@functools.cache
def keys_of_files() -> frozenset[str]:
    """What files hold whoever compiles it."""
    return frozenset(request.key(0) for request in of_files())


def own(requests: Sequence[Request]) -> set[str]:
    """What `COMPILED` has of requests: those that no file holds."""
    return {request.key(0) for request in requests} - keys_of_files()


def same_compiler() -> bool:
    """Whether what is compiled here may be compared with what ships."""
    from virtualgpu.compile import nvrtc, shipped

    return nvrtc.available() and ".".join(map(str, nvrtc.version())) == shipped.compiler()


def compiled_by() -> dict[str, set[str]]:
    """What `COMPILED` tells: who asks for which requests."""
    found: dict[str, set[str]] = {}
    for line in COMPILED.read_text(encoding="utf-8").splitlines():
        name, key = line.split("\t")
        found.setdefault(name, set()).add(key)
    return found


def problems(name: str, made: Sequence[Made]) -> list[str]:
    """What is missing, left over or different in the files of what something has just compiled."""
    from virtualgpu.compile import shipped

    known = compiled_by().get(name, set())
    there = own([each.request for each in made])
    found = []
    for what, some in (("are missing", there - known), ("are not compiled any more", known - there)):
        if some:
            found.append(f"{len(some)} of the sources of {name} {what}: run `make shipped-ptx`")
    same = same_compiler()
    for each in made:
        where = f"{each.request.code.strip()[:60]!r} for {each.target}: run `make shipped-ptx`"
        # A device of another compute capability takes the image of one before.
        image = shipped.image(each.request.key(max(t for t in shipped.TARGETS if t <= each.target)))
        comparable = same and each.target in shipped.TARGETS
        if image is None:
            found.append(f"There is no image of {where}")
        elif comparable and (image.ptx, image.lowered_names) != (shipped.strip(each.ptx), each.lowered_names):
            found.append(f"NVRTC makes something else of {where}")
    return found


if __name__ == "__main__":
    sys.exit(main())
