"""``cp.cuda.function``: modules that are loaded on a device, and their kernels."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from virtualgpu.compile import nvrtc as _nvrtc
from virtualgpu.compile.ptx.parser import parse_cached
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda.stream import get_current_stream
from virtualgpu.cuda_errors import CUDADriverError
from virtualgpu.errors import NotSupportedError, PtxError
from virtualgpu.launch.compiled import CompiledModule
from virtualgpu.launch.launch import Launch
from virtualgpu.launch.prepare import prepare_launch
from virtualgpu.launch.ptx_module import load_ptx_module
from virtualgpu.model import machine as _machine
from virtualgpu.model.machine import VirtualDevice
from virtualgpu.records import KernelStats
from virtualgpu.records.device import images

__all__ = ["Function", "Module"]

# The PTX ISA of the CUDA release that the virtual GPU follows, used if there is no compiler.
_MINIMUM_ISA = (9, 0)


class LoadedObjects(WeakValueDictionary[int, Any]):
    """A dictionary that maps handles to the loaded modules and functions of one machine. The dictionary
    contains only weak references.
    """


def get_loaded_object(handle: int, expected_class: type, type_name: str) -> Any:
    """Return the loaded module or function with a given handle.

    Raises
    ------
    CUDADriverError
        Status 400, ``CUDA_ERROR_INVALID_HANDLE``.
    """
    loaded_code = _machine.current().get_component(LoadedObjects).get(handle)
    if not isinstance(loaded_code, expected_class):
        raise CUDADriverError(
            400,
            "CUDA_ERROR_INVALID_HANDLE",
            f"invalid resource handle: {handle:#x} is not the handle of a live {type_name}.",
        )
    return loaded_code


class Module:
    """A module that is loaded on a device, with its kernels and ``__device__`` variables. The attribute
    ``ptr`` is its handle.
    """

    def __init__(self) -> None:
        self.ptr = 0
        self.mapping: dict[str, str] | None = None
        self._compiled: CompiledModule | None = None
        self._device: weakref.ref[VirtualDevice] | None = None

    @classmethod
    def from_compiled(cls, compiled: CompiledModule, device: VirtualDevice) -> Module:
        """Load compiled code on a device, and return it as a module."""
        module = cls()
        module._compiled = compiled
        # A weak reference, since the device keeps its machine and thereby the memory of all arrays alive.
        module._device = weakref.ref(device)
        module.ptr = id(module)
        device.machine.get_component(LoadedObjects)[module.ptr] = module
        return module

    @property
    def compiled(self) -> CompiledModule:
        """The compiled code of the module. Access raises an error if no code has been loaded."""
        if self._compiled is None:
            raise CUDADriverError(
                400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle: call load(ptx) first."
            )
        return self._compiled

    @property
    def device(self) -> VirtualDevice:
        """The device that the module is loaded on."""
        device = self._device() if self._device else None
        if device is None:
            raise CUDADriverError(
                400,
                "CUDA_ERROR_INVALID_HANDLE",
                "invalid resource handle: the module was loaded on a device that is no "
                "longer in use. Load it again.",
            )
        return device

    def load(self, cubin: bytes) -> None:
        """Load PTX text on the current device, or a fat binary (as bytes) that contains PTX.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_INVALID_PTX`` (218), also for PTX of another device;
            ``CUDA_ERROR_UNSUPPORTED_PTX_VERSION`` (222) for a newer version than the compiler's;
            ``CUDA_ERROR_NO_BINARY_FOR_GPU`` (209) for machine code, or a file, with nothing for this
            device; ``CUDA_ERROR_INVALID_IMAGE`` (200) for a damaged file.
        NotSupportedError
            For machine code that a real device would accept.
        """
        device = _machine.current().current_device
        major, minor = device.info.compute_capability
        images_in_file = images.find_parts(cubin)
        if not images_in_file and cubin.startswith((images.ELF_MAGIC, images.FAT_BINARY_MAGIC)):
            raise CUDADriverError(
                200,
                "CUDA_ERROR_INVALID_IMAGE",
                f"device kernel image is invalid: these {len(cubin):,} bytes begin like a "
                "cubin or a fat binary, but the file is incomplete. Copy or build the "
                "file again.",
            )
        image = images.choose_part(images_in_file, (major, minor))
        if (
            images_in_file
            and image is None
            and images_in_file[0].kind == "PTX"
            and images_in_file[0].data is cubin
        ):
            # PTX alone is compiled, which fails; in a file it is skipped (tested on an H200).
            first_image = images_in_file[0]
            raise CUDADriverError(
                218,
                "CUDA_ERROR_INVALID_PTX",
                "a PTX JIT compilation failed: the PTX is for "
                f"sm_{first_image.number}{first_image.suffix}, but the {device.info.name} "
                f"is sm_{major}{minor}.",
            )
        if images_in_file and image is None:
            target_names = " and ".join(
                f"{file_image.kind} for sm_{file_image.number}{file_image.suffix}"
                for file_image in images_in_file
            )
            raise CUDADriverError(
                209,
                "CUDA_ERROR_NO_BINARY_FOR_GPU",
                "no kernel image is available for execution on the device: the file "
                f"contains {target_names}, but the {device.info.name} is sm_{major}{minor}.",
            )
        if cubin.startswith(images.ELF_MAGIC) or (image is not None and image.kind == "cubin"):
            raise NotSupportedError(
                "A real device could run this machine code, but the virtual GPU cannot. Load PTX instead."
            )
        if image is not None and not image.data:
            raise NotSupportedError(
                "This PTX is compressed, and the virtual GPU cannot read it. Compile it "
                "with nvcc --no-compress."
            )
        ptx_text = (image.data if image else cubin).rstrip(b"\0").decode(errors="replace")
        try:
            module = parse_cached(ptx_text)
        except PtxError as error:
            raise CUDADriverError(
                218, "CUDA_ERROR_INVALID_PTX", f"a PTX JIT compilation failed: {error}"
            ) from error
        version = module.version
        isa_version = tuple(int(number_text) for number_text in version.split("."))
        if isa_version > _find_newest_isa():
            newest_isa_text = ".".join(map(str, _find_newest_isa()))
            raise CUDADriverError(
                222,
                "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
                "the provided PTX was compiled with an unsupported toolchain: its "
                f"version is {version}, but this driver supports versions up to {newest_isa_text}.",
            )
        compiled_module = load_ptx_module(ptx_text, module)
        loaded_module = Module.from_compiled(compiled_module, device)
        self._compiled, self._device, self.ptr = loaded_module._compiled, loaded_module._device, id(self)
        device.machine.get_component(LoadedObjects)[self.ptr] = self

    def load_file(self, filename: str) -> None:
        """Load a PTX file on the current device. If the file is missing, error 301 ("file not found") is
        raised.
        """
        from pathlib import Path

        try:
            file_contents = Path(filename).read_bytes()
        except FileNotFoundError as error:
            raise CUDADriverError(
                301, "CUDA_ERROR_FILE_NOT_FOUND", f"file not found: {filename}. Check the path."
            ) from error
        self.load(file_contents)

    def get_global_var(self, name: str) -> int:
        """Return the address of a ``__device__`` or ``__constant__`` variable.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_NOT_FOUND``.
        """
        return self.find_variable(name)[0]

    def find_variable(self, name: str) -> tuple[int, int]:
        """Return the address of a module's variable and its size in bytes."""
        device = self.device
        compiled_module = self.compiled
        try:
            return compiled_module.program(device).global_address(
                compiled_module.lowered_names.get(name, name), device.memory
            )
        except KeyError:
            raise CUDADriverError(
                500,
                "CUDA_ERROR_NOT_FOUND",
                "named symbol not found: no __device__ or __constant__ variable is "
                f"called '{name}' in this module. The compiler removes variables that are "
                "static or that no kernel uses.",
            ) from None

    def get_function(self, name: str) -> Function:
        """Return a kernel of the module by its (mangled) name."""
        return Function(self, name)


