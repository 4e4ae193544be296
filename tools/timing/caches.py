"""The cache card: how far hit rates and bytes of memory are off; ``python -m tools.timing.caches``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from gpulab import session
from tools.corpus.caching import CASES, CacheCase, code
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import CacheCounters, KernelSource

ROOT = Path(__file__).resolve().parents[2]
CARD = ROOT / "virtualgpu" / "model" / "caches" / "CARD.md"
RECORDING = ROOT / "tests" / "counters" / "data" / "h200_caches.json"
STATES: tuple[Literal["cold", "warm"], ...] = ("cold", "warm")
# Bytes from which on a ratio is told.
TOLD_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Compared:
    """One launch: what an H200 counted, and what the model says."""

    case: CacheCase
    size: int
    state: Literal["cold", "warm"]
    metrics: dict[str, float]
    found: CacheCounters

    @property
    def l1(self) -> tuple[float, float] | None:
        """Hit rates of L1 in percent, recorded and modelled."""
        if self.found.l1_hit_rate is None or not self.found.l1_sectors:
            return None
        return self.metrics["l1tex__t_sector_hit_rate.pct"], 100 * self.found.l1_hit_rate

    @property
    def l2(self) -> tuple[float, float]:
        """Hit rates of L2 in percent, recorded and modelled."""
        return self.metrics["lts__t_sector_hit_rate.pct"], 100 * (self.found.l2_hit_rate or 0.0)

    @property
    def read(self) -> tuple[float, float]:
        """Bytes from memory, recorded and modelled."""
        return self.metrics["dram__bytes_read.sum"], float(self.found.dram_read_bytes)

    @property
    def written(self) -> tuple[float, float]:
        """Bytes to memory, recorded and modelled."""
        return self.metrics["dram__bytes_write.sum"], float(self.found.dram_write_bytes)


def recorded() -> dict[str, Any]:
    """The recording that ships with the tests."""
    return dict(json.loads(RECORDING.read_text(encoding="utf-8")))


def modelled(case: CacheCase, size: int, state: Literal["cold", "warm"]) -> CacheCounters:
    """What the session's virtual GPU makes of a launch, for ``"warm"`` of the second of two."""
    made = case.launch(size)
    launch = Launch.of(KernelSource(case.kernel, code()), made.grid, made.block, made.arguments(session.cp()))
    if state == "warm":
        session.backend().observe(launch, Counters())
    found = session.backend().observe(launch, Counters(state)).caches
    return cast(CacheCounters, found)


def compare(
    states: Sequence[Literal["cold", "warm"]] = STATES, cases: Iterable[CacheCase] = CASES
) -> list[Compared]:
    """Every recorded launch beside the model's."""
    data = recorded()
    found = []
    for case in cases:
        for size in case.sizes:
            launches = data["kernels"].get(case.kernel, {}).get(str(size), {})
            found += [
                Compared(case, size, state, dict(zip(data["metrics"], launches[state], strict=True)),
                         modelled(case, size, state))
                for state in states if state in launches
            ]  # fmt: skip
    return found
