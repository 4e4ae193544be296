import { element } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { above, boxes, groupedBy, line, plotted, speaking, texts, upTo } from "../parts/items.js";
import { alike } from "./record.js";
import { stopMarks } from "../parts/watch.js";

// Plots of a step: active lanes over all steps, and which lanes share a sector or a bank of memory.

const [BARS_PX, MARKS_PX, TURN_PX] = [36, 7, 14];
const [ROW_PX, BANKS_PX, MOST_SECTORS] = [22, 150, 32];

/** Names of lanes in boxes, and other small texts. */
const named = (rows, more) => texts(rows, { colour: "on-accent", size: 10, ...more });

/** Active lanes over steps; a folded loop shows one of its turns, the one that the step lies in. */
export function timeline(frame, onStep) {
  const plot = new Plot(frame, plotted(BARS_PX, [0, 1], [], "Active lanes over steps", 0, 0));
  const { box, canvas } = plot;
  const cursor = element("div", { class: "gl-cursor" });
  let [shown, key] = [[], ""];
  const seek = (event) => onStep(shown[Math.max(0, Math.min(shown.length - 1, Math.floor(plot.value(frame.at(event, canvas)[0]))))]);
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); seek(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
  const placeOf = (step) => above(shown, step) - 1;

  /** Active and executing lanes, marks below steps that access memory, and each loop's turn in a bracket. */
  const items = (steps, turns) => {
    const area = (column, fill) => {
      const y = shown.map((step) => BARS_PX * (1 - steps[column][steps.mask[step]] / 32));
      return line(upTo(y.length + 1), [...y, y.at(-1)], fill, { width: 0, fill, base: BARS_PX, step: true });
    };
    const marks = Array.from(steps.access_step ?? [], (step) => [step, placeOf(step)]).filter(([step, at]) => shown[at] === step);
    const spans = turns.map(({ turn, level, share }) => {
      const [left, right] = [placeOf(steps.turn_begin[turn]), placeOf(steps.turn_end[turn]) + 1];
      return { turn, left, right, part: left + share * (right - left), top: BARS_PX + MARKS_PX + level * TURN_PX };
    });
    return [
      area("mask_lanes", "lane-off"), area("mask_ran", "lane-active"), boxes(marks.map(([, at]) => [at, at, BARS_PX + 2, BARS_PX + 6, 0]), ["tail"], { inset: -0.5 }), stopMarks(steps, shown, placeOf),
      boxes(spans.map(({ left, right, top }) => [left, right, top, top + TURN_PX - 1, 0]), ["grid"], { inset: 1 }),
      boxes(spans.map(({ left, part, top }) => [left, part, top + TURN_PX - 4, top + TURN_PX - 1, 0]), ["accent-2"], { inset: 1 }),
      named(spans.map(({ turn, left, right, top }) => [left, top + 5, steps.says("turn_alone", turn), right - left]), { anchor: "start", colour: "fg", dx: 4 }),
    ];
  };
  const show = (steps, step, { fold }) => {
    const folded = fold && steps.turn ? foldedTurns(steps, step) : { shown: upTo(steps.length), turns: [] };
    const now = `${steps.warp} ${fold} ${folded.turns.map(({ turn }) => turn)}`;
    if (now !== key) {
      ({ shown } = folded);
      key = now;
      box.items = items(steps, folded.turns);
      box.height = BARS_PX + MARKS_PX + TURN_PX * folded.turns.reduce((most, { level }) => Math.max(most, level + 1), 0);
      plot.sight = box.domain = [0, shown.length];
      plot.draw();
    }
    cursor.style.left = `${(100 * (placeOf(step) + 0.5)) / shown.length}%`;
  };
  return { node: element("div", { class: "gl-timeline" }, plot.node, cursor), show, draw: () => plot.draw() };
}

/** Steps to show with every loop folded to one turn, the step's own or else the first. */
function foldedTurns(steps, step) {
  const [shown, turns, own] = [[], [], new Map()];
  if (!steps.runsIn) {
    steps.runsIn = new Map(Array.from(steps.run_outer, (outer) => [outer, []]));
    steps.run_outer.forEach((outer, run) => steps.runsIn.get(outer).push(run));
  }
  for (let turn = steps.turn[step]; turn >= 0; turn = steps.run_outer[steps.turn_run[turn]]) own.set(steps.turn_run[turn], turn);
  const walk = (from, to, outer, level) => {
    let at = from;
    for (const run of steps.runsIn.get(outer) ?? []) {
      const [first, next] = [steps.run_turns[run], steps.run_turns[run + 1]];
      const turn = own.get(run) ?? first;
      for (; at < steps.turn_begin[first]; at += 1) shown.push(at);
      turns.push({ turn, level, share: (turn - first + 1) / (next - first) });
      walk(steps.turn_begin[turn], steps.turn_end[turn], turn, level + 1);
      at = steps.turn_end[next - 1] + 1;
    }
    for (; at <= to; at += 1) shown.push(at);
  };
  walk(0, steps.length - 1, -1, 0);
  return { shown, turns };
}

const inOrder = (things, key) => [...groupedBy(things, key)].sort(([a], [b]) => a - b);
const laneNames = (lanes) => (lanes.length === 1 ? String(lanes[0].lane) : `×${lanes.length}`);
const laneList = (lanes) => `lane ${[...new Set(lanes.map(({ lane }) => lane))].join(", ")}`;

