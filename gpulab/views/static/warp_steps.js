import { number } from "./base.js";
import { LaneRows, Loops, Registers, firstAtLeast } from "./warp_state.js";

// Reading a warp trace: moves and sentences. Names and words are those of _warp_steps.py.

const SPACE_WORDS = { const: "constant", generic: "generic-address" };

export function bareText(text) {
  return text.trim().replace(/;$/, "").replace(/^@!?%?\w+\s+/, "");
}

export function laneCount(mask) {
  let lanes = 0;
  for (let rest = mask >>> 0; rest; rest &= rest - 1) lanes += 1;
  return lanes;
}

function count(value, noun, plural = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

export class WarpSteps {
  constructor(columns, facts, threads) {
    Object.assign(this, columns);
    this.facts = facts;
    this.threads = threads;
    this.length = columns.pc.length;
    this.loops = new Loops(columns);
    this.registers = new Registers(columns, facts);
    this.addresses = columns.address_base ? new LaneRows(columns, "address") : null;
    this.stores = new LaneRows(columns, "store");
    this.store_step ??= new Int32Array(0);
    /** Whether any lane was active at an instruction and did not execute it. */
    this.anyOff = this.active.some((mask, at) => mask !== this.executed[at]);
  }

  clamp(step) { return Math.max(0, Math.min(step, this.length - 1)); }
  nextLine(step) { return this.after(this.line_starts, step); }
  previousLine(step) { return this.before(this.line_starts, step); }
  nextAccess(step) { return this.after(this.accesses, step); }
  previousAccess(step) { return this.before(this.accesses, step); }

  nextIteration(step) { return this.after(this.loops.around(step), step); }
  previousIteration(step) { return this.before(this.loops.around(step), step); }

  pastLoop(step) {
    const run = this.loops.innermost(step);
    return run < 0 ? step : this.clamp(this.loops.last[run] + 1);
  }

  after(stops, step) {
    const found = firstAtLeast(stops, step + 1);
    return found < stops.length ? stops[found] : step;
  }

  before(stops, step) {
    const found = firstAtLeast(stops, step) - 1;
    return found >= 0 ? stops[found] : step;
  }

  instruction(step) { return this.facts.instructions[this.text[step]]; }

  /** active, off (predicated off), inactive, or none (no such thread). */
  laneState(step, lane) {
    if (lane >= this.threads) return "none";
    if (!((this.active[step] >>> lane) & 1)) return "inactive";
    return (this.executed[step] >>> lane) & 1 ? "active" : "off";
  }

  /** The step's memory access, or null. Addresses are BigInt, -1n where a lane has none. */
  access(step) {
    const at = firstAtLeast(this.accesses, step);
    if (this.accesses[at] !== step) return null;
    const store = Boolean(this.is_store?.[at]);
    const text = bareText(this.instruction(step));
    return {
      space: this.facts.spaces[this.space[at]],
      kind: text.startsWith("atom") || text.startsWith("red.") ? "atomic" : store ? "store" : "load",
      sizeBytes: this.size_bytes?.[at] ?? 0,
      sectors: this.sectors[at],
      idealSectors: this.ideal_sectors[at],
      wavefronts: this.wavefronts[at],
      idealWavefronts: this.ideal_wavefronts[at],
      addresses: this.addresses?.lanes(at) ?? null,
    };
  }

  /** What the step writes, a register or else to memory, as bits in each lane; null if nothing. */
  result(step) {
    const { when, name, type, rows } = this.registers;
    const at = firstAtLeast(when, step);
    if (when[at] === step) {
      return { what: this.facts.registers[name[at]], type: this.facts.types[type[at]], bits: rows.lanes(at) };
    }
    const store = firstAtLeast(this.store_step, step);
    if (this.store_step[store] !== step) return null;
    let parts = 1;
    while (this.store_step[store + parts] === step) parts += 1;
    const what = parts === 1 ? "stored value" : `first of ${parts} stored values`;
    return { what, type: this.facts.types[this.store_type[store]], bits: this.stores.lanes(store) };
  }

  accessWords(step) {
    const access = this.access(step);
    if (!access) return "";
    const verb = { atomic: "updates atomically", store: "stores", load: "loads" }[access.kind];
    const preposition = { atomic: "in", store: "to", load: "from" }[access.kind];
    const space = SPACE_WORDS[access.space] ?? access.space;
    const words = `It ${verb} ${count(access.sizeBytes, "byte")} a lane ${preposition} ${space} memory`;
    if (access.space === "shared" && access.wavefronts > 0) {
      return `${words}: ${count(access.wavefronts, "pass", "passes")} over the banks, at best ${access.idealWavefronts}.`;
    }
    if ((access.space === "global" || access.space === "generic") && access.sectors > 0) {
      return `${words}: ${count(access.sectors, "sector")} of 32 bytes, at best ${access.idealSectors}.`;
    }
    return `${words}.`;
  }

  sentence(step) {
    let where = this.line[step] ? `line ${this.line[step]}` : "no source line";
    const turns = this.loops.words(step);
    if (turns) where += `, ${turns}`;
    let lanes = `${laneCount(this.active[step])} of ${this.threads} lanes active`;
    if (this.executed[step] !== this.active[step]) {
      lanes += `, ${laneCount(this.executed[step])} of them not predicated off`;
    }
    const words = `Step ${number(step + 1)} of ${number(this.length)}, ${where}: ${lanes}. ${bareText(this.instruction(step))}.`;
    const access = this.accessWords(step);
    return access ? `${words} ${access}` : words;
  }
}

const BITS = new DataView(new ArrayBuffer(8));

/** A register's bits as a number of its PTX type, short enough for a cell unless `long`. */
export function valueText(bits, type, long = false, digits = 5) {
  const kind = type.replace(/^\./, "");
  BITS.setBigUint64(0, BigInt.asUintN(64, bits), true);
  if (kind === "f32") return floatText(BITS.getFloat32(0, true), long ? 9 : digits);
  if (kind === "f64") return floatText(BITS.getFloat64(0, true), long ? 17 : digits);
  if (kind === "pred") return bits & 1n ? "true" : "false";
  const width = Number(/\d+$/.exec(kind)?.[0] ?? 64);
  if (long) return String(kind.startsWith("s") ? BigInt.asIntN(width, bits) : BigInt.asUintN(width, bits));
  if (kind.startsWith("s")) return compact(BigInt.asIntN(width, bits), width);
  return compact(BigInt.asUintN(width, bits), width);
}

function floatText(value, digits) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf";
  if (Math.abs(value) >= 10 ** digits && Math.abs(value) < 1e5) return String(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}

/** Long integers are addresses or hashes: hexadecimal keeps them short. */
function compact(value, width) {
  const text = value.toString();
  return text.length <= 8 ? text : `0x${BigInt.asUintN(width, value).toString(16)}`;
}

/** A value for a small box: of a long one its end, where neighbouring addresses differ. */
export function boxText(text) {
  return text.length > 8 && text.startsWith("0x") ? `…${text.slice(-4)}` : text;
}
