import { Frame, element, unpack } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { above, labels, line, rects, rules, speaking, ticks, torn } from "../parts/items.js";
import { duration, filled, sized } from "../parts/words.js";

// Memory chart: readings that Python sends while cells run, kept here as long as there.

const [HEIGHT_PX, AXIS_PX, MARKS_PX] = [220, 34, 36];
const AREAS = [["used_bytes", "accent"], ["reserved_bytes", "accent-pale"], ["device_bytes", "other-pale"]];
const SPAN_NS = 60e9; // in sight while the chart follows
const MOST_OUTSIDE = 3;
const MARK_PX = 5;
const FIGURES_MS = 250;
const PATIENCE_MS = 600;
const stores = new WeakMap();

/** What Python has sent: one for each model, so that a chart shown twice shows the same. */
class Store {
  constructor(model) {
    this.model = model;
    this.listeners = new Set();
    this.take();
    model.on("change:data", () => this.take());
    this.answer = "";
    model.on("msg:custom", (message) => {
      if (message.kind === "tick") this.add(message);
      if (message.kind === "answer") this.say(message.text);
    });
  }

  /** What a button's work has come to. Python answers when it is not busy with a cell. */
  say(text) {
    clearTimeout(this.patience);
    this.answer = text;
    this.tell();
  }

  act(what, size = "") {
    this.model.send({ kind: "act", what, size });
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.say(this.said.busy), PATIENCE_MS);
  }

  /** Everything that Python has. */
  take() {
    const { columns, marks, lines, capacity, said } = unpack(this.model.get("scene"), this.model.get("data"));
    const plain = (table) => Object.fromEntries(Object.entries(table).map(([name, column]) => [name, Array.from(column)]));
    Object.assign(this, { columns: plain(columns), marks: plain(marks), lines: [...lines], capacity, said, next: null, failure: "" });
    this.peak = this.columns.peak_bytes.reduce((most, each, at) => (each > (most?.[0] ?? -1) ? [each, this.columns.time_ns[at]] : most), null);
    this.tell();
  }

  add({ number, row, marks, lines, failure }) {
    if (this.next !== null && number !== this.next) this.model.send({ kind: "all" }); // one got lost
    this.next = number + 1;
    const time = row[0];
    if (time <= (this.columns.time_ns.at(-1) ?? -1)) return;
    Object.values(this.columns).forEach((column, at) => column.push(row[at] ?? NaN));
    for (const mark of marks) Object.values(this.marks).forEach((column, at) => column.push(mark[at]));
    this.lines.push(...lines);
    this.failure = failure;
    const most = this.columns.peak_bytes.at(-1);
    if (most > (this.peak?.[0] ?? -1)) this.peak = [most, time];
    this.bound(this.columns, 12_000);
    this.bound(this.marks, 20_000);
    this.tell();
  }

  /** As many as Python keeps. */
  bound(table, most) {
    if (table.time_ns.length < 1.1 * most) return;
    for (const name of Object.keys(table)) table[name] = table[name].slice(-most);
  }

  size(bytes) { return Number.isFinite(bytes) ? sized(Math.max(0, bytes)) : this.said.not_available; }

  tell() { this.listeners.forEach((listener) => listener()); }

  latest(name) { return this.columns[name].at(-1) ?? NaN; }

  get end() { return this.columns.time_ns.at(-1) ?? 1; }
}

/** A plot of a store: it follows what comes, until the reader looks elsewhere. */
class MemoryPlot extends Plot {
  constructor(frame, store, changed) {
    super(frame, {
      box: "plot", height: MARKS_PX + HEIGHT_PX + AXIS_PX, domain: [0, 1], left: 76, right: 14, zoom: true, most_zoom: 1e5, items: [],
      label: "Memory over time: arrows walk the marks of allocations and frees, plus and minus zoom, 0 shows everything, F follows.",
      hint: "Point at the chart, or walk its marks with the arrow keys.",
    });
    this.store = store;
    this.changed = changed;
    this.following = true;
    this.item = { item: "rects", x0: [], say: [["which", "texts"]] };
    Object.entries({ tabindex: 0, role: "application", "aria-roledescription": "chart" }).forEach(([name, value]) => this.canvas.setAttribute(name, value));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("pointermove", (event) => this.onPointer(event));
    this.canvas.addEventListener("wheel", (event) => this.onWheel(event));
    this.canvas.addEventListener("pointerdown", (event) => { [this.dragged] = frame.at(event, this.canvas); this.canvas.setPointerCapture(event.pointerId); });
    this.node.append(this.line);
  }

  follow(on) {
    this.following = on;
    this.changed();
    this.draw();
  }

  pan(by) {
    if (this.painting) return;
    this.following = false;
    super.pan(by);
    this.changed();
  }

