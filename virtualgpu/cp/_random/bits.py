"""Where random bits come from: cuRAND's generators, a state for each thread of the device."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp._random import states
from virtualgpu.cp._routines.creation import empty
from virtualgpu.model import machine as _machine

_BLOCK = 256
STRUCTS = "Philox", "Xorwow", "Mrg"
# CuPy's own choice: eight blocks an SM.
_THREADS_PER_SM = 8 * _BLOCK


class BitGenerator:
    """What bit generators have in common.

    Parameters
    ----------
    seed : int, sequence of int, numpy.random.SeedSequence, optional
        The same seed gives the same bits; without one they differ from run to run.
    """

    def __init__(self, seed: Any = None) -> None:
        self.lock = threading.Lock()
        if isinstance(seed, ndarray):
            seed = seed.get()
        known = isinstance(seed, np.random.SeedSequence)
        self._seed_seq: Any = seed if known else np.random.SeedSequence(seed)
        self._current_device_id = _machine.current().current_device_id

    def random_raw(self, size: Any = None, output: bool = True) -> Any:
        """Random bits."""
        raise NotImplementedError("Not implemented in base BitGenerator")

    def _check_device(self) -> None:
        here = _machine.current().current_device_id
        if here != self._current_device_id:
            own = self._current_device_id
            raise RuntimeError(
                "This Generator state is allocated in a different device: it lies on device "
                f"{own}, and device {here} is the current one. Draw within `with cp.cuda.Device({own}):`, or "
                "make a generator on each device."
            )


class CurandGenerator(BitGenerator):
    """A bit generator with a state for each of `size` threads, eight blocks of 256 for each SM by default.

    Element e of an array comes from state e modulo `size`: arrays with more elements than that differ from
    GPU to GPU.
    """

    _layout: ClassVar[np.dtype[Any]]
    _struct: ClassVar[str]

    def __init__(self, seed: Any = None, *, size: int = -1) -> None:
        super().__init__(seed)
        self._seed = int(self._seed_seq.generate_state(1, np.uint32)[0])
        if size < 0:
            size = _THREADS_PER_SM * _machine.current().current_device.info.sm_count
        if size % _BLOCK or not size:
            raise ValueError(
                f"size={size!r}: take a multiple of {_BLOCK}. The kernels run in blocks of {_BLOCK} threads, "
                "each of which has a state; CuPy does not check this, and its threads without one work on "
                "memory that is not theirs."
            )
        self._size = size
        self._filled = 0
        blank = np.zeros(size * self._type_size(), np.int8)
        self._memory = ndarray._computed("init_curand", blank, lambda: blank)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(device {self._current_device_id}, {self._size:,} threads' states)"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"A {type(self).__name__} cannot be pickled or copied, and CuPy's cannot. What it needs to go on "
            "are the bytes of its states: keep bits._state.get(), and write them back with "
            "bits._state.set(kept)."
        )

    def random_raw(self, size: Any = None, output: bool = True) -> ndarray | None:
        """Random bits, 32 of them in each element."""
        out = empty(() if size is None else size, np.int32)
        self._draw("random_raw", out)
        return out if output else None

    def state(self) -> int:
        """Address of the states in the device's memory."""
        self._check_device()
        return int(self._state.data.ptr)

    @staticmethod
    def _first(seed: int, threads: int) -> Any:
        """States of the first threads."""
        raise NotImplementedError

    @property
    def _state(self) -> ndarray:
        """All states, as bytes."""
        self._fill(self._size)
        return self._memory

    @_state.setter
    def _state(self, states: ndarray) -> None:
        self._memory = states
        self._filled = self._size

    def _fill(self, threads: int) -> None:
        """See to the states of the first `threads`: a small array needs few of a quarter of a million."""
        if threads > self._filled:
            begin = self._filled * self._type_size()
            end = threads * self._type_size()
            self._memory._host[begin:end] = self._first(self._seed, threads).view(np.int8)[begin:]
            self._filled = threads

    def _state_size(self) -> int:
        return self._size

    def _type_size(self) -> int:
        return self._layout.itemsize

    def _draw(self, kernel: str, out: ndarray, most: int = 0) -> None:
        """Fill `out`; numbers from an interval are 0 to `most`."""
        self._check_device()
        if not out.size:
            return
        mask = (1 << most.bit_length()) - 1
        blocks = -(-min(out.size, self._size) // _BLOCK)
        self._fill(blocks * _BLOCK)
        bounds = np.uint64(most), np.uint64(mask)
        launch = _kernels(self._struct).get_function(kernel)
        launch((blocks,), (_BLOCK,), (self._memory, self._size, out, out.size, *bounds))


class Philox4x3210(CurandGenerator):
    """Philox4x32-10, a counter-based generator: the numbers of cuRAND's device API."""

    _layout = states.PHILOX
    _struct = "Philox"
    _first = staticmethod(states.philox)


class XORWOW(CurandGenerator):
    """XORWOW, CuPy's default: the numbers of cuRAND's device API."""

    _layout = states.XORWOW
    _struct = "Xorwow"
    _first = staticmethod(states.xorwow)


class MRG32k3a(CurandGenerator):
    """MRG32k3a, a combined multiple recursive generator: the numbers of cuRAND's device API."""

    _layout = states.MRG32K3A
    _struct = "Mrg"
    _first = staticmethod(states.mrg32k3a)


def source(struct: str) -> tuple[str, tuple[str, ...]]:
    """CUDA C++ of the kernels that draw from one kind of state, and its options."""
    code = (Path(__file__).parent / "draws.cu").read_text(encoding="utf-8")
    return code, (f"-DSTATE={struct}",)


@functools.lru_cache(maxsize=8)
def _kernels(struct: str) -> Any:
    # Launching leans on arrays, and these come with random numbers.
    from virtualgpu.cp._core.raw_kernel import RawModule

    code, options = source(struct)
    return RawModule(code=code, options=options)