class Function:
    """A kernel of a loaded module. The attribute ``ptr`` is its handle.

    Parameters
    ----------
    module
        The module.
    funcname
        The kernel's name in the module.

    Raises
    ------
    CUDADriverError
        ``CUDA_ERROR_NOT_FOUND``, with the names of the module's kernels.
    """

    def __init__(self, module: Module, funcname: str) -> None:
        self.module = module
        self.name = module.compiled.symbol(funcname)
        self.ptr = id(self)
        module.device.machine.get_component(LoadedObjects)[self.ptr] = self
        static_shared_bytes = module.compiled.resources[self.name].static_shared_bytes
        self._max_dynamic_shared_bytes = max(
            module.device.info.shared_per_block_bytes - static_shared_bytes, 0
        )

    @property
    def stats(self) -> KernelStats:
        """Registers and memory that the compiled kernel uses."""
        return self.module.compiled.stats(self.name, self.module.device.info)

    @property
    def max_dynamic_shared_bytes(self) -> int:
        """Maximum dynamic shared memory of a kernel launch, in bytes.

        Raises
        ------
        CUDADriverError
            ``CUDA_ERROR_INVALID_VALUE``, when set to more than the device has.
        """
        return self._max_dynamic_shared_bytes

    @max_dynamic_shared_bytes.setter
    def max_dynamic_shared_bytes(self, size_bytes: int) -> None:
        info = self.module.device.info
        max_bytes = info.shared_per_block_optin_bytes - self.stats.static_shared_bytes
        if not 0 <= size_bytes <= max_bytes:
            raise CUDADriverError(
                1,
                "CUDA_ERROR_INVALID_VALUE",
                f"invalid argument: the kernel requests {size_bytes:,} bytes of dynamic "
                f"shared memory, but the {info.name} has at most {max_bytes:,} per "
                "block for this kernel.",
            )
        self._max_dynamic_shared_bytes = int(size_bytes)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Any],
        shared_mem: int = 0,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Launch the kernel on the module's device; see `virtualgpu.cp.RawKernel`."""
        launch = Launch.as_cupy(self, grid, block, args, shared_mem)
        self.submit(launch, stream, enable_cooperative_groups)

    def submit(self, launch: Launch, stream: Any, is_cooperative: bool) -> None:
        """Launch the kernel in a stream. The `launch` object contains the grid, the block and the
        arguments.
        """
        device = self.module.device
        stream = get_current_stream(device.id) if stream is None else stream
        _check_stream(stream, device)
        kernel = self.module.compiled.kernel(self.name, device)
        prepared_launch = prepare_launch(
            device, kernel, launch, self._max_dynamic_shared_bytes, allow_extra=True
        )
        if is_cooperative:
            prepared_launch = prepared_launch.make_cooperative()
        prepared_launch.submit(stream)

    def linear_launch(
        self,
        size: int,
        args: Sequence[Any],
        shared_mem: int = 0,
        block_max_size: int = 128,
        stream: Any = None,
        enable_cooperative_groups: bool = False,
    ) -> None:
        """Launch the kernel with at least `size` threads, in blocks of at most `block_max_size` threads."""
        grid = (-(-size // block_max_size),)
        block = (min(block_max_size, size),)
        launch = Launch.as_cupy(self, grid, block, args, shared_mem)
        self.submit(launch, stream, enable_cooperative_groups)


def _find_newest_isa() -> tuple[int, ...]:
    """Return the newest PTX ISA version that the driver supports: 9.x for a compiler of CUDA 13.x."""
    if not _nvrtc.is_available():
        return _MINIMUM_ISA
    major, minor = _nvrtc.read_version()
    return max(_MINIMUM_ISA, (major - 4, minor))


def _check_stream(stream: Any, device: VirtualDevice) -> None:
    if getattr(stream, "device_id", -1) not in (-1, device.id):
        raise CUDADriverError(
            400,
            "CUDA_ERROR_INVALID_HANDLE",
            f"invalid resource handle: the stream belongs to device {stream.device_id} but the current "
            f"device is {device.id}. Launch within `with cp.cuda.Device({stream.device_id}):`.",
        )


__getattr__ = make_module_getattr(
    "cp.cuda.function", globals(), {"LinkState": "the virtual GPU cannot link; load the PTX of one module"}
)
