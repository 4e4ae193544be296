"""A model of PyTorch's caching allocator."""

from __future__ import annotations

from gpulab.allocators.torch.allocator import TorchAllocator
from gpulab.allocators.torch.settings import Settings, SettingsError
from gpulab.allocators.torch.statistics import Statistics

__all__ = ["Settings", "SettingsError", "Statistics", "TorchAllocator"]
