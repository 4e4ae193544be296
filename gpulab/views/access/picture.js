import { boxes, groupedBy, labels, plotted, speaking, texts, ticks, upTo } from "../parts/items.js";
import { grouped } from "../parts/words.js";
import { LANES, LINE, SECTOR, bankCost, lanesOf, quotient } from "./rule.js";

// The picture of one access as plots, with the same items as in picture.py.

const [LEFT_PX, TOP_PX, LANE_PX] = [62, 16, 26];
const [ROWS_PX, MIN_ROW_PX, MAX_ROW_PX] = [224, 7, 40];
const LANE_COLOURS = upTo(LANES, (lane) => `lane-${lane}`);

const rowPx = (rows) => Math.max(MIN_ROW_PX, Math.min(MAX_ROW_PX, quotient(ROWS_PX, Math.max(1, rows))));
const laneFields = (lanes, sentences, inset) => ({ inset, lane: lanes, ...speaking(lanes.map((lane) => sentences[lane])) });
const smallTexts = (rows, more) => texts(rows, { size: 10.5, colour: "muted", ...more });
const textsInBoxes = (rows) => texts(rows, { size: 10, colour: "on-lane" });

/** A plot of the 32 lanes; inactive lanes are grey. */
export function lanesPlot({ addresses }, sentences) {
  const lanes = upTo(LANES);
  const laneNumbers = (isActive, colour) => texts(lanes.filter((lane) => (addresses[lane] >= 0) === isActive).map((lane) => [lane + 0.5, LANE_PX / 2, String(lane), 1.3]), {
    colour, weight: isActive ? "bold" : "normal",
  });
  const tiles = lanes.map((lane) => [lane, lane + 1, 0, LANE_PX, addresses[lane] >= 0 ? lane : LANES]);
  const items = [boxes(tiles, [...LANE_COLOURS, "grid"], laneFields(lanes, sentences, 1)), laneNumbers(true, "on-lane"), laneNumbers(false, "muted")];
  return plotted(LANE_PX, [0, LANES], items, "The 32 lanes of the warp", 0, 0);
}

/** A plot of the touched lines: bytes in the colours of their lanes, other fetched bytes hatched. */
export function memoryPlot(access, sentences) {
  const { addresses, size_bytes: size } = access;
  const lanes = lanesOf(access);
  const lines = [...new Set(lanes.map((lane) => quotient(addresses[lane], LINE)))].sort((a, b) => a - b);
  const rowOfLine = new Map(lines.map((line, index) => [line, index]));
  const touchedSectors = new Set(lanes.map((lane) => quotient(addresses[lane], SECTOR)));
  const rowHeight = rowPx(lines.length);
  const cellHeight = rowHeight - (rowHeight > 10 ? 2 : 1);
  const sectors = lines.flatMap((line, row) => upTo(LINE / SECTOR, (sector) => [row, sector, touchedSectors.has(line * 4 + sector)]));
  const backgrounds = [true, false].map((isFetched) => boxes(
    sectors.filter(([, , isTouched]) => isTouched === isFetched).map(([row, sector]) => [SECTOR * sector, SECTOR * (sector + 1), TOP_PX + row * rowHeight, TOP_PX + row * rowHeight + cellHeight, 0]),
    [isFetched ? "muted" : "grid"], { inset: 1, hatch: isFetched },
  ));
  const lanesAtAddress = groupedBy(lanes, (lane) => addresses[lane]);
  const tiles = lanes.map((lane) => {
    const [sharingLanes, x, top] = [lanesAtAddress.get(addresses[lane]), addresses[lane] % LINE, TOP_PX + rowOfLine.get(quotient(addresses[lane], LINE)) * rowHeight];
    const laneHeight = cellHeight / sharingLanes.length;
    return [x, x + size, top + sharingLanes.indexOf(lane) * laneHeight, top + (sharingLanes.indexOf(lane) + 1) * laneHeight, lane];
  });
  const unsharedLanes = lanes.filter((lane) => lanesAtAddress.get(addresses[lane]).length === 1 && rowHeight > 12);
  const laneNumbers = unsharedLanes.map((lane) => [(addresses[lane] % LINE) + size / 2, TOP_PX + rowOfLine.get(quotient(addresses[lane], LINE)) * rowHeight + cellHeight / 2, String(lane), size * 1.25]);
  const step = Math.ceil(13 / rowHeight);
  const lineLabels = lines.map((line, index) => [TOP_PX + index * rowHeight + rowHeight / 2 - 1, `+${grouped(LINE * (line - lines[0]))}`]).filter((_, index) => index % step === 0);
  const items = [
    ...backgrounds, boxes(tiles, LANE_COLOURS, laneFields(lanes, sentences, 0.5)), textsInBoxes(laneNumbers),
    smallTexts(upTo(4, (sector) => [32 * sector + 16, 7, `bytes ${32 * sector}–${32 * sector + 31}\n${32 * sector}–${32 * sector + 31}`, 32])),
    ticks(lineLabels.map(([y]) => y), lineLabels.map(([, text]) => text)),
  ];
  return plotted(TOP_PX + rowHeight * Math.max(1, lines.length) + 2, [0, LINE], items, "Lines and sectors", LEFT_PX, 2);
}

