"""Watch expressions and stops of a launch: read before it runs, evaluated over what was traced of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.errors import WatchError
from virtualgpu.launch.debugging import Debugged, contents
from virtualgpu.launch.prepare import PreparedLaunch
from virtualgpu.records import WarpTrace


class WatchedLaunch:
    """What is watched of one launch, made before it runs.

    Parameters
    ----------
    prepared
        The launch.
    debugged
        Its debug build.
    watch, stop
        Expressions, and where to stop, as texts.

    Raises
    ------
    WatchError
        If one of them cannot be read, or names what the kernel has not.
    """

    def __init__(
        self, prepared: PreparedLaunch, debugged: Debugged, watch: tuple[str, ...], stop: tuple[str, ...]
    ) -> None:
        from virtualgpu.engine.watch import reading

        self._prepared = prepared
        self._watch = [reading.expression(text) for text in watch]
        self._stops = [reading.stop(text) for text in stop]
        self._symbols = self._symbols_of(debugged)
        every = [*self._watch, *(stop.expression for stop in self._stops if stop.expression is not None)]
        for expression in every:
            self._symbols.check(expression.names, expression.text)
        names = {name for each in every for name in each.names}
        for each in debugged.declared:  # a device variable gets its place, and its contents, when asked for
            if each.name in names and not each.function:
                self._symbols.address_of(each.symbol)
        self._before = contents(prepared.device.memory) or []

    def of(self, warps: tuple[WarpTrace, ...]) -> tuple[WarpTrace, ...]:
        """The traced warps of one block with what was watched and where they stop.

        Raises
        ------
        WatchError
            If types do not fit an expression; device memory is put back then.
        """
        from virtualgpu.engine.watch.evaluate import evaluate_stop, evaluate_watch
        from virtualgpu.engine.watch.memory import PARAMETER, Memory, Region
        from virtualgpu.engine.watch.scene import Scene

        device = self._prepared.device.memory
        params = self._prepared.packed.params
        regions = [Region(at, before, device.view(at, before.size)) for at, before in self._before]
        given: npt.NDArray[np.uint8] = np.frombuffer(params, np.uint8)
        memory = Memory(warps, [*regions, Region(PARAMETER, given, given)])
        found = []
        try:
            for trace in warps:
                scene = Scene(self._symbols, trace, memory)
                seen = tuple(evaluate_watch(scene, each) for each in self._watch)
                stops = tuple(evaluate_stop(scene, each) for each in self._stops)
                found.append(replace(trace, watched=seen, stops=stops))
        except WatchError:
            # What is mended and called again must find what this call found.
            for at, before in self._before:
                device.view(at, before.size)[:] = before
            raise
        return tuple(found)

    def _symbols_of(self, debugged: Debugged) -> Any:
        from virtualgpu.engine.watch.scene import Symbols

        prepared = self._prepared
        device = prepared.device
        packed = prepared.packed
        source = prepared.launch.source
        program = prepared.module.program(device)
        kernel = program.traced_kernel(packed.name, count=True)
        sizes = {each.name: each.size_bytes for each in program.module.variables.values()}
        for plan in kernel.plans:
            sizes |= {each.name: each.size_bytes for each in plan.function.shared.values()}
        debug = {"-G", "--device-debug"} & set(source.options)
        local = kernel.plans[0].function.local if debug else {}

        def address_of(symbol: str) -> int | None:
            try:
                return program.global_address(symbol, device.memory)[0]
            except KeyError:
                return None

        return Symbols(
            kernel=packed.name,
            title=prepared.stats.name,
            code=source.code,
            options=tuple(source.options),
            declared=debugged.declared,
            types=debugged.types,
            kernel_labels=debugged.labels,
            missing_reason=debugged.why,
            parameters=tuple((p.name, p.offset, len(p.data), p.type) for p in prepared.parameters),
            arrays=prepared.arrays,
            shared={name: (at, sizes.get(name, 0)) for name, at in kernel.tables.shared.items()},
            shared_bytes=kernel.static_shared_bytes + packed.shared_bytes,
            local=frozenset(local),
            address_of=address_of,
        )