/** Sectors as boxes of 32 bytes, four to a row as in a 128-byte cache line; lanes drawn in them. */
function sectors({ lanes, sizeBytes }) {
  const touched = inOrder(lanes, ({ address }) => Math.floor(address / 32)).slice(0, MOST_SECTORS);
  const [ground, bytes, says, names, rows] = [[], [], [], [], []];
  inOrder(touched, ([sector]) => Math.floor(sector / 4)).forEach(([line, found], row) => {
    const y = row * ROW_PX;
    rows.push([0, y + 11, `0x${(128 * line).toString(16)}`]);
    for (let part = 0; part < 4; part += 1) {
      const sharing = new Map(found).get(4 * line + part);
      ground.push([32 * part, 32 * part + 31, y + 1, y + ROW_PX - 1, sharing ? 1 : 0]);
      for (const [offset, same] of inOrder(sharing ?? [], ({ address }) => address % 32)) {
        const [from, width] = [32 * part + (31 / 32) * offset, (31 / 32) * Math.min(sizeBytes, 32 - offset)];
        bytes.push([from, from + width, y + 3, y + ROW_PX - 3, 0]);
        says.push(`${laneList(same)}: bytes ${offset} to ${offset + sizeBytes - 1} of sector 0x${(32 * (4 * line + part)).toString(16)}`);
        names.push([from + width / 2, y + 11, laneNames(same), width + 1]);
      }
    }
  });
  const items = [boxes(ground, ["grid", "other"]), boxes(bytes, ["accent"], { inset: 0.5, ...speaking(says) }), named(names), named(rows, { anchor: "end", colour: "muted", dx: -8, room: null, pin: true })];
  return plotted(rows.length * ROW_PX, [0, 128], items, "Sectors of 32 bytes and the lanes in them", 96, 0);
}

/** The 32 banks as columns; each different 4-byte word a bank must deliver is a box, so height = passes. */
function banks({ lanes, sizeBytes }) {
  const words = lanes.flatMap(({ lane, address }) => upTo(Math.max(1, sizeBytes / 4), (part) => ({ lane, word: Math.floor(address / 4) + part })));
  const asked = inOrder(words, ({ word }) => word % 32).map(([bank, all]) => [bank, inOrder(all, ({ word }) => word)]);
  const highest = Math.max(...asked.map(([, different]) => different.length));
  const high = Math.max(4, Math.min(18, BANKS_PX / highest));
  const height = highest * high;
  const found = asked.flatMap(([bank, different]) => different.map(([word, sharing], level) => ({ bank, word, sharing, level, y: height - (level + 1) * high })));
  const items = [
    boxes(upTo(32, (bank) => [bank, bank + 1, 0, height, 0]), ["grid"], { inset: 1 }),
    boxes(found.map(({ bank, level, y }) => [bank, bank + 1, y + 1, y + high, level ? 1 : 0]), ["accent", "tail-text"], { inset: 2, ...speaking(found.map(({ bank, word, sharing }) => `Bank ${bank}, word ${word}: ${laneList(sharing)}`)) }),
    named(high < 12 ? [] : found.map(({ bank, sharing, y }) => [bank + 0.5, y + high / 2, laneNames(sharing), 1])),
    named(upTo(32, (bank) => [bank + 0.5, height + 9, String(bank)]), { colour: "muted", room: null }),
  ];
  return plotted(height + 16, [0, 32], items, "Lanes of the 32 banks", 0, 0);
}

/** The memory accesses of a step or a line: what they cost, and the picture of one. */
export function accessPanel(frame) {
  const node = element("div", { class: "gl-access" });
  const note = (text) => element("div", { class: "gl-note" }, text);
  let [plot, chosen, now] = [null, 0, ""];
  const show = (steps, step, { byLine }) => {
    const kinds = alike(steps.accesses(step, byLine), ({ heading, verdict }) => heading + verdict);
    const found = kinds.map(({ thing }) => thing);
    node.hidden = !steps.access_step;
    const key = `${steps.warp} ${byLine ? `line ${steps.visit(step)}` : step}`;
    // Of several the first that takes more than it need.
    if (key !== now) chosen = Math.max(0, found.findIndex(({ over }) => over));
    now = key;
    const heading = ({ heading: text, over, verdict }, at) => {
      const parts = [`${kinds[at].times > 1 ? `${kinds[at].times} × ` : ""}${text} `, element("span", { class: over ? "gl-verdict gl-over" : "gl-verdict" }, verdict)];
      const pick = () => { chosen = at; show(steps, step, { byLine }); node.querySelectorAll("button")[at].focus(); };
      if (found.length < 2) return element("div", { class: "gl-heading" }, ...parts);
      return element("div", { class: "gl-heading" }, element("button", { type: "button", class: "gl-small", "aria-pressed": String(at === chosen), onclick: pick }, ...parts));
    };
    const access = found[chosen];
    const make = access?.lanes.length ? { sectors, banks }[access.picture] : null;
    plot = make ? new Plot(frame, make(access)) : null;
    const headings = found.length ? found.map(heading) : [note(`No memory access in this ${byLine ? "line" : "step"}.`)];
    node.replaceChildren(...headings, ...(plot ? [plot.node] : []), ...(access?.note ? [note(access.note)] : []));
    plot?.draw();
  };
  return { node, show, draw: () => plot?.draw() };
}
