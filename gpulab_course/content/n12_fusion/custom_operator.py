"""A kernel as a custom operator of PyTorch, recorded on an H200 by `tools.recordings.custom_op`."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from gpulab.views.tables import Table
from gpulab.words import duration
from virtualgpu.records import Provenance

# The tests of ``torch.library.opcheck``, and what each of them compares.
_TEXT_OF_CHECK = {
    "test_schema": "the arguments are unchanged, unless mutates_args names them",
    "test_autograd_registration": "the formula of the gradient is registered in the right way",
    "test_faketensor": "the fake result has the shape, dtype and layout of the real one",
    "test_aot_dispatch_dynamic": "compiled with symbolic shapes, results and gradients are the same",
}
_TEXT_OF_VERSION = {
    "expressions": "expressions, as array code",
    "plain": "launch, not registered",
    "custom_op": "affine_gelu, the custom operator",
}
_TEXT_OF_TIMED_CALL = {
    "raw launch": "kernel(...), a raw launch with ready arguments",
    "launch(x, w, b)": "launch(x, w, b), not registered",
    "affine_gelu(x, w, b)": "affine_gelu(x, w, b)",
    "affine_gelu(x, w, b), x requires a gradient": "affine_gelu(x, w, b), x requires a gradient",
    "affine_gelu, compiled, default": "affine_gelu in a function of torch.compile",
    "affine_gelu, compiled, reduce-overhead": 'affine_gelu in one with mode="reduce-overhead"',
    "CUDA graph of affine_gelu, replay": "replay of a CUDA graph that contains affine_gelu",
    "expressions(x, w, b)": "expressions(x, w, b), nine kernels",
    "expressions, compiled, default": "expressions in a function of torch.compile, one kernel",
}


def load_recording() -> dict[str, Any]:
    """Load the recorded results of the notebook's program with custom operators."""
    file = resources.files("gpulab_course.content.n12_fusion") / "custom_op.json"
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record


def origin() -> Provenance:
    """Return the provenance of the recorded results."""
    record = load_recording()
    torch_version = record["torch"].split("+")[0]
    return Provenance(
        "recorded", record["device"], f"{record['date']}, CuPy {record['cupy']}, PyTorch {torch_version}"
    )


def program() -> str:
    """Return the source code of the program whose results were recorded."""
    return f"# custom_op.py; {origin().label}\n{load_recording()['program']}"


def checks() -> Table:
    """Return a table of the results of ``torch.library.opcheck``."""
    check_rows = tuple(
        (name, _TEXT_OF_CHECK[name], result) for name, result in load_recording()["opcheck"].items()
    )
    return Table(
        f"opcheck(affine_gelu, (x, w, b)), {origin().label}", ("test", "it checks that", "result"), check_rows
    )


def graphs() -> Table:
    """Return a table of the graphs and kernels that ``torch.compile`` creates for each version."""
    record = load_recording()
    version_rows = tuple(
        (
            version_text,
            str(record[f"graph of {version_name}"]["graphs"]),
            str(len(record[f"graph of {version_name}"]["nodes"])),
            str(compiled_kernels(version_name)),
        )
        for version_name, version_text in _TEXT_OF_VERSION.items()
    )
    title = f"torch.compile of relu(f(2 * x, w, b)) + 1, {origin().label}"
    return Table(title, ("f", "graphs", "operations in the graphs", "kernels"), version_rows)


def compiled_kernels(name: str) -> int:
    """Return the number of kernels in a compiled version, such as ``plain`` or ``custom_op``."""
    return len(load_recording()[f"compiled kernels of {name}"])


def times() -> Table:
    """Return a table of the times of one call of each version with few elements."""
    record = load_recording()
    rows = tuple((text, duration(1e3 * record["times_us"][key])) for key, text in _TEXT_OF_TIMED_CALL.items())
    title = f"Time per call with {record['rows']} × {record['columns']:,} elements, {origin().label}"
    return Table(title, ("call", "time"), rows)
