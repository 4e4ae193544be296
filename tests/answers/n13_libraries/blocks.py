"""Wrong and right answers to exercise 13-blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gpulab.analysis.formats import E2M1
from tests.answers import Right, Wrong


def _floor(largest: Any) -> Any:
    return np.where(largest > 0, np.frexp(largest)[1] - 1, -1000)


def _answer(
    *,
    width: int = 32,
    largest: Any = lambda blocks: np.abs(blocks).max(axis=1),
    power: Any = _floor,
    top: int = 2,
    limits: tuple[int, int] = (-127, 127),
    stored: Any = lambda blocks, scales: E2M1.round_all(blocks / scales),
    result: Any = lambda exponents, elements: (exponents, elements),
) -> Any:
    """An answer to 13-blocks, right unless told otherwise."""

    def mxfp4(x: Any) -> Any:
        blocks = x.reshape(-1, width).astype(np.float64)
        with np.errstate(all="ignore"):
            exponents = np.clip(power(largest(blocks)) - top, *limits)
            exponents = np.broadcast_to(exponents, len(blocks)).astype(int)
            return result(exponents, stored(blocks, 2.0 ** exponents[:, None]).reshape(-1))

    return mxfp4


def _columns(x: Any) -> Any:
    exponents, elements = _answer()(np.ascontiguousarray(x.reshape(32, -1).T).reshape(-1))
    return exponents, elements


def _in_place(x: Any) -> Any:
    exponents, x[:] = _answer()(x)
    return exponents, x


def _by_loops(x: Any) -> Any:
    exponents, elements = [], []
    for first in range(0, len(x), 32):
        block = [float(number) for number in x[first : first + 32]]
        largest = max(map(abs, block))
        exponent = max(-127, math.floor(math.log2(largest)) - 2) if largest else -127
        while largest and 2.0 ** (exponent + 2) > largest and exponent > -127:  # log2 was rounded up
            exponent -= 1
        exponents.append(exponent)
        elements += [E2M1.round(number / 2.0**exponent) for number in block]
    return exponents, elements


def _by_bits(x: Any) -> Any:
    """The exponent of a float32 is in bits 23 to 30."""
    blocks = x.reshape(-1, 32)
    exponents = (np.abs(blocks).max(axis=1).view(np.uint32) >> 23).astype(int) - 127 - 2
    exponents = np.maximum(exponents, -127)
    return exponents, E2M1.round_all(np.ldexp(blocks.astype(float), -exponents[:, None])).astype(np.float32).ravel()


def _float_log(largest: Any) -> Any:
    return np.floor(np.log2(largest.astype(np.float32)))


BLOCKS = (
    Wrong("13-blocks", "one scale for all", _answer(largest=lambda blocks: np.abs(blocks).max()), "", "its own"),
    Wrong("13-blocks", "blocks of 16", _answer(width=16), "", "one exponent per block"),
    Wrong("13-blocks", "by columns", _columns, "", "neighbouring"),
    Wrong("13-blocks", "the largest value instead of the largest absolute value", _answer(largest=lambda blocks: blocks.max(axis=1)), "", "largest absolute"),
    Wrong("13-blocks", "rounded up", _answer(power=lambda v: np.ceil(np.log2(v))), "", "rounded down"),
    Wrong("13-blocks", "to the nearest", _answer(power=lambda v: np.rint(np.log2(v))), "", "rounded down"),
    Wrong("13-blocks", "frexp, not minus 1", _answer(power=lambda v: np.frexp(v)[1]), "", ""),
    Wrong("13-blocks", "does not subtract 2 from the exponent", _answer(top=0), "", "Subtract 2"),
    Wrong("13-blocks", "so that 6 is enough", _answer(power=lambda v: np.ceil(np.log2(v / 6)), top=0), "", "rounded down"),
    Wrong("13-blocks", "log2 in float32", _answer(power=_float_log), "", "np.frexp"),
    Wrong("13-blocks", "no limits", _answer(limits=(-1000, 1000)), "", "-127 to 127"),
    Wrong("13-blocks", "from -126", _answer(limits=(-126, 127)), "", "-127 to 127"),
    Wrong("13-blocks", "frexp's exponent for a block of zeros", _answer(power=lambda v: np.frexp(v)[1] - 1), "", "zeros"),
    Wrong("13-blocks", "the mean", _answer(largest=lambda blocks: np.abs(blocks).mean(axis=1)), "", ""),
    Wrong("13-blocks", "not rounded", _answer(stored=lambda b, s: (b / s).clip(-6, 6)), "", "E2M1.round_all"),
    Wrong("13-blocks", "not divided", _answer(stored=lambda b, s: E2M1.round_all(b)), "", "Divide by the scale"),
    Wrong("13-blocks", "multiplied", _answer(stored=lambda b, s: E2M1.round_all(b * s)), "", "do not multiply"),
    Wrong("13-blocks", "multiplies the elements by the scale", _answer(stored=lambda b, s: E2M1.round_all(b / s) * s), "", "without the scale"),
    Wrong("13-blocks", "elements first", _answer(result=lambda e, x: (x, e)), "", "one exponent per block"),
    Wrong("13-blocks", "elements only", _answer(result=lambda e, x: x), "", "two arrays"),
    Wrong("13-blocks", "in place", _in_place, "", "belongs to its caller"),
    Wrong("13-blocks", "nothing", lambda x: None, "", "returns nothing"),
    Right("13-blocks", "written with switches", _answer()),
    Right("13-blocks", "by loops", _by_loops),
    Right("13-blocks", "by bits", _by_bits),
    Right("13-blocks", "a list of two", _answer(result=lambda e, x: [e.astype(float), x.astype(np.float32)])),
)