  draw() {
    const { box, store } = this;
    if (!store) return;
    box.domain = [0, Math.max(store.end, 1e9)];
    if (this.following) this.sight = [Math.max(0, box.domain[1] - SPAN_NS), box.domain[1]];
    const width = Math.floor(this.holder.clientWidth);
    this.wide = Math.max(10, width - box.left - box.right);
    const held = this.chosen >= 0 ? this.item.x0[this.chosen] + 1e4 * this.item.row[this.chosen] : null;
    box.items = this.build();
    this.item = box.items.at(-1);
    // What was chosen keeps its outline while the chart moves.
    this.chosen = held === null ? -1 : this.item.x0.findIndex((x, at) => x + 1e4 * this.item.row[at] === held);
    super.draw();
  }

  build() {
    const { store, box } = this;
    const { columns } = store;
    const bottom = MARKS_PX + HEIGHT_PX;
    const [first, last] = [Math.max(0, above(columns.time_ns, this.sight[0]) - 1), above(columns.time_ns, this.sight[1])];
    // As many points as there are pixels, each with the highest of its readings.
    const stride = Math.max(1, Math.ceil((last - first) / this.wide));
    const shown = Object.fromEntries(Object.keys(columns).map((name) => [name, []]));
    for (let at = first; at < last; at += stride) {
      for (const [name, column] of Object.entries(columns)) {
        let most = column[at];
        for (let other = at + 1; name !== "time_ns" && other < Math.min(last, at + stride); other += 1) if (!(column[other] <= most)) most = column[other];
        shown[name].push(most);
      }
    }
    shown.time_ns.push(last < columns.time_ns.length ? columns.time_ns[last] : store.end);
    const high = this.scale(shown);
    const y = (bytes) => (Number.isNaN(bytes) ? bottom : bottom - HEIGHT_PX * Math.min(1, bytes / high));
    const step = 2 ** Math.floor(Math.log2(high / 3));
    const sizes = Array.from({ length: Math.floor(high / step) + 1 }, (_, at) => at * step);
    const flat = (at, colour, more) => rules(at.map(() => this.sight[0]), at, at.map(() => this.sight[1]), at, colour, more);
    const items = [flat(sizes.map(y), "grid")];
    for (const [from, to] of runs(shown)) {
      const x = shown.time_ns.slice(from, to + 1);
      // A reading's peak is that of the time before it: the most that was used from one reading to the next.
      const most = shown.used_bytes.map((used, at) => Math.max(used, (at + 1 < to && shown.peak_bytes[at + 1]) || 0));
      const tops = { ...shown, used_bytes: most, reserved_bytes: shown.reserved_bytes.map((each, at) => Math.max(each, most[at])) };
      const heights = (name) => { const tall = tops[name].slice(from, to).map(y); return [...tall, tall.at(-1)]; };
      for (const [name, colour] of [...AREAS].reverse()) items.push(line(x, heights(name), colour, { width: 0, fill: colour, base: bottom, step: true }));
      const limit = shown.limit_bytes.slice(from, to);
      const there = limit.map((_, at) => at).filter((at) => limit[at] > 0);
      const level = there.map((at) => y(limit[at]));
      items.push(rules(there.map((at) => x[at]), level, there.map((at) => x[at + 1]), level, "error", { width: 2 }));
    }
    if (store.peak && store.peak[0] <= high) items.push(flat([y(store.peak[0])], "tail", { dash: true, width: 2 }));
    const beyond = shown.device_bytes.reduce((high_, each) => (each > high_ ? each : high_), 0) - high;
    if (beyond > 0) items.push(torn(this.sight, MARKS_PX), labels([this.sight[0]], [MARKS_PX + 16], [filled(store.said.beyond, { size: store.size(beyond) })], { dx: 6, pin: false }));
    items.push(ticks([7, 20], store.said.rows), ticks(sizes.map(y), sizes.map((bytes) => store.size(bytes))), { item: "time", y: bottom, since: "the start" }, ...this.marks());
    return items;
  }

  scale(shown) {
    const most = (name) => shown[name].reduce((high, each) => (each > high ? each : high), 0);
    const pool = Math.max(most("reserved_bytes"), most("peak_bytes"), 2 ** 20);
    const limit = most("limit_bytes");
    let high = Math.max(pool, limit <= MOST_OUTSIDE * pool ? limit : 0);
    const whole = most("device_bytes") <= MOST_OUTSIDE * high;
    if (whole) high = Math.max(high, most("device_bytes"));
    return Math.min((whole ? 1.08 : 1.2) * high, Math.max(this.store.capacity, high)); // room for words at a torn edge
  }