/** The 32 banks, their words stacked pass by pass; passes that a conflict adds have a ground of their own. */
export function banksPlot(access, sentences) {
  const cost = bankCost(access);
  const rows = Math.max(1, cost.passes);
  const rowHeight = rowPx(rows);
  const cellHeight = rowHeight - (rowHeight > 10 ? 2 : 1);
  const conflictRows = new Set(cost.pieces.filter(([, , depth]) => depth).map(([, row]) => row));
  const backgrounds = [[false, "grid"], [true, "error-bg"]].map(([isConflict, colour]) => {
    const cells = upTo(rows).filter((row) => conflictRows.has(row) === isConflict).flatMap((row) => upTo(LANES, (bank) => [row, bank]));
    return boxes(cells.map(([row, bank]) => [bank, bank + 1, TOP_PX + row * rowHeight, TOP_PX + row * rowHeight + cellHeight, 0]), [colour], { inset: 0.5 });
  });
  const piecesOfBank = groupedBy(cost.pieces, ([, row, , bank]) => `${row} ${bank}`);
  const tiles = [...cost.pieces].sort((a, b) => a[0] - b[0]).map((piece) => {
    const [lane, row, , bank, banks] = piece;
    const sharingPieces = piecesOfBank.get(`${row} ${bank}`);
    const pieceHeight = cellHeight / sharingPieces.length;
    const top = TOP_PX + row * rowHeight + sharingPieces.indexOf(piece) * pieceHeight;
    return [bank, bank + banks, top, top + pieceHeight, lane];
  });
  const labelledTiles = tiles.filter(([, , top, bottom]) => bottom - top > 10);
  const step = Math.ceil(13 / rowHeight);
  const passes = upTo(cost.passes).filter((row) => row % step === 0);
  const items = [
    ...backgrounds, boxes(tiles, LANE_COLOURS, laneFields(tiles.map((tile) => tile[4]), sentences, 0.5)),
    textsInBoxes(labelledTiles.map(([x0, x1, top, bottom, lane]) => [(x0 + x1) / 2, (top + bottom) / 2, String(lane), 1.25 * (x1 - x0)])),
    smallTexts(upTo(8, (index) => [4 * index + 0.5, 7, String(4 * index)]), { room: null }),
    ...[[false, "fg"], [true, "tail-text"]].map(([isConflict, colour]) => {
      const cells = passes.filter((row) => conflictRows.has(row) === isConflict);
      return labels(cells.map(() => 0), cells.map((row) => TOP_PX + row * rowHeight + rowHeight / 2 - 1), cells.map((row) => `pass ${row + 1}`), { anchor: "end", dx: -5, pin: true, colour });
    }),
  ];
  return plotted(TOP_PX + rowHeight * rows + 2, [0, LANES], items, "Banks", LEFT_PX, 2);
}
