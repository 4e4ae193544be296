import { grouped } from "../parts/plot.js";
import { LANES, LINE, SECTOR, bankCost, lanesOf, part, upTo } from "./rule.js";

// The picture of one access as plots: the same items as picture.py makes.

const [LEFT_PX, TOP_PX, LANE_PX] = [62, 16, 26];
const [ROOM_PX, LEAST_PX, MOST_PX] = [224, 7, 40];
const LANE_COLOURS = upTo(LANES, (lane) => `lane-${lane}`);

const rowPx = (rows) => Math.max(LEAST_PX, Math.min(MOST_PX, part(ROOM_PX, Math.max(1, rows))));
const rects = (x0, x1, y0, y1, colour, colours, more) => ({
  item: "rects", x0, x1, y0, y1, ...(typeof colour === "string" ? { colour: x0.map(() => 0), colours: [colour] } : { colour, colours }),
  inset: 0, outline: false, hatch: false, ...more,
});
const labels = (x, y, text, more) => ({
  item: "labels", x, y, text, anchor: "start", colour: "fg", size: 11, weight: "normal", dx: 0, room: null, spread: false, turn: false, mono: false, pin: false, ...more,
});
const ticks = (y, text) => labels(text.map(() => 0), y, text, { anchor: "end", dx: -5, pin: true, of_rows: false });
const plot = (height, domain, items, label, left, right) => ({ box: "plot", height, domain, left, right, label, zoom: false, items });
const of = (lanes, say, more) => ({ ...more, lane: lanes, at: upTo(lanes.length), say: [["at", lanes.map((lane) => say[lane])]] });

/** The 32 lanes; those that take no part are grey. */
export function lanesPlot(access, say) {
  const lanes = upTo(LANES);
  const taking = lanes.map((lane) => access.addresses[lane] >= 0);
  const named = (ours, colour) => {
    const found = lanes.filter((lane) => taking[lane] === ours);
    return labels(found.map((lane) => lane + 0.5), found.map(() => LANE_PX / 2), found.map(String), {
      anchor: "middle", colour, weight: ours ? "bold" : "normal", room: found.map(() => 1.3),
    });
  };
  const colour = lanes.map((lane) => (taking[lane] ? lane : LANES));
  const items = [
    rects(lanes, lanes.map((lane) => lane + 1), lanes.map(() => 0), lanes.map(() => LANE_PX), colour, [...LANE_COLOURS, "grid"], of(lanes, say, { inset: 1 })),
    named(true, "on-lane"), named(false, "muted"),
  ];
  return plot(LANE_PX, [0, LANES], items, "The 32 lanes of the warp", 0, 0);
}

/** The touched lines, one below the other: bytes in their lanes' colours, what else is fetched hatched. */
export function memoryPlot(access, say) {
  const { addresses, size_bytes: size } = access;
  const lanes = lanesOf(access);
  const lines = [...new Set(lanes.map((lane) => part(addresses[lane], LINE)))].sort((a, b) => a - b);
  const place = new Map(lines.map((line, at) => [line, at]));
  const touched = new Set(lanes.map((lane) => part(addresses[lane], SECTOR)));
  const high = rowPx(lines.length);
  const gap = high > 10 ? 2 : 1;
  const sectors = lines.flatMap((line) => upTo(LINE / SECTOR, (sector) => [line, sector]));
  const grounds = [true, false].map((fetched) => {
    const found = sectors.filter(([line, sector]) => touched.has(line * 4 + sector) === fetched).map(([line, sector]) => [place.get(line), sector]);
    return rects(
      found.map(([, s]) => SECTOR * s), found.map(([, s]) => SECTOR * (s + 1)), found.map(([r]) => TOP_PX + r * high), found.map(([r]) => TOP_PX + r * high + high - gap),
      fetched ? "muted" : "grid", [], { inset: 1, hatch: fetched },
    );
  });
  const sharing = new Map();
  for (const lane of lanes) sharing.set(addresses[lane], [...(sharing.get(addresses[lane]) ?? []), lane]);
  const [x0, tops, bottoms] = [[], [], []];
  for (const lane of lanes) {
    const same = sharing.get(addresses[lane]);
    const top = TOP_PX + place.get(part(addresses[lane], LINE)) * high;
    const each = (high - gap) / same.length;
    x0.push(addresses[lane] % LINE);
    tops.push(top + same.indexOf(lane) * each);
    bottoms.push(top + (same.indexOf(lane) + 1) * each);
  }
  const alone = lanes.filter((lane) => sharing.get(addresses[lane]).length === 1 && high > 12);
  const step = Math.ceil(13 / high);
  const shown = lines.map((line, at) => [TOP_PX + at * high + high / 2 - 1, `+${grouped(LINE * (line - lines[0]))}`]).filter((_, at) => at % step === 0);
  const items = [
    ...grounds,
    rects(x0, x0.map((x) => x + size), tops, bottoms, [...lanes], LANE_COLOURS, of(lanes, say, { inset: 0.5 })),
    labels(alone.map((lane) => (addresses[lane] % LINE) + size / 2), alone.map((lane) => TOP_PX + place.get(part(addresses[lane], LINE)) * high + (high - gap) / 2), alone.map(String), {
      anchor: "middle", colour: "on-lane", size: 10, room: alone.map(() => size * 1.25),
    }),
    labels(upTo(4, (s) => 32 * s + 16), [7, 7, 7, 7], upTo(4, (s) => `bytes ${32 * s}–${32 * s + 31}\n${32 * s}–${32 * s + 31}`), { anchor: "middle", colour: "muted", size: 10.5, room: [32, 32, 32, 32] }),
    ticks(shown.map(([y]) => y), shown.map(([, text]) => text)),
  ];
  return plot(TOP_PX + high * Math.max(1, lines.length) + 2, [0, LINE], items, "Lines and sectors", LEFT_PX, 2);
}

