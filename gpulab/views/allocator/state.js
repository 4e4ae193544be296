import { filled, percent, sized } from "../parts/words.js";

// The state of a pool at any step, from columns of lives: a block exists if it has begun and not ended. The
// numbers are those of `gpulab.allocators.fragments`; the texts are those of `pool_text.py`.

const MIB = 2 ** 20;
const [SMALL, LARGE] = [1, 2]; // PyTorch's pools
export const [FREE, UNMAPPED] = [-1, -2]; // instead of a block's index

const pageOf = (pool) => (pool === SMALL ? 2 * MIB : 20 * MIB);

export class Pool {
  constructor(panel, contents) {
    Object.assign(this, { panel, contents });
    const maxTiles = 2 * panel.block.address.length + 2 * panel.range.address.length + 1;
    this.tiles = {
      block: new Int32Array(maxTiles), segment: new Int32Array(maxTiles), address: new Float64Array(maxTiles), size: new Float64Array(maxTiles), count: 0,
    };
    this.at = -1;
  }

  step(moment) { return this.panel.after ? this.panel.after[moment] : moment; }

  /** Compute the state at a step: `tiles` are its blocks, free pieces and holes, in the order of addresses. */
  go(step) {
    if (step === this.at) return;
    this.at = step;
    const { block, range, segment } = this.panel;
    const { tiles } = this;
    let [count, nextBlock, segmentIndex, low, position] = [0, 0, -1, 0, 0];
    const addTile = (kind, start, end) => {
      tiles.block[count] = kind;
      tiles.segment[count] = segmentIndex;
      tiles.address[count] = start;
      tiles.size[count] = end - start;
      count += 1;
    };
    const blocks = block.address.length;
    const isLive = (index) => block.begin[index] <= step && step < block.end[index];
    while (nextBlock < blocks && !isLive(nextBlock)) nextBlock += 1;
    const fill = (end) => {
      while (nextBlock < blocks && block.address[nextBlock] < end) {
        if (position < block.address[nextBlock]) addTile(FREE, position, block.address[nextBlock]);
        addTile(nextBlock, block.address[nextBlock], block.address[nextBlock] + block.size[nextBlock]);
        position = Math.max(position, block.address[nextBlock] + block.size[nextBlock]);
        nextBlock += 1;
        while (nextBlock < blocks && !isLive(nextBlock)) nextBlock += 1;
      }
    };
    let mappedEnd = -1; // the end of the mapped stretch that is being filled
    const closeRange = () => {
      if (mappedEnd < 0) return;
      fill(mappedEnd);
      if (position < mappedEnd) addTile(FREE, position, mappedEnd);
      position = Math.max(position, mappedEnd);
    };
    for (let index = 0; index < range.address.length; index += 1) {
      if (range.begin[index] > step || step >= range.end[index]) continue;
      const start = range.address[index];
      const end = start + range.size[index];
      if (range.segment[index] === segmentIndex && start <= mappedEnd) { mappedEnd = Math.max(mappedEnd, end); continue; }
      closeRange();
      if (range.segment[index] !== segmentIndex) {
        segmentIndex = range.segment[index];
        low = start;
        position = low;
      } else if (position < start) {
        addTile(UNMAPPED, position, start);
        position = start;
      }
      mappedEnd = end;
    }
    closeRange();
    tiles.count = count;
    this.sum(segment);
  }

