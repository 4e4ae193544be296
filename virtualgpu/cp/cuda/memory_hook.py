"""``cp.cuda.memory_hook``: hooks that the memory pool calls on every allocation."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.model import machine as _machine


def get_memory_hooks() -> dict[str, MemoryHook]:
    """Return a dictionary of the calling thread's active memory hooks, in the order of activation."""
    hooks: dict[str, MemoryHook] = _machine.get_thread_state().setdefault("memory_hooks", {})
    return hooks


__getattr__ = make_module_getattr("cp.cuda.memory_hook", globals())


class MemoryHook:
    """Base class of hooks for memory pools. The block ``with hook:`` activates a hook for the current thread.

    A pool calls the hooks of the thread that allocates or frees, in the order in which they were entered,
    with keyword arguments: ``device_id``, ``size`` (requested bytes), ``mem_size`` (bytes rounded up to the
    pool's unit), ``mem_ptr`` (the address, 0 if the call failed) and ``pmem_id`` (number of the allocation,
    0 if the call failed)::

        malloc_preprocess(device_id, size, mem_size)
            alloc_preprocess(device_id, mem_size)              only if no free block fits
            alloc_postprocess(device_id, mem_size, mem_ptr)
        malloc_postprocess(device_id, size, mem_size, mem_ptr, pmem_id)

        free_preprocess(device_id, mem_size, mem_ptr, pmem_id)
        free_postprocess(device_id, mem_size, mem_ptr, pmem_id)

    Raises
    ------
    KeyError
        On entering a hook while another of the same `name` is registered.
    """

    name = "MemoryHook"

    def __enter__(self) -> MemoryHook:
        hooks = get_memory_hooks()
        if self.name in hooks:
            raise KeyError(f"memory hook {self.name} already exists")
        hooks[self.name] = self
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del get_memory_hooks()[self.name]

    def alloc_preprocess(self, **kwargs: Any) -> None:
        """Method that is called before the pool allocates a segment on the device."""

    def alloc_postprocess(self, **kwargs: Any) -> None:
        """Method that is called after the allocation of a device segment has succeeded or failed."""

    def malloc_preprocess(self, **kwargs: Any) -> None:
        """Method that is called before the pool returns a block to the program."""

    def malloc_postprocess(self, **kwargs: Any) -> None:
        """Method that is called after a request for a block has succeeded or failed."""

    def free_preprocess(self, **kwargs: Any) -> None:
        """Method that is called before a block returns to the pool."""

    def free_postprocess(self, **kwargs: Any) -> None:
        """Method that is called after a block has returned to the pool."""
