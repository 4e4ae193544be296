import { pixelOf } from "../parts/plot.js";
import { sized } from "../parts/words.js";
import { FREE, UNMAPPED } from "./state.js";

// Painting of a pool's segments as rows: first the code of each pixel in a row, then the pixels.

const [LEFT, RIGHT] = [96, 8];
const GAP = 4;
const NAMED_PX = 34;
const NOTCH_PX = 8;
const [NONE, EDGE, HOLE, EMPTY, RELEASED] = [0, 1, 2, 3, 4];
const FIRST = 5; // first code of blocks; there are two codes for each colour: in use and waiting

export class MapCanvas {
  constructor(frame, pool, canvas) {
    Object.assign(this, { frame, pool, canvas, chosen: -1 });
  }

  /** Call `onPart` with left, right and row of each part of a row that a segment's addresses cover. */
  parts(segmentIndex, startAddress, endAddress, onPart) {
    const { segment } = this.pool.panel;
    const rowBytes = this.pool.contents.row_bytes;
    const scale = segment.wide[segmentIndex] / Math.max(1, segment.size[segmentIndex]);
    // A block of a damaged trace may reach beyond its segment.
    const [left, right] = [startAddress, endAddress].map((address) => segment.start[segmentIndex] + Math.min(Math.max(0, address - segment.low[segmentIndex]), segment.size[segmentIndex]) * scale);
    const last = Math.floor(Math.max(left, right - 1e-6) / rowBytes);
    for (let row = Math.floor(left / rowBytes); row <= last; row += 1) onPart(Math.max(0, left / rowBytes - row), Math.min(1, right / rowBytes - row), row);
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
    const columns = Math.round(this.wide * ratio);
    const codes = new Uint16Array(rows * columns);
    const names = [];
    const paintTile = (tile, code) => {
      const segmentIndex = tiles.segment[tile];
      let widest = null;
      this.parts(segmentIndex, tiles.address[tile], tiles.address[tile] + tiles.size[tile], (from, to, row) => {
        const left = Math.max(0, Math.min(columns - 1, Math.floor(from * columns)));
        const right = Math.max(left + 1, Math.min(columns, Math.floor(to * columns)));
        codes.fill(code, row * columns + left, row * columns + right);
        if (right - left > 3) codes[row * columns + right - 1] = EDGE;
        if (!widest || right - left > widest[1] - widest[0]) widest = [left, right, row];
      });
      if (widest && widest[1] - widest[0] > NAMED_PX * ratio) names.push([tile, code, ...widest]);
    };
    // Free tiles are painted first, so that they do not hide blocks that are narrower than a pixel.
    for (let tile = 0; tile < tiles.count; tile += 1) {
      const kind = tiles.block[tile];
      if (kind === UNMAPPED) paintTile(tile, HOLE);
      if (kind === FREE) paintTile(tile, emptied && this.givenBack(tile) ? RELEASED : EMPTY);
    }
    for (let tile = 0; tile < tiles.count; tile += 1) {
      const kind = tiles.block[tile];
      if (kind >= 0) paintTile(tile, FIRST + 2 * colourOf(kind) + (pool.waits(kind) ? 1 : 0));
    }
    this.fill(pen, codes, columns, rows, ratio);
    this.outline(pen, ratio);
    this.write(pen, names, ratio, textOf);
    this.labels(pen, ratio);
    this.ring(pen, ratio);
  }

  /** Whether emptying the cache releases a free piece, or most of it in an expandable segment. */
  givenBack(tile) {
    const { pool } = this;
    const number = pool.tiles.segment[tile];
    if (!pool.panel.segment.expandable[number]) return pool.unused.has(number);
    return pool.tiles.size[tile] >= (pool.panel.segment.pool[number] === 1 ? 2 : 20) * 2 ** 20;
  }

  /** Convert codes to pixels. */
  fill(pen, codes, columns, rows, ratio) {
    const shade = (name) => pixelOf(this.frame.colour(name));
    const [background, panel, grid, hatch] = ["bg", "panel", "grid", "other"].map(shade);
    const colours = this.colours.map((name) => [shade(name), shade(`${name}-pale`)]);
    const heightPx = Math.round((this.rowPx - GAP) * ratio);
    const hatchPeriod = Math.round(7 * ratio);
    const strokePx = Math.max(1, Math.round(1.4 * ratio));
    const picture = pen.createImageData(columns, heightPx);
    const pixels = new Uint32Array(picture.data.buffer);
    for (let row = 0; row < rows; row += 1) {
      const rowCodes = codes.subarray(row * columns, (row + 1) * columns);
      for (let y = 0; y < heightPx; y += 1) {
        const rowStart = y * columns;
        for (let x = 0; x < columns; x += 1) {
          const code = rowCodes[x];
          let pixel = 0;
          if (code >= FIRST) {
            const colour = colours[(code - FIRST) >> 1];
            pixel = (code - FIRST) & 1 && (x - y + 100 * hatchPeriod) % hatchPeriod < hatchPeriod / 2 ? colour[1] : colour[0];
          } else if (code === EMPTY) pixel = (x + y) % hatchPeriod < strokePx ? hatch : panel;
          else if (code === HOLE) pixel = x % hatchPeriod < strokePx && y % hatchPeriod < strokePx ? hatch : background;
          else if (code === RELEASED) pixel = (y < strokePx || y >= heightPx - strokePx) && x % hatchPeriod < hatchPeriod / 2 ? hatch : background;
          else if (code === EDGE) pixel = background;
          else pixel = y === heightPx - 1 ? grid : 0;
          pixels[rowStart + x] = pixel;
        }
      }
      pen.putImageData(picture, Math.round(LEFT * ratio), Math.round(row * this.rowPx * ratio));
    }
  }