  /** Compute the numbers of a step. */
  sum(segment) {
    const { tiles, panel } = this;
    const totals = { reserved: 0, used: 0, free: 0, largest: 0, rounding: 0, releasable: 0, pieces: 0 };
    const arenas = new Map();
    this.living = new Set();
    this.unused = new Set(); // segments without a block in use
    let [firstTile, isUnused, segmentBytes, arena] = [0, true, 0, null];
    const endSegment = (tile) => {
      if (tile === firstTile) return;
      const segmentIndex = tiles.segment[firstTile];
      if (!segment.expandable[segmentIndex] && isUnused) { totals.releasable += segmentBytes; this.unused.add(segmentIndex); }
      if (segment.expandable[segmentIndex]) arena.tail = Math.max(arena.tail, tiles.block[tile - 1] === FREE ? tiles.size[tile - 1] : 0);
    };
    for (let tile = 0; tile < tiles.count; tile += 1) {
      const segmentIndex = tiles.segment[tile];
      if (tile === 0 || segmentIndex !== tiles.segment[tile - 1]) {
        endSegment(tile);
        [firstTile, isUnused, segmentBytes] = [tile, true, 0];
        this.living.add(segmentIndex);
        const key = `${segment.stream[segmentIndex]} ${segment.pool[segmentIndex]}`;
        if (!arenas.has(key)) arenas.set(key, { stream: segment.stream[segmentIndex], pool: segment.pool[segmentIndex], largest: 0, tail: -1 });
        arena = arenas.get(key);
      }
      const [block, size] = [tiles.block[tile], tiles.size[tile]];
      if (block === UNMAPPED) { isUnused = false; continue; }
      totals.reserved += size;
      segmentBytes += size;
      if (block === FREE) {
        totals.free += size;
        totals.pieces += 1;
        totals.largest = Math.max(totals.largest, size);
        arena.largest = Math.max(arena.largest, size);
        if (segment.expandable[segmentIndex]) totals.releasable += this.pages(tile, firstTile, pageOf(segment.pool[segmentIndex]));
      } else {
        isUnused = false;
        totals.used += size;
        const requestedBytes = panel.block.asked[block];
        if (requestedBytes) totals.rounding += size - requestedBytes;
      }
    }
    endSegment(tiles.count);
    if ([...arenas.values()].some(({ pool }) => pool)) {
      // Large requests use a pool that may still be empty.
      const tail = segment.expandable.some((each, segmentIndex) => each && this.living.has(segmentIndex)) ? 0 : -1;
      for (const { stream } of [...arenas.values()]) {
        if (!arenas.has(`${stream} ${LARGE}`)) arenas.set(`${stream} ${LARGE}`, { stream, pool: LARGE, largest: 0, tail });
      }
    }
    const room = panel.known ? Math.max(0, panel.limit - totals.reserved) : null;
    totals.room = room;
    totals.arenas = [...arenas.values()];
    const largestRequest = ({ pool, largest, tail }) => {
      const device = room + totals.releasable;
      if (pool === SMALL) return Math.max(Math.min(largest, MIB), device >= 2 * MIB ? MIB : 0);
      if (pool !== LARGE) return Math.max(largest, device);
      if (tail >= 0) return Math.max(largest, Math.floor(device / (20 * MIB)) * 20 * MIB + (tail % (20 * MIB)));
      const wholeBytes = Math.floor(device / (2 * MIB)) * 2 * MIB;
      return Math.max(largest, wholeBytes >= 10 * MIB ? wholeBytes : 0);
    };
    totals.most = room === null ? null : totals.arenas.length ? Math.max(...totals.arenas.map(largestRequest)) : room;
    this.found = totals;
  }

  /** Bytes of the complete pages in a free piece of an expandable segment. */
  pages(tile, firstTile, page) {
    const offset = this.tiles.address[tile] - this.tiles.address[firstTile];
    const [low, high] = [Math.ceil(offset / page) * page, Math.floor((offset + this.tiles.size[tile]) / page) * page];
    return Math.max(0, high - low);
  }

  waits(block) { return this.panel.block.freed[block] <= this.at; }

  /** A template from Python, filled with the numbers of this step. */
  fill(text, more) {
    const { used, reserved, free, largest, rounding, releasable, most: largestRequest, room, pieces } = this.found;
    const sizes = { used, reserved, free, largest, rounding, releasable, room, held: free - releasable };
    const words = Object.fromEntries(Object.entries(sizes).map(([name, bytes]) => [name, sized(bytes)]));
    return filled(text, { ...words, pieces, external: percent(free ? 1 - largest / free : 0), most: largestRequest === null ? "not known" : sized(largestRequest), ...more });
  }

