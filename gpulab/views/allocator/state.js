import { filled, percent, sized } from "../parts/words.js";

// A pool at any of its steps, from columns of lives: what is there is what has begun and not ended. What is
// counted is as in `gpulab.allocators.fragments`; texts are those of `pool_text.py`.

const MIB = 2 ** 20;
const [SMALL, LARGE] = [1, 2]; // PyTorch's pools
export const [FREE, UNMAPPED] = [-1, -2]; // instead of a block's number

const pageOf = (pool) => (pool === SMALL ? 2 * MIB : 20 * MIB);

export class Pool {
  constructor(panel, contents) {
    Object.assign(this, { panel, contents });
    const most = 2 * panel.block.address.length + 2 * panel.range.address.length + 1;
    this.tiles = {
      block: new Int32Array(most), segment: new Int32Array(most), address: new Float64Array(most), size: new Float64Array(most), count: 0,
    };
    this.at = -1;
  }

  step(moment) { return this.panel.after ? this.panel.after[moment] : moment; }

  /** Go to a step: `tiles` are then its blocks, free pieces and holes, in the order of addresses. */
  go(step) {
    if (step === this.at) return;
    this.at = step;
    const { block, range, segment } = this.panel;
    const { tiles } = this;
    let [count, next, number, low, place] = [0, 0, -1, 0, 0];
    const put = (kind, start, end) => {
      tiles.block[count] = kind;
      tiles.segment[count] = number;
      tiles.address[count] = start;
      tiles.size[count] = end - start;
      count += 1;
    };
    const blocks = block.address.length;
    const live = (at) => block.begin[at] <= step && step < block.end[at];
    while (next < blocks && !live(next)) next += 1;
    const fill = (end) => {
      while (next < blocks && block.address[next] < end) {
        if (place < block.address[next]) put(FREE, place, block.address[next]);
        put(next, block.address[next], block.address[next] + block.size[next]);
        place = Math.max(place, block.address[next] + block.size[next]);
        next += 1;
        while (next < blocks && !live(next)) next += 1;
      }
    };
    let reach = -1; // the end of the mapped stretch that is being filled
    const close = () => {
      if (reach < 0) return;
      fill(reach);
      if (place < reach) put(FREE, place, reach);
      place = Math.max(place, reach);
    };
    for (let at = 0; at < range.address.length; at += 1) {
      if (range.begin[at] > step || step >= range.end[at]) continue;
      const start = range.address[at];
      const end = start + range.size[at];
      if (range.segment[at] === number && start <= reach) { reach = Math.max(reach, end); continue; }
      close();
      if (range.segment[at] !== number) {
        number = range.segment[at];
        low = start;
        place = low;
      } else if (place < start) {
        put(UNMAPPED, place, start);
        place = start;
      }
      reach = end;
    }
    close();
    tiles.count = count;
    this.sum(segment);
  }

  /** The figures of a step. */
  sum(segment) {
    const { tiles, panel } = this;
    const found = { reserved: 0, used: 0, free: 0, largest: 0, rounding: 0, releasable: 0, pieces: 0 };
    const arenas = new Map();
    this.living = new Set();
    this.unused = new Set(); // segments without a block in use
    let [first, empty, bytes, arena] = [0, true, 0, null];
    const end = (at) => {
      if (at === first) return;
      const number = tiles.segment[first];
      if (!segment.expandable[number] && empty) { found.releasable += bytes; this.unused.add(number); }
      if (segment.expandable[number]) arena.tail = Math.max(arena.tail, tiles.block[at - 1] === FREE ? tiles.size[at - 1] : 0);
    };
    for (let at = 0; at < tiles.count; at += 1) {
      const number = tiles.segment[at];
      if (at === 0 || number !== tiles.segment[at - 1]) {
        end(at);
        [first, empty, bytes] = [at, true, 0];
        this.living.add(number);
        const key = `${segment.stream[number]} ${segment.pool[number]}`;
        if (!arenas.has(key)) arenas.set(key, { stream: segment.stream[number], pool: segment.pool[number], largest: 0, tail: -1 });
        arena = arenas.get(key);
      }
      const [kind, size] = [tiles.block[at], tiles.size[at]];
      if (kind === UNMAPPED) { empty = false; continue; }
      found.reserved += size;
      bytes += size;
      if (kind === FREE) {
        found.free += size;
        found.pieces += 1;
        found.largest = Math.max(found.largest, size);
        arena.largest = Math.max(arena.largest, size);
        if (segment.expandable[number]) found.releasable += this.pages(at, first, pageOf(segment.pool[number]));
      } else {
        empty = false;
        found.used += size;
        const asked = panel.block.asked[kind];
        if (asked) found.rounding += size - asked;
      }
    }
    end(tiles.count);
    if ([...arenas.values()].some(({ pool }) => pool)) {
      // Large requests go to a pool that may have nothing yet.
      const tail = segment.expandable.some((each, number) => each && this.living.has(number)) ? 0 : -1;
      for (const { stream } of [...arenas.values()]) {
        if (!arenas.has(`${stream} ${LARGE}`)) arenas.set(`${stream} ${LARGE}`, { stream, pool: LARGE, largest: 0, tail });
      }
    }
    const room = panel.known ? Math.max(0, panel.limit - found.reserved) : null;
    found.room = room;
    found.arenas = [...arenas.values()];
    const served = ({ pool, largest, tail }) => {
      const device = room + found.releasable;
      if (pool === SMALL) return Math.max(Math.min(largest, MIB), device >= 2 * MIB ? MIB : 0);
      if (pool !== LARGE) return Math.max(largest, device);
      if (tail >= 0) return Math.max(largest, Math.floor(device / (20 * MIB)) * 20 * MIB + (tail % (20 * MIB)));
      const whole = Math.floor(device / (2 * MIB)) * 2 * MIB;
      return Math.max(largest, whole >= 10 * MIB ? whole : 0);
    };
    found.most = room === null ? null : found.arenas.length ? Math.max(...found.arenas.map(served)) : room;
    this.found = found;
  }

