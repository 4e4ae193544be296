"""Compile the course's kernels in advance, for machines without NVRTC, or check that this was done.

Which kernels those are is found out by running everything that compiles one: the corpus, the notebooks
with their folded solutions, the README's example and ``gpulab doctor``. ``--check`` writes nothing and
fails if a kernel is missing or NVRTC, if it is the one that made the file, makes something else now; an
image's key is its source's, so of the other targets than the first it looks only whether they are there.
"""

from __future__ import annotations

import argparse
import contextlib
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

_FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """One source that something asked NVRTC to compile."""

    code: str
    options: tuple[str, ...]
    name_expressions: tuple[str, ...]


def requests() -> list[Request]:
    """Everything that the course compiles, each request once."""
    from gpulab import session
    from gpulab.diagnosis import doctor
    from tools.corpus import CASES
    from tools.corpus.workloads import WORKLOADS
    from virtualgpu.compile import nvrtc
    from virtualgpu.cp._random import bits

    found = [Request(c.code, (*c.options, *nvrtc.CUPY_OPTIONS), ()) for c in CASES]
    found += [Request(w.code, nvrtc.CUPY_OPTIONS, ()) for w in WORKLOADS]
    found += [Request(code, nvrtc.CUPY_OPTIONS, ()) for code in course_kernels()]
    for code, options in map(bits.source, bits.STRUCTS):
        found.append(Request(code, (*options, *nvrtc.CUPY_OPTIONS), ()))
    with recorded(found), kernels_alone():
        doctor()
        for path in notebooks():
            for device in (*ELSEWHERE.get(path.name[:2], ()), DEVICE):
                session.use_device("virtual:V100")
                session.use_device(device)  # a fresh one, whose pool holds nothing of the notebook before
                run(list(cells(path)), path.name)
        session.use_device(DEVICE)
        run(_FENCED.findall((ROOT / "README.md").read_text(encoding="utf-8"))[:1], "README.md")
    return list({(r.options, r.name_expressions, plain_key(r)): r for r in found}.values())


def course_kernels() -> list[str]:
    """The kernel files of the corpus, of the course's folders and of what learners call."""
    from gpulab.teach import folders
    from tools.corpus import kernel_code, kernel_files

    called = [file.read_text(encoding="utf-8") for file in sorted((ROOT / "gpulab" / "lab").rglob("*.cu"))]
    return [*map(kernel_code, kernel_files()), *folders.kernels().values(), *called]


def plain_key(request: Request) -> str:
    """The part of a source that decides what it becomes."""
    from virtualgpu.compile import shipped

    return shipped.plain(request.code)


@contextlib.contextmanager
def recorded(found: list[Request]) -> Iterator[None]:
    """Note every source that is compiled meanwhile and does compile."""
    from virtualgpu.compile import nvrtc

    def noting(compile_it: Any) -> Any:
        def noted(code: str, *, target: int, options: Sequence[str] = (), **more: Any) -> Any:
            image = compile_it(code, target=target, options=options, **more)
            found.append(Request(code, tuple(options), tuple(more.get("name_expressions", ()))))
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
    from gpulab.teach import folders
    from gpulab.teach.judge import KernelExercise

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
    """Write the file, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is out of date")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch:
        os.environ.update(GPULAB_HOME=scratch, GPULAB_DEVICE=DEVICE, MPLBACKEND="Agg")
        return refresh(check=options.check)


def refresh(*, check: bool) -> int:
    """Compile every request for every target and write or compare."""
    from virtualgpu.compile import nvrtc, shipped
    from virtualgpu.compile.cubin import kernel_resources

    wanted, known = requests(), shipped.keys()
    made: dict[str, shipped.ShippedImage] = {}
    for r in wanted:
        for target in shipped.TARGETS:
            asked: dict[str, Any] = {"options": r.options, "name_expressions": r.name_expressions}
            key = shipped.key_of(r.code, target, r.options, r.name_expressions)
            there = shipped.image(key) if check and key in known else None
            if there is not None and target != shipped.TARGETS[0]:
                made[key] = there
                continue
            image = nvrtc.compile_ptx(r.code, target=target, **asked)
            ptx = shipped.strip(image.ptx)
            if there is not None and (there.ptx, there.lowered_names) == (ptx, image.lowered_names):
                made[key] = there  # of the same PTX the same compiler makes the same machine code
                continue
            resources = kernel_resources(nvrtc.compile_cubin(r.code, target=target, **asked).cubin)
            made[key] = shipped.ShippedImage(ptx, image.lowered_names, resources)
    version = ".".join(map(str, nvrtc.version()))
    summary = f"{len(wanted)} sources for {len(shipped.TARGETS)} targets by NVRTC {version}"
    if check:
        problems = compare(made, version)
        print("\n".join([*problems, "run `make shipped-ptx`"]) if problems else f"{summary}: up to date")
        return int(bool(problems))
    path = ROOT / "virtualgpu" / "data" / shipped.FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shipped.pack(made.items(), version))
    print(f"{summary}: {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes")
    return 0


def compare(made: dict[str, Any], version: str) -> list[str]:
    """What is missing, left over or different in the file that ships."""
    from virtualgpu.compile import shipped

    there = shipped.keys()
    problems = [f"{len(set(made) - there)} of {len(made)} images are missing"] if set(made) - there else []
    if there - set(made):
        problems.append(f"{len(there - set(made))} images belong to no kernel of the course any more")
    if version == shipped.compiler():
        stale = [key for key in made if key in there and shipped.image(key) != made[key]]
        if stale:
            problems.append(f"{len(stale)} images differ from what NVRTC {version} makes")
    return problems


if __name__ == "__main__":
    sys.exit(main())
