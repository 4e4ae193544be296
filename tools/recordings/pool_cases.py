"""Unusual calls of CuPy's memory API: each case is a function of the array module.

`run_case` runs one and returns what it said as text without addresses: what it returned, or the
type and the words of its error, what it printed, and what errors could not be raised.
"""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import os
import pickle
import re
import sys
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

CASES: dict[str, Callable[[Any], Any]] = {}
CALLBACKS = [f"{what}_{when}process" for what in ("malloc", "alloc", "free") for when in ("pre", "post")]
SIZES: dict[str, Any] = {
    "-1": -1,
    "1.5": 1.5,
    "0.0": 0.0,
    "-0.5": -0.5,
    "text": "3",
    "None": None,
    "True": True,
    "nan": float("nan"),
    "int64": np.int64(5),
    "float32": np.float32(2.5),
    "bytes": b"3",
    "complex": 1j,
    "array": np.array(7),
    "2**43": 2**43,
    "2**62": 2**62,
    "2**63-1": 2**63 - 1,
    "2**63": 2**63,
    "2**64-512": 2**64 - 512,
    "2**64-511": 2**64 - 511,
    "2**64-1": 2**64 - 1,
    "2**64": 2**64,
    "-2**70": -(2**70),
    "2**70": 2**70,
}
CLASSES = [
    "MemoryPool",
    "MemoryAsyncPool",
    "MemoryPointer",
    "Memory",
    "MemoryAsync",
    "ManagedMemory",
    "UnownedMemory",
    "PinnedMemoryPool",
    "PinnedMemory",
    "PinnedMemoryPointer",
    "MemoryHook",
    "PythonFunctionAllocator",
    "CFunctionAllocator",
    "memory.PooledMemory",
    "memory.SingleDeviceMemoryPool",
    "memory.BaseMemory",
    "memory.OutOfMemoryError",
    "memory.CFunctionAllocatorMemory",
    "memory.PythonFunctionAllocatorMemory",
    "pinned_memory.PooledPinnedMemory",
    "memory_hooks.DebugPrintHook",
    "memory_hooks.LineProfileHook",
]


