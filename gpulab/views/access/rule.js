import { upTo } from "../parts/items.js";

// Costs of one access of a warp, by the rules of virtualgpu/records/access.py, so that sliders need no Python.

export const [LANES, SECTOR, LINE, WORD] = [32, 32, 128, 4];
const ROW_ELEMENTS = 32;
const ATOMIC = ["atomic", "count", "swap"];

export const quotient = (value, unit) => Math.floor(value / unit);
export const isAtomic = ({ rule }) => ATOMIC.includes(rule);

/** The active lanes. */
export const lanesOf = ({ addresses }) => upTo(LANES).filter((lane) => addresses[lane] >= 0);

/** The offset of each lane's element, in bytes from the tile's start. */
export function offsetsOf({ stride, offset, element_bytes, padding, swizzle }) {
  return upTo(LANES, (lane) => {
    const element = offset + stride * lane;
    const row = quotient(element, ROW_ELEMENTS);
    const column = (element % ROW_ELEMENTS) ^ (swizzle ? row % ROW_ELEMENTS : 0);
    return (row * (ROW_ELEMENTS + padding) + column) * element_bytes;
  });
}

/** The cost of an access to global memory. */
export function memoryCost(access) {
  const addresses = lanesOf(access).map((lane) => access.addresses[lane]);
  const touched = new Set(addresses.map((address) => quotient(address, SECTOR)));
  let sectors = touched.size;
  if (isAtomic(access)) {
    const [counts, highestCounts] = [new Map(), new Map()];
    for (const address of addresses) counts.set(address, (counts.get(address) ?? 0) + 1);
    for (const [address, times] of counts) highestCounts.set(quotient(address, SECTOR), Math.max(highestCounts.get(quotient(address, SECTOR)) ?? 0, times));
    sectors = [...highestCounts.values()].reduce((sum, times) => sum + times, 0);
  }
  const requestedBytes = addresses.length * access.size_bytes;
  return {
    sectors,
    ideal_sectors: Math.min(sectors, Math.max(Number(addresses.length > 0), Math.ceil(requestedBytes / SECTOR))),
    lines: new Set(addresses.map((address) => quotient(address, LINE))).size,
    touched_sectors: touched.size,
    bytes_requested: requestedBytes,
    bytes_useful: new Set(addresses).size * access.size_bytes,
  };
}

/** The number of passes through the constant cache, which serves one word at a time. */
export const constantPasses = (access) => new Set(lanesOf(access).map((lane) => access.addresses[lane])).size;

/** The cost of an access to shared memory; a piece is [lane, row, depth, bank, banks]. */
export function bankCost(access) {
  const words = Math.max(1, access.size_bytes / WORD);
  const wordGroups = access.addresses.map((address) => quotient(address, Math.max(access.size_bytes, WORD)));
  const active = lanesOf(access);
  const isShared = (step) => active.every((lane) => access.addresses[lane ^ step] < 0 || wordGroups[lane] === wordGroups[lane ^ step]);
  const lanesPerPart = (LANES / words) * (access.rule === "load" && words > 1 && (isShared(1) || isShared(2)) ? 2 : 1);
  const isPerLane = access.rule === "atomic" || access.rule === "swap";
  let [passes, idealPasses, ways] = [0, 0, 0];
  const pieces = [];
  for (let start = 0; start < LANES; start += lanesPerPart) {
    const [depths, rowOf] = [new Map(), new Map()];
    const partLanes = active.filter((lane) => lane >= start && lane < start + lanesPerPart);
    for (const lane of partLanes) {
      const bank = (wordGroups[lane] * words) % LANES;
      const key = isPerLane ? lane : wordGroups[lane];
      if (!rowOf.has(key)) {
        rowOf.set(key, depths.get(bank) ?? 0);
        depths.set(bank, rowOf.get(key) + 1);
      }
      pieces.push([lane, passes + rowOf.get(key), rowOf.get(key), bank, words]);
    }
    const highestDepth = Math.max(0, ...depths.values());
    [passes, idealPasses, ways] = [passes + highestDepth, idealPasses + Number(partLanes.length > 0), Math.max(ways, highestDepth)];
  }
  const swap = access.rule === "swap";
  return { wavefronts: swap ? 2 * passes : passes, ideal_wavefronts: swap ? passes + idealPasses : idealPasses, ways, passes, pieces };
}

/** The pattern of a traced access, or null if the distances of its lanes are not regular. */
export function patternOf(access) {
  const { addresses, size_bytes } = access;
  const lanes = lanesOf(access);
  if (!lanes.length) return null;
  const [first, second] = lanes;
  const stride = lanes.length > 1 ? (addresses[second] - addresses[first]) / (second - first) / size_bytes : 1;
  if (!Number.isInteger(stride) || stride < 0 || stride > 4096) return null;
  if (lanes.some((lane) => addresses[lane] !== addresses[first] + (lane - first) * stride * size_bytes)) return null;
  // The same position within a line, counted from a tile's first row.
  const row = ROW_ELEMENTS * size_bytes;
  const base = addresses[first] - first * stride * size_bytes;
  const offset = (((base % row) + row) % row) / size_bytes;
  return Number.isInteger(offset) ? { stride, offset, element_bytes: size_bytes, padding: 0, swizzle: false } : null;
}
