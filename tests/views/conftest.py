"""Fixtures of the tests of views."""

from __future__ import annotations

from tests.snapshot import snapshots as snapshots