/** The 32 banks, their words stacked pass by pass; passes that a conflict adds have a ground of their own. */
export function banksPlot(access, say) {
  const cost = bankCost(access);
  const rows = Math.max(1, cost.passes);
  const high = rowPx(rows);
  const gap = high > 10 ? 2 : 1;
  const extra = new Set(cost.pieces.filter(([, , depth]) => depth).map(([, row]) => row));
  const grounds = [[false, "grid"], [true, "error-bg"]].map(([conflict, colour]) => {
    const found = upTo(rows).filter((row) => extra.has(row) === conflict).flatMap((row) => upTo(LANES, (bank) => [row, bank]));
    return rects(
      found.map(([, bank]) => bank), found.map(([, bank]) => bank + 1), found.map(([r]) => TOP_PX + r * high), found.map(([r]) => TOP_PX + r * high + high - gap), colour, [], { inset: 0.5 },
    );
  });
  const sharing = new Map();
  for (const [lane, row, , bank] of cost.pieces) sharing.set(`${row} ${bank}`, [...(sharing.get(`${row} ${bank}`) ?? []), lane]);
  const [x0, x1, tops, bottoms, lanes] = [[], [], [], [], []];
  for (const [lane, row, , bank, banks] of [...cost.pieces].sort((a, b) => a[0] - b[0])) {
    const same = sharing.get(`${row} ${bank}`);
    const each = (high - gap) / same.length;
    const top = TOP_PX + row * high + same.indexOf(lane) * each;
    x0.push(bank);
    x1.push(bank + banks);
    tops.push(top);
    bottoms.push(top + each);
    lanes.push(lane);
  }
  const alone = upTo(lanes.length).filter((at) => bottoms[at] - tops[at] > 10);
  const step = Math.ceil(13 / high);
  const passes = upTo(cost.passes).filter((row) => row % step === 0);
  const items = [
    ...grounds,
    rects(x0, x1, tops, bottoms, lanes, LANE_COLOURS, of(lanes, say, { inset: 0.5 })),
    labels(alone.map((at) => (x0[at] + x1[at]) / 2), alone.map((at) => (tops[at] + bottoms[at]) / 2), alone.map((at) => String(lanes[at])), {
      anchor: "middle", colour: "on-lane", size: 10, room: alone.map((at) => 1.25 * (x1[at] - x0[at])),
    }),
    labels(upTo(8, (at) => 4 * at + 0.5), upTo(8, () => 7), upTo(8, (at) => String(4 * at)), { anchor: "middle", colour: "muted", size: 10.5 }),
    ...[[false, "fg"], [true, "tail-text"]].map(([conflict, colour]) => {
      const found = passes.filter((row) => extra.has(row) === conflict);
      return labels(found.map(() => 0), found.map((row) => TOP_PX + row * high + high / 2 - 1), found.map((row) => `pass ${row + 1}`), { anchor: "end", dx: -5, pin: true, colour });
    }),
  ];
  return plot(TOP_PX + high * rows + 2, [0, LANES], items, "Banks", LEFT_PX, 2);
}