  /** Term, value and detail of each number. */
  numbers(emptied) {
    const { free, reserved, releasable } = this.found;
    const afterEmptying = emptied ? { reserved: sized(reserved - releasable), free: sized(free - releasable) } : {};
    return this.contents.figures.map(([term, ...texts]) => {
      const [value, detail] = texts.map((text) => this.fill(text, afterEmptying));
      return [term, value, emptied && releasable && term === "Free" ? "kept" : detail];
    });
  }

  /** A sentence on the free memory, and on the reason for a request that was refused since a step. */
  sentence(previousStep) {
    const { panel: { refused }, contents: { said: templates }, found: { free, largest, room, arenas } } = this;
    const index = refused.step.findIndex((step) => step > previousStep && step <= this.at);
    if (index < 0) return [this.fill(free ? templates.lies : templates.full), false];
    const largestPiece = Math.max(0, ...arenas.filter(({ stream }) => stream === refused.stream[index]).map((arena) => arena.largest));
    const reason = !free ? templates.none_free : !largestPiece ? templates.others : largestPiece < largest ? templates.smaller : templates.pieces;
    const text = `${templates.refused.replace("{why}", reason)}${room === null ? "" : templates.room}.`;
    return [this.fill(text, { refused: sized(refused.asked[index]), mine: sized(largestPiece) }), true];
  }

  emptying() {
    const { found: { free, releasable }, contents: { said: templates } } = this;
    return this.fill(free ? `${templates.gives}${free > releasable ? templates.stays : ""}.` : templates.nothing);
  }

  /** A sentence about a tile. */
  tileText(tile) {
    const { tiles, panel: { segment, block, labels }, contents: { said: templates, streams } } = this;
    const [segmentIndex, kind, size] = [tiles.segment[tile], tiles.block[tile], tiles.size[tile]];
    const words = { address: tiles.address[tile].toString(16), seen: segment.seen[segmentIndex], segment: sized(segment.size[segmentIndex]), stream: streams[segment.stream[segmentIndex]], size: sized(size) };
    words.where = filled(templates.where, words);
    if (kind < 0) return filled(kind === FREE ? templates.free : templates.unmapped, words);
    const [label, requestedBytes, beginStep] = [labels[block.label[kind]], block.asked[kind], block.begin[kind]];
    words.asked = requestedBytes && requestedBytes !== size ? filled(templates.lost, { asked: sized(requestedBytes), lost: sized(size - requestedBytes) }) : "";
    words.age = beginStep ? filled(templates.age, { events: this.at - beginStep }) : templates.first;
    return filled(templates.block, { ...words, label: label === undefined ? "" : `, ${label}`, waits: Number(this.waits(kind)) });
  }

  /** The frames of a tile's stack trace, innermost first. */
  frames(tile) {
    const kind = this.tiles.block[tile];
    const { panel } = this;
    const stack = kind >= 0 ? panel.block.stack[kind] : -1;
    if (stack < 0 || stack + 1 >= panel.stack_bounds.length) return [];
    return [...panel.stack_frames.subarray(panel.stack_bounds[stack], panel.stack_bounds[stack + 1])].map((frame) => panel.frames[frame]);
  }
}

/** The operation at a position of the slider, in words. */
export function operationText({ moments, unit, last, said: templates, streams, lines, done: operations }, position) {
  const words = { unit, Unit: unit[0].toUpperCase() + unit.slice(1), at: position, last };
  if (!last || !position) return last ? filled(templates.before, words) : templates.now;
  const [size, requestedBytes, stream, line] = ["size", "asked", "stream", "line"].map((name) => moments[name][position - 1]);
  const operation = filled(operations[moments.kind[position - 1]], {
    size: sized(size), asked: requestedBytes && sized(requestedBytes) !== sized(size) ? filled(templates.asked, { asked: sized(requestedBytes) }) : "",
    stream: streams[stream] ?? templates.elsewhere, at: line >= 0 ? `, ${lines[line]}` : "",
  });
  return filled(templates.moment, { ...words, told: operation });
}
