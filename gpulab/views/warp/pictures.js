import { element } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { above, boxes, groupedBy, line, plotted, speaking, texts, upTo } from "../parts/items.js";
import { alike } from "./record.js";
import { stopMarks } from "../parts/watch.js";

// Plots of a step: active lanes over all steps, and the lanes in sectors or banks of memory.

const [BARS_PX, MARKS_PX, TURN_PX] = [36, 7, 14];
const [ROW_PX, BANKS_PX, MOST_SECTORS] = [22, 150, 32];

/** Small texts, such as the numbers of lanes in boxes. */
const smallTexts = (rows, more) => texts(rows, { colour: "on-accent", size: 10, ...more });

/** Active lanes over steps; a folded loop shows one iteration, the one that contains the step. */
export function timeline(frame, onStep) {
  const plot = new Plot(frame, plotted(BARS_PX, [0, 1], [], "Active lanes over steps", 0, 0));
  const { box, canvas } = plot;
  const cursor = element("div", { class: "gl-cursor" });
  let [shown, key] = [[], ""];
  const seek = (event) => onStep(shown[Math.max(0, Math.min(shown.length - 1, Math.floor(plot.value(frame.at(event, canvas)[0]))))]);
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); seek(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });
  const placeOf = (step) => above(shown, step) - 1;

  /** Active and executing lanes, marks below steps that access memory, and brackets with loops' iterations. */
  const items = (steps, turns) => {
    const area = (column, fill) => {
      const y = shown.map((step) => BARS_PX * (1 - steps[column][steps.mask[step]] / 32));
      return line(upTo(y.length + 1), [...y, y.at(-1)], fill, { width: 0, fill, base: BARS_PX, step: true });
    };
    const marks = Array.from(steps.access_step ?? [], (step) => [step, placeOf(step)]).filter(([step, position]) => shown[position] === step);
    const spans = turns.map(({ turn, level, share }) => {
      const [left, right] = [placeOf(steps.turn_begin[turn]), placeOf(steps.turn_end[turn]) + 1];
      return { turn, left, right, part: left + share * (right - left), top: BARS_PX + MARKS_PX + level * TURN_PX };
    });
    return [
      area("mask_lanes", "lane-off"), area("mask_ran", "lane-active"), boxes(marks.map(([, position]) => [position, position, BARS_PX + 2, BARS_PX + 6, 0]), ["tail"], { inset: -0.5 }), stopMarks(steps, shown, placeOf),
      boxes(spans.map(({ left, right, top }) => [left, right, top, top + TURN_PX - 1, 0]), ["grid"], { inset: 1 }),
      boxes(spans.map(({ left, part: fillEnd, top }) => [left, fillEnd, top + TURN_PX - 4, top + TURN_PX - 1, 0]), ["accent-2"], { inset: 1 }),
      smallTexts(spans.map(({ turn, left, right, top }) => [left, top + 5, steps.says("turn_alone", turn), right - left]), { anchor: "start", colour: "fg", dx: 4 }),
    ];
  };
  const show = (steps, step, { fold }) => {
    const foldedSteps = fold && steps.turn ? foldedTurns(steps, step) : { shown: upTo(steps.length), turns: [] };
    const newKey = `${steps.warp} ${fold} ${foldedSteps.turns.map(({ turn }) => turn)}`;
    if (newKey !== key) {
      ({ shown } = foldedSteps);
      key = newKey;
      box.items = items(steps, foldedSteps.turns);
      box.height = BARS_PX + MARKS_PX + TURN_PX * foldedSteps.turns.reduce((levels, { level }) => Math.max(levels, level + 1), 0);
      plot.sight = box.domain = [0, shown.length];
      plot.draw();
    }
    cursor.style.left = `${(100 * (placeOf(step) + 0.5)) / shown.length}%`;
  };
  return { node: element("div", { class: "gl-timeline" }, plot.node, cursor), show, draw: () => plot.draw() };
}

/** The visible steps, with every loop folded to one iteration: the one that contains the step, or the first. */
function foldedTurns(steps, step) {
  const [shown, loops, currentTurns] = [[], [], new Map()];
  if (!steps.runsIn) {
    steps.runsIn = new Map(Array.from(steps.run_outer, (outer) => [outer, []]));
    steps.run_outer.forEach((outer, run) => steps.runsIn.get(outer).push(run));
  }
  for (let turn = steps.turn[step]; turn >= 0; turn = steps.run_outer[steps.turn_run[turn]]) currentTurns.set(steps.turn_run[turn], turn);
  const addSteps = (firstStep, lastStep, outer, level) => {
    let position = firstStep;
    for (const run of steps.runsIn.get(outer) ?? []) {
      const [first, next] = [steps.run_turns[run], steps.run_turns[run + 1]];
      const turn = currentTurns.get(run) ?? first;
      for (; position < steps.turn_begin[first]; position += 1) shown.push(position);
      loops.push({ turn, level, share: (turn - first + 1) / (next - first) });
      addSteps(steps.turn_begin[turn], steps.turn_end[turn], turn, level + 1);
      position = steps.turn_end[next - 1] + 1;
    }
    for (; position <= lastStep; position += 1) shown.push(position);
  };
  addSteps(0, steps.length - 1, -1, 0);
  return { shown, turns: loops };
}

const inOrder = (items, key) => [...groupedBy(items, key)].sort(([a], [b]) => a - b);
const laneNames = (lanes) => (lanes.length === 1 ? String(lanes[0].lane) : `×${lanes.length}`);
const laneList = (lanes) => `lane ${[...new Set(lanes.map(({ lane }) => lane))].join(", ")}`;

