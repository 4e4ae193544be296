"""Compiled kernels of these tests stay out of the learner's cache, and serve the next run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parent.parent.parent / ".cache" / "fuzz"


@pytest.fixture(scope="session", autouse=True)
def own_cache() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if "GPULAB_CACHE_DIR" not in os.environ:
            patch.setenv("GPULAB_CACHE_DIR", str(CACHE))
        yield
