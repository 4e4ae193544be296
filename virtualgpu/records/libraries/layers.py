"""Software layers of one call: framework, library, CUDA runtime, driver, device."""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from virtualgpu.errors import GpulabError
from virtualgpu.records.libraries import Calls
from virtualgpu.records.origin import Provenance
from virtualgpu.records.timeline import Timeline

CallCounts = tuple[tuple[str, int], ...]
_VIRTUAL_NOTE = "A virtual GPU uses no library, runtime or driver; its calls are named like CUDA's."
_QUERY_WORDS = ("Get", "Peek", "IsCapturing")
LAYERS = ("framework", "library", "CUDA runtime", "driver", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLayers:
    """The functions that one call executed in each layer of software, with the number of calls of each
    function.

    The functions are in the order of their first use.

    ``package`` is the package of the call; ``note`` describes what is not known.
    """

    provenance: Provenance
    package: str
    call: str
    layers: tuple[tuple[tuple[str, int], ...], ...]
    note: str = ""

    def of(self, layer: str) -> tuple[tuple[str, int], ...]:
        """Return the functions that the call used in the given layer."""
        return self.layers[LAYERS.index(layer)]


def split_runtime_calls(timeline: Timeline) -> tuple[CallCounts, ...]:
    """Return the calls of the CUDA runtime (``cuda...``) and of the driver (``cu...``) in a timeline."""
    call_counts = Counter(call.name for call in timeline.calls if call.name != "cudaDeviceSynchronize")
    runtime_calls = {name: call_count for name, call_count in call_counts.items() if name.startswith("cuda")}
    return tuple(runtime_calls.items()), tuple(
        (name, call_count) for name, call_count in call_counts.items() if name not in runtime_calls
    )


def find_similar_call(timeline: Timeline) -> str:
    """Return the name of the recorded call that is most similar to a timeline, or an empty string."""
    activity_names = " ".join(activity.name for activity in timeline.activities).lower()
    if not any(activity.kind == "CONCURRENT_KERNEL" for activity in timeline.activities):
        return "asnumpy" if "dtoh" in activity_names else ""
    matmul_names = ("matmul", "gemm", "cutlass", "nvjet")
    if any(matmul_name in activity_names for matmul_name in matmul_names):
        return "x @ w"
    return "sort" if "sort" in activity_names else "RawKernel"


def read_known_layers(data: Any) -> tuple[CallLayers, ...]:
    """Return the recorded calls and their layers that a JSON file contains."""
    provenance = Provenance("recorded", data["device"], data["detail"])
    return tuple(
        CallLayers(
            provenance=provenance,
            package=call_data["package"],
            call=call_data["call"],
            layers=tuple(
                tuple((str(name), int(count)) for name, count in layer) for layer in call_data["layers"]
            ),
            note=call_data.get("note", ""),
        )
        for call_data in data["calls"]
    )


def count_code_symbols(function: Callable[..., Any]) -> tuple[tuple[str, int], ...]:
    """Return the names of methods, module functions and operators that the code of a function uses."""
    code_object = getattr(function, "__code__", None)
    symbol_counts = Counter(
        str(instruction.argval) if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") else instruction.argrepr
        for instruction in (dis.get_instructions(code_object) if code_object else ())
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "BINARY_OP")
    )
    return tuple(symbol_counts.items()) or ((type(function).__name__, 1),)


def sort_queries_last(calls: Iterable[tuple[str, int]]) -> CallCounts:
    """Sort calls, with functions that only query a state at the end."""
    return tuple(
        sorted(calls, key=lambda call_and_count: any(word in call_and_count[0] for word in _QUERY_WORDS))
    )


def make_call_layers(
    provenance: Provenance,
    function: Callable[..., Any],
    timeline: Timeline,
    library_calls: Calls,
    lower_calls: tuple[CallCounts, ...] | None,
) -> CallLayers:
    """Return the layers of software that a call used. On a virtual GPU, `lower_calls` is None."""
    routines = Counter(
        f"{', '.join(operation_calls.libraries)}: {name}"
        for operation_calls in library_calls.endings
        for name, _ in operation_calls.routines
    )
    layers = (
        count_code_symbols(function),
        tuple(routines.items()) if lower_calls is not None else (),
        *(split_runtime_calls(timeline) if lower_calls is None else lower_calls),
        tuple(Counter(activity.name for activity in timeline.activities).items()),
    )
    call_name = getattr(function, "__name__", "call").replace("<lambda>", "the call")
    note = _VIRTUAL_NOTE if lower_calls is None else ""
    return CallLayers(provenance=provenance, package="here", call=call_name, layers=layers, note=note)


def find_recorded_call(calls: tuple[CallLayers, ...], call: str) -> tuple[CallLayers, ...]:
    """Return the recorded call with the given name.

    Raises
    ------
    GpulabError
        If there is none; the message lists the recorded names.
    """
    matching_calls = tuple(followed_call for followed_call in calls if followed_call.call == call)
    if not matching_calls:
        recorded_names = ", ".join(
            repr(name) for name in dict.fromkeys(followed_call.call for followed_call in calls)
        )
        raise GpulabError(
            f"{call!r} is not recorded. "
            + (f"Recorded: {recorded_names}." if calls else "No call is recorded.")
        )
    return matching_calls