  /** Marks as bars as wide as one sees, those of one place together; allocations above, frees below; and their sizes. */
  marks() {
    const { marks, lines } = this.store;
    const wide = (MARK_PX / this.wide) * (this.sight[1] - this.sight[0]);
    const grain = 10 ** Math.ceil(Math.log10(wide)) / 2 > wide ? 10 ** Math.ceil(Math.log10(wide)) / 2 : 10 ** Math.ceil(Math.log10(wide));
    const groups = new Map();
    for (let at = Math.max(0, above(marks.time_ns, this.sight[0] - grain)); at < above(marks.time_ns, this.sight[1]); at += 1) {
      for (const row of [0, 1]) {
        const [times, bytes] = row ? [marks.frees[at], marks.freed_bytes[at]] : [marks.allocations[at] + marks.failures[at], marks.allocated_bytes[at]];
        if (!times) continue;
        const key = `${row} ${Math.floor(marks.time_ns[at] / grain)}`;
        const group = groups.get(key) ?? { row, x: Math.floor(marks.time_ns[at] / grain) * grain, time: marks.time_ns[at], times: 0, bytes: 0, failures: 0, most: -1, line: -1, lines: new Set() };
        group.times += row ? times : marks.allocations[at];
        group.bytes += bytes;
        group.failures += row ? 0 : marks.failures[at];
        group.lines.add(marks.line[at]);
        if (bytes > group.most || (!row && marks.failures[at])) [group.most, group.line] = [bytes, marks.line[at]];
        groups.set(key, group);
      }
    }
    const all = [...groups.values()].sort((a, b) => a.x - b.x || a.row - b.row);
    const { said } = this.store;
    const texts = all.map(({ row, time, times, bytes, failures, line: mostly, lines: from }) => {
      const words = { time: duration(Math.round(time)), failures, times, size: this.store.size(bytes), others: from.size - 1 };
      words.what = [...(failures ? [said.failed] : []), ...(times ? [row ? said.freed : said.allocated] : [])].map((text) => filled(text, words)).join("; ");
      words.where = mostly < 0 ? said.no_line : lines[mostly] ?? "";
      return filled(from.size > 1 ? said.mark.replace("{where}", said.others) : said.mark, words);
    });
    const [left, tops] = [all.map(({ x }) => x), all.map(({ row }) => 2 + 13 * row)];
    // How much stands beside a mark where there is room before the next one of its row.
    const next = all.map(({ x, row }, at) => (all.slice(at + 1).find((other) => other.row === row)?.x ?? this.sight[1]) - x - grain);
    const sizes = labels(left.map((x) => x + grain), tops.map((top) => top + 5), all.map(({ row, bytes, failures }) => (failures ? said.refused : `${row ? "−" : "+"}${this.store.size(bytes)}`)), { room: next, dx: 2 });
    return [sizes, rects(left, left.map((x) => x + 0.85 * grain), tops, tops.map((top) => top + 11), all.map(({ row, failures }) => (failures ? 2 : row)), ["accent", "muted", "error"], {
      row: all.map(({ row }) => row), texts, ...speaking(texts),
    })];
  }

  tell() { this.line.textContent = this.item.texts[this.chosen]; }

  onPointer(event) {
    const [x] = this.frame.at(event, this.canvas);
    if (event.buttons && this.dragged !== undefined) this.pan(((this.dragged - x) / this.wide) * (this.sight[1] - this.sight[0]));
    this.dragged = event.buttons ? x : undefined;
    if (event.buttons) return;
    const mark = this.at(event);
    if (mark >= 0) { this.choose(mark); return; }
    const here = this.value(x);
    const { columns } = this.store;
    const at = above(columns.time_ns, here) - 1;
    if (at < 0 || here > this.sight[1]) return;
    const [used, reserved, device] = AREAS.map(([name]) => columns[name][at]);
    const { said } = this.store;
    const figures = { used, cached: reserved - used, outside: device - reserved, peak: columns.peak_bytes[at + 1] ?? columns.peak_bytes[at], limit: columns.limit_bytes[at] };
    const words = Object.fromEntries(Object.entries(figures).map(([name, bytes]) => [name, this.store.size(bytes)]));
    const limit = figures.limit ? filled(said.limit, words) : "";
    this.line.textContent = filled(said.reading, { ...words, limit, time: duration(Math.round(columns.time_ns[at])) });
  }

  onKey(event) {
    if (!event.ctrlKey && !event.metaKey && !event.altKey && event.key.toLowerCase() === "f") {
      event.preventDefault();
      this.follow(true);
      return;
    }
    super.onKey(event);
  }
}

/** From where to where there are readings: a pause is a row without any. */
function runs(shown) {
  const found = [];
  const gap = (at) => AREAS.every(([name]) => Number.isNaN(shown[name][at]));
  for (let at = 0; at < shown.used_bytes.length; at += 1) {
    if (gap(at)) continue;
    if (!at || gap(at - 1)) found.push([at, at]);
    found.at(-1)[1] = at + 1;
  }
  return found;
}

