"""What a function of arrays moves through memory: its expressions, and kernels that join them."""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.records.origin import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One expression of a function, as it runs by itself.

    ``kernel`` numbers the fused kernel that it becomes part of, -1 for what runs nothing (a view, an
    argument). ``flop`` counts one for each element of a sum, product or function. ``after`` are the
    expressions that it reads.
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
class RedEdge:
    """Two expressions that share no kernel although the second reads the first, and why."""

    first: int
    then: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSet:
    """What one way of making kernels gives: how many, what they read and write, how long they take.

    ``time_ns`` is None where nothing ran; ``note`` says what is special.
    """

    way: str
    kernels: int
    moved_bytes: int
    flop: int
    time_ns: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A function's expressions, and what becomes of them in each way of making kernels.

    ``kernels`` are those of the way that the edges belong to, each as one expression, and ``sources`` what
    was generated for them, with the whole CUDA C++ (empty for what runs as it was written).
    """

    provenance: Provenance
    function: str
    expressions: tuple[Expression, ...]
    edges: tuple[RedEdge, ...]
    ways: tuple[KernelSet, ...]
    kernels: tuple[Expression, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    folded: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()

    def way(self, name: str) -> KernelSet:
        """The way of that name.

        Raises
        ------
        KeyError
            If there is none.
        """
        for each in self.ways:
            if each.way == name:
                return each
        raise KeyError(f"There is no way {name!r}; there are {', '.join(each.way for each in self.ways)}.")
