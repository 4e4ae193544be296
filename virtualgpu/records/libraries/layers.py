"""What one call went through: framework, library, CUDA runtime, driver, device."""

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

Counted = tuple[tuple[str, int], ...]
_OURS = "No library, runtime or driver is below a virtual GPU: names of calls are CUDA's for them."
_ASKS = ("Get", "Peek", "IsCapturing")
LAYERS = ("framework", "library", "CUDA runtime", "driver", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The symbols of each of `LAYERS` in the order of their first use, with how often each was called.

    ``package`` is whose call it was; ``note`` says what is not known.
    """

    provenance: Provenance
    package: str
    call: str
    layers: tuple[tuple[tuple[str, int], ...], ...]
    note: str = ""

    def of(self, layer: str) -> tuple[tuple[str, int], ...]:
        """One layer's symbols."""
        return self.layers[LAYERS.index(layer)]


def interfaces(seen: Timeline) -> tuple[Counted, ...]:
    """The runtime's and the driver's calls of a timeline: their names begin with cuda and cu."""
    counted = Counter(each.name for each in seen.calls if each.name != "cudaDeviceSynchronize")
    runtime = {name: n for name, n in counted.items() if name.startswith("cuda")}
    return tuple(runtime.items()), tuple((name, n) for name, n in counted.items() if name not in runtime)


def kind_of(seen: Timeline) -> str:
    """Which of the recorded calls this one is like, by what ran."""
    names = " ".join(each.name for each in seen.activities).lower()
    if not any(each.kind == "CONCURRENT_KERNEL" for each in seen.activities):
        return "asnumpy" if "dtoh" in names else ""
    products = ("matmul", "gemm", "cutlass", "nvjet")
    return "x @ w" if any(p in names for p in products) else "sort" if "sort" in names else "RawKernel"


def known_layers(told: Any) -> tuple[Followed, ...]:
    """Calls as they were recorded, from the file's contents."""
    origin = Provenance("recorded", told["device"], told["detail"])
    return tuple(
        Followed(
            provenance=origin,
            package=each["package"],
            call=each["call"],
            layers=tuple(tuple((str(name), int(n)) for name, n in layer) for layer in each["layers"]),
            note=each.get("note", ""),
        )
        for each in told["calls"]
    )


def written(function: Callable[..., Any]) -> tuple[tuple[str, int], ...]:
    """Methods, functions of modules and operators that a function's own code names."""
    code = getattr(function, "__code__", None)
    used = Counter(
        str(step.argval) if step.opname in ("LOAD_ATTR", "LOAD_METHOD") else step.argrepr
        for step in (dis.get_instructions(code) if code else ())
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD", "BINARY_OP")
    )
    return tuple(used.items()) or ((type(function).__name__, 1),)


def questions_last(called: Iterable[tuple[str, int]]) -> Counted:
    """Calls with those behind the others that only ask for something."""
    return tuple(sorted(called, key=lambda each: any(word in each[0] for word in _ASKS)))


def stack(
    here: Provenance,
    function: Callable[..., Any],
    seen: Timeline,
    ended: Calls,
    below: tuple[Counted, ...] | None,
) -> Followed:
    """What a call went through: `below` are the calls of runtime and driver, None on a virtual GPU."""
    routines = Counter(f"{', '.join(e.libraries)}: {name}" for e in ended.endings for name, _ in e.routines)
    layers = (
        written(function),
        tuple(routines.items()) if below is not None else (),
        *(interfaces(seen) if below is None else below),
        tuple(Counter(each.name for each in seen.activities).items()),
    )
    call = getattr(function, "__name__", "call").replace("<lambda>", "the call")
    note = _OURS if below is None else ""
    return Followed(provenance=here, package="here", call=call, layers=layers, note=note)


def named(known: tuple[Followed, ...], call: str) -> tuple[Followed, ...]:
    """The recorded calls of a name.

    Raises
    ------
    GpulabError
        If there is none; the message lists what there is.
    """
    found = tuple(each for each in known if each.call == call)
    if not found:
        there = ", ".join(repr(name) for name in dict.fromkeys(each.call for each in known))
        raise GpulabError(f"{call!r} is not recorded. " + (f"There is {there}." if known else "Nothing is."))
    return found
