"""A card for notebook 00 with three numbers that describe the device in use."""

from __future__ import annotations

import html
from dataclasses import dataclass

from gpulab.session import backend
from virtualgpu.records import DeviceInfo


@dataclass(frozen=True, slots=True, repr=False)
class SmallCard:
    """A card that shows three numbers of a device and the source of each number."""

    info: DeviceInfo

    @property
    def numbers(self) -> tuple[tuple[str, str], ...]:
        """The three numbers of the device as text, each with its meaning."""
        info = self.info
        bandwidth = info.memory_bandwidth_gbps
        return (
            (f"{info.sm_count}", "SMs, its multiprocessors"),
            (f"{info.memory_bytes / (1 << 30):,.0f} GiB", "memory of its own"),
            ("not known" if bandwidth is None else f"{bandwidth:,.0f} GB/s", "peak memory bandwidth"),
        )

    def __repr__(self) -> str:
        description = "; ".join(f"{number} {meaning}" for number, meaning in self.numbers)
        return f"{self.info.name}: {description}; {self.info.provenance.label}."

    def _repr_html_(self) -> str:
        cells_html = "".join(
            f'<div><div style="font-size:24px;font-weight:600">{number}</div><div>{meaning}</div></div>'
            for number, meaning in self.numbers
        )
        name = html.escape(self.info.name)
        source_label = html.escape(self.info.provenance.label)
        row_style = "display:flex;flex-wrap:wrap;gap:8px 36px;margin:4px 0"
        return (
            f'<div><b>{name}</b><div style="{row_style}">{cells_html}</div>'
            f'<div style="font-size:12px">{source_label}</div></div>'
        )


def in_three_numbers() -> SmallCard:
    """Return a card with the number of SMs, the memory size and the peak bandwidth of the device in use."""
    return SmallCard(backend().device_info())
