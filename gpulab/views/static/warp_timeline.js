import { canvasFont, number, prepare } from "./base.js";
import { laneCount } from "./warp_steps.js";
import { firstAtLeast } from "./warp_state.js";

// Active lanes over steps on a canvas; a folded loop shows one of its turns.

const TIMELINE_HEIGHT = 60;
const BRACKET_HEIGHT = 15;

export class Timeline {
  constructor(frame, canvas) {
    this.frame = frame;
    this.canvas = canvas;
    this.ranges = [];
    this.total = 0;
  }

  /** Position of a step among those shown, or of the shown one before it. */
  place(step) {
    let before = 0;
    for (const [from, to] of this.ranges) {
      if (step < from) break;
      if (step <= to) return before + step - from;
      before += to - from + 1;
    }
    return before - 1;
  }

  stepAt(place) {
    let left = place;
    for (const [from, to] of this.ranges) {
      if (left <= to - from) return from + Math.max(0, left);
      left -= to - from + 1;
    }
    return this.ranges.length ? this.ranges.at(-1)[1] : 0;
  }

  seek(clientX) {
    const box = this.canvas.getBoundingClientRect();
    return this.stepAt(Math.floor(((clientX - box.left) / box.width) * this.total));
  }

  draw(steps, step, fold) {
    const loops = steps.loops;
    const folded = fold && loops.length > 0;
    const { ranges, shown } = folded ? loops.folded(step, steps.length) : { ranges: [[0, steps.length - 1]], shown: [] };
    this.ranges = ranges;
    this.total = ranges.reduce((sum, [from, to]) => sum + to - from + 1, 0);
    const depth = (run) => { let levels = 0; for (let at = loops.parent[run]; at >= 0; at = loops.parent[at]) levels += 1; return levels; };
    const levels = shown.length ? 1 + Math.max(...shown.map(({ run }) => depth(run))) : 0;
    const { pen, width, height } = prepare(this.canvas, TIMELINE_HEIGHT + levels * BRACKET_HEIGHT);
    const colour = (name) => this.frame.colour(name);
    const barsHeight = TIMELINE_HEIGHT - 21;
    this.bars(pen, steps, width, barsHeight, colour);
    const x = (place) => ((place + 0.5) / this.total) * width;
    pen.fillStyle = colour("tail");
    let before = 0;
    for (const [from, to] of this.ranges) {
      const accesses = steps.accesses.subarray(firstAtLeast(steps.accesses, from), firstAtLeast(steps.accesses, to + 1));
      for (const at of accesses) pen.fillRect(x(before + at - from) - 1, barsHeight + 2, 2, 4);
      before += to - from + 1;
    }
    pen.font = canvasFont(this.frame.root, 10);
    pen.textBaseline = "middle";
    for (const { run, turn, begin, end } of shown) {
      const left = (this.place(begin) / this.total) * width + 1;
      const right = ((this.place(end) + 1) / this.total) * width - 1;
      const y = barsHeight + 10 + depth(run) * BRACKET_HEIGHT;
      const turns = loops.turns(run).length;
      pen.fillStyle = colour("grid");
      pen.fillRect(left, y, right - left, BRACKET_HEIGHT - 3);
      pen.fillStyle = colour("accent-2");
      pen.fillRect(left, y + BRACKET_HEIGHT - 6, ((right - left) * turn) / turns, 3);
      pen.fillStyle = colour("fg");
      const texts = [`iteration ${number(turn)} of ${loops.count(run)}`, `${turn}/${loops.count(run)}`];
      const text = texts.find((words) => pen.measureText(words).width < right - left - 4);
      if (text) pen.fillText(text, left + 3, y + 5);
    }
    pen.strokeStyle = colour("fg");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x(this.place(step)), 0);
    pen.lineTo(x(this.place(step)), barsHeight + 7);
    pen.stroke();
    pen.fillStyle = colour("muted");
    pen.textBaseline = "bottom";
    const captions = ["active lanes over steps", ...(steps.anyOff ? ["light: predicated off"] : []), "marks below: memory accesses", ...(shown.length ? ["one turn of each loop shown"] : [])];
    while (captions.length > 1 && pen.measureText(captions.join("; ")).width > width) captions.pop();
    pen.fillText(captions.join("; "), 0, height);
  }

  bars(pen, steps, width, barsHeight, colour) {
    const columnsUsed = Math.min(this.total, width);
    const wide = width / columnsUsed;
    const list = [];
    for (const [from, to] of this.ranges) for (let at = from; at <= to; at += 1) list.push(at);
    for (let column = 0; column < columnsUsed; column += 1) {
      const from = Math.floor((column * this.total) / columnsUsed);
      const to = Math.max(from + 1, Math.floor(((column + 1) * this.total) / columnsUsed));
      let active = 0;
      let executed = 0;
      for (let at = from; at < to; at += 1) {
        active += laneCount(steps.active[list[at]]);
        executed += laneCount(steps.executed[list[at]]);
      }
      const scale = barsHeight / (32 * (to - from));
      const gap = wide > 4 ? 1 : 0;
      pen.fillStyle = colour("accent-2");
      pen.fillRect(column * wide, barsHeight - active * scale, wide - gap, active * scale);
      pen.fillStyle = colour("accent");
      pen.fillRect(column * wide, barsHeight - executed * scale, wide - gap, executed * scale);
    }
  }
}
