"""Library calls that were recorded on a real GPU, found by operation, by name or by kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from virtualgpu.errors import GpulabError, did_you_mean
from virtualgpu.records.io import check_version
from virtualgpu.records.libraries import LibraryCall, Operation, OperationCalls
from virtualgpu.records.libraries.operations import library_of, operation_of
from virtualgpu.records.origin import Provenance

FORMAT = "gpulab-recorded-calls"
# Weights of equal fields in the similarity of operations: package, name, dtype, size, layout.
_FIELD_WEIGHTS = (4, 16, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class KnownCalls:
    """Recorded library calls of many operations, with the device and date of the recording."""

    provenance: Provenance
    endings: tuple[OperationCalls, ...]

    def of(self, operation: Operation) -> OperationCalls:
        """Return the record of an operation. If there is no record, the result is an empty record with a
        similar operation.
        """
        for operation_calls in self.endings:
            if operation_calls.operation == operation:
                return operation_calls
        return OperationCalls(operation=operation, recorded=False, nearest=self._find_nearest(operation))

    def find_virtual_kernels(
        self, kernels: Iterable[str], library_calls: Iterable[LibraryCall]
    ) -> Iterator[OperationCalls]:
        """Yield the library calls for the kernels of a virtual GPU. The kernels of the program itself have no
        library calls.
        """
        pending_calls = list(library_calls)
        for kernel_name in kernels:
            if pending_calls and pending_calls[0][0] == kernel_name:
                yield self.of(operation_of(pending_calls.pop(0)))
            else:
                yield OperationCalls(
                    operation=None, kernels=((kernel_name, 1),), libraries=("the program's own",)
                )

    def find_real_kernels(self, launch_counts: Mapping[str, int]) -> Iterator[OperationCalls]:
        """Yield the kernels that ran on a real GPU. Each kernel has its number of launches and its recorded
        routines.
        """
        routines_by_kernel = {
            kernel: operation_calls.routines
            for operation_calls in self.endings
            for kernel, _ in operation_calls.kernels
        }
        for kernel_name, launch_count in launch_counts.items():
            routines = tuple((routine, 0) for routine, _ in routines_by_kernel.get(kernel_name, ()))
            yield add_libraries(
                OperationCalls(operation=None, routines=routines, kernels=((kernel_name, launch_count),))
            )

    def named(self, name: str, **filters: str) -> tuple[OperationCalls, ...]:
        """Return the records with the given name, such as ``matmul``. With an empty name, all records are
        returned.

        Raises
        ------
        GpulabError
            If there is none; the message names the most similar.
        """
        package, _, operation = name.replace("cp.", "cupy.", 1).partition(".")
        if package not in ("cupy", "torch"):
            package = ""
            operation = name
        operation = operation.rpartition(".")[2]  # cupy.linalg.solve, torch.nn.functional.conv2d
        all_conditions = {"package": package, "name": operation, **filters}
        conditions = {field: value for field, value in all_conditions.items() if value}
        matching_calls = tuple(
            operation_calls
            for operation_calls in self.endings
            if all(
                getattr(operation_calls.operation, field, None) == value
                for field, value in conditions.items()
            )
        )
        if not matching_calls and (name or filters):
            recorded_operations = [
                operation_calls.operation for operation_calls in self.endings if operation_calls.operation
            ]
            recorded_names = [
                f"{recorded_operation.package}.{recorded_operation.name}"
                for recorded_operation in recorded_operations
            ]
            hint = (
                did_you_mean(name, dict.fromkeys(recorded_names))
                or " gl.library_calls() lists the recorded calls."
            )
            raise GpulabError(
                f"{', '.join(filter(None, (name, *filters.values())))} is not among the "
                f"recorded operations.{hint}"
            )
        return matching_calls

    def _find_nearest(self, operation: Operation) -> Operation | None:
        def count_equal_fields(other_operation: Operation) -> int:
            weighted_fields = zip(_FIELD_WEIGHTS, astuple(operation), astuple(other_operation), strict=True)
            return sum(
                field_weight for field_weight, value, other_value in weighted_fields if value == other_value
            )

        recorded_operations = [
            operation_calls.operation for operation_calls in self.endings if operation_calls.operation
        ]
        same_name_operations = [other for other in recorded_operations if other.name == operation.name]
        return max(same_name_operations, key=count_equal_fields, default=None)


def read_known_calls(data: Any, file_name: str) -> KnownCalls:
    """Return the recorded library calls that a JSON file contains.

    Raises
    ------
    TraceFormatError
        If the file has another format, or a newer version.
    """
    check_version(data, FORMAT, file_name)
    versions = ", ".join(f"{package} {version}" for package, version in data["versions"].items())
    all_operation_calls = (
        OperationCalls(
            operation=Operation(*key),
            routines=tuple((str(routine), int(count)) for routine, count in routines),
            kernels=tuple((str(kernel), int(count)) for kernel, count in kernels),
            recorded=True,
        )
        for *key, routines, kernels in data["calls"]
    )
    provenance = Provenance("recorded", data["device"], f"{data['date']}, {versions}")
    return KnownCalls(
        provenance, tuple(add_libraries(operation_calls) for operation_calls in all_operation_calls)
    )


def add_libraries(operation_calls: OperationCalls) -> OperationCalls:
    """Return a copy of a record of library calls that includes the names of the libraries."""
    routine_libraries = [library_of(name) for name, _ in operation_calls.routines]
    kernel_libraries = [library_of(name) for name, _ in operation_calls.kernels]
    if "cuBLASLt" in routine_libraries:  # it uses the same kernels as cuBLAS
        kernel_libraries = [name for name in kernel_libraries if name != "cuBLAS"]
    distinct_libraries = dict.fromkeys(name for name in (*routine_libraries, *kernel_libraries) if name)
    return replace(operation_calls, libraries=tuple(distinct_libraries))
