import { above, groupedBy, upTo } from "../parts/items.js";
import { stopWords, watchedIn } from "../parts/watch.js";
import { filled, grouped } from "../parts/words.js";

// A traced block as Python laid it out: everything here is looked up, or bits written as a number.

/** Things with the same key together: the first of them, and how many. */
export const alike = (things, keyOf) => [...groupedBy(things, keyOf)].map(([key, all]) => ({ key, thing: all[0], times: all.length }));

/** The steps of one warp; columns are those of `columns.py`. */
export class WarpRecord {
  constructor(contents, [warp, threads, total]) {
    Object.assign(this, contents.columns[warp], { warp, threads, total, texts: contents.texts, contents });
    this.length = this.site.length;
  }

  clamp(step) { return Math.max(0, Math.min(step, this.length - 1)); }
  /** Where a move such as `next_line` leads; the step itself where it leads nowhere. */
  target(move, step) { return step + (this[move]?.[step] ?? 0); }
  says(column, row) { return this.texts[this[column][row]]; }
  place(step) { return this.says("site_place", this.site[step]); }
  instruction(step) { return this.says("site_words", this.site[step]); }
  /** The turns of loops that a step lies in, as words; empty outside of loops. */
  turns(step) { return this.turn?.[step] >= 0 ? this.says("turn_words", this.turn[step]) : ""; }
  active(step, lane) { return (this.mask_active[this.mask[step]] >>> lane) & 1; }
  runs(step, lane) { return (this.mask_executed[this.mask[step]] >>> lane) & 1; }

  /** The visit of a source line that a step belongs to, and that visit's last step. */
  visit(step) { return above(this.visit_begin, step) - 1; }
  visitEnd(visit) { return (this.visit_begin[visit + 1] ?? this.length) - 1; }

  /** active, off (predicated off), inactive, or none (no such thread). */
  laneState(step, lane, byLine) {
    if (lane >= this.threads) return "none";
    const runs = byLine ? (this.visit_lanes[this.visit(step)] >>> lane) & 1 : this.runs(step, lane);
    return runs ? "active" : this.active(step, lane) ? "off" : "inactive";
  }

  sentence(step, byLine) {
    const visit = this.visit(step);
    const turns = this.turns(byLine ? this.visitEnd(visit) : step);
    const words = {
      step: grouped((byLine ? visit : step) + 1), steps: byLine ? grouped(this.visit_begin.length) : this.total,
      place: byLine ? this.says("visit_place", visit) : this.place(step), turn: turns && `, ${turns}`,
      lanes: byLine ? this.says("visit_words", visit) : this.says("mask_words", this.mask[step]), text: this.instruction(step),
      access: byLine ? this.briefly(step) : this.accesses(step).map(({ sentence }) => ` ${sentence}`).join(""), moved: this.says("visit_moved", visit),
      stop: byLine ? stopWords(this, this.visit_begin[visit], this.visitEnd(visit)) : stopWords(this, step, step),
    };
    return filled(this.contents[byLine ? "line_sentence" : "sentence"], words);
  }

  /** Bits of a lane in a row as `lane_rows` packs them. */
  bits(name, row, lane) {
    const [at, base, stride, table] = ["at", "base", "stride", "table"].map((part) => this[`${name}_${part}`]);
    if (at[row] < 0) return BigInt.asUintN(64, BigInt(base[~at[row]]) + BigInt(stride[~at[row]]) * BigInt(lane));
    const low = 32 * (at[row] >> 1) + lane;
    return BigInt(table[low]) | (at[row] & 1 ? BigInt(table[low + 32]) << 32n : 0n);
  }

  /** Memory accesses of a step, or of the visit that it belongs to. */
  accesses(step, byLine) {
    if (!this.access_step) return [];
    const visit = this.visit(step);
    const [first, last] = byLine ? [this.visit_begin[visit], this.visitEnd(visit)] : [step, step];
    const [from, to] = [above(this.access_step, first - 1), above(this.access_step, last)];
    return upTo(to - from, (at) => this.access(from + at));
  }

  /** The memory accesses of a line in few words, those alike together. */
  briefly(step) {
    const said = alike(this.accesses(step, true), ({ brief }) => brief).map(({ key, times }) => (times > 1 ? `${grouped(times)} × ${key}` : key));
    const most = this.contents.most_briefs;
    return said.slice(0, most).map((text) => ` ${text}.`).join("") + (said.length > most ? " …" : "");
  }

  /** A memory access; addresses are those of the lanes that take part. */
  access(at) {
    const [kind, step] = [this.access_kind[at], this.access_step[at]];
    const found = { sizeBytes: this.kind_size_bytes[kind], over: this.kind_over[kind], reads: this.kind_reads[kind] };
    for (const name of ["sentence", "brief", "heading", "verdict", "note", "picture"]) found[name] = this.says(`kind_${name}`, kind);
    const lanes = upTo(this.address_at ? 32 : 0, (lane) => lane).filter((lane) => this.runs(step, lane));
    return { ...found, lanes: lanes.map((lane) => ({ lane, address: Number(this.bits("address", at, lane)) })) };
  }

