import { pixelOf } from "../parts/plot.js";
import { sized } from "../parts/words.js";
import { FREE, UNMAPPED } from "./state.js";

// Paints a pool's segments as rows: first which tile has each pixel of a row, then the pixels.

const [LEFT, RIGHT] = [96, 8];
const GAP = 4;
const NAMED_PX = 34;
const [NONE, EDGE, HOLE, EMPTY, GIVEN] = [0, 1, 2, 3, 4];
const FIRST = 5; // codes from here on: two for each colour, in use and waiting

export class MapCanvas {
  constructor(frame, pool, canvas) {
    Object.assign(this, { frame, pool, canvas, chosen: -1 });
  }

  /** Left and right of a part of a row, and the row, for bytes of a segment; `each` is called for each part. */
  parts(number, from, to, each) {
    const { segment } = this.pool.panel;
    const rowBytes = this.pool.contents.row_bytes;
    const scale = segment.wide[number] / Math.max(1, segment.size[number]);
    // A block of a damaged trace may reach beyond its segment.
    const [left, right] = [from, to].map((at) => segment.start[number] + Math.min(Math.max(0, at - segment.low[number]), segment.size[number]) * scale);
    const last = Math.floor(Math.max(left, right - 1e-6) / rowBytes);
    for (let row = Math.floor(left / rowBytes); row <= last; row += 1) each(Math.max(0, left / rowBytes - row), Math.min(1, right / rowBytes - row), row);
  }