/** Everything that was read, as a file of the reader's. */
function download({ columns }) {
  const names = Object.keys(columns);
  const rows = columns.time_ns.map((_, at) => names.map((name) => (Number.isNaN(columns[name][at]) ? "" : columns[name][at])).join(","));
  const link = element("a", { href: URL.createObjectURL(new Blob([[names.join(","), ...rows, ""].join("\n")], { type: "text/csv" })), download: "memory.csv" });
  link.click();
  URL.revokeObjectURL(link.href);
}

function render(context) {
  const frame = new Frame(context, "memory-chart");
  const { model } = frame;
  if (!stores.has(model)) stores.set(model, new Store(model));
  const store = stores.get(model);
  const button = (text, onclick, more = {}) => element("button", { type: "button", onclick, ...more }, text);
  const note = element("span", { class: "gl-note", role: "status" });
  let frozen = false;

  const plot = new MemoryPlot(frame, store, () => followButton.setAttribute("aria-pressed", String(plot.following)));
  const middle = () => (plot.sight[0] + plot.sight[1]) / 2;
  const act = (what) => store.act(what, input.value);
  const input = element("input", { type: "text", value: "64 MiB", "aria-label": "Size, for Allocate and Set limit" });
  const pauseButton = button("Pause", () => {
    frozen = !frozen;
    act(frozen ? "pause" : "resume"); // Python may be busy: the picture stands still at once
    show();
  });
  const followButton = button("Follow", () => plot.follow(!plot.following), { "aria-pressed": "true", title: "Keep the last minute in sight (F)" });
  const acting = element(
    "div", { class: "gl-tools gl-memory-tools" },
    element("label", {}, "size ", input), button("Allocate", () => act("allocate")), button("Free", () => act("free")),
    button("Empty cache", () => act("empty")), button("Set limit", () => act("limit"), { title: "0 removes it" }), note,
  );
  const looking = element(
    "div", { class: "gl-tools gl-memory-tools" },
    pauseButton, followButton, button("−", () => plot.zoom(1 / 2, middle()), { "aria-label": "Zoom out" }), button("+", () => plot.zoom(2, middle()), { "aria-label": "Zoom in" }),
    button("Whole time", () => plot.zoom(1e-9, middle())), element("span", { class: "gl-space" }), button("Save CSV", () => download(store)),
  );
  const figures = element("dl", { class: "gl-numbers" });
  const values = store.said.terms.map((term) => {
    const value = element("dd", {}, "");
    figures.append(element("div", {}, element("dt", {}, term), value));
    return value;
  });
  const legend = element("div", { class: "gl-legend" }, ...store.said.legend.map(([colour, text]) => element("span", {}, element("i", { style: `background:var(--gl-${colour})` }), text)));
  const holder = element("div", { class: "gl-column gl-memory" }, figures, legend, plot.node);
  frame.body.append(acting, looking, holder);

  let told = 0;
  const tellFigures = () => {
    told = performance.now();
    const [used, reserved, device] = AREAS.map(([name]) => store.latest(name));
    const limit = store.latest("limit_bytes");
    const texts = [used, reserved - used, device - reserved, limit, store.peak?.[0]].map((bytes) => store.size(bytes));
    if (limit === 0) texts[3] = store.said.no_limit;
    values.forEach((node, at) => { if (node.textContent !== texts[at]) node.textContent = texts[at]; });
  };
  let asked = 0;
  const draw = () => { asked = 0; plot.draw(); };
  const show = () => {
    const state = model.get("state");
    pauseButton.textContent = frozen ? "Resume" : "Pause";
    pauseButton.disabled = frame.saved || state === "stopped";
    acting.hidden = frame.saved || state === "stopped" || !model.get("has_buttons");
    followButton.disabled = frame.saved;
    if (!frozen && !asked) asked = requestAnimationFrame(draw);
    if (!frozen && performance.now() - told > FIGURES_MS) tellFigures();
    const words = store.failure ? filled(store.said.failure, { failure: store.failure }) : store.answer;
    if (note.textContent !== words) note.textContent = words;
  };
  store.listeners.add(show);
  frame.endings.push(() => { store.listeners.delete(show); cancelAnimationFrame(asked); });
  frame.on("state", () => { frozen = model.get("state") === "paused"; tellFigures(); show(); });
  frozen = model.get("state") === "paused";
  if (model.get("state") === "stopped") {
    plot.following = false;
    plot.sight = [0, Math.max(store.end, 1e9)];
    plot.changed();
  } else if (!frame.saved) model.send({ kind: "all" });
  tellFigures();
  show();
  plot.draw();
  frame.redraw(holder, () => plot.draw());
  return frame.ending();
}

export default { render };
