"""How much of a device's memory was taken, and by how many calls: what budgets of programs are read off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Ledger:
    """Running totals of one device.

    ``segments`` counts what was taken of the device, ``driver_calls`` that and what was given back;
    ``reserved_bytes`` is what is taken now, the driver's own pools included, ``array_bytes`` what programs
    own of it, to the byte. Peaks are the most since `mark`.
    """

    segments: int = 0
    driver_calls: int = 0
    reserved_bytes: int = 0
    peak_reserved_bytes: int = 0
    array_bytes: int = 0
    peak_array_bytes: int = 0

    def mark(self) -> None:
        """Let the peaks begin at what there is now."""
        self.peak_reserved_bytes = self.reserved_bytes
        self.peak_array_bytes = self.array_bytes

    def taken(self, size_bytes: int) -> None:
        """A segment was taken."""
        self.segments += 1
        self.driver_calls += 1
        self.reserved_bytes += size_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)

    def given_back(self, size_bytes: int) -> None:
        """A segment went back."""
        self.driver_calls += 1
        self.reserved_bytes -= size_bytes

    def owned(self, size_bytes: int) -> None:
        """Programs own so much more, or less."""
        self.array_bytes += size_bytes
        self.peak_array_bytes = max(self.peak_array_bytes, self.array_bytes)
