"""Record what CuPy's memory pool does on an NVIDIA GPU: ``python -m tests.virtual.record_pool OUT.json``.

The programs are random, but never ask for a size that two free blocks fit equally well: which of them
CuPy takes then depends on where its Python objects lie, and differs from run to run.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from tests.virtual.pool_model import UNIT, ModelPool

PROGRAMS = 150
STEPS = 60


def random_program(xp: Any, seed: int) -> list[list[Any]]:
    """Run one program; each step is the operation, its arguments and what came of it.

    ``["malloc", stream, bytes, name, offset]`` (offset: of the block within its segment, -1: out of memory),
    ``["free", name]``, ``["free_all_blocks", stream or -1]``, ``["limit", bytes]``; then, for each, used,
    total and free bytes and the number of free blocks.
    """
    draw = random.Random(seed)
    pool, model = xp.cuda.MemoryPool(), ModelPool()
    streams = [xp.cuda.Stream.null, xp.cuda.Stream(non_blocking=True), xp.cuda.Stream()]
    held: dict[int, Any] = {}
    steps = []
    for _ in range(STEPS):
        kind = draw.choices(["malloc", "free", "free_all_blocks", "limit"], [50, 40, 6, 4])[0]
        step: list[Any] = [kind]
        if kind == "malloc":
            number = draw.choice([0, 0, 0, 1, 2])
            size = draw.choice([draw.randint(1, 4 * UNIT), draw.randint(1, 40 * UNIT)])
            units, handle = -(-size // UNIT), streams[number].ptr
            fitting = model.fitting(units, handle)
            if len(fitting) > 1:
                continue
            refused = not fitting and model.refuses(units)
            try:
                with streams[number]:
                    pointer = pool.malloc(size)
            except xp.cuda.memory.OutOfMemoryError:
                assert refused
                step += [number, size, -1, -1]
            else:
                name = model.take(pointer.ptr, units, handle, new=not fitting)
                held[name] = pointer
                base = max(s.address for s in model.segments if s.address <= pointer.ptr)
                step += [number, size, name, pointer.ptr - base]
        elif kind == "free":
            if not held:
                continue
            name = draw.choice(sorted(held))
            del held[name]
            pointer = None
            model.free(name)
            step += [name]
        elif kind == "free_all_blocks":
            number = draw.choice([-1, -1, 0, 1, 2])
            pool.free_all_blocks(None if number < 0 else streams[number])
            model.free_all_blocks(None if number < 0 else streams[number].ptr)
            step += [number]
        else:
            model.limit = draw.choice([0, draw.randint(10, 120) * UNIT])
            pool.set_limit(size=model.limit)
            step += [model.limit]
        state = (pool.used_bytes(), pool.total_bytes(), pool.free_bytes(), pool.n_free_blocks())
        steps.append([*step, *state])
    return steps


def main() -> None:
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    recorded = {
        "source": f"CuPy {cupy.__version__} on {name}",
        "programs": [random_program(cupy, seed) for seed in range(PROGRAMS)],
    }
    Path(sys.argv[1]).write_text(json.dumps(recorded, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
