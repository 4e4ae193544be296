"""Run a learner's kernel on the virtual GPU, where a wrong one cannot do harm and faults name the thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab import session
from gpulab.teach.exercise import NotYet
from virtualgpu.protocol import Hazards, Launch, kernel_source
from virtualgpu.records import Dim3, KernelSource

Array = npt.NDArray[Any]

# Results are compared exactly for integers; for floats within a few roundings.
_RELATIVE = 1e-5
_ABSOLUTE = 1e-6
# Blocks run in these orders, too. Sums of floats in another order differ by roundings.
_OTHER_ORDERS = (("reversed", 0), ("random", 1), ("random", 2))
_REORDERED = 1e-4


class KernelUnderTest:
    """A learner's kernel, compiled for the virtual GPU.

    Parameters
    ----------
    answer
        A RawKernel, or CUDA C++ text.
    name
        The kernel's name, if `answer` is text.

    Raises
    ------
    NotYet
        If `answer` is no kernel, or does not compile.
    """

    def __init__(self, answer: Any, name: str) -> None:
        self.cp = session.virtual_side().cp
        try:
            source = KernelSource(name, answer) if isinstance(answer, str) else kernel_source(answer)
        except TypeError as error:
            raise NotYet("pass the kernel itself: a cp.RawKernel or its CUDA C++ text.") from error
        self.code = source.code
        if "TODO" in self.code:
            raise NotYet("the kernel still has its TODO; write the body first.")
        try:
            self.kernel = self.cp.RawKernel(source.code, source.name, options=source.options)
            self.kernel.compile()
        except Exception as error:
            raise NotYet(_first_error(error)) from error

    def run(
        self, grid: Dim3, block: Dim3, inputs: list[Any], outputs: list[Array], *, case: str
    ) -> list[Array]:
        """Launch with `inputs` (arrays are copied to the device) and `outputs`; return the outputs.

        The order of arguments is that of `arguments`: arrays of `outputs` stand where `inputs` holds
        their position as ``Out(i)``.

        Raises
        ------
        NotYet
            If the kernel faults, does not end or refuses its arguments, or if its results depend on the
            order of blocks; the message opens with `case`.
        """
        found = self._once(grid, block, inputs, outputs, case)
        machine = session.virtual_side().machine
        for order, seed in _OTHER_ORDERS if max(grid) > 1 else ():
            with machine.keeping("block_order"):
                machine.current_device.set_block_order(order, seed)
                again = self._once(grid, block, inputs, outputs, case)
            for one, other in zip(found, again, strict=True):
                if not np.allclose(one, other, rtol=_REORDERED, atol=0, equal_nan=True):
                    raise NotYet(
                        f"{case}: the result depends on the order in which blocks run ({order} gives another "
                        "one), and CUDA promises none. Let blocks work on different elements, or use atomics."
                    )
        return found

    def _once(
        self, grid: Dim3, block: Dim3, inputs: list[Any], outputs: list[Array], case: str
    ) -> list[Array]:
        arguments, device_outputs = self._on_device(inputs, outputs)
        try:
            self.kernel(grid, block, arguments)
            self.cp.cuda.Device().synchronize()
        except Exception as error:
            raise NotYet(f"{case}: {_plain(error)}") from error
        return [self.cp.asnumpy(output) for output in device_outputs]

    def require_no_luck(
        self, grid: Dim3, block: Dim3, inputs: list[Any], outputs: list[Array], *, case: str
    ) -> None:
        """Launch under checks: a result may be right although nothing promises it.

        Raises
        ------
        NotYet
            If threads race, or a shuffle or vote names lanes that stay away.
        """
        arguments, _ = self._on_device(inputs, outputs)
        launch = Launch.of(self.kernel, grid, block, arguments)
        report = session.virtual_side().observe(launch, Hazards(tools=("race", "sync")))
        for hazard in report.hazards:
            if hazard.severity != "info":
                raise NotYet(f"{case}: the result is right by luck only: {hazard.message}")

    def _on_device(self, inputs: list[Any], outputs: list[Array]) -> tuple[tuple[Any, ...], list[Any]]:
        device_outputs = [self.cp.asarray(output) for output in outputs]
        arguments = tuple(
            device_outputs[item.index]
            if isinstance(item, Out)
            else self.cp.asarray(item)
            if isinstance(item, np.ndarray)
            else item
            for item in inputs
        )
        return arguments, device_outputs


@dataclass(frozen=True, slots=True)
class Out:
    """Stands for output `index` in a list of kernel arguments."""

    index: int = 0


def compare(found: Array, wanted: Array, *, case: str, what: str) -> None:
    """Raise `NotYet` that names the first wrong element.

    Raises
    ------
    NotYet
        If an element differs by more than rounding.
    """
    if np.issubdtype(wanted.dtype, np.integer):
        wrong = found != wanted
    else:
        wrong = ~np.isclose(found, wanted, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True)
    if not wrong.any():
        return
    first = tuple(int(axis[0]) for axis in np.nonzero(wrong))
    index = ", ".join(str(position) for position in first)
    raise NotYet(
        f"{case}: {what}[{index}] is {found[first]:.6g}, it should be {wanted[first]:.6g} "
        f"({int(wrong.sum()):,} of {wanted.size:,} elements differ)."
    )


def _first_error(error: Exception) -> str:
    log = getattr(error, "log", None)
    if not isinstance(log, str):
        return _plain(error)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line), lines[0] if lines else type(error).__name__)
    return f"it does not compile: {first}"


def _plain(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
