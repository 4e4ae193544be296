import { element } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { firstAtLeast } from "./record.js";

// Active lanes over steps; a folded loop shows one of its turns, the one that the step lies in.

const BARS_PX = 36;
const MARKS_PX = 7;
const TURN_PX = 14;
const MOST_BINS = 1000;

export class Timeline {
  constructor(frame, onStep) {
    const box = { box: "plot", height: BARS_PX, domain: [0, 1], left: 0, right: 0, label: "Active lanes over steps", items: [] };
    this.plot = new Plot(frame, box);
    this.node = element("div", { class: "gl-timeline" }, this.plot.node);
    const { canvas } = this.plot;
    const seek = (event) => onStep(this.stepAt(Math.floor(this.plot.value(event.clientX - canvas.getBoundingClientRect().left))));
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); seek(event); });
    canvas.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
  }

  /** Show a step of a warp. */
  show(steps, step, fold) {
    const shown = fold && steps.turn ? foldedTurns(steps, step) : { ranges: [[0, steps.length - 1]], turns: [] };
    const key = `${steps.warp} ${shown.ranges.join(" ")}`;
    if (key !== this.key) {
      this.key = key;
      this.ranges = shown.ranges;
      this.total = shown.ranges.reduce((sum, [from, to]) => sum + to - from + 1, 0);
      this.still = [...this.bars(steps), ...this.brackets(steps, shown.turns)];
    }
    const { box } = this.plot;
    const here = this.placeOf(step) + 0.5;
    box.items = [...this.still, { item: "rules", x0: [here], x1: [here], y0: [0], y1: [BARS_PX + MARKS_PX], colour: "fg", width: 2 }];
    box.height = BARS_PX + MARKS_PX + TURN_PX * this.levels;
    box.domain = [0, this.total];
    this.plot.sight = [0, this.total];
    this.plot.draw();
  }

  /** Position of a step among those shown, or of the shown one before it. */
  placeOf(step) {
    let before = 0;
    for (const [from, to] of this.ranges) {
      if (step < from) break;
      if (step <= to) return before + step - from;
      before += to - from + 1;
    }
    return before - 1;
  }

  stepAt(place) {
    let left = Math.max(0, place);
    for (const [from, to] of this.ranges) {
      if (left <= to - from) return from + left;
      left -= to - from + 1;
    }
    return this.ranges.at(-1)[1];
  }

  /** Mean lanes of as many steps as share a bar, and marks below steps that access memory. */
  bars(steps) {
    const bins = Math.min(this.total, MOST_BINS);
    const [active, ran, size] = [new Float64Array(bins), new Float64Array(bins), new Float64Array(bins)];
    const marked = new Set();
    let place = 0;
    for (const [from, to] of this.ranges) {
      for (let at = from; at <= to; at += 1, place += 1) {
        const bin = Math.floor((place * bins) / this.total);
        active[bin] += steps.mask_lanes[steps.mask[at]];
        ran[bin] += steps.mask_ran[steps.mask[at]];
        size[bin] += 1;
      }
      const all = steps.access_step ?? [];
      const before = place - (to - from + 1);
      for (let at = firstAtLeast(all, from); all[at] <= to; at += 1) marked.add(Math.floor(((before + all[at] - from) * bins) / this.total));
    }
    const x = Array.from({ length: bins + 1 }, (_, bin) => (bin * this.total) / bins);
    const line = (sums, fill) => {
      const y = Array.from(sums, (sum, bin) => BARS_PX * (1 - sum / (32 * size[bin])));
      return { item: "line", x, y: [...y, y.at(-1)], colour: fill, width: 0, fill, base: BARS_PX, step: true };
    };
    const at = [...marked].map((bin) => x[bin]);
    return [line(active, "accent-2"), line(ran, "accent"), {
      item: "rects", x0: at, x1: at, y0: at.map(() => BARS_PX + 2), y1: at.map(() => BARS_PX + 6), inset: -0.5, colour: at.map(() => 0), colours: ["tail"],
    }];
  }

  /** A bar below each loop that is folded, as far as its turn, and the turn in words. */
  brackets(steps, turns) {
    this.levels = turns.reduce((most, { level }) => Math.max(most, level + 1), 0);
    const left = turns.map(({ begin }) => this.placeOf(begin));
    const right = turns.map(({ end }) => this.placeOf(end) + 1);
    const top = turns.map(({ level }) => BARS_PX + MARKS_PX + level * TURN_PX);
    const upTo = turns.map(({ share }, at) => left[at] + share * (right[at] - left[at]));
    const rects = (x1, from, to, colour) => ({ item: "rects", x0: left, x1, y0: top.map((y) => y + from), y1: top.map((y) => y + to), inset: 1, colour: turns.map(() => 0), colours: [colour] });
    const texts = turns.map(({ turn }) => steps.says("turn_alone", turn));
    return [rects(right, 0, TURN_PX - 1, "grid"), rects(upTo, TURN_PX - 4, TURN_PX - 1, "accent-2"), {
      item: "labels", x: left, y: top.map((y) => y + 5), text: texts, anchor: "start", colour: "fg", size: 10, weight: "normal", dx: 4, room: right.map((to, at) => to - left[at]),
    }];
  }
}

/** Steps to show with every loop folded to one turn, the step's own or else the first. */
function foldedTurns(steps, step) {
  const ranges = [];
  const turns = [];
  const own = new Map();
  if (!steps.runsIn) {
    steps.runsIn = new Map();
    for (const outer of steps.run_outer) steps.runsIn.set(outer, []);
    steps.run_outer.forEach((outer, run) => steps.runsIn.get(outer).push(run));
  }
  for (let turn = steps.turn[step]; turn >= 0; turn = steps.run_outer[steps.turn_run[turn]]) own.set(steps.turn_run[turn], turn);
  const emit = (from, to) => { if (from <= to) ranges.push([from, to]); };
  const walk = (from, to, outer, level) => {
    let at = from;
    for (const run of steps.runsIn.get(outer) ?? []) {
      const [first, next] = [steps.run_turns[run], steps.run_turns[run + 1]];
      const turn = own.get(run) ?? first;
      const [begin, end] = [steps.turn_begin[turn], steps.turn_end[turn]];
      emit(at, steps.turn_begin[first] - 1);
      turns.push({ turn, begin, end, level, share: (turn - first + 1) / (next - first) });
      walk(begin, end, turn, level + 1);
      at = steps.turn_end[next - 1] + 1;
    }
    emit(at, to);
  };
  walk(0, steps.length - 1, -1, 0);
  return { ranges, turns };
}