def case(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    CASES[function.__name__.strip("_")] = function
    return function


def run_case(cp: Any, name: str) -> str:
    """Run a case, and return its result and its warnings as text."""
    unraisable_errors: list[str] = []
    previous_hook = sys.unraisablehook
    sys.unraisablehook = lambda item: unraisable_errors.append(_format_error(item.exc_value))
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            warning_text = remove_addresses(describe_call(lambda: CASES[name](cp)))
            gc.collect()
        finally:
            sys.unraisablehook = previous_hook
    additions = [f"unraisable {item}" for item in unraisable_errors]
    additions += [
        f"warned {w.category.__name__}: {w.message}"
        for w in caught_warnings
        if w.category is not ResourceWarning
    ]
    return "; ".join([warning_text, *map(remove_addresses, additions)])


def describe_call(call: Callable[[], Any]) -> str:
    try:
        return str(call())
    except Exception as error:
        return _format_error(error)


def _format_error(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


def remove_addresses(text: str) -> str:
    """Return a value without addresses, times and paths."""
    text = re.sub(r"0x[0-9a-fA-F]{6,}", "0x", text)
    text = re.sub(r"\b1[34]\d{13}\b|\b\d{14,15}\b", "ADDRESS", text)
    return re.sub(r'[^\s"\'(]*/([\w.]+\.py)', r"\1", text)


def read_figures(pool: Any) -> tuple[int, ...]:
    return pool.used_bytes(), pool.total_bytes(), pool.n_free_blocks(), pool.get_limit()


def _join_results(calls: dict[str, Callable[[], Any]]) -> str:
    return " | ".join(f"{name}: {describe_call(call)}" for name, call in calls.items())


def _measure_block_sizes(cp: Any, make: Callable[[Any], Any], sizes: dict[str, Any] = SIZES) -> str:
    def size_of(value: Any) -> Any:
        pointer = make(value)
        size = (
            pointer.size()
            if callable(getattr(pointer, "size", None))
            else getattr(pointer, "mem", pointer).size
        )
        return bool(pointer.ptr), int(size)

    return _join_results({name: partial(size_of, value) for name, value in sizes.items()})


@case
def pool_sizes(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    return _measure_block_sizes(cp, pool.malloc), read_figures(pool)


@case
def pool_sizes_under_a_limit(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    pool.set_limit(size=4096)
    return _measure_block_sizes(cp, pool.malloc), read_figures(pool)


@case
def pool_sizes_with_a_hook(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    watcher = Watcher(cp)
    with watcher.hook:
        sizes = {name: SIZES[name] for name in ("-1", "2**63", "2**64-511", "2**64", "text")}
        return _measure_block_sizes(cp, pool.malloc, sizes), read_figures(pool), watcher.log


@case
def raw_sizes(cp: Any) -> Any:
    return _measure_block_sizes(cp, cp.cuda.Memory)


@case
def pinned_sizes(cp: Any) -> Any:
    pool = cp.cuda.PinnedMemoryPool()
    return _measure_block_sizes(cp, pool.malloc), pool.n_free_blocks()


@case
def pinned_raw_sizes(cp: Any) -> Any:
    return _measure_block_sizes(cp, cp.cuda.PinnedMemory)


@case
def ordered_sizes(cp: Any) -> Any:
    return _measure_block_sizes(cp, cp.cuda.malloc_async)


@case
def ordered_pool_sizes(cp: Any) -> Any:
    pool = cp.cuda.MemoryAsyncPool()
    return _measure_block_sizes(cp, pool.malloc), describe_call(pool.n_free_blocks)


@case
def managed_sizes(cp: Any) -> Any:
    sizes = {name: size for name, size in SIZES.items() if name not in ("2**43",)}
    return _measure_block_sizes(cp, cp.cuda.malloc_managed, sizes)


@case
def limits(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    limit_arguments: list[dict[str, Any]] = [
        *({"size": size} for size in SIZES.values()),
        *({"fraction": fraction} for fraction in (1.5, -0.1, float("nan"), "0.5", True, 0, np.float32(0))),
        {"size": 1, "fraction": 0.5},
        {"size": 0, "fraction": 0},
        {},
    ]

    def limited(arguments: dict[str, Any]) -> Any:
        pool.set_limit(**arguments)
        return pool.get_limit() if arguments.get("fraction") is not True else "all"

    return _join_results({f"{arguments}": partial(limited, arguments) for arguments in limit_arguments})


@case
def ordered_limits(cp: Any) -> Any:
    pool = cp.cuda.MemoryAsyncPool()

    def limited(arguments: dict[str, Any]) -> Any:
        pool.set_limit(**arguments)
        return pool.get_limit()

    limit_arguments: list[dict[str, Any]] = [
        {"size": 5},
        {"size": 0},
        {"size": -1},
        {"fraction": 2},
        {"size": 1, "fraction": 1},
        {},
    ]
    return _join_results({f"{arguments}": partial(limited, arguments) for arguments in limit_arguments})


@case
def environment_limits(cp: Any) -> Any:
    previous_limit = os.environ.get("CUPY_GPU_MEMORY_LIMIT")

    def with_limit(value: str) -> Any:
        os.environ["CUPY_GPU_MEMORY_LIMIT"] = value
        return (
            cp.cuda.MemoryPool().get_limit() if "%" not in value else bool(cp.cuda.MemoryPool().get_limit())
        )

    try:
        values = ["4096", "0", "", "-1", "50%", "150%", "x", "1e3", "%", " 5 ", "1_000"]
        return _join_results({repr(value): partial(with_limit, value) for value in values})
    finally:
        os.environ.pop("CUPY_GPU_MEMORY_LIMIT")
        if previous_limit is not None:
            os.environ["CUPY_GPU_MEMORY_LIMIT"] = previous_limit


@case
def out_of_memory(cp: Any) -> Any:
    error_class = cp.cuda.memory.OutOfMemoryError
    example_errors = [
        error_class(1, 2),
        error_class(1000, 2000, 3000),
        error_class(1, -1),
        error_class(1, 2, 0),
    ]
    copies = [copy.copy(e) for e in example_errors] + [pickle.loads(pickle.dumps(e)) for e in example_errors]
    class_names = [base_class.__name__ for base_class in error_class.__mro__]
    return (
        [str(e) for e in [*example_errors, *copies]],
        class_names,
        describe_call(lambda: error_class(1)),
        [e.args for e in example_errors],
    )


@case
def out_of_memory_at_the_limit(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    kept_block = pool.malloc(3000)
    freed_block = pool.malloc(5000)
    del freed_block
    pool.set_limit(size=10_000)
    results = [describe_call(partial(pool.malloc, n)) for n in (7000, 6929, 6928, 20_000)]
    return re.sub("<[^>]*>", "POINTER", str(results)), read_figures(pool), kept_block.mem.size


@case
def out_of_memory_of_the_device(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    first_block = pool.malloc(3000)
    return describe_call(lambda: pool.malloc(2**43)), read_figures(pool), first_block.mem.size


@case
def no_room_for_an_array(cp: Any) -> Any:
    pool = cp.get_default_memory_pool()
    pool.free_all_blocks()
    used_before = pool.used_bytes()
    pool.set_limit(size=1 << 20)
    try:
        results = [describe_call(partial(f, (1 << 18) + 1)) for f in (cp.zeros, cp.empty, cp.ones, cp.arange)]
    finally:
        pool.set_limit()
    return results, pool.used_bytes() - used_before


@case
def double_frees(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    block = pool.malloc(600)
    block.mem.free()
    block.mem.free()
    state_after_free = read_figures(pool), block.mem.ptr, block.mem.size, bool(block.ptr)
    second_block = pool.malloc(600)
    del block
    pinned_pool = cp.cuda.PinnedMemoryPool()
    pinned_block = pinned_pool.malloc(600)
    pinned_block.mem.free()
    pinned_block.mem.free()
    return (
        state_after_free,
        read_figures(pool),
        second_block.mem.size,
        pinned_pool.n_free_blocks(),
        pinned_block.mem.ptr,
        pinned_block.mem.size,
    )


@case
def foreign_pointers(cp: Any) -> Any:
    runtime = cp.cuda.runtime
    x = cp.zeros(1000)
    inner_address = x.data.ptr + 512
    host_address = np.zeros(10).ctypes.data
    address = runtime.malloc(100)
    runtime.free(address)
    return _join_results(
        {
            "freed": lambda: runtime.free(address),
            "inside": lambda: runtime.free(inner_address),
            "odd": lambda: runtime.free(inner_address + 3),
            "host": lambda: runtime.free(host_address),
            "made up": lambda: runtime.free(0x1234),
            "negative": lambda: runtime.free(-1),
            "null": lambda: runtime.free(0),
            "text": lambda: runtime.free("x"),
            "host null": lambda: runtime.freeHost(0),
            "host device": lambda: runtime.freeHost(x.data.ptr),
            "host made up": lambda: runtime.freeHost(0x1234),
            "async freed": lambda: runtime.freeAsync(address, 0),
            "async made up": lambda: runtime.freeAsync(0x1234, 0),
            "async null": lambda: runtime.freeAsync(0, 0),
        }
    )


@case
def pointers(cp: Any) -> Any:
    memory = cp.cuda.Memory(1024)
    pointer = cp.cuda.MemoryPointer(memory, 16)
    unowned_class = cp.cuda.UnownedMemory
    return _join_results(
        {
            "kind": lambda: [
                type(memory_object).__name__
                for memory_object in (memory, pointer, pointer.mem, pointer.device)
            ],
            "arithmetic": lambda: [(p.ptr - memory.ptr) for p in (pointer + 4, 4 + pointer, pointer - 4)],
            "int": lambda: int(pointer) == pointer.ptr == int(memory) + 16,
            "no memory": lambda: cp.cuda.MemoryPointer(None, 0),
            "text": lambda: cp.cuda.MemoryPointer("x", 0),
            "an offset into nothing": lambda: cp.cuda.MemoryPointer(cp.cuda.Memory(0), 5),
            "far": lambda: cp.cuda.MemoryPointer(memory, 1 << 40).ptr - memory.ptr,
            "float": lambda: pointer + 1.5,
            "none": lambda: pointer + None,
            "sum": lambda: pointer + pointer,
            "difference": lambda: pointer - pointer,
            "unowned null": lambda: unowned_class(0, 0, None),
            "unowned": lambda: (
                unowned_class(memory.ptr, 8, memory).device_id,
                unowned_class(memory.ptr, 8, memory).size,
            ),
            "unowned negative": lambda: unowned_class(memory.ptr, -1, memory).size,
            "unowned device": lambda: unowned_class(memory.ptr, 8, memory, 7).device_id,
            "set": lambda: setattr(pointer, "ptr", 3),
            "equal": lambda: pointer == cp.cuda.MemoryPointer(memory, 16),
            "hash": lambda: hash(pointer) == hash(cp.cuda.MemoryPointer(memory, 16)),
            "pickle": lambda: pickle.dumps(pointer),
            "pool": lambda: pickle.dumps(cp.cuda.MemoryPool()),
            "weak": lambda: type(cp.cuda.MemoryPool().malloc(1).mem.pool).__name__,
            "identity": lambda: [
                cp.cuda.MemoryPool(m).malloc(1).mem.identity
                for m in (
                    None,
                    cp.cuda.malloc_async,
                    cp.cuda.malloc_managed,
                    cp.cuda.alloc,
                    cp.cuda.MemoryPool().malloc,
                )
            ],
        }
    )


@case
def a_pool_dies_before_its_blocks(cp: Any) -> Any:
    watcher = Watcher(cp)
    with watcher.hook:
        pool = cp.cuda.MemoryPool()
        block = pool.malloc(100)
        del pool
        gc.collect()
        pool_is_gone = block.mem.pool() is None
        block.mem.free()
        address_left = block.mem.ptr
        del block
    return pool_is_gone, address_left, watcher.log


class Watcher:
    """A hook that logs its callbacks, and raises an error in one of them."""

    def __init__(
        self, cp: Any, name: str = "watcher", failing_callback: str = "", log: list[str] | None = None
    ) -> None:
        self.log = log if log is not None else []
        callbacks = {name: self._writer(name, name == failing_callback) for name in CALLBACKS}
        self.hook = type("Watcher", (cp.cuda.MemoryHook,), {"name": name, **callbacks})()
        self.name = name

    def _writer(self, callback: str, is_failing: bool) -> Callable[..., None]:
        def write(hook: Any, **arguments: Any) -> None:
            argument_texts = ",".join(
                f"{k}={v if k.endswith('size') else bool(v)}"
                for k, v in arguments.items()
                if k != "device_id"
            )
            self.log.append(f"{self.name}.{callback}({argument_texts})")
            if is_failing:
                raise ValueError(callback)

        return write


def _log_hooks(cp: Any, failing_callback: str, prepare: Callable[[Any], None], by_hand: bool = False) -> Any:
    hook_log: list[str] = []
    watcher = Watcher(cp, "a", failing_callback, hook_log)
    second_watcher = Watcher(cp, "b", "", hook_log)
    pool = cp.cuda.MemoryPool()
    prepare(pool)
    results = ["-", "-"]
    block = None
    with watcher.hook, second_watcher.hook:
        try:
            block = pool.malloc(1000)
        except Exception as error:
            results[0] = _format_error(error)
        figures_in_hook = read_figures(pool)
        if by_hand and block is not None:
            results[1] = describe_call(block.mem.free)
        block = None
        gc.collect()
    return (
        results,
        hook_log,
        figures_in_hook,
        read_figures(pool),
        describe_call(lambda: bool(pool.malloc(1000).ptr)),
        read_figures(pool),
    )


def _do_nothing(pool: Any) -> None:
    pass


def _cache_block(pool: Any) -> None:
    pool.malloc(4096).mem.free()


def _set_low_limit(pool: Any) -> None:
    pool.set_limit(size=512)


for _failing_callback in CALLBACKS:
    CASES[f"hooks new {_failing_callback}"] = partial(
        _log_hooks, failing_callback=_failing_callback, prepare=_do_nothing
    )
    CASES[f"hooks cached {_failing_callback}"] = partial(
        _log_hooks, failing_callback=_failing_callback, prepare=_cache_block, by_hand=True
    )
    CASES[f"hooks refused {_failing_callback}"] = partial(
        _log_hooks, failing_callback=_failing_callback, prepare=_set_low_limit
    )


@case
def hooks_of_a_device_without_room(cp: Any) -> Any:
    watcher = Watcher(cp)
    pool = cp.cuda.MemoryPool()
    with watcher.hook:
        result = describe_call(lambda: pool.malloc(2**43))
    return result, watcher.log, read_figures(pool)


@case
def hooks_of_other_allocators(cp: Any) -> Any:
    watcher = Watcher(cp)
    with watcher.hook:
        for malloc in (
            cp.cuda.malloc_async,
            cp.cuda.malloc_managed,
            cp.cuda.MemoryAsyncPool().malloc,
            cp.cuda.Memory,
            cp.cuda.alloc_pinned_memory,
            cp.cuda.PinnedMemoryPool().malloc,
        ):
            malloc(10)
        first_log = list(watcher.log)
        inner_pool = cp.cuda.MemoryPool()
        cp.cuda.MemoryPool(inner_pool.malloc).malloc(10)
    return first_log, watcher.log


@case
def hooks_and_names(cp: Any) -> Any:
    hook_log: list[str] = []
    first_watcher = Watcher(cp, "one", "", hook_log)
    second_watcher = Watcher(cp, "two", "", hook_log)
    namesake_watcher = Watcher(cp, "one", "", hook_log)
    hook_type = cp.cuda.MemoryHook
    get_hooks = cp.cuda.memory_hook.get_memory_hooks

    def twice() -> None:
        with first_watcher.hook, namesake_watcher.hook:
            pass

    def crossed() -> Any:
        first_watcher.hook.__enter__()
        second_watcher.hook.__enter__()
        first_watcher.hook.__exit__(None, None, None)
        hooks_left = list(get_hooks())
        second_watcher.hook.__exit__(None, None, None)
        return hooks_left, list(get_hooks())

    def changed_inside() -> Any:
        class Adds(hook_type):  # type: ignore[misc,valid-type]
            name = "adds"

            def malloc_preprocess(self, **arguments: Any) -> None:
                second_watcher.hook.__enter__()

        try:
            with Adds():
                return cp.cuda.MemoryPool().malloc(10).mem.size
        finally:
            get_hooks().clear()

    return _join_results(
        {
            "twice": twice,
            "after": lambda: dict(get_hooks()),
            "crossed": crossed,
            "changed inside": changed_inside,
            "type": lambda: type(get_hooks()).__name__,
            "default name": lambda: hook_type.name,
            "leave without enter": lambda: first_watcher.hook.__exit__(None, None, None),
            "unexpected": lambda: hook_type().malloc_preprocess(3),
            "none": lambda: hook_type().alloc_preprocess(),
        }
    )


@case
def hooks_of_threads(cp: Any) -> Any:
    watcher = Watcher(cp)
    pool = cp.cuda.MemoryPool()
    with watcher.hook:
        blocks: list[Any] = []
        thread = threading.Thread(target=lambda: blocks.append(pool.malloc(10)))
        thread.start()
        thread.join()
        blocks.clear()
    return watcher.log


@case
def debug_print(cp: Any) -> Any:
    printed_text = io.StringIO()
    pool = cp.cuda.MemoryPool()
    with cp.cuda.memory_hooks.DebugPrintHook(file=printed_text):
        block = pool.malloc(24)
        del block
        block = pool.malloc(10)
        del block
        pool.malloc(0)
        describe_call(lambda: pool.malloc(2**43))
    return re.sub(r'("mem_ptr":)\d{2,}', r"\1ADDRESS", printed_text.getvalue())


@case
def debug_print_to_a_closed_file(cp: Any) -> Any:
    closed_text = io.StringIO()
    pool = cp.cuda.MemoryPool()
    closed_text.close()
    with cp.cuda.memory_hooks.DebugPrintHook(file=closed_text, flush=False):
        return describe_call(lambda: pool.malloc(24)), read_figures(pool)


@case
def line_profile(cp: Any) -> Any:
    hook = cp.cuda.memory_hooks.LineProfileHook(max_depth=0)
    pool = cp.cuda.MemoryPool()
    printed_text = io.StringIO()

    def inner(size: int) -> None:
        pool.malloc(size)

    with hook:
        for _ in range(2):
            inner(600)
        inner(1 << 20)
    hook.print_report(file=printed_text)
    lines = [line for line in printed_text.getvalue().splitlines() if "pool_cases" in line or "_root" in line]
    shown_lines = [re.sub(r"(pool_cases\.py):\d+", r"\1:N", line.strip()) for line in lines]
    return [
        line
        for line in shown_lines
        if ":describe_call" not in line and ":run_case" not in line and "<lambda>" not in line
    ]


@case
def line_profile_depth(cp: Any) -> Any:
    reports = []
    for depth in (1, 2, 3, -1):
        hook = cp.cuda.memory_hooks.LineProfileHook(max_depth=depth)
        printed_text = io.StringIO()
        with hook:
            cp.cuda.MemoryPool().malloc(600)
        hook.print_report(printed_text)
        reports.append(len(printed_text.getvalue().splitlines()) if depth > 0 else "all")
    return reports


_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FREE_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


@case
def c_functions(cp: Any) -> Any:
    runtime = cp.cuda.runtime
    logged_calls = []

    def take(param: int, size: int, device_id: int) -> int:
        logged_calls.append(f"take {param} {size} {device_id}")
        return 0 if size == 77 else int(runtime.malloc(size))

    def give(param: int, address: int, device_id: int) -> None:
        logged_calls.append(f"give {param} {device_id}")
        runtime.free(address)

    c_callbacks = _MALLOC(take), _FREE_FUNCTION(give)
    addresses = [ctypes.cast(c_callback, ctypes.c_void_p).value for c_callback in c_callbacks]
    allocator = cp.cuda.CFunctionAllocator(1234, *addresses, c_callbacks)

    def an_array() -> Any:
        with cp.cuda.using_allocator(allocator.malloc):
            x = cp.arange(25, dtype=cp.float32)
            return float(x.sum()), type(x.data.mem).__name__

    def a_pool() -> Any:
        pool = cp.cuda.MemoryPool(allocator.malloc)
        block = pool.malloc(10)
        identity = block.mem.identity
        block.mem.free()
        pool.free_all_blocks()
        return identity, read_figures(pool)

    results = _join_results(
        {
            "array": an_array,
            "pool": a_pool,
            "nothing": lambda: allocator.malloc(0).ptr,
            "negative": lambda: allocator.malloc(-1),
            "null": lambda: allocator.malloc(77).ptr,
            "null from a pool's": lambda: (
                cp.cuda.MemoryPool(
                    cp.cuda.CFunctionAllocator(0, _ZERO_ADDRESSES[0], _ZERO_ADDRESSES[1], None).malloc
                )
                .malloc(10)
                .ptr
            ),
            "wrong arguments": lambda: cp.cuda.CFunctionAllocator("x", 1, 2, None),
            "too few": lambda: cp.cuda.CFunctionAllocator(1),
            "attributes": lambda: allocator._param,
        }
    )
    return results, logged_calls


_ZERO_FUNCTIONS = (
    _MALLOC(lambda param, size, device_id: 0),
    _FREE_FUNCTION(lambda param, address, device_id: None),
)
_ZERO_ADDRESSES = [ctypes.cast(function, ctypes.c_void_p).value for function in _ZERO_FUNCTIONS]


@case
def python_functions(cp: Any) -> Any:
    allocator_class = cp.cuda.PythonFunctionAllocator
    runtime = cp.cuda.runtime
    logged_calls = []

    def give(address: int, device_id: int) -> None:
        logged_calls.append(f"give {bool(address)} {device_id}")

    def raises(*arguments: Any) -> Any:
        raise ValueError("no more of this")

    def answer(value: Any) -> Callable[[], Any]:
        return lambda: allocator_class(lambda size, device_id: value, give).malloc(10).ptr

    def a_pool(value: Any) -> Callable[[], Any]:
        def use() -> Any:
            pool = cp.cuda.MemoryPool(value)
            return describe_call(lambda: pool.malloc(10).ptr), read_figures(pool)

        return use

    return (
        _join_results(
            {
                "none": answer(None),
                "text": answer("x"),
                "float": answer(1.5),
                "negative": answer(-5),
                "zero": answer(0),
                "large": answer(2**63),
                "true": answer(True),
                "int64": answer(np.int64(4096)),
                "raises": lambda: allocator_class(raises, give).malloc(10),
                "free raises": lambda: (
                    allocator_class(lambda size, device_id: 4096, raises).malloc(10).mem.size
                ),
                "arguments": lambda: allocator_class(lambda size: 4096, give).malloc(10),
                "no functions": lambda: allocator_class(1, 2).malloc(10),
                "nothing": lambda: allocator_class(raises, raises).malloc(0).ptr,
                "pool raises": a_pool(raises),
                "pool none": a_pool(lambda size: None),
                "pool int": a_pool(lambda size: 4096),
                "pool text": a_pool("x"),
                "pool zero": a_pool(lambda size: cp.cuda.Memory(0)),
            }
        ),
        logged_calls,
        bool(runtime),
    )


@case
def allocators_that_are_none(cp: Any) -> Any:
    def use(allocator: Any) -> Callable[[], Any]:
        def call() -> Any:
            with cp.cuda.using_allocator(allocator):
                return type(cp.cuda.alloc(10).mem).__name__, cp.zeros(3).sum()

        return call

    def pinned(allocator: Any) -> Callable[[], Any]:
        def call() -> Any:
            cp.cuda.set_pinned_memory_allocator(allocator)
            try:
                return type(cp.cuda.alloc_pinned_memory(10)).__name__
            finally:
                cp.cuda.set_pinned_memory_allocator(cp.get_default_pinned_memory_pool().malloc)

        return call

    return _join_results(
        {
            "None": use(None),
            "int": use(3),
            "returns int": use(lambda size: 5),
            "returns None": use(lambda size: None),
            "no arguments": use(lambda: None),
            "pool itself": use(cp.cuda.MemoryPool()),
            "pinned None": pinned(None),
            "pinned int": pinned(3),
            "pinned returns int": pinned(lambda size: 5),
            "pinned pool": pinned(cp.cuda.PinnedMemoryPool().malloc),
        }
    )


@case
def whose_allocator(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    default_pool = cp.get_default_memory_pool()
    names_seen: list[Any] = []

    def name() -> str:
        allocator = cp.cuda.get_allocator()
        return (
            "pool" if allocator == pool.malloc else "default" if allocator == default_pool.malloc else "other"
        )

    def elsewhere() -> None:
        names_seen.append(name())
        names_seen.append(describe_call(lambda: cp.cuda.set_allocator(pool.malloc)))
        names_seen.append(name())

    def raises() -> None:
        with cp.cuda.using_allocator(pool.malloc):
            raise ValueError("inside")

    def in_a_generator() -> Any:
        def generate() -> Any:
            with cp.cuda.using_allocator(pool.malloc):
                yield name()
                yield name()

        running_generator = generate()
        name_inside = next(running_generator), name()
        running_generator.close()
        return name_inside, name()

    try:
        with cp.cuda.using_allocator(pool.malloc):
            names_seen.append(name())
            with cp.cuda.using_allocator(None):
                names_seen.append(name())
            names_seen += [name(), describe_call(lambda: cp.cuda.set_allocator(None))]
        with cp.cuda.using_allocator(default_pool.malloc):
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            names_seen.append(name())
        names_seen.append(name())
    finally:
        cp.cuda.set_allocator(default_pool.malloc)
    return names_seen, describe_call(raises), name(), in_a_generator()


@case
def ordered_pools(cp: Any) -> Any:
    pool_class = cp.cuda.MemoryAsyncPool
    runtime = cp.cuda.runtime
    return _join_results(
        {
            "create": lambda: pool_class("create"),
            "text": lambda: pool_class("x"),
            "none": lambda: pool_class(None),
            "float": lambda: pool_class(1.5),
            "list": lambda: pool_class(["default"]).get_limit(),
            "empty list": lambda: pool_class([]),
            "two": lambda: pool_class(["default", "default"]).get_limit(),
            "tuple": lambda: pool_class(("current",)).get_limit(),
            "limit": lambda: pool_class().get_limit(),
            "n_free_blocks": lambda: pool_class().n_free_blocks(),
            "free_all_free": lambda: pool_class().free_all_free(),
            "handles": lambda: len(pool_class()._pools),
            "destroy default": lambda: runtime.memPoolDestroy(runtime.deviceGetDefaultMemPool(0)),
            "wrong device": lambda: runtime.deviceGetDefaultMemPool(9),
        }
    )


@case
def deprecated(cp: Any) -> Any:
    pool = cp.cuda.MemoryPool()
    pool.malloc(10).mem.free()
    pool.free_all_free()
    return read_figures(pool), describe_call(lambda: cp.cuda.PinnedMemoryPool().free_all_free())


@case
def pinned_pointers(cp: Any) -> Any:
    memory = cp.cuda.PinnedMemory(1000)
    pointer = cp.cuda.PinnedMemoryPointer(memory, 8)

    def moved() -> Any:
        moved_pointer = pointer + 8
        moved_pointer += 8
        moved_pointer -= 4
        return moved_pointer.ptr - memory.ptr, moved_pointer.size()

    return _join_results(
        {
            "size": lambda: (pointer.size(), memory.size, int(pointer) - int(memory)),
            "buffer": lambda: [
                getattr(memoryview(pointer), k) for k in ("nbytes", "format", "ndim", "readonly", "shape")
            ],
            "arithmetic": lambda: [
                (p.ptr - memory.ptr, p.size()) for p in (pointer + 4, 4 + pointer, pointer - 4)
            ],
            "in place": moved,
            "sum": lambda: pointer + pointer,
            "float": lambda: pointer + 1.5,
            "none": lambda: cp.cuda.PinnedMemoryPointer(None, 0),
            "flags": lambda: bool(cp.cuda.PinnedMemory(8, flags=cp.cuda.runtime.hostAllocMapped).ptr),
            "wrong flags": lambda: cp.cuda.PinnedMemory(8, flags=1 << 20),
            "attributes": lambda: sorted(k for k in vars(cp.cuda.PinnedMemoryPool().malloc(5).mem)),
            "kind": lambda: [type(p).__name__ for p in (cp.cuda.PinnedMemoryPool().malloc(5).mem, memory)],
        }
    )


@case
def public_names(cp: Any) -> Any:
    def names(path: str) -> list[str]:
        namespace = cp.cuda
        for attribute_name in path.split("."):
            namespace = getattr(namespace, attribute_name)
        return [name for name in dir(namespace) if not name.startswith("_")]

    return _join_results({path: partial(names, path) for path in CLASSES})
