"""Save traces as PyTorch's memory snapshots, which pytorch.org/memory_viz and ``_memory_viz.py`` open."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from gpulab.allocators.torch.settings import Settings, SettingsError
from virtualgpu.records.memory import AllocatorTrace, Block, BlockMap, Segment

_STATE_NAMES = {"used": "active_allocated", "waiting": "active_pending_free", "free": "inactive"}
# The viewer's own reader of pickles knows protocols 2 to 4.
_PICKLE_PROTOCOL = 4


def write_snapshot(path: str | os.PathLike[str], trace: AllocatorTrace, last_map: BlockMap) -> Path:
    """Save an allocator trace in the format of PyTorch's memory snapshots. The trace can come from any
    allocator.

    Parameters
    ----------
    path : str or os.PathLike
        The file, such as ``"pool.pickle"``.
    trace : AllocatorTrace
        The trace to save.
    last_map : BlockMap
        The segments and blocks after the last event.

    Returns
    -------
    pathlib.Path
        The file.
    """
    frames_by_stack = [
        [{"filename": frame.filename, "line": frame.line, "name": frame.function} for frame in stack]
        for stack in trace.stacks
    ]
    # "allocator", "provenance", "pool_name" and "block_size" are not PyTorch's: its viewer passes over them,
    # and `read_snapshot` could not work them out.
    snapshot = {
        "segments": [
            segment_entry
            for segment in last_map.segments
            for segment_entry in _make_segment_entries(segment, trace.device_id, frames_by_stack)
        ],
        "device_traces": [[] for _ in range(trace.device_id)] + [_make_event_entries(trace, frames_by_stack)],
        "allocator_settings": _make_settings_entry(trace.settings),
        "external_annotations": [],
        "allocator": trace.allocator,
        "provenance": (trace.provenance.source, trace.provenance.device, trace.provenance.detail),
    }
    snapshot_path = Path(path)
    snapshot_path.write_bytes(pickle.dumps(snapshot, protocol=_PICKLE_PROTOCOL))
    return snapshot_path


def _make_event_entries(trace: AllocatorTrace, frames: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    event_entries = []
    for action, address, size_bytes, requested_bytes, stream, time_ns, stack_index in trace.events.rows():
        is_block = action in ("alloc", "free_requested", "free_completed")
        event_entries.append(
            {
                "action": action,
                "device_free" if action == "oom" else "addr": address,
                "size": requested_bytes or size_bytes if is_block else size_bytes,
                "stream": stream,
                "time_us": time_ns // 1000,
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": frames[stack_index] if stack_index >= 0 else [],
                "block_size": size_bytes,
            }
        )
    return event_entries


def _make_segment_entries(
    segment: Segment, device: int, frames: list[list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Return the entries for a segment in the format of a snapshot. An expandable segment has one entry for
    each of its mapped parts.
    """
    blocks_of_parts: list[list[Block]] = [[]]
    for block in segment.blocks:
        if block.is_unmapped:
            blocks_of_parts.append([])
        else:
            blocks_of_parts[-1].append(block)
    pool_kind, _, private_pool = segment.pool.partition(" of private pool ")
    segment_entries = []
    for blocks in filter(None, blocks_of_parts):
        total_bytes = sum(block.size_bytes for block in blocks)
        segment_entries.append(
            {
                "device": device,
                "address": blocks[0].address,
                "total_size": total_bytes,
                "allocated_size": sum(block.size_bytes for block in blocks if block.state == "used"),
                "active_size": sum(block.size_bytes for block in blocks if block.state != "free"),
                "requested_size": sum(block.requested_bytes for block in blocks if block.state != "free"),
                "stream": segment.stream,
                "segment_type": pool_kind if pool_kind in ("small", "large") else "large",
                "segment_pool_id": tuple(int(n) for n in private_pool.split(".")) if private_pool else (0, 0),
                "is_expandable": segment.is_expandable,
                "frames": [],
                "blocks": [
                    {
                        "address": block.address,
                        "size": block.size_bytes,
                        "requested_size": block.requested_bytes or block.size_bytes,
                        "state": _STATE_NAMES[block.state],
                        "frames": frames[block.stack] if block.stack >= 0 else [],
                    }
                    for block in blocks
                ],
                "pool_name": segment.pool,
            }
        )
    return segment_entries


def _make_settings_entry(settings_text: str) -> dict[str, Any]:
    """Return the settings in the format of PyTorch's snapshots. For a trace of another allocator, return
    PyTorch's default settings.
    """
    try:
        settings = Settings.parse(settings_text)
    except SettingsError:
        settings_text = ""
        settings = Settings()
    return {
        "PYTORCH_CUDA_ALLOC_CONF": settings_text,
        "max_split_size": -1 if settings.max_split_size_mb is None else settings.max_split_bytes,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "expandable_segments": settings.expandable_segments,
        "pinned_num_register_threads": 1,
        "release_lock_on_cudamalloc": False,
        "pinned_use_cuda_host_register": False,
        "graph_capture_record_stream_reuse": False,
        "roundup_power2_divisions": {str(1 << i): n for i, n in enumerate(settings.roundup_power2_divisions)},
    }
