// The state of a traced warp and its block at any step: loops, registers, shared memory.

/** First position in an ascending array whose value is at least `wanted`. */
export function firstAtLeast(stops, wanted) {
  let low = 0;
  let high = stops.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (stops[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Rows of 32 values as `_lane_rows.encode` packs them, read as BigInt bits. */
export class LaneRows {
  constructor(columns, name) {
    this.base = columns[`${name}_base`];
    this.stride = columns[`${name}_stride`];
    this.full = columns[`${name}_full`];
    this.table = columns[`${name}_table`];
    if (this.base) {
      this.lowBase = new Uint32Array(this.base.buffer, this.base.byteOffset, 2 * this.base.length);
      this.lowStride = new Uint32Array(this.stride.buffer, this.stride.byteOffset, 2 * this.stride.length);
    }
  }

  /** The low 32 bits as a plain number, which is many times faster than a BigInt. */
  low(row, lane) {
    const full = this.full[row];
    if (full < 0) return (this.lowBase[2 * row] + Math.imul(this.lowStride[2 * row], lane)) >>> 0;
    return this.table[(full >> 1) * 32 + lane];
  }

  value(row, lane) {
    const full = this.full[row];
    if (full < 0) return BigInt.asUintN(64, this.base[row] + this.stride[row] * BigInt(lane));
    const at = (full >> 1) * 32 + lane;
    const low = BigInt(this.table[at]);
    return full & 1 ? low | (BigInt(this.table[at + 32]) << 32n) : low;
  }

  lanes(row) {
    return Array.from({ length: 32 }, (_, lane) => this.value(row, lane));
  }
}

/** The runs of loops that `_loops.py` found. */
export class Loops {
  constructor(columns) {
    this.first = columns.loop_first ?? new Int32Array(0);
    this.last = columns.loop_last;
    this.at = columns.loop_at;
    this.starts = columns.loop_starts;
    this.parent = columns.loop_parent;
    this.open = columns.loop_open;
    this.ofStep = columns.loop_of;
    this.children = new Map();
    for (let run = 0; run < this.first.length; run += 1) {
      const parent = this.parent[run];
      if (!this.children.has(parent)) this.children.set(parent, []);
      this.children.get(parent).push(run);
    }
  }

  get length() { return this.first.length; }
  innermost(step) { return this.ofStep?.[step] ?? -1; }
  turns(run) { return this.starts.subarray(this.at[run], this.at[run + 1]); }
  turn(run, step) { return Math.max(1, firstAtLeast(this.turns(run), step + 1)); }
  around(step) { const run = this.innermost(step); return run < 0 ? this.starts?.subarray(0, 0) ?? [] : this.turns(run); }
  count(run) { return `${this.turns(run).length}${this.open[run] ? "+" : ""}`; }

  /** The runs a step lies in, outermost first. */
  path(step) {
    const runs = [];
    for (let run = this.innermost(step); run >= 0; run = this.parent[run]) runs.unshift(run);
    return runs;
  }

  words(step) {
    const turns = this.path(step).map((run) => `${this.turn(run, step)} of ${this.count(run)}`);
    return turns.length ? `iteration ${turns.join(", inside it ")}` : "";
  }

  /** Steps to show with every loop folded to one turn, the current one: ranges, and the turns shown. */
  folded(step, length) {
    const ranges = [];
    const shown = [];
    const emit = (from, to) => { if (from <= to) ranges.push([from, to]); };
    const walk = (from, to, runs) => {
      let at = from;
      for (const run of runs ?? []) {
        if (this.first[run] < from || this.first[run] > to) continue;
        emit(at, this.first[run] - 1);
        const turns = this.turns(run);
        const turn = step >= this.first[run] && step <= this.last[run] ? this.turn(run, step) : 1;
        const begin = turn === 1 ? this.first[run] : turns[turn - 1];
        const end = turn < turns.length ? turns[turn] - 1 : this.last[run];
        shown.push({ run, turn, begin, end });
        walk(begin, end, this.children.get(run));
        at = this.last[run] + 1;
      }
      emit(at, to);
    };
    walk(0, length - 1, this.children.get(-1));
    return { ranges, shown };
  }
}

/** Registers after any step, from the rows of what each step wrote. */
export class Registers {
  constructor(columns, facts) {
    this.when = columns.write_step ?? new Int32Array(0);
    this.name = columns.write_name;
    this.type = columns.write_type;
    this.executed = columns.executed;
    this.depth = columns.depth;
    this.rows = new LaneRows(columns, "write");
    this.facts = facts;
    this.byName = new Map();
    for (let row = 0; row < this.when.length; row += 1) {
      const name = this.name[row];
      if (!this.byName.has(name)) this.byName.set(name, []);
      this.byName.get(name).push(row);
    }
    const collator = new Intl.Collator("en", { numeric: true });
    this.order = [...this.byName.keys()].sort((a, b) => collator.compare(facts.registers[a], facts.registers[b]));
  }

  /** First step of the function call that a step belongs to. */
  callStart(step) {
    if (!this.depth || !this.depth[step]) return 0;
    let at = step;
    while (at > 0 && this.depth[at - 1] >= this.depth[step]) at -= 1;
    return at;
  }

  /** The row that last wrote a register in a lane, or -1. */
  lastRow(name, step, lane, start) {
    const rows = this.byName.get(name) ?? [];
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.when[rows[middle]] <= step) low = middle + 1;
      else high = middle;
    }
    for (let at = low - 1; at >= 0; at -= 1) {
      const when = this.when[rows[at]];
      if (when < start) return -1;
      const sameCall = !this.depth || this.depth[when] === this.depth[step];
      if (sameCall && (this.executed[when] >>> lane) & 1) return rows[at];
    }
    return -1;
  }

  /** All registers that a lane has a value in: name, type, bits, and the step that wrote it. */
  ofLane(step, lane) {
    const start = this.callStart(step);
    const found = [];
    for (const name of this.order) {
      const row = this.lastRow(name, step, lane, start);
      if (row >= 0) found.push({ name: this.facts.registers[name], type: this.facts.types[this.type[row]], bits: this.rows.value(row, lane), step: this.when[row] });
    }
    return found;
  }

  /** One register in all lanes: bits, or null where a lane has none; null if no lane has. */
  ofName(step, text) {
    const name = this.facts.registers.indexOf(text);
    const start = this.callStart(step);
    let type = "";
    const lanes = Array.from({ length: 32 }, (_, lane) => {
      const row = this.lastRow(name, step, lane, start);
      if (row < 0) return null;
      type = this.facts.types[this.type[row]];
      return this.rows.value(row, lane);
    });
    return lanes.some((bits) => bits !== null) ? { register: text, type, bits: lanes } : null;
  }
}

/** A block's shared memory after any step; goes forward by playing writes, back from the start. */
export class SharedMemory {
  constructor(columns, sizeBytes, types) {
    Object.assign(this, columns);
    this.sizeBytes = sizeBytes;
    this.words = Math.ceil(sizeBytes / 4);
    this.types = types;
    this.offsets = new LaneRows(columns, "offset");
    this.values = new LaneRows(columns, "value");
    this.bytes = new DataView(new ArrayBuffer(4 * this.words + 8));
    this.lastWrite = new Int32Array(this.words + 2);
    this.rewind();
  }

  rewind() {
    this.played = 0;
    this.lastWrite.fill(-1);
    for (let at = 0; at < this.bytes.byteLength; at += 4) this.bytes.setUint32(at, 0xffffffff);
  }

  goTo(sequence) {
    const wanted = firstAtLeast(this.sequence, sequence + 1);
    if (wanted < this.played) this.rewind();
    for (; this.played < wanted; this.played += 1) {
      const row = this.played;
      this.eachLane(row, (lane, at) => {
        const low = this.values.low(row, lane);
        if (this.width[row] === 1) this.bytes.setUint8(at, low);
        else if (this.width[row] === 2) this.bytes.setUint16(at, low, true);
        else if (this.width[row] === 4) this.bytes.setUint32(at, low, true);
        else {
          this.bytes.setBigUint64(at, this.values.value(row, lane), true);
          this.lastWrite[(at >> 2) + 1] = 32 * row + lane;
        }
        this.lastWrite[at >> 2] = 32 * row + lane;
      });
    }
  }

  eachLane(row, visit) {
    for (let rest = this.mask[row]; rest; rest &= rest - 1) {
      const lane = 31 - Math.clz32(rest & -rest);
      visit(lane, this.offsets.low(row, lane));
    }
  }

  /** Words that a step wrote. */
  changed(sequence) {
    const found = new Set();
    for (let row = firstAtLeast(this.sequence, sequence); this.sequence[row] === sequence; row += 1) {
      this.eachLane(row, (_lane, at) => { for (let word = at >> 2; word <= (at + this.width[row] - 1) >> 2; word += 1) found.add(word); });
    }
    return found;
  }

  /** Who wrote a word last: its type, width, first byte, lane and warp; null if nobody has. */
  writer(word) {
    const code = this.lastWrite[word];
    if (code < 0) return null;
    const row = code >> 5;
    const lane = code & 31;
    return { type: this.types[this.type[row]], width: this.width[row], at: this.offsets.low(row, lane), lane, warp: this.warp[row] };
  }

  writtenWords() {
    let count = 0;
    for (let word = 0; word < this.words; word += 1) if (this.lastWrite[word] >= 0) count += 1;
    return count;
  }
}
