import { Frame, element, isLive, lifeOf, unpack } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { above, labels, line, rects, rules, speaking, ticks, torn, upTo } from "../parts/items.js";
import { duration, filled, sized } from "../parts/words.js";

// Memory chart: readings that Python sends while cells run, kept here for as long as in Python.

const [HEIGHT_PX, AXIS_PX, MARKS_PX] = [220, 34, 36];
const AREAS = [["used_bytes", "accent"], ["reserved_bytes", "accent-pale"], ["device_bytes", "other-pale"]];
const SPANS = { time: 60e9, event: 60 }; // visible interval while the chart follows: nanoseconds or events
const SHORT_NS = 1e9; // shortest time axis while readings go on
const EVENT_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];
const MOST_OUTSIDE = 3;
const MARK_PX = 5;
const FIGURES_MS = 250;
const PATIENCE_MS = 600;
const stores = new WeakMap();

/** Whether a group of marks (allocated, freed, returned) is in the lower row. */
const below = (row) => Number(row > 0);

/** The readings that Python has sent. There is one store per model, so that two views of it show the same. */
class Store {
  constructor(model) {
    this.model = model;
    this.listeners = new Set();
    this.take();
    model.on("change:data", () => this.take());
    this.answer = "";
    model.on("msg:custom", (message) => {
      if (message.kind === "tick") this.add(message);
      if (message.kind === "answer") this.showAnswer(message.text);
    });
    lifeOf(model)?.on?.("comm_live_update", () => { if (this.waiting && !isLive(model)) this.showAnswer(this.said.lost); });
  }

  /** Show the result of a button's action. Python replies when it is not busy with a cell. */
  showAnswer(text) {
    clearTimeout(this.patience);
    this.waiting = text === this.said.busy;
    this.answer = text;
    this.notify();
  }

  act(action, size = "") {
    if (!isLive(this.model)) {
      this.showAnswer(this.said.lost);
      return;
    }
    this.model.send({ kind: "act", what: action, size });
    this.waiting = true;
    clearTimeout(this.patience);
    this.patience = setTimeout(() => this.showAnswer(this.said.busy), PATIENCE_MS);
  }

  /** Replace all readings by those that Python has. */
  take() {
    const { columns, marks, lines, capacity, said } = unpack(this.model.get("scene"), this.model.get("data"));
    const plain = (table) => Object.fromEntries(Object.entries(table).map(([name, column]) => [name, Array.from(column)]));
    Object.assign(this, { columns: plain(columns), marks: plain(marks), lines: [...lines], capacity, said, next: null, failure: "" });
    this.peak = this.columns.peak_bytes.reduce((peak, value, at) => (value > (peak?.[0] ?? -1) ? [value, this.columns.time_ns[at]] : peak), null);
    this.notify();
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
    const newPeak = this.columns.peak_bytes.at(-1);
    if (newPeak > (this.peak?.[0] ?? -1)) this.peak = [newPeak, time];
    this.bound(this.columns, 12_000);
    this.bound(this.marks, 20_000);
    this.notify();
  }

  /** Drop the oldest rows, so that there are as many as in Python. */
  bound(table, maxRows) {
    if (table.time_ns.length < 1.1 * maxRows) return;
    for (const name of Object.keys(table)) table[name] = table[name].slice(-maxRows);
  }

  size(bytes) { return Number.isFinite(bytes) ? sized(Math.max(0, bytes)) : this.said.not_available; }

  notify() { this.listeners.forEach((listener) => listener()); }

  latest(name) { return this.columns[name].at(-1) ?? NaN; }

  get byEvent() { return this.model.get("axis") === "event"; }

  /** Readings and marks with their positions `x` on the axis, and its end. */
  get sheet() {
    const { columns, marks } = this;
    if (this.byEvent) return byEvent(columns, marks);
    const end = columns.time_ns.at(-1) ?? 1;
    return { columns: { x: columns.time_ns, ...columns }, marks: { x: marks.time_ns, ...marks }, end: this.model.get("state") === "stopped" ? end : Math.max(end, SHORT_NS) };
  }
}

