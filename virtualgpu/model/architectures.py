"""Limits per SM of each compute capability, Maxwell to Blackwell.

Source: "Technical Specifications per Compute Capability" and "Arithmetic Instructions" (32-bit
floating-point results per clock per SM) of the CUDA C++ Programming Guide. From 6.0 on the rows
agree with ``arch_traits.h`` of NVIDIA's CUDA C++ Core Libraries, and blocks per SM with the
``cuda_occupancy.h`` that ships with CUDA 13.
"""

from __future__ import annotations

from dataclasses import dataclass

from virtualgpu.errors import UnknownDeviceError

KIB = 1024


@dataclass(frozen=True, slots=True)
class ArchLimits:
    """The limits of an SM for one compute capability. Sizes are in bytes, and each register has 32 bits."""

    compute_capability: tuple[int, int]
    architecture: str
    max_warps_per_sm: int
    max_blocks_per_sm: int
    fp32_lanes_per_sm: int
    shared_per_sm_bytes: int
    shared_per_block_optin_bytes: int
    registers_per_sm: int = 65536
    registers_per_block: int = 65536
    examples: str = ""

    @property
    def max_threads_per_sm(self) -> int:
        return self.max_warps_per_sm * 32

    @property
    def reserved_shared_per_block_bytes(self) -> int:
        """Number of bytes of shared memory that the driver reserves in each block. The number is 1 KiB from
        compute capability 8.0 on.
        """
        return KIB if self.compute_capability >= (8, 0) else 0


def _make_limits(
    capability: tuple[int, int],
    architecture: str,
    warps: int,
    blocks: int,
    lanes: int,
    shared_kib: int,
    optin_kib: int,
    examples: str,
    registers_per_block: int = 65536,
) -> ArchLimits:
    return ArchLimits(
        compute_capability=capability,
        architecture=architecture,
        max_warps_per_sm=warps,
        max_blocks_per_sm=blocks,
        fp32_lanes_per_sm=lanes,
        shared_per_sm_bytes=shared_kib * KIB,
        shared_per_block_optin_bytes=optin_kib * KIB,
        registers_per_block=registers_per_block,
        examples=examples,
    )


# capability, architecture, warps, blocks, FP32 lanes, shared KiB per SM, opt-in KiB per block
ARCHITECTURES: tuple[ArchLimits, ...] = (
    _make_limits((5, 0), "Maxwell", 64, 32, 128, 64, 48, "GTX 750 Ti, Quadro M2000M"),
    _make_limits((5, 2), "Maxwell", 64, 32, 128, 96, 48, "GTX 980, Tesla M40"),
    _make_limits((5, 3), "Maxwell", 64, 32, 128, 64, 48, "Jetson Nano, Tegra X1", registers_per_block=32768),
    _make_limits((6, 0), "Pascal", 64, 32, 64, 64, 48, "Tesla P100"),
    _make_limits((6, 1), "Pascal", 64, 32, 128, 96, 48, "GTX 1080, Tesla P4"),
    _make_limits((6, 2), "Pascal", 64, 32, 128, 64, 48, "Jetson TX2", registers_per_block=32768),
    _make_limits((7, 0), "Volta", 64, 32, 64, 96, 96, "V100"),
    _make_limits((7, 2), "Volta", 64, 32, 64, 96, 96, "Jetson AGX Xavier"),
    _make_limits((7, 5), "Turing", 32, 16, 64, 64, 64, "T4, RTX 2080"),
    _make_limits((8, 0), "Ampere", 64, 32, 64, 164, 163, "A100, A30"),
    _make_limits((8, 6), "Ampere", 48, 16, 128, 100, 99, "RTX 3090, A10, A40"),
    _make_limits((8, 7), "Ampere", 48, 16, 128, 164, 163, "Jetson AGX Orin"),
    _make_limits((8, 9), "Ada Lovelace", 48, 24, 128, 100, 99, "RTX 4090, L4, L40S"),
    _make_limits((9, 0), "Hopper", 64, 32, 128, 228, 227, "H100, H200, GH200"),
    _make_limits((10, 0), "Blackwell", 64, 32, 128, 228, 227, "B200, GB200"),
    _make_limits((10, 3), "Blackwell", 64, 32, 128, 228, 227, "B300, GB300"),
    _make_limits((11, 0), "Blackwell", 48, 24, 128, 228, 227, "Jetson Thor"),
    _make_limits((12, 0), "Blackwell", 48, 24, 128, 100, 99, "RTX 5090, RTX PRO 6000"),
    _make_limits((12, 1), "Blackwell", 48, 24, 128, 100, 99, "GB10 (DGX Spark)"),
)


def find_arch_limits(capability: tuple[int, int]) -> ArchLimits:
    """Return the limits of an SM for a compute capability.

    Raises
    ------
    UnknownDeviceError
        If the capability is not in the table (5.0 to 12.1).
    """
    for arch in ARCHITECTURES:
        if arch.compute_capability == capability:
            return arch
    supported_text = ", ".join(
        f"{arch.compute_capability[0]}.{arch.compute_capability[1]}" for arch in ARCHITECTURES
    )
    raise UnknownDeviceError(
        f"Compute capability {capability[0]}.{capability[1]} is not in the table. It has {supported_text}."
    )
