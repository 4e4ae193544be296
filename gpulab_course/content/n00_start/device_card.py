"""The device of notebook 00, in three numbers."""

from __future__ import annotations

import html
from dataclasses import dataclass

from gpulab.session import backend
from virtualgpu.records import DeviceInfo


@dataclass(frozen=True, slots=True, repr=False)
class SmallCard:
    """A device in three numbers, with the origin that they share."""

    info: DeviceInfo

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        info = self.info
        bandwidth = info.memory_bandwidth_gbps
        return (
            (f"{info.sm_count}", "SMs, its multiprocessors"),
            (f"{info.memory_bytes / (1 << 30):,.0f} GiB", "memory of its own"),
            ("not known" if bandwidth is None else f"{bandwidth:,.0f} GB/s", "peak memory bandwidth"),
        )

    def __repr__(self) -> str:
        told = "; ".join(f"{number} {what}" for number, what in self.numbers)
        return f"{self.info.name}: {told}; {self.info.provenance.label}."

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<div><div style="font-size:24px;font-weight:600">{number}</div><div>{what}</div></div>'
            for number, what in self.numbers
        )
        name = html.escape(self.info.name)
        label = html.escape(self.info.provenance.label)
        row = "display:flex;flex-wrap:wrap;gap:8px 36px;margin:4px 0"
        return (
            f'<div><b>{name}</b><div style="{row}">{cells}</div>'
            f'<div style="font-size:12px">{label}</div></div>'
        )


def in_three_numbers() -> SmallCard:
    """The device in use: multiprocessors, memory and peak bandwidth."""
    return SmallCard(backend().device_info())