/** The memory before the first event and after each one, as `order_by_event` in Python. */
function byEvent(readings, marks) {
  const count = marks.time_ns.length;
  const levels = (name, changeOf) => {
    const values = new Array(count + 1);
    values[count] = readings[name].findLast((value) => !Number.isNaN(value)) ?? NaN;
    for (let index = count - 1; index >= 0; index -= 1) values[index] = values[index + 1] - changeOf(index);
    return values.map((value) => Math.max(0, value));
  };
  const used = levels("used_bytes", (index) => marks.allocated_bytes[index] - marks.freed_bytes[index]);
  const reserved = levels("reserved_bytes", (index) => marks.reserved_bytes[index]);
  const time = [0, ...marks.time_ns];
  const reading = time.map((ns) => Math.max(0, above(readings.time_ns, ns) - 1));
  const outside = reading.map((row) => Math.max(0, readings.device_bytes[row] - readings.reserved_bytes[row]));
  const columns = {
    x: upTo(count + 1), time_ns: time, used_bytes: used, reserved_bytes: reserved, peak_bytes: used.map(() => 0),
    limit_bytes: reading.map((row) => readings.limit_bytes[row]), device_bytes: reserved.map((bytes, step) => bytes + outside[step]),
  };
  return { columns, marks: { x: upTo(count, (index) => index + 1), ...marks }, end: count + 1 };
}

/** A plot of a store. It follows new readings until the user moves or zooms it. */
class MemoryPlot extends Plot {
  constructor(frame, store, onChange) {
    super(frame, {
      box: "plot", height: MARKS_PX + HEIGHT_PX + AXIS_PX, domain: [0, 1], left: 76, right: 14, zoom: true, most_zoom: 1e5, items: [],
      label: "Memory over time: arrows walk the marks of allocations and frees, plus and minus zoom, 0 shows everything, F follows.",
      hint: "Point at the chart, or walk its marks with the arrow keys.",
    });
    this.store = store;
    this.changed = onChange;
    this.following = true;
    this.item = { item: "rects", x0: [], say: [["which", "texts"]] };
    Object.entries({ tabindex: 0, role: "application", "aria-roledescription": "chart" }).forEach(([name, value]) => this.canvas.setAttribute(name, value));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("pointermove", (event) => this.onPointer(event));
    this.canvas.addEventListener("wheel", (event) => this.onWheel(event));
    this.canvas.addEventListener("pointerdown", (event) => { [this.dragged] = frame.at(event, this.canvas); this.canvas.setPointerCapture(event.pointerId); });
    this.node.append(this.line);
  }

  follow(isOn) {
    this.following = isOn;
    this.changed();
    this.draw();
  }

  pan(offset) {
    if (this.painting) return;
    this.following = false;
    super.pan(offset);
    this.changed();
  }

  draw() {
    const { box, store } = this;
    if (!store) return;
    this.sheet = store.sheet;
    box.domain = [0, this.sheet.end];
    if (this.following) this.sight = [Math.max(0, this.sheet.end - SPANS[store.byEvent ? "event" : "time"]), this.sheet.end];
    const width = Math.floor(this.holder.clientWidth);
    this.wide = Math.max(10, width - box.left - box.right);
    const chosenKey = this.chosen >= 0 ? this.item.x0[this.chosen] + 1e4 * this.item.row[this.chosen] : null;
    box.items = this.build();
    this.item = box.items.at(-1);
    // The selected mark keeps its outline while the chart moves.
    this.chosen = chosenKey === null ? -1 : this.item.x0.findIndex((x, at) => x + 1e4 * this.item.row[at] === chosenKey);
    super.draw();
  }

  build() {
    const { store, box, sheet: { columns, end: sheetEnd } } = this;
    const bottom = MARKS_PX + HEIGHT_PX;
    const [first, last] = [Math.max(0, above(columns.x, this.sight[0]) - 1), above(columns.x, this.sight[1])];
    // At most one point per pixel, with the highest of its readings.
    const stride = Math.max(1, Math.ceil((last - first) / this.wide));
    const visible = Object.fromEntries(Object.keys(columns).map((name) => [name, []]));
    for (let index = first; index < last; index += stride) {
      for (const [name, column] of Object.entries(columns)) {
        let highest = column[index];
        for (let other = index + 1; name !== "x" && other < Math.min(last, index + stride); other += 1) if (!(column[other] <= highest)) highest = column[other];
        visible[name].push(highest);
      }
    }
    visible.x.push(last < columns.x.length ? columns.x[last] : store.byEvent ? sheetEnd : columns.x.at(-1) ?? 0);
    const axisTop = this.scale(visible);
    const y = (bytes) => (Number.isNaN(bytes) ? bottom : bottom - HEIGHT_PX * Math.min(1, bytes / axisTop));
    const step = 2 ** Math.floor(Math.log2(axisTop / 3));
    const sizes = Array.from({ length: Math.floor(axisTop / step) + 1 }, (_, index) => index * step);
    const flat = (ys, colour, more) => rules(ys.map(() => this.sight[0]), ys, ys.map(() => this.sight[1]), ys, colour, more);
    const items = [flat(sizes.map(y), "grid")];
    for (const [start, end] of runs(visible)) {
      const x = visible.x.slice(start, end + 1);
      // A reading's peak is the largest use since the previous reading.
      const usedPeaks = visible.used_bytes.map((usedBytes, index) => Math.max(usedBytes, (index + 1 < end && visible.peak_bytes[index + 1]) || 0));
      const tops = { ...visible, used_bytes: usedPeaks, reserved_bytes: visible.reserved_bytes.map((value, index) => Math.max(value, usedPeaks[index])) };
      const heights = (name) => { const ys = tops[name].slice(start, end).map(y); return [...ys, ys.at(-1)]; };
      for (const [name, colour] of [...AREAS].reverse()) items.push(line(x, heights(name), colour, { width: 0, fill: colour, base: bottom, step: true }));
      const limit = visible.limit_bytes.slice(start, end);
      const limited = limit.map((_, index) => index).filter((index) => limit[index] > 0);
      const limitHeights = limited.map((index) => y(limit[index]));
      items.push(rules(limited.map((index) => x[index]), limitHeights, limited.map((index) => x[index + 1]), limitHeights, "error", { width: 2 }));
    }
    if (store.peak && store.peak[0] <= axisTop) items.push(flat([y(store.peak[0])], "tail", { dash: true, width: 2 }));
    const excess = visible.device_bytes.reduce((largest, value) => (value > largest ? value : largest), 0) - axisTop;
    if (excess > 0) items.push(torn(this.sight, MARKS_PX), labels([this.sight[0]], [MARKS_PX + 16], [filled(store.said.beyond, { size: store.size(excess) })], { dx: 6, pin: false }));
    items.push(ticks([7, 20], store.said.rows), ticks(sizes.map(y), sizes.map((bytes) => store.size(bytes))), this.axisItem(bottom), ...this.marks());
    return items;
  }

