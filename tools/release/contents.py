"""What comes with gpulab: packages with their licences and sizes, read off this environment.

``python -m tools.release.contents`` prints a line for every package that an installation without extras
brings, the largest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Package:
    """One installed distribution."""

    name: str
    version: str
    licence: str
    size_bytes: int


def find_dependencies(name: str = "gpulab-course") -> list[Package]:
    """Return the packages that `name` requires directly or indirectly, without extras, the largest first."""
    packages: dict[str, Package] = {}
    pending_names = [name]
    while pending_names:
        key = _normalise_name(pending_names.pop())
        if key in packages:
            continue
        try:
            distribution = metadata.distribution(key)
        except metadata.PackageNotFoundError:
            continue  # of another platform
        packages[key] = _make_package(distribution)
        pending_names += list_required(distribution.requires or [])
    packages.pop(_normalise_name(name), None)
    return sorted(packages.values(), key=lambda package: -package.size_bytes)


def list_required(requirements: list[str]) -> Iterator[str]:
    """Names of the requirements that belong to no extra."""
    for requirement in requirements:
        requirement_text, _, marker = requirement.partition(";")
        if "extra" not in marker and (match := _NAME.match(requirement_text)):
            yield match[0]


def licence(distribution: metadata.Distribution) -> str:
    """Return the licence in the metadata of a package in a few words, or an empty string."""
    of_metadata = distribution.metadata
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in of_metadata.get_all("Classifier") or []
        if text.startswith("License ::") and text != "License :: OSI Approved"
    ]
    licence_text = of_metadata["License-Expression"] or "; ".join(classifiers) or of_metadata["License"] or ""
    return licence_text.strip().split("\n")[0][:60]


def _make_package(distribution: metadata.Distribution) -> Package:
    size_bytes = 0
    for file in distribution.files or []:
        path = distribution.locate_file(file)
        size_bytes += path.stat().st_size if path.is_file() and not str(file).endswith(".pyc") else 0  # type: ignore[attr-defined]
    return Package(distribution.metadata["Name"], distribution.version, licence(distribution), size_bytes)


def _normalise_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    """Print a table of the required packages with sizes and licences."""
    packages = find_dependencies()
    for package in packages:
        size = f"{package.size_bytes / 1e6:8.1f} MB"
        print(f"{size}  {package.name:28} {package.version:14} {package.licence or 'not said'}")
    print(f"{sum(package.size_bytes for package in packages) / 1e6:8.1f} MB  in {len(packages)} packages")


if __name__ == "__main__":
    main()