  /** Draw a line around each segment. */
  outline(pen, ratio) {
    const { tiles, panel: { segment } } = this.pool;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.strokeStyle = this.frame.colour("muted");
    pen.lineWidth = 1;
    let firstTile = 0;
    for (let tile = 1; tile <= tiles.count; tile += 1) {
      if (tile < tiles.count && tiles.segment[tile] === tiles.segment[firstTile]) continue;
      let right = null; // the upper right corner, and the size of a notch there
      this.parts(tiles.segment[firstTile], tiles.address[firstTile], tiles.address[tile - 1] + tiles.size[tile - 1], (from, to, row) => {
        if ((to - from) * this.wide < 3) return;
        pen.strokeRect(LEFT + from * this.wide + 0.5, row * this.rowPx + 0.5, (to - from) * this.wide - 1, this.rowPx - GAP - 1);
        right = [LEFT + to * this.wide, row * this.rowPx, Math.min(NOTCH_PX, ((to - from) * this.wide) / 2, (this.rowPx - GAP) / 2)];
      });
      if (right && segment.widened[tiles.segment[firstTile]]) this.notch(pen, ...right);
      firstTile = tile;
    }
  }

  /** Cut the corner of a segment that is drawn wider than its size. */
  notch(pen, right, top, size) {
    pen.beginPath();
    pen.moveTo(right - size, top);
    pen.lineTo(right, top + size);
    pen.lineTo(right + 1, top - 1);
    pen.fillStyle = this.frame.colour("bg");
    pen.fill();
    pen.beginPath();
    pen.moveTo(right - size, top);
    pen.lineTo(right, top + size);
    pen.stroke();
  }

  /** Write sizes and owners into tiles that have enough space for them. */
  write(pen, names, ratio, textOf) {
    if (this.rowPx - GAP < 10) return;
    pen.font = `${this.rowPx - GAP < 13 ? 10 : 11}px ${getComputedStyle(this.frame.root).fontFamily}`;
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    const inks = this.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    const { tiles } = this.pool;
    for (const [tile, code, left, right, row] of names) {
      const maxWidth = (right - left) / ratio - 8;
      const forms = code >= FIRST ? [`${sized(tiles.size[tile])}  ${textOf(tiles.block[tile])}`, sized(tiles.size[tile])] : code === EMPTY ? [sized(tiles.size[tile])] : [];
      // The background of a text must not hide the stripes of a waiting block.
      const textWidth = code >= FIRST && (code - FIRST) & 1 ? maxWidth / 2 : maxWidth;
      const text = forms.find((form) => pen.measureText(form).width <= textWidth);
      if (!text) continue;
      const [x, y] = [LEFT + left / ratio + 4, row * this.rowPx + (this.rowPx - GAP) / 2];
      const hasPlate = code < FIRST || (code - FIRST) & 1;
      if (hasPlate) {
        pen.fillStyle = this.frame.colour(code < FIRST ? "panel" : "bg");
        const plateHeight = Math.min(14, this.rowPx - GAP - 2);
        pen.fillRect(x - 2, y - plateHeight / 2, pen.measureText(text).width + 4, plateHeight);
      }
      pen.fillStyle = hasPlate ? this.frame.colour("fg") : inks[(code - FIRST) >> 1];
      pen.fillText(text, x, y + 0.5);
    }
  }

  labels(pen) {
    pen.font = `11px ${getComputedStyle(this.frame.root).fontFamily}`;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillStyle = this.frame.colour("muted");
    for (const [name, firstRow] of this.pool.panel.groups) pen.fillText(name, LEFT - 6, (firstRow + 0.5) * this.rowPx - GAP / 2, LEFT - 8);
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

  /** Index of the tile at a position on the canvas, or -1. */
  at(x, y) {
    const row = Math.floor(y / this.rowPx);
    const position = (x - LEFT) / this.wide;
    const tolerance = 1.5 / this.wide;
    const { tiles } = this.pool;
    let [nearest, distance] = [-1, tolerance];
    for (let tile = 0; tile < tiles.count; tile += 1) {
      this.parts(tiles.segment[tile], tiles.address[tile], tiles.address[tile] + tiles.size[tile], (from, to, partRow) => {
        if (partRow !== row) return;
        const gap = Math.max(0, from - position, position - to);
        if (gap < distance || (gap === 0 && tiles.block[tile] >= 0)) [nearest, distance] = [tile, gap];
      });
    }
    return nearest;
  }

  /** Index of the tile that an arrow key selects: the neighbour, or one in the next segment. */
  next(key) {
    const { tiles } = this.pool;
    const current = Math.max(0, Math.min(tiles.count - 1, this.chosen));
    if (this.chosen < 0) return tiles.count ? 0 : -1;
    if (key === "ArrowRight") return Math.min(tiles.count - 1, current + 1);
    if (key === "ArrowLeft") return Math.max(0, current - 1);
    const direction = key === "ArrowDown" ? 1 : -1;
    let target = current;
    while (target >= 0 && target < tiles.count && tiles.segment[target] === tiles.segment[current]) target += direction;
    if (target < 0 || target >= tiles.count) return current;
    const segmentIndex = tiles.segment[target];
    while (direction < 0 && target > 0 && tiles.segment[target - 1] === segmentIndex) target -= 1;
    return target;
  }
}
