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

from tools.cells import ROOT, list_notebooks, read_cells, run

DEVICE = "virtual:A100"
# A kernel of notebook 02 is told how many blocks an SM of this device can hold.
ELSEWHERE = {"02": ("virtual:T4", "virtual:RTX 4090")}
COMPILED = ROOT / "tools" / "shipped_ptx.tsv"

_FENCED_PATTERN = re.compile(r"```python\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Request:
    """A source text that NVRTC has compiled, with its options."""

    code: str
    options: tuple[str, ...]
    name_expressions: tuple[str, ...] = ()

    def key(self, target: int) -> str:
        """Return the key of its shipped image."""
        from virtualgpu.compile import shipped

        return shipped.make_key(self.code, target, self.options, self.name_expressions)


@dataclass(frozen=True)
class CompiledImage:
    """NVRTC's result for a request and a target."""

    request: Request
    target: int
    ptx: str
    lowered_names: dict[str, str]


def list_file_requests() -> list[Request]:
    """Return the requests of kernel files: corpus, course folders, helper, and random numbers."""
    from tools.corpus import CASES
    from tools.corpus.workloads import WORKLOADS
    from virtualgpu.compile import nvrtc
    from virtualgpu.cp._random import bits

    requests = [Request(case.code, (*case.options, *nvrtc.CUPY_OPTIONS)) for case in CASES]
    requests += [Request(workload.code, nvrtc.CUPY_OPTIONS) for workload in WORKLOADS]
    requests += [Request(kernel_code, nvrtc.CUPY_OPTIONS) for kernel_code in read_course_kernels()]
    for kernel_code, options in map(bits.load_source, bits.STRUCT_NAMES):
        requests.append(Request(kernel_code, (*options, *nvrtc.CUPY_OPTIONS)))
    return list({request.key(0): request for request in requests}.values())


def collect_requests() -> dict[str, list[Request]]:
    """Return the requests of each notebook on each of its devices, and those of doctor and README."""
    from gpulab import session

    images_by_name: dict[str, list[CompiledImage]] = {}
    with judge_kernels_only():
        with record_images(images_by_name.setdefault("doctor and README", [])):
            run_doctor_and_readme()
        for path in list_notebooks():
            for device in list_devices(path.name):
                session.use_device("virtual:V100")
                session.use_device(device)  # a fresh one, whose pool holds nothing of the notebook before
                forget()
                with record_images(images_by_name.setdefault(make_title(path.name, device), [])):
                    run(list(read_cells(path)), path.name)
    return {name: [image.request for image in images] for name, images in images_by_name.items()}


def list_devices(name: str) -> tuple[str, ...]:
    """Return the devices for which a notebook's kernels are compiled. Others use the same images."""
    return (*ELSEWHERE.get(name[:2], ()), DEVICE)


def make_title(name: str, device: str) -> str:
    """Return the name under which `COMPILED` lists a notebook on a device."""
    return f"{name} on {device.removeprefix('virtual:')}"


def run_doctor_and_readme() -> None:
    """Run the commands that a learner may run before the first notebook."""
    from gpulab import session
    from gpulab.diagnosis import doctor

    forget()
    doctor()
    session.use_device(DEVICE)
    run(_FENCED_PATTERN.findall((ROOT / "README.md").read_text(encoding="utf-8"))[:1], "README.md")


def forget() -> None:
    """Clear the compilation caches of this process, so that every source is compiled again."""
    from virtualgpu.compile import nvrtc
    from virtualgpu.launch import compiled

    compiled._compile.cache_clear()
    nvrtc._compile_both.cache_clear()


def read_course_kernels() -> list[str]:
    """Return the kernel files of the corpus, of the course's folders and of the helper."""
    from gpulab_course import folders
    from tools.corpus import list_kernel_files, read_kernel_code

    helper_kernels = [
        file.read_text(encoding="utf-8") for file in sorted((ROOT / "gpulab" / "lab").rglob("*.cu"))
    ]
    return [*map(read_kernel_code, list_kernel_files()), *folders.read_kernels().values(), *helper_kernels]


@contextlib.contextmanager
def record_images(images: list[CompiledImage]) -> Iterator[None]:
    """Append every source that is compiled in a `with` block to `images`."""
    from virtualgpu.compile import nvrtc

    def noting(compile_it: Any) -> Any:
        def noted(code: str, *, target: int, options: Sequence[str] = (), **keywords: Any) -> Any:
            image = compile_it(code, target=target, options=options, **keywords)
            request = Request(code, tuple(options), tuple(keywords.get("name_expressions", ())))
            ptx = image[0] if isinstance(image, tuple) else image
            images.append(CompiledImage(request, target, ptx.ptx, ptx.lowered_names))
            return image

        return noted

    original_functions = {name: getattr(nvrtc, name) for name in ("compile_ptx", "compile_both")}
    for name, compile_it in original_functions.items():
        setattr(nvrtc, name, noting(compile_it))
    try:
        yield
    finally:
        for name, compile_it in original_functions.items():
            setattr(nvrtc, name, compile_it)


@contextlib.contextmanager
def judge_kernels_only() -> Iterator[None]:
    """Let ``gl.check`` judge only kernels in a `with` block, because other answers use other processes."""
    import gpulab
    from gpulab_course import folders
    from gpulab_course.teach.judge import KernelExercise

    check = gpulab.check

    def checked(exercise_id: str, answer: Any) -> Any:
        is_kernel = isinstance(folders.find_exercise(exercise_id), KernelExercise)
        return check(exercise_id, answer) if is_kernel else None

    setattr(gpulab, "check", checked)  # noqa: B010
    try:
        yield
    finally:
        setattr(gpulab, "check", check)  # noqa: B010


def main() -> int:
    """Write the list of requests and the shipped images."""
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch_folder:
        os.environ.update(GPULAB_HOME=scratch_folder, GPULAB_DEVICE=DEVICE, MPLBACKEND="Agg")
        course_requests = collect_requests()
        table_lines = [
            f"{name}\t{key}\n"
            for name, requests in course_requests.items()
            for key in sorted(find_own_keys(requests))
        ]
        COMPILED.write_text("".join(table_lines), encoding="utf-8")
        return write(
            [
                *list_file_requests(),
                *(request for requests in course_requests.values() for request in requests),
            ]
        )


def write(requests: Sequence[Request]) -> int:
    """Compile every request for every target."""
    from virtualgpu.compile import nvrtc, shipped
    from virtualgpu.compile.cubin import read_kernel_resources

    distinct_requests = list({request.key(0): request for request in requests}.values())
    images: dict[str, shipped.ShippedImage] = {}
    for request in distinct_requests:
        for ptx_target in shipped.TARGETS:
            compile_keywords: dict[str, Any] = {
                "options": request.options,
                "name_expressions": request.name_expressions,
            }
            image = nvrtc.compile_ptx(request.code, target=ptx_target, **compile_keywords)
            resources = read_kernel_resources(
                nvrtc.compile_cubin(request.code, target=ptx_target, **compile_keywords).cubin
            )
            images[request.key(ptx_target)] = shipped.ShippedImage(image.ptx, image.lowered_names, resources)
    version = ".".join(map(str, nvrtc.read_version()))
    path = ROOT / "gpulab_course" / "data" / shipped.FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shipped.pack_images(images.items(), version))
    summary = f"{len(distinct_requests)} sources for {len(shipped.TARGETS)} targets by NVRTC {version}"
    print(f"{summary}: {path.relative_to(ROOT)}, {path.stat().st_size:,} bytes")
    return 0


