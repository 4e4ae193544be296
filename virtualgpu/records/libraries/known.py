"""Which endings are recorded: of one operation, of one name, with one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.records.io import check_version
from virtualgpu.records.libraries import Ending, LibraryCall, Operation
from virtualgpu.records.libraries.operations import library_of, operation_of
from virtualgpu.records.origin import Provenance

FORMAT = "gpulab-recorded-calls"
# What makes a record near: package, name, dtype, size, layout.
_WEIGHTS = (4, 16, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """Endings that were recorded, on what and when."""

    provenance: Provenance
    endings: tuple[Ending, ...]

    def of(self, operation: Operation) -> Ending:
        """What is recorded of an operation; where nothing is, the nearest of its name."""
        for each in self.endings:
            if each.operation == operation:
                return each
        return Ending(operation=operation, recorded=False, nearest=self._nearest(operation))

    def told(self, kernels: Iterable[str], given: Iterable[LibraryCall]) -> Iterator[Ending]:
        """What the virtual GPU's kernels, by name, stand for; one of the program's own is itself."""
        waiting = list(given)
        for name in kernels:
            if waiting and waiting[0][0] == name:
                yield self.of(operation_of(waiting.pop(0)))
            else:
                yield Ending(operation=None, kernels=((name, 1),), libraries=("the program's own",))

    def seen(self, kernels: Mapping[str, int]) -> Iterator[Ending]:
        """Kernels of a real GPU by name and number, each with the routines that are recorded with it."""
        routines = {kernel: each.routines for each in self.endings for kernel, _ in each.kernels}
        for name, times in kernels.items():
            known = tuple((one, 0) for one, _ in routines.get(name, ()))
            yield with_libraries(Ending(operation=None, routines=known, kernels=((name, times),)))

    def named(self, name: str, **wanted: str) -> tuple[Ending, ...]:
        """All that is recorded of a name, such as ``torch.addmm``, ``cupy.linalg.solve`` or ``matmul``;
        of ``""`` everything.

        Raises
        ------
        GpulabError
            If nothing is; the message names the nearest.
        """
        package, _, operation = name.replace("cp.", "cupy.", 1).partition(".")
        if package not in ("cupy", "torch"):
            package = ""
            operation = name
        operation = operation.rpartition(".")[2]  # cupy.linalg.solve, torch.nn.functional.conv2d
        keys = {"package": package, "name": operation, **wanted}
        asked = {field: value for field, value in keys.items() if value}
        found = tuple(
            each
            for each in self.endings
            if all(getattr(each.operation, field, None) == value for field, value in asked.items())
        )
        if not found and (name or wanted):
            names = [
                f"{each.operation.package}.{each.operation.name}" for each in self.endings if each.operation
            ]
            hint = did_you_mean(name, dict.fromkeys(names)) or " gl.library_calls() lists what was."
            raise GpulabError(f"{', '.join(filter(None, (name, *wanted.values())))} was not recorded.{hint}")
        return found

    def _nearest(self, operation: Operation) -> Operation | None:
        def common(other: Operation) -> int:
            pairs = zip(_WEIGHTS, astuple(operation), astuple(other), strict=True)
            return sum(weight for weight, mine, its in pairs if mine == its)

        known = [each.operation for each in self.endings]
        return max((one for one in known if one and one.name == operation.name), key=common, default=None)


def known_calls(data: Any, name: str) -> KnownCalls:
    """The records of a file, as JSON gives it.

    Raises
    ------
    TraceFormatError
        If it is none, or a newer one.
    """
    check_version(data, FORMAT, name)
    versions = ", ".join(f"{what} {version}" for what, version in data["versions"].items())
    endings = (
        Ending(
            operation=Operation(*key),
            routines=tuple((str(one), int(n)) for one, n in routines),
            kernels=tuple((str(one), int(n)) for one, n in kernels),
            recorded=True,
        )
        for *key, routines, kernels in data["calls"]
    )
    provenance = Provenance("recorded", data["device"], f"{data['date']}, {versions}")
    return KnownCalls(provenance, tuple(map(with_libraries, endings)))


def with_libraries(each: Ending) -> Ending:
    """The same with its libraries, by the names of what was called."""
    called = [library_of(name) for name, _ in each.routines]
    ran = [library_of(name) for name, _ in each.kernels]
    if "cuBLASLt" in called:  # which has the kernels that cuBLAS has
        ran = [name for name in ran if name != "cuBLAS"]
    return replace(each, libraries=tuple(dict.fromkeys(filter(None, (*called, *ran)))))
