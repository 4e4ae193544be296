"""Regions of PTX code: the basic blocks that a branch controls, before its two paths meet again."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg


def regions(function: ir.Function) -> dict[int, frozenset[int]]:
    """Return the basic blocks between each branch and the point where its paths join again."""
    flow = cfg.build(function)
    post_dominators = _post_dominators(flow)
    result = {}
    for block in flow.blocks:
        if len(block.successors) < 2:
            continue
        join_blocks = post_dominators[block.number] - {block.number}
        visited: set[int] = set()
        pending = [successor for successor in block.successors if successor not in join_blocks]
        while pending:
            block_number = pending.pop()
            if block_number in visited:
                continue
            visited.add(block_number)
            pending += [
                successor
                for successor in flow.blocks[block_number].successors
                if successor not in join_blocks
            ]
        result[block.number] = frozenset(visited - {block.number})
    return result


def _post_dominators(flow: cfg.Flow) -> dict[int, set[int]]:
    """Return for each block its post-dominators: the blocks on every path from it to the end, and itself."""
    all_blocks = {block.number for block in flow.blocks}
    result = {
        block.number: {block.number} if not block.successors else set(all_blocks) for block in flow.blocks
    }
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            if not block.successors:
                continue
            updated = set.intersection(*(result[successor] for successor in block.successors)) | {
                block.number
            }
            if updated != result[block.number]:
                result[block.number] = updated
                changed = True
    return result
