import { element } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { above, boxes, groupedBy, line, plotted, speaking, texts, upTo } from "../parts/items.js";
import { alike } from "./record.js";

// Plots of a step: active lanes over all steps, and the lanes in sectors or banks of memory.

const [BARS_PX, MARKS_PX, TURN_PX] = [36, 7, 14];
const TEXT_ROOM = 1.25; // a number in a column may be as wide as the column
const [ROW_PX, CHIP_PX, BANKS_PX, MOST_SECTORS] = [22, 26, [40, 150], 32];

/** Small texts, such as the numbers of lanes in boxes. */
const smallTexts = (rows, more) => texts(rows, { colour: "on-accent", size: 10, ...more });

/**
 * Active lanes over steps, and the slider on the same axis: one column per source line or per instruction. A
 * folded loop shows one iteration, the one that contains the step.
 */
export function timeline(frame, onStep) {
  const plot = new Plot(frame, plotted(BARS_PX, [0, 1], [], "Active lanes over steps", 0, 0));
  const { box } = plot;
  let [shown, unitOf, beginOf, key] = [[], null, null, ""];
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => onStep(beginOf(shown[Number(slider.value)])) });
  const node = element("div", { class: "gl-timeline" }, plot.node, slider);
  const placeOf = (step) => above(shown, unitOf(step)) - 1;

  /** Lanes in each column, marks of stops above and of memory accesses below, and loops with their iterations. */
  const items = (steps, turns, byLine) => {
    const area = (ofVisit, ofMask, fill) => {
      const y = shown.map((unit) => BARS_PX * (1 - (byLine ? steps[ofVisit][unit] : steps[ofMask][steps.mask[unit]]) / 32));
      return line(upTo(y.length + 1), [...y, y.at(-1)], fill, { width: 0, fill, base: BARS_PX, step: true });
    };
    const marks = (marked, width, top, bottom, colour) => {
      const places = [...new Set(Array.from(marked ?? []).filter((step) => shown[placeOf(step)] === unitOf(step)).map(placeOf))];
      return boxes(places.map((place) => [place + 0.5 * (1 - width), place + 0.5 * (1 + width), top, bottom, 0]), [colour], { inset: width ? 1 : -1 });
    };
    const spans = turns.map(({ turn, level, share }) => {
      const [left, right] = [placeOf(steps.turn_begin[turn]), placeOf(steps.turn_end[turn]) + 1];
      return { turn, left, right, part: left + share * (right - left), top: BARS_PX + MARKS_PX + level * TURN_PX };
    });
    return [
      boxes([[0, shown.length, BARS_PX * (1 - steps.threads / 32), BARS_PX, 0]], ["lane-inactive"]),
      area("visit_active", "mask_lanes", "lane-off"), area("visit_ran", "mask_ran", "lane-active"),
      marks(steps.access_step, 0, BARS_PX + 1, BARS_PX + MARKS_PX - 1, "tail"), marks(steps.stop_step, 1, 0, 7, "purple"),
      boxes(spans.map(({ left, right, top }) => [left, right, top, top + TURN_PX - 1, 0]), ["grid"], { inset: 1 }),
      boxes(spans.map(({ left, part: fillEnd, top }) => [left, fillEnd, top + TURN_PX - 4, top + TURN_PX - 1, 0]), ["accent-2"], { inset: 1 }),
      smallTexts(spans.map(({ turn, left, right, top }) => [left, top + 5, steps.says("turn_alone", turn), right - left]), { anchor: "start", colour: "fg", dx: 4 }),
    ];
  };
  const show = (steps, step, { fold, byLine }) => {
    const foldedSteps = fold && steps.turn ? foldedTurns(steps, step) : { shown: upTo(steps.length), turns: [] };
    const newKey = `${steps.warp} ${fold} ${byLine} ${foldedSteps.turns.map(({ turn }) => turn)}`;
    if (newKey !== key) {
      key = newKey;
      unitOf = (unitStep) => (byLine ? steps.visit(unitStep) : unitStep);
      beginOf = (unit) => (byLine ? steps.visit_begin[unit] : unit);
      shown = [...new Set(foldedSteps.shown.map(unitOf))];
      box.items = items(steps, foldedSteps.turns, byLine);
      box.height = BARS_PX + MARKS_PX + TURN_PX * foldedSteps.turns.reduce((levels, { level }) => Math.max(levels, level + 1), 0);
      plot.sight = box.domain = [0, shown.length];
      plot.draw();
      slider.max = String(shown.length - 1);
      node.style.setProperty("--gl-columns", shown.length);
    }
    slider.value = String(placeOf(step));
  };
  return { node, slider, show, draw: () => plot.draw() };
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
function banks({ lanes, sizeBytes }, roomPx) {
  const words = lanes.flatMap(({ lane, address }) => upTo(Math.max(1, sizeBytes / 4), (wordOffset) => ({ lane, word: Math.floor(address / 4) + wordOffset })));
  const wordsOfBanks = inOrder(words, ({ word }) => word % 32).map(([bank, wordsOfBank]) => [bank, inOrder(wordsOfBank, ({ word }) => word)]);
  const highest = Math.max(...wordsOfBanks.map(([, groupedWords]) => groupedWords.length));
  const boxHeight = Math.max(4, Math.min(18, Math.max(BANKS_PX[0], Math.min(BANKS_PX[1], roomPx)) / highest));
  const height = highest * boxHeight;
  const wordBoxes = wordsOfBanks.flatMap(([bank, groupedWords]) => groupedWords.map(([word, sharing], level) => ({ bank, word, sharing, level, y: height - (level + 1) * boxHeight })));
  const items = [
    boxes(upTo(32, (bank) => [bank, bank + 1, 0, height, 0]), ["grid"], { inset: 1 }),
    boxes(wordBoxes.map(({ bank, level, y }) => [bank, bank + 1, y + 1, y + boxHeight, level ? 1 : 0]), ["accent", "tail-text"], { inset: 2, ...speaking(wordBoxes.map(({ bank, word, sharing }) => `Bank ${bank}, word ${word}: ${laneList(sharing)}`)) }),
    smallTexts(boxHeight < 12 ? [] : wordBoxes.map(({ bank, sharing, y }) => [bank + 0.5, y + boxHeight / 2, laneNames(sharing), TEXT_ROOM])),
    smallTexts(upTo(32, (bank) => [bank + 0.5, height + 9, String(bank), bank % 4 ? TEXT_ROOM : 4]), { colour: "muted" }),
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
    plot = make ? new Plot(frame, make(access, node.clientHeight - CHIP_PX * accesses.length - 16)) : null;
    const headings = accesses.length ? accesses.map(heading) : [note(`No memory access in this ${byLine ? "line" : "step"}.`)];
    node.replaceChildren(...headings, ...(plot ? [plot.node] : []), ...(access?.note ? [note(access.note)] : []));
    plot?.draw();
  };
  return { node, show, draw: () => plot?.draw() };
}
