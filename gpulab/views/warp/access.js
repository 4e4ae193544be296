import { element } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";

// Pictures of one memory access: which lanes share a 32-byte sector, or a shared-memory bank.

const MOST_SECTORS = 32;
const ROW_PX = 22;
const BANKS_PX = 150;

/** Things grouped by a key, in ascending order of it. */
function groupedBy(things, key) {
  const groups = new Map();
  for (const thing of things) {
    const value = key(thing);
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(thing);
  }
  return [...groups].sort(([a], [b]) => a - b);
}

const hex = (value) => `0x${value.toString(16)}`;
const laneNames = (lanes) => (lanes.length === 1 ? String(lanes[0].lane) : `×${lanes.length}`);
const laneList = (lanes) => `lane ${[...new Set(lanes.map(({ lane }) => lane))].join(", ")}`;

/** Rectangles (x0, x1, y0, y1, index of their colour) as an item; `say` gives each a sentence. */
function boxes(rects, colours, inset, say) {
  const [x0, x1, y0, y1, colour] = [0, 1, 2, 3, 4].map((part) => rects.map((rect) => rect[part]));
  return { item: "rects", x0, x1, y0, y1, colour, colours, inset, ...(say ? { say: [["at", say]], at: say.map((_, at) => at) } : {}) };
}

/** Texts (x, y, text, room) as an item. */
function texts(rows, more) {
  const [x, y, text, room] = [0, 1, 2, 3].map((part) => rows.map((each) => each[part]));
  return { item: "labels", x, y, text, room, anchor: "middle", colour: "on-accent", size: 10, weight: "normal", dx: 0, ...more };
}

/** Sectors as boxes of 32 bytes, four to a row as in a 128-byte cache line; lanes drawn in them. */
function sectorPlot({ lanes, sizeBytes }) {
  const drawn = groupedBy(lanes, ({ address }) => Math.floor(address / 32)).slice(0, MOST_SECTORS);
  const touched = new Map(drawn);
  const [ground, bytes, says, names, rows] = [[], [], [], [], []];
  groupedBy(drawn, ([sector]) => Math.floor(sector / 4)).forEach(([cacheLine], row) => {
    const y = row * ROW_PX;
    rows.push([0, y + 11, hex(128 * cacheLine)]);
    for (let part = 0; part < 4; part += 1) {
      const sharing = touched.get(4 * cacheLine + part);
      ground.push([32 * part, 32 * part + 31, y + 1, y + ROW_PX - 1, sharing ? 1 : 0]);
      for (const [offset, same] of groupedBy(sharing ?? [], ({ address }) => address % 32)) {
        const from = (31 / 32) * offset;
        const width = (31 / 32) * Math.min(sizeBytes, 32 - offset);
        bytes.push([32 * part + from, 32 * part + from + width, y + 3, y + ROW_PX - 3, 0]);
        says.push(`${laneList(same)}: bytes ${offset} to ${offset + sizeBytes - 1} of sector ${hex(32 * (4 * cacheLine + part))}`);
        names.push([32 * part + from + width / 2, y + 11, laneNames(same), width + 1]);
      }
    }
  });
  return {
    height: rows.length * ROW_PX, domain: [0, 128], left: 96, label: "Sectors of 32 bytes and the lanes in them",
    items: [boxes(ground, ["grid", "other"], 0), boxes(bytes, ["accent"], 0.5, says), texts(names), texts(rows, { anchor: "end", colour: "muted", dx: -8, room: null, pin: true })],
  };
}

/** The 32 banks as columns; each different 4-byte word a bank must deliver is a box, so height = passes. */
function bankPlot({ lanes, sizeBytes }) {
  const words = lanes.flatMap(({ lane, address }) => Array.from({ length: Math.max(1, sizeBytes / 4) }, (_, part) => ({ lane, word: Math.floor(address / 4) + part })));
  const banks = groupedBy(words, ({ word }) => word % 32).map(([bank, asked]) => [bank, groupedBy(asked, ({ word }) => word)]);
  const highest = Math.max(...banks.map(([, different]) => different.length));
  const boxPx = Math.max(4, Math.min(18, BANKS_PX / highest));
  const height = highest * boxPx;
  const [asked, says, names] = [[], [], []];
  for (const [bank, different] of banks) {
    different.forEach(([word, sharing], level) => {
      const y = height - (level + 1) * boxPx;
      asked.push([bank, bank + 1, y + 1, y + boxPx, level ? 1 : 0]);
      says.push(`Bank ${bank}, word ${word}: ${laneList(sharing)}`);
      if (boxPx >= 12) names.push([bank + 0.5, y + boxPx / 2, laneNames(sharing), 1]);
    });
  }
  const all = Array.from({ length: 32 }, (_, bank) => bank);
  return {
    height: height + 16, domain: [0, 32], left: 0, label: "Lanes of the 32 banks",
    items: [
      boxes(all.map((bank) => [bank, bank + 1, 0, height, 0]), ["grid"], 1), boxes(asked, ["accent", "tail-text"], 2, says), texts(names),
      texts(all.map((bank) => [bank + 0.5, height + 9, String(bank), 1]), { colour: "muted", room: null }),
    ],
  };
}

/** The access of a step: what it costs, and its picture. */
export function accessPanel(frame) {
  const node = element("div", { class: "gl-access" });
  let plot = null;
  const draw = () => plot?.draw();
  const show = (steps, step) => {
    const access = steps.access(step);
    node.hidden = !steps.access_step;
    plot = null;
    if (!access) {
      node.replaceChildren(element("div", { class: "gl-note" }, "No memory access in this step."));
      return;
    }
    const make = { sectors: sectorPlot, banks: bankPlot }[access.picture];
    if (make && access.lanes.length) plot = new Plot(frame, { box: "plot", right: 0, zoom: false, ...make(access) });
    const verdict = element("span", { class: access.over ? "gl-verdict gl-over" : "gl-verdict" }, access.verdict);
    node.replaceChildren(
      element("div", { class: "gl-heading" }, `${access.heading} `, verdict),
      ...(plot ? [plot.node] : []), ...(access.note ? [element("div", { class: "gl-note" }, access.note)] : []),
    );
    draw();
  };
  return { node, show, draw };
}
