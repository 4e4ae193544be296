"""Settings of PyTorch's allocator, and rules that the random sequences do not reach."""

from __future__ import annotations

import pytest

from gpulab.allocators.replay import OutOfMemory, RequestError
from gpulab.allocators.torch import Settings, SettingsError, TorchAllocator

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Settings()),
        (" expandable_segments : True ", Settings(expandable_segments=True)),
        ("max_split_size_mb:64,", Settings(max_split_size_mb=64)),
        (
            "large_segment_size_mb:30,max_split_size_mb:30",
            Settings(large_segment_size_mb=30, max_split_size_mb=30),
        ),
        ("roundup_power2_divisions:4", Settings(roundup_power2_divisions=(4,) * 16)),
        (
            "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],backend:native",
            Settings(roundup_power2_divisions=(1,) * 9 + (2, 4) + (8,) * 5),
        ),
        ("roundup_power2_divisions:[64:8,>:0]", Settings(roundup_power2_divisions=(8,) * 7 + (0,) * 9)),
        ("pinned_use_background_threads:True", Settings()),
        ("per_process_memory_fraction:0.5", Settings(per_process_memory_fraction=0.5)),
    ],
)
def test_settings_strings_of_pytorch_are_parsed(text: str, expected: Settings) -> None:
    assert Settings.parse(text) == expected
    assert Settings.parse(expected.text) == expected


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("max_split_size_mb:19", "at least 20"),
        ("large_segment_size_mb:40,max_split_size_mb:39", "at least 40"),
        ("large_segment_size_mb:10", "more than 10"),
        ("expandable_segments:True,large_segment_size_mb:11", "large_segment_size_mb:11 is odd"),
        ("max_split_size_mb:-1", "max_split_size_mb:-1 is not an integer number"),
        ("max_split_size_mb:1e9", "integer number"),
        ("garbage_collection_threshold:1", "between 0 and 1"),
        ("garbage_collection_threshold:0.0", "between 0 and 1"),
        ("garbage_collection_threshold:nan", "between 0 and 1"),
        ("per_process_memory_fraction:1.5", "between 0 and 1"),
        ("expandable_segments:true", "neither True nor False"),
        ("roundup_power2_divisions:3", "power of two"),
        ("roundup_power2_divisions:[3:2]", "3 MiB"),
        ("roundup_power2_divisions:[4:3]", "power of two"),
        ("roundup_power2_divisions:[4:2", "closing bracket"),
        ("roundup_power2_divisions:[4]", "size_mb:divisions"),
        ("backend:cudaMallocAsync", "another allocator"),
        ("max_split_size:64", "Did you mean 'max_split_size_mb'"),
        ("expandable_segments", "name:value"),
        ("a:b:c:", "no setting 'a'"),
        (",", "name:value"),
    ],
)
def test_settings_that_pytorch_refuses_are_refused(text: str, part: str) -> None:
    with pytest.raises(SettingsError, match=r"[.?]$") as caught:
        TorchAllocator(text)
    assert part in str(caught.value)


def test_keyword_arguments_override_the_settings_string() -> None:
    settings = Settings.of("max_split_size_mb:64", max_split_size_mb=32, roundup_power2_divisions=2)
    assert (settings.max_split_size_mb, settings.roundup_power2_divisions) == (32, (2,) * 16)
    with pytest.raises(SettingsError, match="Did you mean 'expandable_segments'"):
        Settings.of(expandable_segment=True)


def test_an_oversize_block_is_reused_for_slightly_smaller_requests() -> None:
    """The block must be larger than the request by less than `max_non_split_rounding_mb`."""
    for size, is_reused in ((41 * MIB, True), (40 * MIB, False), (40 * MIB + 512, True)):
        pool = TorchAllocator("max_split_size_mb:20,max_non_split_rounding_mb:20")
        first = pool.malloc(60 * MIB, 0)
        pool.free(first)
        assert (pool.malloc(size, 0) == first) is is_reused


def test_releasing_memory_waits_for_the_device() -> None:
    """``cudaFree`` waited in all 25 recorded cases with pending work, ``cudaMalloc`` in none of 1,682."""
    pool = TorchAllocator("max_split_size_mb:20", capacity_bytes=130 * MIB)
    waits, *large = (pool.malloc(size, 0) for size in (1000, 40 * MIB, 40 * MIB))
    pool.record_stream(waits, 5)
    for block in (waits, *large):
        pool.free(block)
    pool.malloc(64 * MIB, 0)
    assert pool.statistics.num_sync_all_streams == 0
    assert sum(block.is_waiting for block in pool.block_map().blocks) == 1
    assert pool.malloc(1000, 0) == waits


def test_memory_of_other_programs_is_not_available() -> None:
    pool = TorchAllocator(capacity_bytes=100 * MIB, other_programs_bytes=30 * MIB)
    pool.malloc(60 * MIB, 0)
    with pytest.raises(OutOfMemory, match="can reserve 10,485,760 more"):
        pool.malloc(12 * MIB, 0)
    assert pool.statistics.nested()["num_ooms"] == 1
    assert pool.malloc(MIB, 0)


@pytest.mark.parametrize("address", [1, 1 << 50])
def test_unknown_addresses_and_double_frees_are_reported(address: int) -> None:
    pool = TorchAllocator()
    with pytest.raises(RequestError, match=hex(address)):
        pool.free(address)
    with pytest.raises(RequestError, match=hex(address)):
        pool.record_stream(address, 3)
    block = pool.malloc(100, 0)
    pool.record_stream(block, 3)
    pool.free(block)
    with pytest.raises(RequestError, match="has been freed"):
        pool.free(block)


def test_zero_bytes_need_no_block() -> None:
    pool = TorchAllocator()
    assert pool.malloc(0, 0) == 0
    pool.record_stream(0, 1)
    pool.free(0)
    assert pool.block_map().segments == ()