  /** Bytes of the whole pages of a free piece in an expandable segment. */
  pages(at, first, page) {
    const from = this.tiles.address[at] - this.tiles.address[first];
    const [low, high] = [Math.ceil(from / page) * page, Math.floor((from + this.tiles.size[at]) / page) * page];
    return Math.max(0, high - low);
  }

  waits(block) { return this.panel.block.freed[block] <= this.at; }

  /** A text of Python's about this step. */
  fill(text, more) {
    const { used, reserved, free, largest, rounding, releasable, most, room, pieces } = this.found;
    const sizes = { used, reserved, free, largest, rounding, releasable, room, held: free - releasable };
    const words = Object.fromEntries(Object.entries(sizes).map(([name, bytes]) => [name, sized(bytes)]));
    return filled(text, { ...words, pieces, external: percent(free ? 1 - largest / free : 0), most: most === null ? "not known" : sized(most), ...more });
  }

  /** Term, value and detail of each number. */
  numbers(emptied) {
    const { free, reserved, releasable } = this.found;
    const gone = emptied ? { reserved: sized(reserved - releasable), free: sized(free - releasable) } : {};
    return this.contents.figures.map(([term, ...texts]) => {
      const [value, detail] = texts.map((text) => this.fill(text, gone));
      return [term, value, emptied && releasable && term === "Free" ? "kept" : detail];
    });
  }

  /** What is free, and why it did not serve what was refused between two steps. */
  sentence(before) {
    const { panel: { refused }, contents: { said }, found: { free, largest, room, arenas } } = this;
    const at = refused.step.findIndex((step) => step > before && step <= this.at);
    if (at < 0) return [this.fill(free ? said.lies : said.full), false];
    const mine = Math.max(0, ...arenas.filter(({ stream }) => stream === refused.stream[at]).map((arena) => arena.largest));
    const why = !free ? said.none_free : !mine ? said.others : mine < largest ? said.smaller : said.pieces;
    const text = `${said.refused.replace("{why}", why)}${room === null ? "" : said.room}.`;
    return [this.fill(text, { refused: sized(refused.asked[at]), mine: sized(mine) }), true];
  }

  emptying() {
    const { found: { free, releasable }, contents: { said } } = this;
    return this.fill(free ? `${said.gives}${free > releasable ? said.stays : ""}.` : said.nothing);
  }

  /** What a tile is, in a line. */
  told(tile) {
    const { tiles, panel: { segment, block, labels }, contents: { said, streams } } = this;
    const [number, kind, size] = [tiles.segment[tile], tiles.block[tile], tiles.size[tile]];
    const words = { address: tiles.address[tile].toString(16), seen: segment.seen[number], segment: sized(segment.size[number]), stream: streams[segment.stream[number]], size: sized(size) };
    words.where = filled(said.where, words);
    if (kind < 0) return filled(kind === FREE ? said.free : said.unmapped, words);
    const [label, asked, begin] = [labels[block.label[kind]], block.asked[kind], block.begin[kind]];
    words.asked = asked && asked !== size ? filled(said.lost, { asked: sized(asked), lost: sized(size - asked) }) : "";
    words.age = begin ? filled(said.age, { events: this.at - begin }) : said.first;
    return filled(said.block, { ...words, label: label === undefined ? "" : `, ${label}`, waits: Number(this.waits(kind)) });
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

/** What happened at a place of the slider. */
export function happened({ moments, unit, last, said, streams, lines, done }, at) {
  const words = { unit, Unit: unit[0].toUpperCase() + unit.slice(1), at, last };
  if (!last || !at) return last ? filled(said.before, words) : said.now;
  const [size, asked, stream, line] = ["size", "asked", "stream", "line"].map((name) => moments[name][at - 1]);
  const told = filled(done[moments.kind[at - 1]], {
    size: sized(size), asked: asked && sized(asked) !== sized(size) ? filled(said.asked, { asked: sized(asked) }) : "",
    stream: streams[stream] ?? said.elsewhere, at: line >= 0 ? `, ${lines[line]}` : "",
  });
  return filled(said.moment, { ...words, told });
}
