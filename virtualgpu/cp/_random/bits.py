"""Bit generators: cuRAND's algorithms, with one state per thread of the device."""

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

_BLOCK_SIZE = 256
STRUCT_NAMES = "Philox", "Xorwow", "Mrg"
# CuPy's choice: eight blocks per SM.
_THREADS_PER_SM = 8 * _BLOCK_SIZE


class BitGenerator:
    """Base class of the generators of random bits.

    Parameters
    ----------
    seed : int, sequence of int, numpy.random.SeedSequence, optional
        The same seed produces the same bits; without a seed they differ from run to run.
    """

    def __init__(self, seed: Any = None) -> None:
        self.lock = threading.Lock()
        if isinstance(seed, ndarray):
            seed = seed.get()
        is_sequence = isinstance(seed, np.random.SeedSequence)
        self._seed_seq: Any = seed if is_sequence else np.random.SeedSequence(seed)
        self._current_device_id = _machine.current().current_device_id

    def random_raw(self, size: Any = None, output: bool = True) -> Any:
        """Return an array of random bits."""
        raise NotImplementedError("Not implemented in base BitGenerator")

    def _check_device(self) -> None:
        current_id = _machine.current().current_device_id
        if current_id != self._current_device_id:
            own_id = self._current_device_id
            raise RuntimeError(
                "This Generator state is allocated in a different device: it is on "
                f"device {own_id}, but the current device is {current_id}. Draw numbers within "
                f"`with cp.cuda.Device({own_id}):`, or make a generator on each device."
            )


class CurandGenerator(BitGenerator):
    """A generator of random bits with `size` states. By default, `size` is the number of threads in eight
    blocks per SM.

    Element e of an array comes from state e modulo `size`, so an array with more elements than states
    differs from GPU to GPU.
    """

    _state_dtype: ClassVar[np.dtype[Any]]
    _struct_name: ClassVar[str]

    def __init__(self, seed: Any = None, *, size: int = -1) -> None:
        super().__init__(seed)
        self._seed = int(self._seed_seq.generate_state(1, np.uint32)[0])
        if size < 0:
            size = _THREADS_PER_SM * _machine.current().current_device.info.sm_count
        if size % _BLOCK_SIZE or not size:
            raise ValueError(
                f"size={size!r} is not valid. Pass a positive multiple of {_BLOCK_SIZE}. The kernels run in "
                f"blocks of {_BLOCK_SIZE} threads, and each thread needs a state. CuPy does not check the "
                "size, and its threads without a state access memory out of bounds."
            )
        self._state_count = size
        self._filled_state_count = 0
        zero_bytes = np.zeros(size * self._get_type_size(), np.int8)
        self._state_memory = ndarray._from_library_kernel("init_curand", zero_bytes, lambda: zero_bytes)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(device {self._current_device_id}, {self._state_count:,} threads' states)"
        )

    def __reduce__(self) -> Any:
        raise TypeError(
            f"A {type(self).__name__} cannot be pickled or copied; CuPy does not support "
            "it either. To continue from a state later, keep its bytes with kept = "
            "bits._state.get(), and write them back with bits._state.set(kept)."
        )

    def random_raw(self, size: Any = None, output: bool = True) -> ndarray | None:
        """Return an array of random bits, 32 bits in each element."""
        out = empty(() if size is None else size, np.int32)
        self._launch_draw("random_raw", out)
        return out if output else None

    def state(self) -> int:
        """Return the device address of the generator's states."""
        self._check_device()
        return int(self._state.data.ptr)

    @staticmethod
    def _initial_states(seed: int, threads: int) -> Any:
        """Return the initial states of the generator's first `threads` threads."""
        raise NotImplementedError

    @property
    def _state(self) -> ndarray:
        """An array with the states of all threads, as bytes."""
        self._fill_states(self._state_count)
        return self._state_memory

    @_state.setter
    def _state(self, states: ndarray) -> None:
        self._state_memory = states
        self._filled_state_count = self._state_count

    def _fill_states(self, thread_count: int) -> None:
        """Initialize the states of the first `thread_count` threads, since small arrays need few states."""
        if thread_count > self._filled_state_count:
            begin_byte = self._filled_state_count * self._get_type_size()
            end_byte = thread_count * self._get_type_size()
            state_bytes = self._initial_states(self._seed, thread_count).view(np.int8)
            self._state_memory._host[begin_byte:end_byte] = state_bytes[begin_byte:]
            self._filled_state_count = thread_count

    def _get_state_size(self) -> int:
        return self._state_count

    def _get_type_size(self) -> int:
        return self._state_dtype.itemsize

    def _launch_draw(self, kernel_name: str, out: ndarray, maximum: int = 0) -> None:
        """Launch a kernel that fills `out` with random numbers, integers with values from 0 to `maximum`."""
        self._check_device()
        if not out.size:
            return
        value_mask = (1 << maximum.bit_length()) - 1
        block_count = -(-min(out.size, self._state_count) // _BLOCK_SIZE)
        self._fill_states(block_count * _BLOCK_SIZE)
        maximum_and_mask = np.uint64(maximum), np.uint64(value_mask)
        draw_kernel = _compile_random_module(self._struct_name).get_function(kernel_name)
        draw_kernel(
            (block_count,),
            (_BLOCK_SIZE,),
            (self._state_memory, self._state_count, out, out.size, *maximum_and_mask),
        )


class Philox4x3210(CurandGenerator):
    """The counter-based generator Philox4x32-10. The generator produces the same numbers as cuRAND's device
    API.
    """

    _state_dtype = states.PHILOX_DTYPE
    _struct_name = "Philox"
    _initial_states = staticmethod(states.make_philox_states)


class XORWOW(CurandGenerator):
    """CuPy's default generator XORWOW. The generator produces the same numbers as cuRAND's device API."""

    _state_dtype = states.XORWOW_DTYPE
    _struct_name = "Xorwow"
    _initial_states = staticmethod(states.make_xorwow_states)


class MRG32k3a(CurandGenerator):
    """The combined multiple recursive generator MRG32k3a. The generator produces the same numbers as cuRAND's
    device API.
    """

    _state_dtype = states.MRG32K3A_DTYPE
    _struct_name = "Mrg"
    _initial_states = staticmethod(states.make_mrg_states)


def load_source(struct_name: str) -> tuple[str, tuple[str, ...]]:
    """Return the CUDA C++ source of the random kernels, with compiler options for one state type."""
    source_code = (Path(__file__).parent / "draws.cu").read_text(encoding="utf-8")
    return source_code, (f"-DSTATE={struct_name}",)


@functools.lru_cache(maxsize=8)
def _compile_random_module(struct_name: str) -> Any:
    # Imported here because launches need arrays, and the module of arrays imports random numbers.
    from virtualgpu.cp._core.raw_kernel import RawModule

    source_code, options = load_source(struct_name)
    return RawModule(code=source_code, options=options)
