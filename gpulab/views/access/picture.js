import { boxes, groupedBy, labels, plotted, speaking, texts, ticks, upTo } from "../parts/items.js";
import { grouped } from "../parts/words.js";
import { LANES, LINE, SECTOR, bankCost, lanesOf, part } from "./rule.js";

// The picture of one access as plots: the same items as picture.py makes.

const [LEFT_PX, TOP_PX, LANE_PX] = [62, 16, 26];
const [ROOM_PX, LEAST_PX, MOST_PX] = [224, 7, 40];
const LANE_COLOURS = upTo(LANES, (lane) => `lane-${lane}`);

const rowPx = (rows) => Math.max(LEAST_PX, Math.min(MOST_PX, part(ROOM_PX, Math.max(1, rows))));
const of = (lanes, say, inset) => ({ inset, lane: lanes, ...speaking(lanes.map((lane) => say[lane])) });
const small = (rows, more) => texts(rows, { size: 10.5, colour: "muted", ...more });
const inBoxes = (rows) => texts(rows, { size: 10, colour: "on-lane" });

/** The 32 lanes; those that take no part are grey. */
export function lanesPlot({ addresses }, say) {
  const lanes = upTo(LANES);
  const named = (ours, colour) => texts(lanes.filter((lane) => (addresses[lane] >= 0) === ours).map((lane) => [lane + 0.5, LANE_PX / 2, String(lane), 1.3]), {
    colour, weight: ours ? "bold" : "normal",
  });
  const tiles = lanes.map((lane) => [lane, lane + 1, 0, LANE_PX, addresses[lane] >= 0 ? lane : LANES]);
  const items = [boxes(tiles, [...LANE_COLOURS, "grid"], of(lanes, say, 1)), named(true, "on-lane"), named(false, "muted")];
  return plotted(LANE_PX, [0, LANES], items, "The 32 lanes of the warp", 0, 0);
}

/** The touched lines, one below the other: bytes in their lanes' colours, what else is fetched hatched. */
export function memoryPlot(access, say) {
  const { addresses, size_bytes: size } = access;
  const lanes = lanesOf(access);
  const lines = [...new Set(lanes.map((lane) => part(addresses[lane], LINE)))].sort((a, b) => a - b);
  const place = new Map(lines.map((line, at) => [line, at]));
  const touched = new Set(lanes.map((lane) => part(addresses[lane], SECTOR)));
  const high = rowPx(lines.length);
  const full = high - (high > 10 ? 2 : 1);
  const sectors = lines.flatMap((line, row) => upTo(LINE / SECTOR, (sector) => [row, sector, touched.has(line * 4 + sector)]));
  const grounds = [true, false].map((fetched) => boxes(
    sectors.filter(([, , is]) => is === fetched).map(([row, s]) => [SECTOR * s, SECTOR * (s + 1), TOP_PX + row * high, TOP_PX + row * high + full, 0]),
    [fetched ? "muted" : "grid"], { inset: 1, hatch: fetched },
  ));
  const sharing = groupedBy(lanes, (lane) => addresses[lane]);
  const tiles = lanes.map((lane) => {
    const [same, x, top] = [sharing.get(addresses[lane]), addresses[lane] % LINE, TOP_PX + place.get(part(addresses[lane], LINE)) * high];
    const each = full / same.length;
    return [x, x + size, top + same.indexOf(lane) * each, top + (same.indexOf(lane) + 1) * each, lane];
  });
  const alone = lanes.filter((lane) => sharing.get(addresses[lane]).length === 1 && high > 12);
  const named = alone.map((lane) => [(addresses[lane] % LINE) + size / 2, TOP_PX + place.get(part(addresses[lane], LINE)) * high + full / 2, String(lane), size * 1.25]);
  const step = Math.ceil(13 / high);
  const shown = lines.map((line, at) => [TOP_PX + at * high + high / 2 - 1, `+${grouped(LINE * (line - lines[0]))}`]).filter((_, at) => at % step === 0);
  const items = [
    ...grounds, boxes(tiles, LANE_COLOURS, of(lanes, say, 0.5)), inBoxes(named),
    small(upTo(4, (s) => [32 * s + 16, 7, `bytes ${32 * s}–${32 * s + 31}\n${32 * s}–${32 * s + 31}`, 32])),
    ticks(shown.map(([y]) => y), shown.map(([, text]) => text)),
  ];
  return plotted(TOP_PX + high * Math.max(1, lines.length) + 2, [0, LINE], items, "Lines and sectors", LEFT_PX, 2);
}

/** The 32 banks, their words stacked pass by pass; passes that a conflict adds have a ground of their own. */
export function banksPlot(access, say) {
  const cost = bankCost(access);
  const rows = Math.max(1, cost.passes);
  const high = rowPx(rows);
  const full = high - (high > 10 ? 2 : 1);
  const extra = new Set(cost.pieces.filter(([, , depth]) => depth).map(([, row]) => row));
  const grounds = [[false, "grid"], [true, "error-bg"]].map(([conflict, colour]) => {
    const found = upTo(rows).filter((row) => extra.has(row) === conflict).flatMap((row) => upTo(LANES, (bank) => [row, bank]));
    return boxes(found.map(([row, bank]) => [bank, bank + 1, TOP_PX + row * high, TOP_PX + row * high + full, 0]), [colour], { inset: 0.5 });
  });
  const sharing = groupedBy(cost.pieces, ([, row, , bank]) => `${row} ${bank}`);
  const tiles = [...cost.pieces].sort((a, b) => a[0] - b[0]).map((piece) => {
    const [lane, row, , bank, banks] = piece;
    const same = sharing.get(`${row} ${bank}`);
    const each = full / same.length;
    const top = TOP_PX + row * high + same.indexOf(piece) * each;
    return [bank, bank + banks, top, top + each, lane];
  });
  const alone = tiles.filter(([, , top, bottom]) => bottom - top > 10);
  const step = Math.ceil(13 / high);
  const passes = upTo(cost.passes).filter((row) => row % step === 0);
  const items = [
    ...grounds, boxes(tiles, LANE_COLOURS, of(tiles.map((tile) => tile[4]), say, 0.5)),
    inBoxes(alone.map(([x0, x1, top, bottom, lane]) => [(x0 + x1) / 2, (top + bottom) / 2, String(lane), 1.25 * (x1 - x0)])),
    small(upTo(8, (at) => [4 * at + 0.5, 7, String(4 * at)]), { room: null }),
    ...[[false, "fg"], [true, "tail-text"]].map(([conflict, colour]) => {
      const found = passes.filter((row) => extra.has(row) === conflict);
      return labels(found.map(() => 0), found.map((row) => TOP_PX + row * high + high / 2 - 1), found.map((row) => `pass ${row + 1}`), { anchor: "end", dx: -5, pin: true, colour });
    }),
  ];
  return plotted(TOP_PX + high * rows + 2, [0, LANES], items, "Banks", LEFT_PX, 2);
}
