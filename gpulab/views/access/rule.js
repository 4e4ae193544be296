import { upTo } from "../parts/items.js";

// What one access of a warp costs: the rules of virtualgpu/records/access.py, so that sliders need no Python.

export const [LANES, SECTOR, LINE, WORD] = [32, 32, 128, 4];
const ROW_ELEMENTS = 32;
const ATOMIC = ["atomic", "count", "swap"];

export const part = (place, unit) => Math.floor(place / unit);
export const isAtomic = ({ rule }) => ATOMIC.includes(rule);

/** The lanes that take part. */
export const lanesOf = ({ addresses }) => upTo(LANES).filter((lane) => addresses[lane] >= 0);

/** Where each lane's element lies, in bytes from the tile's first. */
export function placesOf({ stride, offset, element_bytes, padding, swizzle }) {
  return upTo(LANES, (lane) => {
    const element = offset + stride * lane;
    const row = part(element, ROW_ELEMENTS);
    const column = (element % ROW_ELEMENTS) ^ (swizzle ? row % ROW_ELEMENTS : 0);
    return (row * (ROW_ELEMENTS + padding) + column) * element_bytes;
  });
}

/** What it costs in global memory. */
export function memoryCost(access) {
  const places = lanesOf(access).map((lane) => access.addresses[lane]);
  const touched = new Set(places.map((place) => part(place, SECTOR)));
  let sectors = touched.size;
  if (isAtomic(access)) {
    const [wanted, most] = [new Map(), new Map()];
    for (const place of places) wanted.set(place, (wanted.get(place) ?? 0) + 1);
    for (const [place, times] of wanted) most.set(part(place, SECTOR), Math.max(most.get(part(place, SECTOR)) ?? 0, times));
    sectors = [...most.values()].reduce((sum, times) => sum + times, 0);
  }
  const asked = places.length * access.size_bytes;
  return {
    sectors,
    ideal_sectors: Math.min(sectors, Math.max(Number(places.length > 0), Math.ceil(asked / SECTOR))),
    lines: new Set(places.map((place) => part(place, LINE))).size,
    touched_sectors: touched.size,
    bytes_requested: asked,
    bytes_useful: new Set(places).size * access.size_bytes,
  };
}

/** Passes through the constant cache, which serves one word at a time. */
export const constantPasses = (access) => new Set(lanesOf(access).map((lane) => access.addresses[lane])).size;

/** What it costs in shared memory; a piece is [lane, row, depth, bank, banks]. */
export function bankCost(access) {
  const words = Math.max(1, access.size_bytes / WORD);
  const unit = access.addresses.map((place) => part(place, Math.max(access.size_bytes, WORD)));
  const active = lanesOf(access);
  const agree = (step) => active.every((lane) => access.addresses[lane ^ step] < 0 || unit[lane] === unit[lane ^ step]);
  const together = (LANES / words) * (access.rule === "load" && words > 1 && (agree(1) || agree(2)) ? 2 : 1);
  const alone = access.rule === "atomic" || access.rule === "swap";
  let [passes, ideal, ways] = [0, 0, 0];
  const pieces = [];
  for (let start = 0; start < LANES; start += together) {
    const [high, rowOf] = [new Map(), new Map()];
    const here = active.filter((lane) => lane >= start && lane < start + together);
    for (const lane of here) {
      const bank = (unit[lane] * words) % LANES;
      const key = alone ? lane : unit[lane];
      if (!rowOf.has(key)) {
        rowOf.set(key, high.get(bank) ?? 0);
        high.set(bank, rowOf.get(key) + 1);
      }
      pieces.push([lane, passes + rowOf.get(key), rowOf.get(key), bank, words]);
    }
    const most = Math.max(0, ...high.values());
    [passes, ideal, ways] = [passes + most, ideal + Number(here.length > 0), Math.max(ways, most)];
  }
  const swap = access.rule === "swap";
  return { wavefronts: swap ? 2 * passes : passes, ideal_wavefronts: swap ? passes + ideal : ideal, ways, passes, pieces };
}

/** The pattern that a traced access has, or null where its lanes are at no regular distance. */
export function patternOf(access) {
  const { addresses, size_bytes } = access;
  const lanes = lanesOf(access);
  if (!lanes.length) return null;
  const [first, second] = lanes;
  const stride = lanes.length > 1 ? (addresses[second] - addresses[first]) / (second - first) / size_bytes : 1;
  if (!Number.isInteger(stride) || stride < 0 || stride > 4096) return null;
  if (lanes.some((lane) => addresses[lane] !== addresses[first] + (lane - first) * stride * size_bytes)) return null;
  // The same place within a line, counted from a tile's first row.
  const row = ROW_ELEMENTS * size_bytes;
  const base = addresses[first] - first * stride * size_bytes;
  const offset = (((base % row) + row) % row) / size_bytes;
  return Number.isInteger(offset) ? { stride, offset, element_bytes: size_bytes, padding: 0, swizzle: false } : null;
}
