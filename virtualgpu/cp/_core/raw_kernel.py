"""``RawKernel`` and ``RawModule`` of the virtual GPU, with CuPy's interface.

Both compile at their first use, as CuPy does. A launch runs at once on the host and adds its modelled time
to the stream's clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from virtualgpu.cp.cuda._memory.pointer import MemoryPointer, UnownedMemory
from virtualgpu.cp.cuda.function import Function, Module
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.errors import NotSupportedError
from virtualgpu.launch.compiled import CompiledModule, compile_module
from virtualgpu.launch.launch import Launch
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records import KernelStats


class RawKernel:
    """A kernel that is written in CUDA C++.

    Parameters
    ----------
    code : str
        CUDA C++ source.
    name : str
        The kernel's name in the source (``extern "C"``), or its mangled name.
    options : tuple of str
        NVRTC options, such as ``("-DN=16",)``.
    backend : str
        Only ``"nvrtc"``.
    translate_cucomplex, jitify : bool
        Not supported by the virtual GPU.
    enable_cooperative_groups : bool
        Check that all blocks fit on the device at once, as a grid-wide barrier needs.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
    ) -> None:
        _check_source(code, options, backend, translate_cucomplex, jitify)
        if not isinstance(name, str):
            raise TypeError(f"A kernel's name must be a str, not {type(name).__name__}.")
        self.code = code
        self.name = name
        self.options = options
        self.backend = backend
        self.enable_cooperative_groups = bool(enable_cooperative_groups)
        self.file_path: str | None = None
        self.name_expressions: tuple[str, ...] = ()
        self._compile_from_file: Callable[[], CompiledModule] | None = None
        self._functions_by_device: WeakKeyDictionary[VirtualDevice, Function] = WeakKeyDictionary()
        self._carveout_percent = -1

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        *,
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Launch the kernel on the current device.

        Two rules are CuPy's own: sizes below 1 count as 1, so that a grid for no elements has one
        block; and a cooperative grid of one dimension shrinks, with a warning, until it fits.

        Parameters
        ----------
        grid, block : tuple of int
            Blocks in the grid and threads in a block, up to three dimensions each.
        args : tuple
            One value per parameter: device arrays, NumPy scalars, Python ints (and floats for
            ``double``).
        shared_mem : int
            Dynamic shared memory per block in bytes.
        stream : Stream, optional
            The current stream by default.

        Raises
        ------
        CUDADriverError
            If the device's limits forbid the launch.
        KernelFault
            If the kernel does something illegal; the message names line, block and thread.
        TypeError, ValueError
            If the arguments do not fit the kernel's parameters.
        """
        is_cooperative = self.enable_cooperative_groups or enable_cooperative_groups
        launch = Launch.as_cupy(self, grid, block, args, shared_mem)
        self.kernel.submit(launch, stream, is_cooperative)

    def __getitem__(self, shape: Any) -> Any:
        raise TypeError(
            f"Launch a RawKernel with {self.name}((blocks,), (threads,), (arguments)). CuPy does not have "
            "the form kernel[blocks, threads](...), which belongs to Numba."
        )

    def compile(self, log_stream: Any = None) -> None:
        """Compile the kernel now instead of at its first launch. NVRTC's warnings are written to
        `log_stream`.
        """
        module = self._compile_module()
        module.symbol(self.name)
        if log_stream is not None:
            module.write_log(log_stream)

    @property
    def stats(self) -> KernelStats:
        """Registers and memory that the compiled kernel uses on the current device."""
        module = self._compile_module()
        return module.stats(module.symbol(self.name), _machine.current().current_device.info)

    @property
    def num_regs(self) -> int:
        """Number of registers per thread, as chosen by ptxas."""
        return self.stats.registers_per_thread

    @property
    def shared_size_bytes(self) -> int:
        """Size of the kernel's static shared memory per block, in bytes."""
        return self.stats.static_shared_bytes

    @property
    def local_size_bytes(self) -> int:
        """Size of the kernel's local memory per thread in bytes, including the stack frame and spills."""
        return self.stats.local_bytes

    @property
    def const_size_bytes(self) -> int:
        """Size of the module's ``__constant__`` memory, in bytes."""
        return self.stats.constant_bytes

    @property
    def max_threads_per_block(self) -> int:
        """Maximum number of threads per block for a launch of this kernel."""
        return self.stats.max_threads_per_block

    @property
    def binary_version(self) -> int:
        """Compute capability of the kernel's machine code, as a number such as 90."""
        return self._compile_module().target

    ptx_version = binary_version

    @property
    def cache_mode_ca(self) -> int:
        return 0

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Maximum dynamic shared memory of a launch, in bytes. A kernel that uses more than 48 KiB must set
        this attribute.
        """
        return self.get_max_dynamic_bytes(_machine.current().current_device)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size_bytes: int) -> None:
        self.kernel.max_dynamic_shared_bytes = size_bytes

    def get_max_dynamic_bytes(self, device: VirtualDevice) -> int:
        """Return the maximum dynamic shared memory of a launch on a given device, in bytes."""
        return self._load_function(device).max_dynamic_shared_bytes

    @property
    def preferred_shared_memory_carveout(self) -> int:
        """Preferred percentage of the L1 cache for use as shared memory, or -1 for the driver's choice.

        The virtual GPU stores the value but does not use it.
        """
        return self._carveout_percent

    @preferred_shared_memory_carveout.setter
    def preferred_shared_memory_carveout(self, percent: int) -> None:
        if not -1 <= percent <= 100:
            raise CUDADriverError(
                1,
                "CUDA_ERROR_INVALID_VALUE",
                f"invalid argument: the carveout is {percent}, but it must be -1 or between 0 and 100.",
            )
        self._carveout_percent = int(percent)

    @property
    def attributes(self) -> dict[str, int]:
        """Attributes of the kernel as a dictionary with CuPy's attribute names."""
        attribute_names = (
            "max_threads_per_block",
            "shared_size_bytes",
            "const_size_bytes",
            "local_size_bytes",
            "num_regs",
            "ptx_version",
            "binary_version",
            "cache_mode_ca",
            "max_dynamic_shared_size_bytes",
            "preferred_shared_memory_carveout",
        )
        return {attribute_name: getattr(self, attribute_name) for attribute_name in attribute_names}

    @property
    def kernel(self) -> Function:
        """The compiled kernel, loaded on the current device."""
        return self._load_function(_machine.current().current_device)

    def _load_function(self, device: VirtualDevice) -> Function:
        if device not in self._functions_by_device:
            module = self._compile_module(device)
            module.warn()
            self._functions_by_device[device] = Module.from_compiled(module, device).get_function(self.name)
        return self._functions_by_device[device]

    def __getstate__(self) -> dict[str, Any]:
        attribute_names = (
            "code",
            "name",
            "options",
            "backend",
            "enable_cooperative_groups",
            "name_expressions",
        )
        return {name: getattr(self, name) for name in attribute_names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        expressions = state.pop("name_expressions")
        self.__init__(**state)  # type: ignore[misc]
        self.name_expressions = expressions

    def _compile_module(self, device: VirtualDevice | None = None) -> CompiledModule:
        if self._compile_from_file is not None:
            return self._compile_from_file()
        info = (device or _machine.current().current_device).info
        return compile_module(self.code, self.options, self.name_expressions, info.compute_capability)

    def __repr__(self) -> str:
        return f"<RawKernel {self.name!r} on {_machine.current().current_device.info.as_virtual.device}>"


class RawModule:
    """A module of kernels, templates and ``__device__`` variables, from CUDA C++ source or a PTX file.

    Parameters
    ----------
    code : str
        CUDA C++ source.
    path : str
        A file of PTX, or a fat binary that contains PTX, in place of `code`.
    options : tuple of str
        NVRTC options.
    backend : str
        Only ``"nvrtc"``.
    name_expressions : sequence of str
        Template instantiations to compile, such as ``["scale<float>"]``.
    """

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | None = None,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Sequence[str] | None = None,
        jitify: bool = False,
    ) -> None:
        if (code is None) == (path is None):
            raise TypeError("Exactly one of `code` and `path` keyword arguments should be given.")
        if path is not None and not isinstance(path, str):
            raise TypeError(
                f"Argument 'path' has incorrect type (expected str, got {type(path).__name__}). "
                "Pass str(path)."
            )
        if isinstance(name_expressions, str):
            raise TypeError(f"`name_expressions` must be a sequence of str. Write [{name_expressions!r}].")
        _check_source(code or "", options, backend, translate_cucomplex, jitify)
        self.code = code
        self.options = options
        self.backend = backend
        self.enable_cooperative_groups = bool(enable_cooperative_groups)
        self.file_path = path
        self._modules_by_device: WeakKeyDictionary[VirtualDevice, CompiledModule] = WeakKeyDictionary()
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)

    def compile(self, log_stream: Any = None) -> None:
        """Compile the module now instead of at its first use, and write NVRTC's warnings to `log_stream`."""
        module = self._compile_module()
        if log_stream is not None:
            module.write_log(log_stream)

    def get_function(self, name: str) -> RawKernel:
        """Return a kernel of the module by its name. A template is identified by its name expression.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_NOT_FOUND``, with the names of the module's kernels.
        """
        kernel_symbol = self._compile_module().symbol(name)
        kernel = RawKernel(
            self.code or "",
            kernel_symbol,
            self.options,
            self.backend,
            enable_cooperative_groups=self.enable_cooperative_groups,
        )
        kernel.name_expressions = self.name_expressions or ()
        if self.file_path is not None:
            kernel.file_path = self.file_path
            kernel._compile_from_file = self._compile_module
        return kernel

    def get_global(self, name: str) -> MemoryPointer:
        """Return a pointer to a ``__device__`` or ``__constant__`` variable.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_NOT_FOUND``, if there is no such variable.
        """
        device = _machine.current().current_device
        address, size_bytes = Module.from_compiled(self._compile_module(), device).find_variable(name)
        return MemoryPointer(UnownedMemory(address, size_bytes, self, device.id), 0)

    def _compile_module(self) -> CompiledModule:
        device = _machine.current().current_device
        info = device.info
        if self.code is None:
            if device not in self._modules_by_device:
                module = Module()
                module.load_file(str(self.file_path))
                self._modules_by_device[device] = module.compiled
            return self._modules_by_device[device]
        return compile_module(self.code, self.options, self.name_expressions or (), info.compute_capability)

    def __repr__(self) -> str:
        if self.code is None:
            return f"<RawModule of {self.file_path}>"
        return f"<RawModule of {len(self.code.splitlines())} lines>"


def _check_source(code: Any, options: Any, backend: str, translate_cucomplex: bool, jitify: bool) -> None:
    if not isinstance(code, str):
        raise TypeError(f"`code` must be CUDA C++ source as a str, not {type(code).__name__}.")
    if not isinstance(options, tuple):
        raise TypeError(
            f"Argument 'options' has incorrect type (expected tuple, got {type(options).__name__}). Write "
            "it as a tuple of str, such as ('-DN=16',)."
        )
    if not all(isinstance(option, str) for option in options):
        raise TypeError(f"`options` must be a tuple of str, such as ('-DN=16',), not {options!r}.")
    if backend != "nvrtc":
        raise NotSupportedError(
            f"The virtual GPU compiles only with NVRTC and does not support backend={backend!r}. Pass "
            "backend='nvrtc'."
        )
    if translate_cucomplex or jitify:
        raise NotSupportedError(
            "The virtual GPU supports neither translate_cucomplex nor jitify. Include "
            "the CUDA headers in the source instead."
        )
