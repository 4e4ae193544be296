"""Recordings of several GPUs in one host, which ship with gpulab."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

RECORDS_FOLDER = "data/recordings/several"


def read_records() -> tuple[dict[str, Any], ...]:
    """Return all shipped recordings, in the format that `tools.recordings.several` writes."""
    folder = resources.files("gpulab").joinpath(RECORDS_FOLDER)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda f: f.name)
    return tuple(json.loads(file.read_text(encoding="utf-8")) for file in files)


def find_records(device: str, gpu_count: int = 2) -> tuple[dict[str, Any], ...]:
    """Return the shipped recordings of `gpu_count` GPUs of one model, such as ``H200`` or ``NVIDIA H200``."""
    name_parts = device.split()
    return tuple(
        record for record in read_records() if record["gpu"] in name_parts and record["gpus"] == gpu_count
    )
