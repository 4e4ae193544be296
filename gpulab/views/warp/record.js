// A traced block as Python laid it out: everything here is looked up, or bits written as a number.

export const spaced = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** First position in an ascending array whose value is at least `wanted`. */
export function firstAtLeast(stops, wanted, low = 0, high = stops.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stops[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Rows of 32 values as `lane_rows.encode` packs them, read as BigInt bits. */
class LaneRows {
  constructor(columns, name) {
    for (const part of ["at", "base", "stride", "table"]) this[part] = columns[`${name}_${part}`];
  }

  value(row, lane) {
    const at = this.at[row];
    if (at < 0) return BigInt.asUintN(64, BigInt(this.base[~at]) + BigInt(this.stride[~at]) * BigInt(lane));
    const low = 32 * (at >> 1) + lane;
    return BigInt(this.table[low]) | (at & 1 ? BigInt(this.table[low + 32]) << 32n : 0n);
  }

  lanes(row) {
    return Array.from({ length: 32 }, (_, lane) => this.value(row, lane));
  }
}

/** The steps of one warp. */
export class WarpRecord {
  constructor(contents, [warp, threads, total]) {
    Object.assign(this, contents.columns[warp], { warp, threads, total, texts: contents.texts, template: contents.sentence });
    this.length = this.site.length;
    this.values = new LaneRows(this, "value");
    this.addresses = this.address_at ? new LaneRows(this, "address") : null;
  }

  clamp(step) { return Math.max(0, Math.min(step, this.length - 1)); }

  /** Where a move such as `next_line` leads; the step itself where it leads nowhere. */
  target(move, step) { return step + this[move][step]; }

  says(column, row) { return this.texts[this[column][row]]; }

  place(step) { return this.says("site_place", this.site[step]); }

  instruction(step) { return this.says("site_words", this.site[step]); }

  /** The turns of loops that a step lies in, as words; empty outside of loops. */
  turns(step) { return this.turn?.[step] >= 0 ? this.says("turn_words", this.turn[step]) : ""; }

  active(step) { return this.mask_active[this.mask[step]]; }

  executed(step) { return this.mask_executed[this.mask[step]]; }

  /** active, off (predicated off), inactive, or none (no such thread). */
  laneState(step, lane) {
    if (lane >= this.threads) return "none";
    if (!((this.active(step) >>> lane) & 1)) return "inactive";
    return (this.executed(step) >>> lane) & 1 ? "active" : "off";
  }

  sentence(step) {
    const turns = this.turns(step);
    const access = this.access(step)?.sentence;
    const words = {
      step: spaced(step + 1), steps: this.total, place: this.place(step), turn: turns && `, ${turns}`,
      lanes: this.says("mask_words", this.mask[step]), text: this.instruction(step), access: access ? ` ${access}` : "",
    };
    return this.template.replace(/\{(\w+)\}/g, (_, name) => words[name]);
  }

  /** The step's memory access, or null; addresses are those of the lanes that take part. */
  access(step) {
    const at = firstAtLeast(this.access_step ?? [], step);
    if (this.access_step?.[at] !== step) return null;
    const kind = this.access_kind[at];
    const found = { sizeBytes: this.kind_size_bytes[kind], over: this.kind_over[kind], reads: this.kind_reads[kind], lanes: [] };
    for (const name of ["sentence", "heading", "verdict", "note", "picture"]) found[name] = this.says(`kind_${name}`, kind);
    for (let lane = 0; this.addresses && lane < 32; lane += 1) {
      if ((this.executed(step) >>> lane) & 1) found.lanes.push({ lane, address: Number(this.addresses.value(at, lane)) });
    }
    return found;
  }

  /** What the step writes, a register or else to memory, as bits in each lane; null if nothing. */
  result(step) {
    const row = this.result_row?.[step] ?? -1;
    return row < 0 ? null : { what: this.says("value_what", row), type: this.says("value_type", row), bits: this.values.lanes(row) };
  }

  /** The registers of the function that a step runs in: for each the rows that write it until then. */
  holders(step) {
    const call = this.call?.[step] ?? 0;
    const found = [];
    for (let holder = this.call_holders?.[call] ?? 0; holder < (this.call_holders?.[call + 1] ?? 0); holder += 1) {
      const first = this.holder_rows[holder];
      const end = firstAtLeast(this.value_step, step + 1, first, this.holder_rows[holder + 1]);
      if (end > first) found.push({ first, end });
    }
    return found;
  }

  /** The row that last wrote a register in a lane, or -1. */
  lastRow({ first, end }, lane) {
    for (let row = end - 1; row >= first; row -= 1) if ((this.executed(this.value_step[row]) >>> lane) & 1) return row;
    return -1;
  }

  /** All registers that a lane has a value in: name, type, bits, and the step that wrote it. */
  registersOf(step, lane) {
    const rows = this.holders(step).map((holder) => this.lastRow(holder, lane)).filter((row) => row >= 0);
    return rows.map((row) => ({
      name: this.says("value_what", row), type: this.says("value_type", row), bits: this.values.value(row, lane), step: this.value_step[row],
    }));
  }

  /** One register in all lanes: bits, or null where a lane has none; null if no lane has. */
  register(step, name) {
    const holder = this.holders(step).find(({ first }) => this.says("value_what", first) === name);
    const rows = holder ? Array.from({ length: 32 }, (_, lane) => this.lastRow(holder, lane)) : [];
    const some = rows.find((row) => row >= 0);
    if (some === undefined) return null;
    return { what: name, type: this.says("value_type", some), bits: rows.map((row, lane) => (row < 0 ? null : this.values.value(row, lane))) };
  }
}

/** A block's shared memory after any step: each word is looked up among its own values in time. */
export class SharedRecord {
  constructor(columns, texts) {
    Object.assign(this, columns, { texts, words: columns.word_events.length - 1 });
  }

  /** Bits of a word, and who wrote it last: type, width, lane, warp, and the step's place; null if nobody has. */
  word(at, sequence) {
    if (at >= this.words) return null;
    let low = this.word_events[at];
    let high = this.word_events[at + 1];
    const first = low;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.row_sequence[this.row[middle]] <= sequence) low = middle + 1;
      else high = middle;
    }
    if (low === first) return null;
    const row = this.row[low - 1];
    return {
      bits: this.bits[low - 1], lane: this.lane[low - 1], second: this.second[low - 1], type: this.texts[this.row_type[row]],
      width: this.row_width[row], warp: this.row_warp[row], sequence: this.row_sequence[row],
    };
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
  const text = String(kind.startsWith("s") ? BigInt.asIntN(width, bits) : BigInt.asUintN(width, bits));
  // Long integers are addresses or hashes: hexadecimal keeps them short.
  return long || text.length <= 8 ? text : `0x${BigInt.asUintN(width, bits).toString(16)}`;
}

/** A value as at most eight characters: fewer digits, or of an address its end, where neighbours differ. */
export function cellText(bits, type) {
  const texts = [5, 4, 3, 2].map((digits) => valueText(bits, type, false, digits));
  return texts[0].length > 8 && texts[0].startsWith("0x") ? `…${texts[0].slice(-4)}` : texts.find((text) => text.length < 8) ?? texts[3];
}

function floatText(value, digits) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf";
  if (Math.abs(value) >= 10 ** digits && Math.abs(value) < 1e5) return String(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}