/** Sectors as boxes of 32 bytes, four per row as in a 128-byte cache line, with the lanes in them. */
function sectors({ lanes, sizeBytes }) {
  const touched = inOrder(lanes, ({ address }) => Math.floor(address / 32)).slice(0, MOST_SECTORS);
  const [backgrounds, bytes, sentences, names, rows] = [[], [], [], [], []];
  inOrder(touched, ([sector]) => Math.floor(sector / 4)).forEach(([line, sectorsOfLine], row) => {
    const y = row * ROW_PX;
    rows.push([0, y + 11, `0x${(128 * line).toString(16)}`]);
    for (let sectorIndex = 0; sectorIndex < 4; sectorIndex += 1) {
      const sharing = new Map(sectorsOfLine).get(4 * line + sectorIndex);
      backgrounds.push([32 * sectorIndex, 32 * sectorIndex + 31, y + 1, y + ROW_PX - 1, sharing ? 1 : 0]);
      for (const [offset, sharingLanes] of inOrder(sharing ?? [], ({ address }) => address % 32)) {
        const [left, width] = [32 * sectorIndex + (31 / 32) * offset, (31 / 32) * Math.min(sizeBytes, 32 - offset)];
        bytes.push([left, left + width, y + 3, y + ROW_PX - 3, 0]);
        sentences.push(`${laneList(sharingLanes)}: bytes ${offset} to ${offset + sizeBytes - 1} of sector 0x${(32 * (4 * line + sectorIndex)).toString(16)}`);
        names.push([left + width / 2, y + 11, laneNames(sharingLanes), width + 1]);
      }
    }
  });
  const items = [boxes(backgrounds, ["grid", "other"]), boxes(bytes, ["accent"], { inset: 0.5, ...speaking(sentences) }), smallTexts(names), smallTexts(rows, { anchor: "end", colour: "muted", dx: -8, room: null, pin: true })];
  return plotted(rows.length * ROW_PX, [0, 128], items, "Sectors of 32 bytes and the lanes in them", 96, 0);
}

/** The 32 banks as columns, with a box for each distinct 4-byte word, so that the height is the passes. */
function banks({ lanes, sizeBytes }) {
  const words = lanes.flatMap(({ lane, address }) => upTo(Math.max(1, sizeBytes / 4), (wordOffset) => ({ lane, word: Math.floor(address / 4) + wordOffset })));
  const wordsOfBanks = inOrder(words, ({ word }) => word % 32).map(([bank, wordsOfBank]) => [bank, inOrder(wordsOfBank, ({ word }) => word)]);
  const highest = Math.max(...wordsOfBanks.map(([, groupedWords]) => groupedWords.length));
  const boxHeight = Math.max(4, Math.min(18, BANKS_PX / highest));
  const height = highest * boxHeight;
  const wordBoxes = wordsOfBanks.flatMap(([bank, groupedWords]) => groupedWords.map(([word, sharing], level) => ({ bank, word, sharing, level, y: height - (level + 1) * boxHeight })));
  const items = [
    boxes(upTo(32, (bank) => [bank, bank + 1, 0, height, 0]), ["grid"], { inset: 1 }),
    boxes(wordBoxes.map(({ bank, level, y }) => [bank, bank + 1, y + 1, y + boxHeight, level ? 1 : 0]), ["accent", "tail-text"], { inset: 2, ...speaking(wordBoxes.map(({ bank, word, sharing }) => `Bank ${bank}, word ${word}: ${laneList(sharing)}`)) }),
    smallTexts(boxHeight < 12 ? [] : wordBoxes.map(({ bank, sharing, y }) => [bank + 0.5, y + boxHeight / 2, laneNames(sharing), 1])),
    smallTexts(upTo(32, (bank) => [bank + 0.5, height + 9, String(bank)]), { colour: "muted", room: null }),
  ];
  return plotted(height + 16, [0, 32], items, "Lanes of the 32 banks", 0, 0);
}

/** A panel with the memory accesses of a step or a line: their costs, and the picture of one of them. */
export function accessPanel(frame) {
  const node = element("div", { class: "gl-access" });
  const note = (text) => element("div", { class: "gl-note" }, text);
  let [plot, chosen, shownKey] = [null, 0, ""];
  const show = (steps, step, { byLine }) => {
    const kinds = alike(steps.accesses(step, byLine), ({ heading, verdict }) => heading + verdict);
    const accesses = kinds.map(({ thing }) => thing);
    node.hidden = !steps.access_step;
    const key = `${steps.warp} ${byLine ? `line ${steps.visit(step)}` : step}`;
    // The first access that costs more than necessary is shown first.
    if (key !== shownKey) chosen = Math.max(0, accesses.findIndex(({ over }) => over));
    shownKey = key;
    const heading = ({ heading: text, over, verdict }, index) => {
      const parts = [`${kinds[index].times > 1 ? `${kinds[index].times} × ` : ""}${text} `, element("span", { class: over ? "gl-verdict gl-over" : "gl-verdict" }, verdict)];
      const select = () => { chosen = index; show(steps, step, { byLine }); node.querySelectorAll("button")[index].focus(); };
      if (accesses.length < 2) return element("div", { class: "gl-heading" }, ...parts);
      return element("div", { class: "gl-heading" }, element("button", { type: "button", class: "gl-small", "aria-pressed": String(index === chosen), onclick: select }, ...parts));
    };
    const access = accesses[chosen];
    const make = access?.lanes.length ? { sectors, banks }[access.picture] : null;
    plot = make ? new Plot(frame, make(access)) : null;
    const headings = accesses.length ? accesses.map(heading) : [note(`No memory access in this ${byLine ? "line" : "step"}.`)];
    node.replaceChildren(...headings, ...(plot ? [plot.node] : []), ...(access?.note ? [note(access.note)] : []));
    plot?.draw();
  };
  return { node, show, draw: () => plot?.draw() };
}
