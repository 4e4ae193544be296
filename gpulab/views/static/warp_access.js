import { element, number } from "./base.js";

// Pictures of one memory access: which lanes share a 32-byte sector, or a shared-memory bank.

const WIDTH = 840;
const LABEL_WIDTH = 96;
const MOST_SECTORS = 32;

/** The lanes that take part, with their byte offset from the access's lowest address. */
function lanesOf(access, executed) {
  const lanes = [];
  for (let lane = 0; lane < 32; lane += 1) {
    if (((executed >>> lane) & 1) && access.addresses[lane] >= 0n) lanes.push({ lane, address: access.addresses[lane] });
  }
  return lanes;
}

/** Lanes grouped by a key, in ascending order of it. */
function grouped(lanes, key) {
  const groups = new Map();
  for (const lane of lanes) {
    const value = key(lane);
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(lane);
  }
  return new Map([...groups].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)));
}

function laneNames(lanes) {
  return lanes.length === 1 ? String(lanes[0].lane) : `×${lanes.length}`;
}

function tip(node, text) {
  node.append(element("svg:title", {}, text));
  return node;
}

/** Sectors as boxes of 32 bytes, four to a row as in a 128-byte cache line; lanes drawn in them. */
export function sectorPicture(access, executed) {
  const lanes = lanesOf(access, executed);
  if (!lanes.length) return null;
  const sectors = grouped(lanes, ({ address }) => address >> 5n);
  const cacheLines = grouped([...sectors.keys()].slice(0, MOST_SECTORS).map((sector) => ({ sector })), ({ sector }) => sector >> 2n);
  const boxWidth = (WIDTH - LABEL_WIDTH) / 4;
  const rowHeight = 26;
  const byte = (boxWidth - 4) / 32;
  const parts = [];
  let row = 0;
  for (const cacheLine of cacheLines.keys()) {
    const y = row * rowHeight;
    parts.push(element("svg:text", { x: 0, y: y + 16, class: "gl-svg-label" }, `0x${(cacheLine << 7n).toString(16)}`));
    for (let part = 0n; part < 4n; part += 1n) {
      const sector = cacheLine * 4n + part;
      const x = LABEL_WIDTH + Number(part) * boxWidth;
      const touched = sectors.get(sector);
      parts.push(tip(
        element("svg:rect", { x, y: y + 2, width: boxWidth - 4, height: rowHeight - 6, class: touched ? "gl-sector" : "gl-sector gl-untouched" }),
        touched ? `sector 0x${(sector << 5n).toString(16)}: ${touched.length} lanes` : "not touched",
      ));
      for (const [offset, sharing] of grouped(touched ?? [], ({ address }) => Number(address & 31n))) {
        const width = Math.max(2, Math.min(access.sizeBytes, 32 - offset) * byte - 1);
        parts.push(tip(
          element("svg:rect", { x: x + offset * byte + 0.5, y: y + 4, width, height: rowHeight - 10, class: "gl-lane-bytes" }),
          `lane ${sharing.map(({ lane }) => lane).join(", ")}: bytes ${offset} to ${offset + access.sizeBytes - 1}`,
        ));
        if (width >= 14) {
          parts.push(element("svg:text", { x: x + offset * byte + width / 2, y: y + 16.5, class: "gl-lane-name" }, laneNames(sharing)));
        }
      }
    }
    row += 1;
  }
  const left = sectors.size - MOST_SECTORS;
  return {
    svg: picture(parts, row * rowHeight, `${sectors.size} sectors of 32 bytes touched`),
    note: left > 0 ? `${number(left)} more sectors are not drawn.` : "",
  };
}

/** The 32 banks as columns; each different 4-byte word a bank must deliver is a box, so height = passes. */
export function bankPicture(access, executed) {
  const lanes = lanesOf(access, executed);
  if (!lanes.length) return null;
  const words = [];
  for (const { lane, address } of lanes) {
    for (let offset = 0; offset < Math.max(4, access.sizeBytes); offset += 4) {
      words.push({ lane, word: (address + BigInt(offset)) >> 2n });
    }
  }
  const banks = grouped(words, ({ word }) => Number(word & 31n));
  const highest = Math.max(...[...banks.values()].map((bank) => grouped(bank, ({ word }) => word).size));
  const boxHeight = Math.max(5, Math.min(20, 180 / highest));
  const column = WIDTH / 32;
  const height = highest * boxHeight;
  const parts = [];
  for (let bank = 0; bank < 32; bank += 1) {
    const x = bank * column;
    parts.push(element("svg:rect", { x: x + 1, y: 0, width: column - 2, height, class: "gl-bank" }));
    let level = 0;
    for (const [word, sharing] of grouped(banks.get(bank) ?? [], ({ word }) => word)) {
      const y = height - (level + 1) * boxHeight;
      parts.push(tip(
        element("svg:rect", { x: x + 2, y: y + 1, width: column - 4, height: boxHeight - 2, class: level ? "gl-conflict" : "gl-lane-bytes" }),
        `bank ${bank}, word ${word}: lane ${[...new Set(sharing.map(({ lane }) => lane))].join(", ")}`,
      ));
      if (boxHeight >= 12) {
        parts.push(element("svg:text", { x: x + column / 2, y: y + boxHeight / 2 + 4, class: "gl-lane-name" }, laneNames(sharing)));
      }
      level += 1;
    }
    parts.push(element("svg:text", { x: x + column / 2, y: height + 13, class: "gl-svg-label gl-middle" }, String(bank)));
  }
  return {
    svg: picture(parts, height + 18, `lanes of the 32 banks, at most ${highest} different words in one bank`),
    note: access.sizeBytes > 4 ? "Accesses wider than 4 bytes a lane are served in parts: a half or a quarter of the warp at a time." : "",
  };
}

function picture(parts, height, label) {
  return element("svg:svg", { viewBox: `0 0 ${WIDTH} ${height}`, class: "gl-access-svg", role: "img", "aria-label": label }, parts);
}
