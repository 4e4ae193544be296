import { grouped } from "../parts/plot.js";
import { LINE, SECTOR, WORD, bankCost, constantPasses, isAtomic, lanesOf, memoryCost, part } from "./rule.js";

// What an access costs in words and figures, as words.py says it.

const TYPES = { 1: "char", 2: "short", 4: "float", 8: "double", 16: "float4" };

/** A share to a tenth of a percent. */
const share = (fraction) => `${Math.floor(1000 * fraction + 0.5) / 10} %`;

/** Figures in large type: value, term, detail, and whether less would do. */
export function memoryFigures(access) {
  if (access.space === "const") {
    const passes = constantPasses(access);
    return [[grouped(passes), passes === 1 ? "pass a request" : "passes a request", "at best 1", passes > 1]];
  }
  const cost = memoryCost(access);
  const fetched = cost.touched_sectors * SECTOR;
  const best = Math.min(cost.lines, Math.max(1, Math.ceil(cost.bytes_requested / LINE)));
  const over = cost.sectors > cost.ideal_sectors;
  return [
    [grouped(cost.sectors), cost.sectors === 1 ? "sector a request" : "sectors a request", `at best ${grouped(cost.ideal_sectors)}`, over],
    [share(fetched ? cost.bytes_useful / fetched : 0), "bytes useful", `${grouped(cost.bytes_useful)} of ${grouped(fetched)} bytes`, over && cost.bytes_useful < fetched],
    [grouped(cost.lines), `${cost.lines === 1 ? "line" : "lines"} of ${LINE} B`, `at best ${grouped(best)}`, cost.lines > best],
  ];
}

export function bankFigures(access) {
  const cost = bankCost(access);
  return [
    [grouped(cost.wavefronts), cost.wavefronts === 1 ? "pass a request" : "passes a request", `at best ${grouped(cost.ideal_wavefronts)}`, cost.wavefronts > cost.ideal_wavefronts],
    [cost.ways > 1 ? `${grouped(cost.ways)}-way` : "no", "bank conflict", cost.ways > 1 ? "words in the busiest bank" : "", cost.ways > 1],
  ];
}

/** For each lane what it asks for, where that lies, and with whom it shares it. */
export function laneSentences(access, memory, banks) {
  const { addresses, size_bytes } = access;
  const lanes = lanesOf(access);
  const low = part(lanes.reduce((least, lane) => Math.min(least, addresses[lane]), Infinity), LINE) * LINE;
  const pieces = new Map(bankCost(access).pieces.map((piece) => [piece[0], piece]));
  return addresses.map((place, lane) => {
    if (place < 0) return `Lane ${lane} takes no part.`;
    const first = place - low;
    const last = first + size_bytes - 1;
    const parts = [`Lane ${lane} asks for ${first === last ? `byte ${grouped(first)}` : `bytes ${grouped(first)} to ${grouped(last)}`}`];
    if (memory) parts.push(`sector ${part(first % LINE, SECTOR)} of line +${grouped(part(first, LINE) * LINE)}`);
    if (banks) {
      const [, row, , bank, wide] = pieces.get(lane);
      parts.push(`${wide === 1 ? `bank ${bank}` : `banks ${bank} to ${bank + wide - 1}`} in pass ${row + 1}`);
    }
    const others = lanes.filter((other) => other !== lane && addresses[other] === place);
    if (others.length) parts.push(others.length === 1 ? `as lane ${others[0]} does` : `as ${others.length} other lanes do`);
    return `${parts.join(", ")}.`;
  });
}

/** What is special about this kind of access. */
export function notes(access, memory, banks) {
  const said = [];
  if (memory && isAtomic(access)) said.push("An atomic takes a sector once for each lane that wants the sector's most wanted word.");
  if (access.space === "local") said.push("Local memory is each lane's own and interleaved: equal offsets of the lanes lie side by side.");
  if (access.space === "const") said.push("Constant memory serves one word at a time: each different word of the warp takes a pass.");
  if (banks && access.size_bytes > WORD) said.push("Accesses wider than 4 bytes a lane go in parts: half or a quarter of the warp at a time.");
  if (banks && access.rule === "swap") said.push("Compare-and-swap reads and writes: two wavefronts a pass.");
  if (banks && access.rule === "atomic") said.push("An atomic takes a pass for each lane of a bank, also where they want the same word.");
  return said.join(" ");
}

/** The access as CUDA C++ that asks for these elements. */
export function expression({ stride, offset, element_bytes, padding, swizzle }) {
  const element = [
    ...(stride ? [stride === 1 ? "lane" : `${stride} * lane`] : []), ...(offset || !stride ? [String(offset)] : []),
  ].join(" + ");
  const kind = TYPES[element_bytes];
  if (!padding && !swizzle) return `${kind} x[];  x[${element}]`;
  return `${kind} tile[][${padding ? `32 + ${padding}` : "32"}];  e = ${element};  tile[e / 32][${swizzle ? "e % 32 ^ e / 32 % 32" : "e % 32"}]`;
}
