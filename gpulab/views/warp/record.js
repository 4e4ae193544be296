import { above, groupedBy, upTo } from "../parts/items.js";
import { stopWords, watchedIn } from "../parts/watch.js";
import { filled, grouped } from "../parts/words.js";

// The columns of a traced block. Values are only looked up here, and bits are converted to numbers.

/** Group items by a key: the first item of each group, and the number of items. */
export const alike = (items, keyOf) => [...groupedBy(items, keyOf)].map(([key, group]) => ({ key, thing: group[0], times: group.length }));

/** The steps of one warp, in the columns of `columns.py`. */
export class WarpRecord {
  constructor(contents, [warp, threads, total]) {
    Object.assign(this, contents.columns[warp], { warp, threads, total, texts: contents.texts, contents });
    this.length = this.site.length;
  }

  clamp(step) { return Math.max(0, Math.min(step, this.length - 1)); }
  /** The target step of a move such as `next_line`, or the step itself if there is no target. */
  target(move, step) { return step + (this[move]?.[step] ?? 0); }
  says(column, row) { return this.texts[this[column][row]]; }
  place(step) { return this.says("site_place", this.site[step]); }
  instruction(step) { return this.says("site_words", this.site[step]); }
  /** The iterations of loops that contain a step, in words; empty outside of loops. */
  turns(step) { return this.turn?.[step] >= 0 ? this.says("turn_words", this.turn[step]) : ""; }
  active(step, lane) { return (this.mask_active[this.mask[step]] >>> lane) & 1; }
  runs(step, lane) { return (this.mask_executed[this.mask[step]] >>> lane) & 1; }

  /** The visit of a source line that contains a step, and the last step of a visit. */
  visit(step) { return above(this.visit_begin, step) - 1; }
  visitEnd(visit) { return (this.visit_begin[visit + 1] ?? this.length) - 1; }

  /** The state of a lane: active, off (predicated off), inactive, or none (no such thread). */
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

  /** The bits of a lane in a row, which `encode_lane_rows` in Python encodes. */
  bits(name, row, lane) {
    const [at, base, stride, table] = ["at", "base", "stride", "table"].map((suffix) => this[`${name}_${suffix}`]);
    if (at[row] < 0) return BigInt.asUintN(64, BigInt(base[~at[row]]) + BigInt(stride[~at[row]]) * BigInt(lane));
    const low = 32 * (at[row] >> 1) + lane;
    return BigInt(table[low]) | (at[row] & 1 ? BigInt(table[low + 32]) << 32n : 0n);
  }

  /** Memory accesses of a step, or of the visit that contains it. */
  accesses(step, byLine) {
    if (!this.access_step) return [];
    const visit = this.visit(step);
    const [first, last] = byLine ? [this.visit_begin[visit], this.visitEnd(visit)] : [step, step];
    const [firstAccess, endAccess] = [above(this.access_step, first - 1), above(this.access_step, last)];
    return upTo(endAccess - firstAccess, (index) => this.access(firstAccess + index));
  }

  /** The memory accesses of a line in few words; equal ones are counted. */
  briefly(step) {
    const texts = alike(this.accesses(step, true), ({ brief }) => brief).map(({ key, times }) => (times > 1 ? `${grouped(times)} × ${key}` : key));
    const maxTexts = this.contents.most_briefs;
    return texts.slice(0, maxTexts).map((text) => ` ${text}.`).join("") + (texts.length > maxTexts ? " …" : "");
  }

  /** A memory access, with the addresses of the executing lanes. */
  access(index) {
    const [kind, step] = [this.access_kind[index], this.access_step[index]];
    const fields = { sizeBytes: this.kind_size_bytes[kind], over: this.kind_over[kind], reads: this.kind_reads[kind] };
    for (const name of ["sentence", "brief", "heading", "verdict", "note", "picture"]) fields[name] = this.says(`kind_${name}`, kind);
    const lanes = upTo(this.address_at ? 32 : 0, (lane) => lane).filter((lane) => this.runs(step, lane));
    return { ...fields, lanes: lanes.map((lane) => ({ lane, address: Number(this.bits("address", index, lane)) })) };
  }

  value(row, lane) {
    return { what: this.says("value_what", row), type: this.says("value_type", row), step: this.value_step[row], bits: this.bits("value", row, lane) };
  }

  /** The values that a step writes to a register or to memory, in each lane; null if there are none. */
  result(step) {
    const row = this.result_row?.[step] ?? -1;
    return row < 0 ? null : upTo(32, (lane) => (this.runs(step, lane) ? this.value(row, lane) : null));
  }

