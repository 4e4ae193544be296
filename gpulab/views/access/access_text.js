import { filled } from "../parts/words.js";
import { LINE, SECTOR, WORD, bankCost, constantPasses, isAtomic, lanesOf, memoryCost, part } from "./rule.js";

// Fills the texts of access_text.py (`said`) with what an access costs.

/** Everything that is counted of an access, as `counts` in Python. */
function counts(access) {
  const [cost, spent, constant] = [memoryCost(access), bankCost(access), constantPasses(access)];
  const fetched = cost.touched_sectors * SECTOR;
  const best_lines = Math.min(cost.lines, Math.max(1, Math.ceil(cost.bytes_requested / LINE)));
  const extra_sectors = cost.sectors - cost.ideal_sectors;
  const useful = `${Math.floor((fetched ? 1000 * cost.bytes_useful / fetched : 0) + 0.5) / 10} %`;
  return {
    ...cost, ...spent, useful, fetched, best_lines, constant, extra_constant: constant - 1, extra_sectors,
    avoidable_bytes: extra_sectors ? fetched - cost.bytes_useful : 0, extra_lines: cost.lines - best_lines,
    extra_passes: spent.wavefronts - spent.ideal_wavefronts, conflicts: spent.ways - 1, calm: Number(spent.ways < 2),
  };
}

/** Figures in large type: value, term, detail, and whether less would do. */
export function figures(access, rows) {
  const found = counts(access);
  return rows.map(([value, term, detail, over]) => [...[value, term, detail].map((text) => filled(text, found)), found[over] > 0]);
}

/** For each lane what it asks for, where that lies, and with whom it shares it. */
export function laneSentences(said, access, memory, banks) {
  const { addresses, size_bytes: size } = access;
  const lanes = lanesOf(access);
  const low = part(lanes.reduce((least, lane) => Math.min(least, addresses[lane]), Infinity), LINE) * LINE;
  const pieces = new Map(bankCost(access).pieces.map((piece) => [piece[0], piece]));
  return addresses.map((place, lane) => {
    if (place < 0) return filled(said.idle, { lane });
    const [, row, , bank, wide] = pieces.get(lane);
    const [first, others] = [place - low, lanes.filter((other) => other !== lane && addresses[other] === place)];
    const text = `${said.asks}${memory ? said.in_memory : ""}${banks ? said.in_banks : ""}${others.length ? said.shared : ""}.`;
    return filled(text, {
      lane, size, first, last: first + size - 1, sector: part(first % LINE, SECTOR), line: part(first, LINE) * LINE,
      banks: wide, bank, last_bank: bank + wide - 1, pass: row + 1, others: others.length, other: others[0],
    });
  });
}

/** What is special about this kind of access. */
export function notes(said, access, memory, banks) {
  const { rule, space } = access;
  const there = {
    atomic: memory && isAtomic(access), local: space === "local", const: space === "const",
    parts: banks && access.size_bytes > WORD, swap: banks && rule === "swap", alone: banks && rule === "atomic",
  };
  return said.notes.filter(([name]) => there[name]).map(([, text]) => text).join(" ");
}

/** The access as CUDA C++ that asks for these elements. */
export function expression(said, { stride, offset, element_bytes, padding, swizzle }) {
  const element = [...(stride ? [filled(said.stride, { stride })] : []), ...(offset || !stride ? [offset] : [])].join(" + ");
  return filled(said.expressions[Number(padding > 0) + 2 * swizzle], { type: said.types[element_bytes], element, padding });
}
