"""Wrong and right programs for 11-noise, of notebook 11."""



from __future__ import annotations

from typing import Any

from gpulab import session
from tests.answers.n11_graphs.programs import captured, own_stream


def draws(
    *,
    fixed: bool = False,
    first: bool = False,
    alias: bool = False,
    host: bool = False,
    set_it: bool = False,
    recapture: bool = False,
    warm: bool = False,
    wait: bool = True,
    blocks: int = 0,
) -> Any:
    """Rounds of noise with parts done wrongly."""

    def draws(source: str, seed: int, rounds: int, n: int) -> Any:
        import numpy as np

        cp = session.cp()
        noise, advance = (cp.RawKernel(source, name) for name in ("noise", "advance"))
        now = cp.zeros(1, dtype=cp.uint32)
        out = cp.empty(n, dtype=cp.uint32)
        shape = (blocks or -(-n // 128),), (128,)

        def one() -> None:
            if first:
                advance((1,), (1,), (now,))
            noise(*shape, (now, np.uint32(seed), out, np.int32(n)))
            if not (fixed or first or set_it):
                advance((1,), (1,), (now,))

        if warm:
            one()
        rows = []
        with own_stream(wait=wait) as stream:
            graph = captured(stream, one)
            for number in range(rounds):
                if set_it:
                    now.set(np.array([number], np.uint32))
                if recapture:
                    graph = captured(stream, one)
                graph.launch(stream)
                rows.append(out.get() if host else out if alias else out.copy())
            return np.stack(rows) if host else cp.stack(rows)

    return draws


def draws_eagerly(source: str, seed: int, rounds: int, n: int) -> Any:
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    rows = cp.empty((rounds, n), dtype=cp.uint32)
    for number in range(rounds):
        noise(
            (-(-n // 256),),
            (256,),
            (cp.full(1, number, dtype=cp.uint32), np.uint32(seed), rows[number], np.int32(n)),
        )
    return rows


def draws_by_copies(source: str, seed: int, rounds: int, n: int) -> Any:
    """The round is copied on the device, from a row of numbers."""
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    numbers = cp.arange(rounds, dtype=cp.uint32)
    now = cp.zeros(1, dtype=cp.uint32)
    out = cp.empty(n, dtype=cp.uint32)
    rows = cp.empty((rounds, n), dtype=cp.uint32)
    with own_stream() as stream:
        graph = captured(
            stream, lambda: noise((-(-n // 64),), (64,), (now, np.uint32(seed), out, np.int32(n)))
        )
        for number in range(rounds):
            now[...] = numbers[number]
            graph.launch(stream)
            rows[number] = out
    return rows


def draws_by_add(source: str, seed: int, rounds: int, n: int) -> Any:
    """CuPy's addition advances the round, and rewinds it after the warm-up."""
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    now = cp.zeros(1, dtype=cp.uint32)
    out = cp.empty(n, dtype=cp.uint32)

    def one() -> None:
        noise((-(-n // 32),), (32,), (now, np.uint32(seed), out, np.int32(n)))
        cp.add(now, 1, out=now)

    one()
    now[...] = 0
    rows = []
    with own_stream() as stream:
        graph = captured(stream, one)
        for _ in range(rounds):
            graph.launch(stream)
            rows.append(out.copy())
        return cp.stack(rows)


def draws_at_once(source: str, seed: int, rounds: int, n: int) -> Any:
    """One graph of all rounds, launched once."""
    import numpy as np

    cp = session.cp()
    noise, advance = (cp.RawKernel(source, name) for name in ("noise", "advance"))
    now = cp.zeros(1, dtype=cp.uint32)
    rows = cp.empty((rounds, n), dtype=cp.uint32)

    def all_of_them() -> None:
        for row in rows:
            noise((-(-n // 256),), (256,), (now, np.uint32(seed), row, np.int32(n)))
            advance((1,), (1,), (now,))

    with own_stream() as stream:
        captured(stream, all_of_them).launch(stream)
    return rows


def draws_late(source: str, seed: int, rounds: int, n: int) -> Any:
    """A row is copied when the next one has been drawn."""
    import numpy as np

    cp = session.cp()
    noise, advance = (cp.RawKernel(source, name) for name in ("noise", "advance"))
    now = cp.zeros(1, dtype=cp.uint32)
    out = cp.empty(n, dtype=cp.uint32)
    rows = cp.empty((rounds, n), dtype=cp.uint32)

    def one() -> None:
        noise((-(-n // 256),), (256,), (now, np.uint32(seed), out, np.int32(n)))
        advance((1,), (1,), (now,))

    with own_stream() as stream:
        graph = captured(stream, one)
        for row in range(rounds):
            graph.launch(stream)
            if row:
                rows[row - 1] = out
        rows[-1] = out
    return rows


def draws_of_few_rounds(source: str, seed: int, rounds: int, n: int) -> Any:
    """The number of the round has three bits."""
    import numpy as np

    cp = session.cp()
    noise = cp.RawKernel(source, "noise")
    now = cp.zeros(1, dtype=cp.uint32)
    out = cp.empty(n, dtype=cp.uint32)
    rows = cp.empty((rounds, n), dtype=cp.uint32)

    def one() -> None:
        noise((-(-n // 256),), (256,), (now, np.uint32(seed), out, np.int32(n)))
        cp.add(now, 1, out=now)
        cp.bitwise_and(now, 7, out=now)

    with own_stream() as stream:
        graph = captured(stream, one)
        for row in range(rounds):
            graph.launch(stream)
            rows[row] = out
    return rows
