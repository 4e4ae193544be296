"""A measurement of the bits that a tensor core keeps when it adds products, for each input format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab.words import count
from gpulab_course.content.n18_tensor_cores.figures import recorded
from gpulab_course.content.n18_tensor_cores.versions import source

_WARP_LANES = 32
# Powers of two that the largest term can have: the product of two halves is below 2 to the power of 32.
_BIT_EXPONENTS = np.arange(8, 31)


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """An input number format, its ``mma`` instruction, and the first compute capability that supports it."""

    name: str
    instruction: str
    a_registers: int
    b_registers: int
    min_capability: tuple[int, int]


FORMATS = (
    NumberFormat("FP16", "m16n8k8.row.col.f32.f16.f16.f32", 2, 1, (7, 5)),
    NumberFormat("FP16, k = 16", "m16n8k16.row.col.f32.f16.f16.f32", 4, 2, (8, 0)),
    NumberFormat("BF16, k = 16", "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, (8, 0)),
    NumberFormat("TF32", "m16n8k8.row.col.f32.tf32.tf32.f32", 4, 2, (8, 0)),
)


def compute_tensor_sums(
    number_format: NumberFormat, left_factors: Any, right_factors: Any
) -> npt.NDArray[np.float32]:
    """Return sums of up to four products, each computed by one tensor-core instruction.

    Parameters
    ----------
    number_format
        The format, which must represent all terms exactly.
    left_factors, right_factors
        The factors, with the shape (sums, terms).
    """
    cp = session.cp()
    a, b = (
        _pack_registers(number_format, np.asarray(factors, np.float32))
        for factors in (left_factors, right_factors)
    )
    d = cp.zeros(len(a), np.float32)
    options = (
        f"-DINSTRUCTION={number_format.instruction}",
        f"-DA_REGISTERS={number_format.a_registers}",
    )
    kernel = cp.RawKernel(source("probe.cu"), "probe", options=options)
    kernel((len(a),), (_WARP_LANES,), (cp.asarray(a), cp.asarray(b), d))
    result: npt.NDArray[np.float32] = cp.asnumpy(d)
    return result


def _pack_registers(number_format: NumberFormat, terms: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Return register 0 of each lane, which contains the terms as row 0 of `a` or column 0 of `b`."""
    registers = np.zeros((len(terms), _WARP_LANES), np.uint32)
    if number_format.name == "TF32":
        registers[:, : terms.shape[1]] = terms.view(np.uint32)
        return registers
    if number_format.name.startswith("BF16"):
        term_bits = terms.view(np.uint32) >> 16
    else:
        term_bits = terms.astype(np.float16).view(np.uint16).astype(np.uint32)
    for term_index in range(terms.shape[1]):
        registers[:, term_index // 2] |= term_bits[:, term_index] << (16 * (term_index % 2))
    return registers


def measure_kept_bits() -> dict[str, int]:
    """Return for each number format how many bits of a sum a tensor core keeps, counting from the largest
    term.
    """
    capability = session.backend().device_info().compute_capability
    return {
        number_format.name: _count_kept_bits(number_format)
        for number_format in FORMATS
        if capability >= number_format.min_capability
    }


def _count_kept_bits(number_format: NumberFormat) -> int:
    first_factors, second_factors = (
        2.0 ** (_BIT_EXPONENTS // 2),
        2.0 ** (_BIT_EXPONENTS - _BIT_EXPONENTS // 2),
    )
    ones = np.ones_like(first_factors)
    results = compute_tensor_sums(
        number_format,
        np.stack([first_factors, ones, -first_factors], 1),
        np.stack([second_factors, ones, second_factors], 1),
    )
    return int(_BIT_EXPONENTS[results == 1].max()) + 1


def table() -> str:
    """Return a table of the number of bits that the device in use and the recorded GPUs keep in each
    format.
    """
    device = session.which_device()
    device_name = device.device if device.kind == "cuda" else f"virtual {device.device}"
    bits_by_format = measure_kept_bits()
    origin_label = "measured" if device.kind == "cuda" else "modelled"
    table_lines = [f"{device_name}, {origin_label}: {_describe_bits(bits_by_format)}"]
    table_lines += [
        f"{record['device']}, recorded: {_describe_bits(record['kept_bits'])}" for record in recorded()
    ]
    missing_names = [
        number_format.name for number_format in FORMATS if number_format.name not in bits_by_format
    ]
    if missing_names:
        table_lines.append(
            f"This device does not have {count(len(missing_names), 'format or shape', 'formats or shapes')}:"
            f" {'; '.join(missing_names)}."
        )
    return "\n".join(table_lines)


def _describe_bits(bits_by_format: dict[str, int]) -> str:
    return "; ".join(f"{format_name}: {bit_count} bits" for format_name, bit_count in bits_by_format.items())