  draw({ colourOf, emptied, rowPx, textOf }) {
    const { pool, canvas } = this;
    const width = Math.floor(canvas.parentElement.clientWidth);
    if (width < 1) return;
    const { ratio } = this.frame;
    const { panel, tiles } = pool;
    this.wide = Math.max(10, width - LEFT - RIGHT);
    this.rowPx = rowPx;
    const rows = Math.max(1, panel.rows);
    const height = rows * rowPx + 2;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, canvas.width, canvas.height);
    const across = Math.round(this.wide * ratio);
    const codes = new Uint16Array(rows * across);
    const names = [];
    const paint = (tile, code) => {
      const number = tiles.segment[tile];
      let widest = null;
      this.parts(number, tiles.address[tile], tiles.address[tile] + tiles.size[tile], (from, to, row) => {
        const left = Math.max(0, Math.min(across - 1, Math.floor(from * across)));
        const right = Math.max(left + 1, Math.min(across, Math.floor(to * across)));
        codes.fill(code, row * across + left, row * across + right);
        if (right - left > 3) codes[row * across + right - 1] = EDGE;
        if (!widest || right - left > widest[1] - widest[0]) widest = [left, right, row];
      });
      if (widest && widest[1] - widest[0] > NAMED_PX * ratio) names.push([tile, code, ...widest]);
    };
    // What is free comes first: a block in use that is less than a pixel wide is not to vanish under it.
    for (let tile = 0; tile < tiles.count; tile += 1) {
      const kind = tiles.block[tile];
      if (kind === UNMAPPED) paint(tile, HOLE);
      if (kind === FREE) paint(tile, emptied && this.givenBack(tile) ? GIVEN : EMPTY);
    }
    for (let tile = 0; tile < tiles.count; tile += 1) {
      const kind = tiles.block[tile];
      if (kind >= 0) paint(tile, FIRST + 2 * colourOf(kind) + (pool.waits(kind) ? 1 : 0));
    }
    this.fill(pen, codes, across, rows, ratio);
    this.outline(pen, ratio);
    this.write(pen, names, ratio, textOf);
    this.labels(pen, ratio);
    this.ring(pen, ratio);
  }

  /** Whether a free piece goes when the cache is emptied (of an expandable segment the larger part of it). */
  givenBack(tile) {
    const { pool } = this;
    const number = pool.tiles.segment[tile];
    if (!pool.panel.segment.expandable[number]) return pool.unused.has(number);
    return pool.tiles.size[tile] >= (pool.panel.segment.pool[number] === 1 ? 2 : 20) * 2 ** 20;
  }

  /** Pixels from codes. */
  fill(pen, codes, across, rows, ratio) {
    const shade = (name) => pixelOf(this.frame.colour(name));
    const [ground, panel, grid, hatch] = ["bg", "panel", "grid", "other"].map(shade);
    const colours = this.colours.map((name) => [shade(name), shade(`${name}-pale`)]);
    const high = Math.round((this.rowPx - GAP) * ratio);
    const period = Math.round(7 * ratio);
    const thick = Math.max(1, Math.round(1.4 * ratio));
    const picture = pen.createImageData(across, high);
    const pixels = new Uint32Array(picture.data.buffer);
    for (let row = 0; row < rows; row += 1) {
      const line = codes.subarray(row * across, (row + 1) * across);
      for (let y = 0; y < high; y += 1) {
        const from = y * across;
        for (let x = 0; x < across; x += 1) {
          const code = line[x];
          let pixel = 0;
          if (code >= FIRST) {
            const colour = colours[(code - FIRST) >> 1];
            pixel = (code - FIRST) & 1 && (x - y + 100 * period) % period < period / 2 ? colour[1] : colour[0];
          } else if (code === EMPTY) pixel = (x + y) % period < thick ? hatch : panel;
          else if (code === HOLE) pixel = x % period < thick && y % period < thick ? hatch : ground;
          else if (code === GIVEN) pixel = (y < thick || y >= high - thick) && x % period < period / 2 ? hatch : ground;
          else if (code === EDGE) pixel = ground;
          else pixel = y === high - 1 ? grid : 0;
          pixels[from + x] = pixel;
        }
      }
      pen.putImageData(picture, Math.round(LEFT * ratio), Math.round(row * this.rowPx * ratio));
    }
  }

  /** A line around each segment, so that one is told from the next. */
  outline(pen, ratio) {
    const { tiles } = this.pool;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.strokeStyle = this.frame.colour("muted");
    pen.lineWidth = 1;
    let first = 0;
    for (let at = 1; at <= tiles.count; at += 1) {
      if (at < tiles.count && tiles.segment[at] === tiles.segment[first]) continue;
      this.parts(tiles.segment[first], tiles.address[first], tiles.address[at - 1] + tiles.size[at - 1], (from, to, row) => {
        if ((to - from) * this.wide < 3) return;
        pen.strokeRect(LEFT + from * this.wide + 0.5, row * this.rowPx + 0.5, (to - from) * this.wide - 1, this.rowPx - GAP - 1);
      });
      first = at;
    }
  }

  /** Sizes and owners in tiles that have room for them. */
  write(pen, names, ratio, textOf) {
    if (this.rowPx - GAP < 10) return;
    pen.font = `${this.rowPx - GAP < 13 ? 10 : 11}px ${getComputedStyle(this.frame.root).fontFamily}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const inks = this.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    const { tiles } = this.pool;
    for (const [tile, code, left, right, row] of names) {
      const room = (right - left) / ratio - 8;
      const forms = code >= FIRST ? [`${sized(tiles.size[tile])}  ${textOf(tiles.block[tile])}`, sized(tiles.size[tile])] : code === EMPTY ? [sized(tiles.size[tile])] : [];
      // A plate is not to hide the stripes of what waits.
      const most = code >= FIRST && (code - FIRST) & 1 ? room / 2 : room;
      const text = forms.find((form) => pen.measureText(form).width <= most);
      if (!text) continue;
      const [x, y] = [LEFT + left / ratio + 4, row * this.rowPx + (this.rowPx - GAP) / 2];
      const plate = code < FIRST || (code - FIRST) & 1;
      if (plate) {
        pen.fillStyle = this.frame.colour(code < FIRST ? "panel" : "bg");
        const high = Math.min(14, this.rowPx - GAP - 2);
        pen.fillRect(x - 2, y - high / 2, pen.measureText(text).width + 4, high);
      }
      pen.fillStyle = plate ? this.frame.colour("fg") : inks[(code - FIRST) >> 1];
      pen.fillText(text, x, y + 0.5);
    }
  }

  labels(pen) {
    pen.font = `11px ${getComputedStyle(this.frame.root).fontFamily}`;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = this.frame.colour("muted");
    for (const [name, first] of this.pool.panel.groups) pen.fillText(name, LEFT - 6, (first + 0.5) * this.rowPx - GAP / 2, LEFT - 8);
  }

  ring(pen) {
    const { tiles } = this.pool;
    if (this.chosen < 0 || this.chosen >= tiles.count) return;
    pen.strokeStyle = this.frame.colour("fg");
    pen.lineWidth = 2;
    const start = tiles.address[this.chosen];
    this.parts(tiles.segment[this.chosen], start, start + tiles.size[this.chosen], (from, to, row) => {
      pen.strokeRect(LEFT + from * this.wide, row * this.rowPx + 1, Math.max(2, (to - from) * this.wide), this.rowPx - GAP - 2);
    });
  }

  /** The tile at a place of the canvas, or -1. */
  at(x, y) {
    const row = Math.floor(y / this.rowPx);
    const here = (x - LEFT) / this.wide;
    const near = 1.5 / this.wide;
    const { tiles } = this.pool;
    let [found, distance] = [-1, near];
    for (let tile = 0; tile < tiles.count; tile += 1) {
      this.parts(tiles.segment[tile], tiles.address[tile], tiles.address[tile] + tiles.size[tile], (from, to, of) => {
        if (of !== row) return;
        const away = Math.max(0, from - here, here - to);
        if (away < distance || (away === 0 && tiles.block[tile] >= 0)) [found, distance] = [tile, away];
      });
    }
    return found;
  }

  /** Where an arrow leads from the chosen tile: to its neighbour, or to the next segment. */
  next(key) {
    const { tiles } = this.pool;
    const at = Math.max(0, Math.min(tiles.count - 1, this.chosen));
    if (this.chosen < 0) return tiles.count ? 0 : -1;
    if (key === "ArrowRight") return Math.min(tiles.count - 1, at + 1);
    if (key === "ArrowLeft") return Math.max(0, at - 1);
    const by = key === "ArrowDown" ? 1 : -1;
    let to = at;
    while (to >= 0 && to < tiles.count && tiles.segment[to] === tiles.segment[at]) to += by;
    if (to < 0 || to >= tiles.count) return at;
    const number = tiles.segment[to];
    while (by < 0 && to > 0 && tiles.segment[to - 1] === number) to -= 1;
    return to;
  }
}