  axisItem(y) {
    if (!this.store.byEvent) return { item: "time", y, since: "the start" };
    const [count, title] = [this.sheet.end - 1, [this.store.said.event_title]];
    const steps = EVENT_STEPS.filter((step) => step <= Math.max(1, count / 2));
    return { item: "axis", y, title, levels: steps.reverse().map((step) => [step, upTo(Math.floor(count / step) + 1, (index) => String(index * step))]) };
  }

  scale(shown) {
    const highest = (name) => shown[name].reduce((largest, value) => (value > largest ? value : largest), 0);
    const poolBytes = Math.max(highest("reserved_bytes"), highest("peak_bytes"), 2 ** 20);
    const limitBytes = highest("limit_bytes");
    let axisTop = Math.max(poolBytes, limitBytes <= MOST_OUTSIDE * poolBytes ? limitBytes : 0);
    const fitsDevice = highest("device_bytes") <= MOST_OUTSIDE * axisTop;
    if (fitsDevice) axisTop = Math.max(axisTop, highest("device_bytes"));
    return Math.min((fitsDevice ? 1.08 : 1.2) * axisTop, Math.max(this.store.capacity, axisTop)); // room for words at a torn edge
  }

  /** Marks as bars of visible width, grouped by position: allocations above, frees below, with sizes. */
  marks() {
    const { sheet: { marks }, store: { lines } } = this;
    const markWidth = (MARK_PX / this.wide) * (this.sight[1] - this.sight[0]);
    const groupWidth = 10 ** Math.ceil(Math.log10(markWidth)) / 2 > markWidth ? 10 ** Math.ceil(Math.log10(markWidth)) / 2 : 10 ** Math.ceil(Math.log10(markWidth));
    const groups = new Map();
    for (let index = Math.max(0, above(marks.x, this.sight[0] - groupWidth)); index < above(marks.x, this.sight[1]); index += 1) {
      const requests = marks.allocations[index] + marks.failures[index];
      const isReturn = Number(!requests && !marks.frees[index]);
      const rows = [[requests, marks.allocated_bytes[index]], [marks.frees[index], marks.freed_bytes[index]], [isReturn, -marks.reserved_bytes[index]]];
      for (const [row, [times, bytes]] of rows.entries()) {
        if (!times) continue;
        const key = `${row} ${Math.floor(marks.x[index] / groupWidth)}`;
        const group = groups.get(key) ?? { row, x: Math.floor(marks.x[index] / groupWidth) * groupWidth, time: marks.time_ns[index], times: 0, bytes: 0, failures: 0, most: -1, line: -1, lines: new Set() };
        group.times += row ? times : marks.allocations[index];
        group.bytes += bytes;
        group.failures += row ? 0 : marks.failures[index];
        group.lines.add(marks.line[index]);
        if (bytes > group.most || (!row && marks.failures[index])) [group.most, group.line] = [bytes, marks.line[index]];
        groups.set(key, group);
      }
    }
    const sortedGroups = [...groups.values()].sort((a, b) => a.x - b.x || a.row - b.row);
    const { said: templates } = this.store;
    const texts = sortedGroups.map(({ row, time, times, bytes, failures, line: mainLine, lines: sourceLines }) => {
      const words = { time: duration(Math.round(time)), failures, times, size: this.store.size(bytes), others: sourceLines.size - 1 };
      words.what = [...(failures ? [templates.failed] : []), ...(times ? [row ? templates.freed : templates.allocated] : [])].map((text) => filled(text, words)).join("; ");
      if (row === 2) return filled(templates.returned, words);
      words.where = mainLine < 0 ? templates.no_line : lines[mainLine] ?? "";
      return filled(sourceLines.size > 1 ? templates.mark.replace("{where}", templates.others) : templates.mark, words);
    });
    const [left, tops] = [sortedGroups.map(({ x }) => x), sortedGroups.map(({ row }) => 2 + 13 * below(row))];
    // The distance to the next mark in the same row, for the text next to a mark.
    const roomToNext = sortedGroups.map(({ x, row }, index) => (sortedGroups.slice(index + 1).find((other) => below(other.row) === below(row))?.x ?? this.sight[1]) - x - groupWidth);
    const sizes = labels(left.map((x) => x + groupWidth), tops.map((top) => top + 5), sortedGroups.map(({ row, bytes, failures }) => (failures ? templates.refused : `${row ? "−" : "+"}${this.store.size(bytes)}`)), { room: roomToNext, dx: 2 });
    return [sizes, rects(left, left.map((x) => x + 0.85 * groupWidth), tops, tops.map((top) => top + 11), sortedGroups.map(({ row, failures }) => (failures ? 3 : row)), ["accent", "muted", "good", "error"], {
      row: sortedGroups.map(({ row }) => row), texts, ...speaking(texts),
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
    const pointerValue = this.value(x);
    const { columns } = this.sheet;
    const index = above(columns.x, pointerValue) - 1;
    if (index < 0 || pointerValue > this.sight[1]) return;
    const [used, reserved, device] = AREAS.map(([name]) => columns[name][index]);
    const { said: templates } = this.store;
    const figures = { used, cached: reserved - used, outside: device - reserved, peak: columns.peak_bytes[index + 1] ?? columns.peak_bytes[index], limit: columns.limit_bytes[index] };
    const words = Object.fromEntries(Object.entries(figures).map(([name, bytes]) => [name, this.store.size(bytes)]));
    const limit = figures.limit ? filled(templates.limit, words) : "";
    const template = this.store.byEvent ? templates.step : templates.reading;
    this.line.textContent = filled(template, { ...words, limit, step: index, time: duration(Math.round(columns.time_ns[index])) });
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

/** The intervals of rows with readings; a pause is a row without readings. */
function runs(shown) {
  const intervals = [];
  const isGap = (index) => AREAS.every(([name]) => Number.isNaN(shown[name][index]));
  for (let index = 0; index < shown.used_bytes.length; index += 1) {
    if (isGap(index)) continue;
    if (!index || isGap(index - 1)) intervals.push([index, index]);
    intervals.at(-1)[1] = index + 1;
  }
  return intervals;
}

/** Save all readings as a CSV file on the user's machine. */
function download({ columns }) {
  const names = Object.keys(columns);
  const rows = columns.time_ns.map((_, index) => names.map((name) => (Number.isNaN(columns[name][index]) ? "" : columns[name][index])).join(","));
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
  const axisButtons = Object.entries(store.said.axes).map(([axis, text]) => button(text, () => frame.send("axis", axis), { "data-axis": axis }));
  const looking = element(
    "div", { class: "gl-tools gl-memory-tools" },
    pauseButton, followButton, button("−", () => plot.zoom(1 / 2, middle()), { "aria-label": "Zoom out" }), button("+", () => plot.zoom(2, middle()), { "aria-label": "Zoom in" }),
    button("All", () => plot.zoom(1e-9, middle()), { title: "Show everything (0)" }), ...axisButtons, element("span", { class: "gl-space" }), button("Save CSV", () => download(store)),
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
  const showAxis = () => {
    axisButtons.forEach((node) => node.setAttribute("aria-pressed", String(node.dataset.axis === model.get("axis"))));
    plot.chosen = -1;
    plot.sight = [0, store.sheet.end];
    plot.draw();
  };
  frame.on("axis", showAxis);
  frame.on("state", () => { frozen = model.get("state") === "paused"; tellFigures(); show(); });
  frozen = model.get("state") === "paused";
  if (model.get("state") === "stopped") {
    plot.following = false;
    plot.sight = [0, store.sheet.end];
    plot.changed();
  } else if (!frame.saved) model.send({ kind: "all" });
  tellFigures();
  show();
  showAxis();
  frame.redraw(holder, () => plot.draw());
  return frame.ending();
}

export default { render };