  value(row, lane) {
    return { what: this.says("value_what", row), type: this.says("value_type", row), step: this.value_step[row], bits: this.bits("value", row, lane) };
  }

  /** What the step writes, a register or else to memory, in each lane; null if nothing. */
  result(step) {
    const row = this.result_row?.[step] ?? -1;
    return row < 0 ? null : upTo(32, (lane) => (this.runs(step, lane) ? this.value(row, lane) : null));
  }

  /** What a visit did, in each lane: the last variable it wrote, else what it stored, else what it loaded. */
  lineResult(step) {
    const visit = this.visit(step);
    const [first, last] = [this.visit_begin[visit], this.visitEnd(visit)];
    const wrote = this.contents.variables.map((_, variable) => this.variableRow(variable, last)).filter((row) => row >= 0 && this.value_step[row] >= first);
    const others = upTo(last + 1 - first, (at) => last - at).filter((at) => this.result_row?.[at] >= 0);
    const stored = others.find((at) => this.value_step[this.result_row[at]] === at && !this.says("value_what", this.result_row[at]).startsWith("%"));
    const loaded = others.find((at) => this.access_step?.[above(this.access_step, at - 1)] === at);
    if (wrote.length) {
      const row = wrote.reduce((late, each) => (this.value_step[each] > this.value_step[late] ? each : late));
      const variable = this.contents.variables.findIndex((_, at) => this.variableRow(at, last) === row);
      return upTo(32, (lane) => this.variable(variable, last, lane)).map((value) => value && value.step >= first ? value : null);
    }
    const found = stored ?? loaded;
    return found === undefined ? null : this.result(found).map((value) => value && { ...value, what: stored === undefined ? "loaded value" : value.what });
  }

  /** The last row up to a step that writes a variable, in a lane or in any; -1 for none. */
  variableRow(variable, step, lane = -1) {
    const [from, to] = this.variable_at?.slice(variable, variable + 2) ?? [0, 0];
    let at = to;
    for (let low = from; low < at;) {
      const middle = (low + at) >> 1;
      if (this.value_step[this.variable_rows[middle]] <= step) low = middle + 1;
      else at = middle;
    }
    for (at -= 1; at >= from; at -= 1) {
      if (lane < 0 || this.runs(this.value_step[this.variable_rows[at]], lane)) return this.variable_rows[at];
    }
    return -1;
  }

  /** A variable's value in a lane after a step, or null. */
  variable(variable, step, lane) {
    const [name, ctype, type] = this.contents.variables[variable];
    const row = this.variableRow(variable, step, lane);
    return row < 0 ? null : { ...this.value(row, lane), what: name, ctype, type };
  }

  /** The variables in scope at a line, each with its value in a lane where that is known. */
  variables(step, lane, line) {
    const { variables } = this.contents;
    const inside = variables.map((_, at) => at).filter((at) => variables[at][3] <= line && line <= variables[at][4]);
    return inside.map((at) => ({ what: variables[at][0], ctype: variables[at][1], known: variables[at][5], value: this.variable(at, step, lane) }));
  }

  /** The values of a variable or a register in all lanes after a step. */
  named(name, step) {
    const variable = this.contents.variables.findIndex(([each, , , , , known]) => each === name && known);
    return watchedIn(this, name, step) ?? upTo(32, (lane) => (variable < 0 ? this.registers(step, lane, name)[0] ?? null : this.variable(variable, step, lane)));
  }

  /** The registers that a lane has a value in, each as it was last written in the call that a step is in. */
  registers(step, lane, only = "") {
    const found = [];
    const [from, to] = this.call_holders?.slice(this.call[step], this.call[step] + 2) ?? [0, 0];
    for (let holder = from; holder < to; holder += 1) {
      const first = this.holder_rows[holder];
      if (only && this.says("value_what", first) !== only) continue;
      let row = above(this.value_step, step, first, this.holder_rows[holder + 1]) - 1;
      while (row >= first && !this.runs(this.value_step[row], lane)) row -= 1;
      if (row >= first) found.push(this.value(row, lane));
    }
    return found;
  }
}

/** A word of a block's shared memory after a step: bits, and who wrote it last; null if nobody has. */
export function sharedWord(memory, word, sequence) {
  const [first, end] = [memory.word_events[word], memory.word_events[word + 1]];
  const at = above(memory.sequence, sequence, first, end) - 1;
  return at >= first ? Object.fromEntries(["bits", "sequence", "lane", "warp", "width", "type", "second"].map((name) => [name, memory[name][at]])) : null;
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

/** A value in a cell with room for some characters: fewer digits, or its end, where neighbours differ. */
export function cellText(bits, type, room) {
  const texts = [5, 4, 3, 2, 1].map((digits) => valueText(bits, type, false, digits));
  return texts.find((text) => text.length <= room) ?? `…${texts[0].slice(1 - room)}`;
}

function floatText(value, digits) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf";
  if (Math.abs(value) >= 10 ** digits && Math.abs(value) < 1e5) return String(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}
