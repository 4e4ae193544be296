"""Watch expressions and stop conditions of a launch: parsed before it runs, evaluated with its trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.errors import WatchError
from virtualgpu.launch.debugging import DebugBuild, copy_memory_contents
from virtualgpu.launch.prepare import PreparedLaunch
from virtualgpu.records import WarpTrace


class WatchedLaunch:
    """The parsed watch expressions and stop conditions of one launch.

    Parameters
    ----------
    prepared_launch
        The launch.
    debug_build
        Its debug build.
    watch_texts, stop_texts
        Texts of the expressions, and of the positions to stop at.

    Raises
    ------
    WatchError
        If one of them cannot be parsed, or contains a name that the kernel does not have.
    """

    def __init__(
        self,
        prepared_launch: PreparedLaunch,
        debug_build: DebugBuild,
        watch_texts: tuple[str, ...],
        stop_texts: tuple[str, ...],
    ) -> None:
        from virtualgpu.engine.watch import reading

        self._prepared_launch = prepared_launch
        self._watch_expressions = [reading.parse_expression(text) for text in watch_texts]
        self._stop_conditions = [reading.parse_stop(text) for text in stop_texts]
        self._symbols = self._make_symbols(debug_build)
        stop_expressions = [
            stop_texts.expression for stop_texts in self._stop_conditions if stop_texts.expression is not None
        ]
        expressions = [*self._watch_expressions, *stop_expressions]
        for expression in expressions:
            self._symbols.check_names(expression.names, expression.text)
        names = {name for expression in expressions for name in expression.names}
        for (
            variable
        ) in debug_build.declarations:  # reading its address loads a device variable with its contents
            if variable.name in names and not variable.function:
                self._symbols.address_of(variable.symbol)
        self._initial_contents = copy_memory_contents(prepared_launch.device.memory) or []

    def add_watched_values(self, warps: tuple[WarpTrace, ...]) -> tuple[WarpTrace, ...]:
        """Add the values of watch expressions and the steps of stop conditions to the traces of one block's
        warps.

        Raises
        ------
        WatchError
            If types do not fit an expression; device memory is restored then.
        """
        from virtualgpu.engine.watch.evaluate import evaluate_stop, evaluate_watch
        from virtualgpu.engine.watch.memory import PARAMETER, MemoryRegion, WatchedMemory
        from virtualgpu.engine.watch.scene import WatchScope

        device = self._prepared_launch.device.memory
        params = self._prepared_launch.packed_launch.params
        regions = [
            MemoryRegion(address, initial_bytes, device.view(address, initial_bytes.size))
            for address, initial_bytes in self._initial_contents
        ]
        parameter_bytes: npt.NDArray[np.uint8] = np.frombuffer(params, np.uint8)
        memory = WatchedMemory(warps, [*regions, MemoryRegion(PARAMETER, parameter_bytes, parameter_bytes)])
        watched_traces = []
        try:
            for trace in warps:
                scope = WatchScope(self._symbols, trace, memory)
                values = tuple(evaluate_watch(scope, expression) for expression in self._watch_expressions)
                stops = tuple(evaluate_stop(scope, stop) for stop in self._stop_conditions)
                watched_traces.append(replace(trace, watched=values, stops=stops))
        except WatchError:
            # A corrected call must start with the same contents as this one.
            for address, initial_bytes in self._initial_contents:
                device.view(address, initial_bytes.size)[:] = initial_bytes
            raise
        return tuple(watched_traces)

    def _make_symbols(self, debug_build: DebugBuild) -> Any:
        from virtualgpu.engine.watch.scene import KernelSymbols

        prepared_launch = self._prepared_launch
        device = prepared_launch.device
        packed_launch = prepared_launch.packed_launch
        launch_source = prepared_launch.launch.source
        program = prepared_launch.kernel.program
        kernel = program.generate_traced(packed_launch.name, with_counters=True)
        variable_sizes = {
            variable.name: variable.size_bytes for variable in program.module.variables.values()
        }
        for plan in kernel.plans:
            variable_sizes |= {
                variable.name: variable.size_bytes for variable in plan.function.shared.values()
            }
        debug_options = {"-G", "--device-debug"} & set(launch_source.options)
        local_symbols = kernel.plans[0].function.local if debug_options else {}

        def address_of(symbol: str) -> int | None:
            try:
                return program.global_address(symbol, device.memory)[0]
            except KeyError:
                return None

        return KernelSymbols(
            kernel=packed_launch.name,
            title=prepared_launch.kernel.name,
            code=launch_source.code,
            options=tuple(launch_source.options),
            declared_variables=debug_build.declarations,
            types=debug_build.types,
            kernel_labels=debug_build.kernel_labels,
            missing_reason=debug_build.missing_reason,
            parameters=tuple(
                (parameter.name, parameter.offset, len(parameter.data), parameter.type)
                for parameter in prepared_launch.parameters
            ),
            arrays=prepared_launch.arrays,
            shared_symbols={
                name: (address, variable_sizes.get(name, 0)) for name, address in kernel.tables.shared.items()
            },
            shared_bytes=kernel.static_shared_bytes + packed_launch.shared_bytes,
            local_symbols=frozenset(local_symbols),
            address_of=address_of,
        )
