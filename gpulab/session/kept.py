"""A launch that can be repeated, each time with the contents that its arrays had before it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.session import current
from gpulab.words import size
from virtualgpu.errors import GpulabError
from virtualgpu.launch.copies import count_array_bytes, view_array_memory
from virtualgpu.protocol import Launch

# The contents of arrays that the launches of a session may keep in the host's memory, all together.
MAX_KEPT_BYTES = 256 << 20

_TOO_LARGE_MESSAGE = (
    "The arrays of this launch take {}, and gpulab copies at most {} so that a launch can be observed again. "
    "Call the function with the kernel instead, as in gl.count(kernel, grid, block, args): it starts from "
    "the arrays as they are now."
)
_DROPPED_MESSAGE = (
    "The copies of this launch's arrays have been deleted, because gpulab keeps at most "
    "{} of copies, for the latest launches. Run the cell of the launch again."
)


class KeptLaunch:
    """A kernel launch, with copies of its arrays' contents from before the launch.

    The copies are stored in host memory. The copies of all launches in a session have at most
    `MAX_KEPT_BYTES`, and the oldest copies are dropped first. The arrays themselves are not kept alive.
    Memory that a kernel reaches through addresses in numbers, structs or ``__device__`` variables is not
    copied.
    """

    def __init__(self, launch: Launch) -> None:
        current.check_not_capturing(launch)  # a copy would end the capture with an error
        self._session_context = current.bind_current_device()
        self._arguments = current.store_arguments(launch.args)
        self.launch = replace(launch, args=())
        self.contents = _ArrayContents(launch)

    @contextmanager
    def with_current_contents(self) -> Iterator[Launch]:
        """Yield the launch with the current contents of its arrays.

        Raises
        ------
        GpulabError
            If the arrays no longer exist, or another device is in use.
        """
        with self._session_context():
            yield replace(self.launch, args=self._arguments.find_current())

    @contextmanager
    def with_initial_contents(self) -> Iterator[Launch]:
        """Yield the launch with the array contents from before it ran. The present contents are restored
        afterwards.

        Raises
        ------
        GpulabError
            If the arrays no longer exist, their contents are not kept, or another device is in use.
        """
        with self.with_current_contents() as launch:
            saved_arrays = self.contents.saved_arrays
            if saved_arrays is None:
                raise GpulabError(self.contents.missing_reason)
            with launch.on_stream():
                present_contents = _read_contents(launch)
                _write_contents(launch, saved_arrays)
            try:
                yield launch
            finally:
                with launch.on_stream():
                    _write_contents(launch, present_contents)

    def drop(self) -> None:
        """Free the copies of the array contents. The launch cannot be repeated afterwards."""
        self.contents.drop()


class _ArrayContents:
    """The saved contents of a launch's arrays in host memory; ``saved_arrays`` is None if not kept."""

    def __init__(self, launch: Launch) -> None:
        self.size_bytes = count_array_bytes(launch.args, current.cp())
        self.saved_arrays: list[npt.NDArray[np.uint8]] | None = None
        self.missing_reason = _TOO_LARGE_MESSAGE.format(size(self.size_bytes), size(MAX_KEPT_BYTES))
        if self.size_bytes <= MAX_KEPT_BYTES:
            self._drop_oldest_contents()
            with launch.on_stream():
                self.saved_arrays = _read_contents(launch)

    def drop(self) -> None:
        """Free the copies of the array contents."""
        if self.saved_arrays is not None:
            self.saved_arrays = None
            self.missing_reason = _DROPPED_MESSAGE.format(size(MAX_KEPT_BYTES))

    def _drop_oldest_contents(self) -> None:
        """Drop the contents of the oldest launches until there is enough memory for these contents."""
        contents_references = current.list_kept_contents()
        contents_alive = [
            launch_contents
            for reference in contents_references
            if (launch_contents := reference()) is not None
        ]
        while (
            sum(launch_contents.size_bytes for launch_contents in contents_alive) + self.size_bytes
            > MAX_KEPT_BYTES
        ):
            contents_alive.pop(0).drop()
        contents_references[:] = [weakref.ref(launch_contents) for launch_contents in (*contents_alive, self)]


def _read_contents(launch: Launch) -> list[npt.NDArray[np.uint8]]:
    """Copy the contents of the arrays to the host. On a virtual GPU, this copy is not recorded."""
    machine = current.find_virtual_machine()
    launch_arrays = view_array_memory(launch.args, current.cp())
    if machine is None:
        return [array.get() for array in launch_arrays]
    return [_view_array_bytes(machine, array).copy() for array in launch_arrays]


def _write_contents(launch: Launch, saved_contents: list[npt.NDArray[np.uint8]]) -> None:
    """Copy the saved contents back into the arrays."""
    machine = current.find_virtual_machine()
    for array, saved_bytes in zip(view_array_memory(launch.args, current.cp()), saved_contents, strict=True):
        if machine is None:
            array.set(saved_bytes)
        else:
            _view_array_bytes(machine, array)[:] = saved_bytes


def _view_array_bytes(machine: Any, array: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array on a virtual device as a NumPy array that shares its memory."""
    bytes_view: npt.NDArray[np.uint8] = machine.devices[array.device.id].memory.view(
        array.data.ptr, array.nbytes
    )
    return bytes_view
