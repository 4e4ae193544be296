"""PyTorch's caching allocator as a model."""

from __future__ import annotations

from virtualgpu.allocators.torch.allocator import TorchAllocator
from virtualgpu.allocators.torch.settings import Settings, SettingsError
from virtualgpu.allocators.torch.statistics import Statistics

__all__ = ["Settings", "SettingsError", "Statistics", "TorchAllocator"]