@functools.cache
def list_file_keys() -> frozenset[str]:
    """Return the keys of the requests of kernel files."""
    return frozenset(request.key(0) for request in list_file_requests())


def find_own_keys(requests: Sequence[Request]) -> set[str]:
    """Return the keys of requests that are not in kernel files."""
    return {request.key(0) for request in requests} - list_file_keys()


def has_same_compiler() -> bool:
    """Return whether images compiled here can be compared with the shipped ones."""
    from virtualgpu.compile import nvrtc, shipped

    return nvrtc.is_available() and ".".join(map(str, nvrtc.read_version())) == shipped.get_compiler_version()


def read_compiled_keys() -> dict[str, set[str]]:
    """Return the keys of requests in the file `COMPILED`, by the name in its first column."""
    keys_by_name: dict[str, set[str]] = {}
    for line in COMPILED.read_text(encoding="utf-8").splitlines():
        name, key = line.split("\t")
        keys_by_name.setdefault(name, set()).add(key)
    return keys_by_name


def find_problems(name: str, images: Sequence[CompiledImage]) -> list[str]:
    """Return the differences between the shipped files and the images that were just compiled."""
    from virtualgpu.compile import shipped

    listed_keys = read_compiled_keys().get(name, set())
    own_keys = find_own_keys([new_image.request for new_image in images])
    problems = []
    for description, wrong_keys in (
        ("are missing", own_keys - listed_keys),
        ("are not compiled any more", listed_keys - own_keys),
    ):
        if wrong_keys:
            problems.append(
                f"{len(wrong_keys)} of the sources of {name} {description}: run `make shipped-ptx`"
            )
    is_same_compiler = has_same_compiler()
    for new_image in images:
        location = f"{new_image.request.code.strip()[:60]!r} for {new_image.target}: run `make shipped-ptx`"
        # A device of another compute capability takes the image of one before.
        image = shipped.get_image(
            new_image.request.key(
                max(ptx_target for ptx_target in shipped.TARGETS if ptx_target <= new_image.target)
            )
        )
        is_comparable = is_same_compiler and new_image.target in shipped.TARGETS
        if image is None:
            problems.append(f"There is no image of {location}")
        elif is_comparable and (image.ptx, image.lowered_names) != (
            shipped.strip_ptx(new_image.ptx),
            new_image.lowered_names,
        ):
            problems.append(f"NVRTC makes something else of {location}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
