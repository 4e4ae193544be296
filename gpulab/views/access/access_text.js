import { filled } from "../parts/words.js";
import { LINE, SECTOR, WORD, bankCost, constantPasses, isAtomic, lanesOf, memoryCost, quotient } from "./rule.js";

// Fills the templates of access_text.py with the costs of an access.

/** All counts and costs of an access, as `count_costs` in Python. */
function counts(access) {
  const [memory, banks, constantPassCount] = [memoryCost(access), bankCost(access), constantPasses(access)];
  const fetched = memory.touched_sectors * SECTOR;
  const best_lines = Math.min(memory.lines, Math.max(1, Math.ceil(memory.bytes_requested / LINE)));
  const extra_sectors = memory.sectors - memory.ideal_sectors;
  const useful = `${Math.floor((fetched ? 1000 * memory.bytes_useful / fetched : 0) + 0.5) / 10} %`;
  return {
    ...memory, ...banks, useful, fetched, best_lines, constant: constantPassCount, extra_constant: constantPassCount - 1, extra_sectors,
    avoidable_bytes: extra_sectors ? fetched - memory.bytes_useful : 0, extra_lines: memory.lines - best_lines,
    extra_passes: banks.wavefronts - banks.ideal_wavefronts, conflicts: banks.ways - 1, calm: Number(banks.ways < 2),
  };
}

/** Figures in large type: value, term, detail, and whether a smaller number is possible. */
export function figures(access, rows) {
  const values = counts(access);
  return rows.map(([value, term, detail, excessName]) => [...[value, term, detail].map((text) => filled(text, values)), values[excessName] > 0]);
}

/** A sentence for each lane: its bytes, their position, and the lanes that share them. */
export function laneSentences(templates, access, memory, banks) {
  const { addresses, size_bytes: size } = access;
  const lanes = lanesOf(access);
  const lineStart = quotient(lanes.reduce((minimum, lane) => Math.min(minimum, addresses[lane]), Infinity), LINE) * LINE;
  const pieces = new Map(bankCost(access).pieces.map((piece) => [piece[0], piece]));
  return addresses.map((address, lane) => {
    if (address < 0) return filled(templates.idle, { lane });
    const [, row, , bank, bankCount] = pieces.get(lane);
    const [offset, sharingLanes] = [address - lineStart, lanes.filter((other) => other !== lane && addresses[other] === address)];
    const text = `${templates.asks}${memory ? templates.in_memory : ""}${banks ? templates.in_banks : ""}${sharingLanes.length ? templates.shared : ""}.`;
    return filled(text, {
      lane, size, first: offset, last: offset + size - 1, sector: quotient(offset % LINE, SECTOR), line: quotient(offset, LINE) * LINE,
      banks: bankCount, bank, last_bank: bank + bankCount - 1, pass: row + 1, others: sharingLanes.length, other: sharingLanes[0],
    });
  });
}

/** Explanations of the rules for this kind of access. */
export function notes(templates, access, memory, banks) {
  const { rule, space } = access;
  const applies = {
    atomic: memory && isAtomic(access), local: space === "local", const: space === "const",
    parts: banks && access.size_bytes > WORD, swap: banks && rule === "swap", alone: banks && rule === "atomic",
  };
  return templates.notes.filter(([name]) => applies[name]).map(([, text]) => text).join(" ");
}

/** An access pattern as CUDA C++ that loads its elements. */
export function expression(templates, { stride, offset, element_bytes, padding, swizzle }) {
  const element = [...(stride ? [filled(templates.stride, { stride })] : []), ...(offset || !stride ? [offset] : [])].join(" + ");
  return filled(templates.expressions[Number(padding > 0) + 2 * swizzle], { type: templates.types[element_bytes], element, padding });
}
