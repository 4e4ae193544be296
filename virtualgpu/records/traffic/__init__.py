"""Memory traffic of a function of arrays: its expressions, and the kernels that compute them."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One expression of a function, with its cost if it runs as a separate kernel.

    The field ``kernel`` is the number of the fused kernel that contains the expression, or -1 if the
    expression runs no kernel. ``flop`` counts one for each element of a sum, product or function. ``after``
    are the expressions that it reads.
    """

    name: str
    kind: str
    after: tuple[int, ...] = ()
    launches: tuple[str, ...] = ()
    read_bytes: int = 0
    written_bytes: int = 0
    flop: int = 0
    time_ns: int = 0
    kernel: int = -1


@dataclass(frozen=True, slots=True)
class FusionBoundary:
    """Two dependent expressions that run in different kernels, with the reason why they are not fused."""

    first: int
    then: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """The kernels that compute a function in one way, with their number, their memory traffic and their time.

    The field ``time_ns`` is None if the kernels were not run, and ``note`` is a remark.
    """

    way: str
    kernels: int
    moved_bytes: int
    flop: int
    time_ns: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The expressions of a function, and the kernels of each way to compute it. A function can be computed
    with fused kernels or with one kernel per expression.

    ``kernels`` are the kernels of the way to which the edges belong, each as one expression. ``sources`` are
    their generated CUDA C++ (empty for expressions that run unchanged).
    """

    provenance: Provenance
    function: str
    expressions: tuple[Expression, ...]
    edges: tuple[FusionBoundary, ...]
    ways: tuple[KernelSet, ...]
    kernels: tuple[Expression, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    folded: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()

    def way(self, name: str) -> KernelSet:
        """Return the kernels for the given way to compute the function.

        Raises
        ------
        KeyError
            If there is none.
        """
        for kernel_set in self.ways:
            if kernel_set.way == name:
                return kernel_set
        names = ", ".join(kernel_set.way for kernel_set in self.ways)
        raise KeyError(f"No path has the name {name!r}. Paths: {names}.")
