"""Regions of PTX code: the basic blocks that a branch controls, before its two paths meet again."""

from __future__ import annotations

from virtualgpu.compile.ptx import ir
from virtualgpu.compile.ptx.flow import cfg


def find_regions(function: ir.Function) -> dict[int, frozenset[int]]:
    """Return the basic blocks between each branch and the point where its paths join again."""
    flow = cfg.build_flow(function)
    post_dominators = _find_post_dominators(flow)
    blocks_by_branch = {}
    for block in flow.blocks:
        if len(block.successors) < 2:
            continue
        join_blocks = post_dominators[block.number] - {block.number}
        region_blocks: set[int] = set()
        pending_blocks = [successor for successor in block.successors if successor not in join_blocks]
        while pending_blocks:
            block_number = pending_blocks.pop()
            if block_number in region_blocks:
                continue
            region_blocks.add(block_number)
            pending_blocks += [
                successor
                for successor in flow.blocks[block_number].successors
                if successor not in join_blocks
            ]
        blocks_by_branch[block.number] = frozenset(region_blocks - {block.number})
    return blocks_by_branch


def _find_post_dominators(flow: cfg.ControlFlow) -> dict[int, set[int]]:
    """Return for each block its post-dominators: the blocks on every path from it to the end, and itself."""
    all_blocks = {block.number for block in flow.blocks}
    dominators_by_block = {
        block.number: {block.number} if not block.successors else set(all_blocks) for block in flow.blocks
    }
    has_changed = True
    while has_changed:
        has_changed = False
        for block in reversed(flow.blocks):
            if not block.successors:
                continue
            new_dominators = set.intersection(
                *(dominators_by_block[successor] for successor in block.successors)
            ) | {block.number}
            if new_dominators != dominators_by_block[block.number]:
                dominators_by_block[block.number] = new_dominators
                has_changed = True
    return dominators_by_block
