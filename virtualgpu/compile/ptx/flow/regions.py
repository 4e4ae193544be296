"""Which basic blocks a conditional branch decides about: those before its sides meet again."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg


def regions(function: ir.Function) -> dict[int, frozenset[int]]:
    """Blocks between each branching block and its immediate post-dominator, by block number."""
    flow = cfg.build(function)
    after = _post_dominators(flow)
    found = {}
    for block in flow.blocks:
        if len(block.successors) < 2:
            continue
        meet = after[block.number] - {block.number}
        seen: set[int] = set()
        waiting = [s for s in block.successors if s not in meet]
        while waiting:
            number = waiting.pop()
            if number in seen:
                continue
            seen.add(number)
            waiting += [s for s in flow.blocks[number].successors if s not in meet]
        found[block.number] = frozenset(seen - {block.number})
    return found


def _post_dominators(flow: cfg.Flow) -> dict[int, set[int]]:
    """Blocks that every way from a block to the function's end passes, the block itself included."""
    everything = {block.number for block in flow.blocks}
    found = {
        block.number: {block.number} if not block.successors else set(everything) for block in flow.blocks
    }
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            if not block.successors:
                continue
            new = set.intersection(*(found[s] for s in block.successors)) | {block.number}
            if new != found[block.number]:
                found[block.number] = new
                changed = True
    return found
