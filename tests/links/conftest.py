"""Machines with several GPUs."""

from tests.nccl.conftest import gpus  # noqa: F401  (a fixture)