  /** The result of a visit in each lane: the last written variable, or the stored or loaded value. */
  lineResult(step) {
    const visit = this.visit(step);
    const [first, last] = [this.visit_begin[visit], this.visitEnd(visit)];
    const writtenRows = this.contents.variables.map((_, variable) => this.variableRow(variable, last)).filter((row) => row >= 0 && this.value_step[row] >= first);
    const previousSteps = upTo(last + 1 - first, (candidateStep) => last - candidateStep).filter((candidateStep) => this.result_row?.[candidateStep] >= 0);
    const stored = previousSteps.find((candidateStep) => this.value_step[this.result_row[candidateStep]] === candidateStep && !this.says("value_what", this.result_row[candidateStep]).startsWith("%"));
    const loaded = previousSteps.find((candidateStep) => this.access_step?.[above(this.access_step, candidateStep - 1)] === candidateStep);
    if (writtenRows.length) {
      const row = writtenRows.reduce((latest, candidate) => (this.value_step[candidate] > this.value_step[latest] ? candidate : latest));
      const variable = this.contents.variables.findIndex((_, candidate) => this.variableRow(candidate, last) === row);
      return upTo(32, (lane) => this.variable(variable, last, lane)).map((value) => value && value.step >= first ? value : null);
    }
    const sourceStep = stored ?? loaded;
    return sourceStep === undefined ? null : this.result(sourceStep).map((value) => value && { ...value, what: stored === undefined ? "loaded value" : value.what });
  }

  /** The last row up to a step that writes a variable, in one lane or in any lane, or -1. */
  variableRow(variable, step, lane = -1) {
    const [firstRow, endRow] = this.variable_at?.slice(variable, variable + 2) ?? [0, 0];
    let position = endRow;
    for (let low = firstRow; low < position;) {
      const middle = (low + position) >> 1;
      if (this.value_step[this.variable_rows[middle]] <= step) low = middle + 1;
      else position = middle;
    }
    for (position -= 1; position >= firstRow; position -= 1) {
      if (lane < 0 || this.runs(this.value_step[this.variable_rows[position]], lane)) return this.variable_rows[position];
    }
    return -1;
  }

  /** A variable's value in a lane after a step, or null. */
  variable(variable, step, lane) {
    const [name, ctype, type] = this.contents.variables[variable];
    const row = this.variableRow(variable, step, lane);
    return row < 0 ? null : { ...this.value(row, lane), what: name, ctype, type };
  }

  /** The variables in scope at a line, each with its value in a lane if it is known. */
  variables(step, lane, line) {
    const { variables } = this.contents;
    const visibleIndices = variables.map((_, index) => index).filter((index) => variables[index][3] <= line && line <= variables[index][4]);
    return visibleIndices.map((index) => ({ what: variables[index][0], ctype: variables[index][1], known: variables[index][5], value: this.variable(index, step, lane) }));
  }

  /** The values of a variable or a register in all lanes after a step. */
  named(name, step) {
    const variable = this.contents.variables.findIndex(([variableName, , , , , known]) => variableName === name && known);
    return watchedIn(this, name, step) ?? upTo(32, (lane) => (variable < 0 ? this.registers(step, lane, name)[0] ?? null : this.variable(variable, step, lane)));
  }

  /** The last values of a lane's registers in the call that contains a step. */
  registers(step, lane, onlyName = "") {
    const values = [];
    const [firstHolder, endHolder] = this.call_holders?.slice(this.call[step], this.call[step] + 2) ?? [0, 0];
    for (let holder = firstHolder; holder < endHolder; holder += 1) {
      const firstRow = this.holder_rows[holder];
      if (onlyName && this.says("value_what", firstRow) !== onlyName) continue;
      let row = above(this.value_step, step, firstRow, this.holder_rows[holder + 1]) - 1;
      while (row >= firstRow && !this.runs(this.value_step[row], lane)) row -= 1;
      if (row >= firstRow) values.push(this.value(row, lane));
    }
    return values;
  }
}

/** A word of a block's shared memory after a step, with its last writer; null if it was never written. */
export function sharedWord(memory, word, sequence) {
  const [first, end] = [memory.word_events[word], memory.word_events[word + 1]];
  const index = above(memory.sequence, sequence, first, end) - 1;
  return index >= first ? Object.fromEntries(["bits", "sequence", "lane", "warp", "width", "type", "second"].map((name) => [name, memory[name][index]])) : null;
}

const BITS = new DataView(new ArrayBuffer(8));

/** A register's bits as a number of its PTX type, short enough for a cell unless `isLong`. */
export function valueText(bits, type, isLong = false, digits = 5) {
  const kind = type.replace(/^\./, "");
  BITS.setBigUint64(0, BigInt.asUintN(64, bits), true);
  if (kind === "f32") return floatText(BITS.getFloat32(0, true), isLong ? 9 : digits);
  if (kind === "f64") return floatText(BITS.getFloat64(0, true), isLong ? 17 : digits);
  if (kind === "pred") return bits & 1n ? "true" : "false";
  const width = Number(/\d+$/.exec(kind)?.[0] ?? 64);
  const text = String(kind.startsWith("s") ? BigInt.asIntN(width, bits) : BigInt.asUintN(width, bits));
  // Long integers are addresses or hashes: hexadecimal keeps them short.
  return isLong || text.length <= 8 ? text : `0x${BigInt.asUintN(width, bits).toString(16)}`;
}

/** A value with at most `maxLetters` characters: with fewer digits, or only its end. */
export function cellText(bits, type, maxLetters) {
  const texts = [5, 4, 3, 2, 1].map((digits) => valueText(bits, type, false, digits));
  return texts.find((text) => text.length <= maxLetters) ?? `…${texts[0].slice(Math.min(2 - maxLetters, -1))}`; // an ellipsis is wide
}

function floatText(value, digits) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "inf" : "-inf";
  if (Math.abs(value) >= 10 ** digits && Math.abs(value) < 1e5) return String(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}
