import { Frame, bar, canvasFont, columns, duration, element, number, prepare, ticks, timeUnit } from "./base.js";

// Blocks of a launch on their SMs over time, with waves, occupancy limits and a block size slider.

const LEAST_HEIGHT = 240;
const MOST_HEIGHT = 528;
const SM_HEIGHT = 4;
const RUNNING_HEIGHT = 60;
const AXIS_HEIGHT = 34;
const LEFT = 54;
const GAP = 10;
const PATIENCE_MS = 15_000;

/** A colour "#rrggbb" as a pixel of ImageData (bytes red, green, blue, opaque). */
function packed(colour) {
  const pixel = new Uint32Array(1);
  const bytes = new Uint8Array(pixel.buffer);
  for (let part = 0; part < 3; part += 1) bytes[part] = parseInt(colour.slice(1 + 2 * part, 3 + 2 * part), 16);
  bytes[3] = 255;
  return pixel[0];
}

/** One launch: its canvas, numbers and limits. */
class LaunchPanel {
  constructor(frame, names) {
    this.frame = frame;
    this.names = names;
    this.chosen = -1;
    this.heading = element("div", { class: "gl-heading" });
    this.waves = element("div", { class: "gl-waves" });
    this.canvas = element("canvas", {
      tabindex: 0, role: "application", "aria-roledescription": "chart",
      onkeydown: (event) => this.onKey(event),
      onpointermove: (event) => this.choose(this.blockAt(event)),
      onfocus: () => { if (this.chosen < 0) this.choose(0); },
    });
    this.chart = element("div", { class: "gl-chart" }, this.canvas);
    this.block = element("div", { class: "gl-block-text", "aria-live": "polite" });
    this.numbers = element("dl", { class: "gl-numbers" });
    this.limits = element("div", { class: "gl-limits" });
    this.node = element("div", { class: "gl-panel" }, this.heading, this.waves, this.chart, this.block, element("div", { class: "gl-facts" }, this.numbers, this.limits));
    this.load();
  }

  /** Take the traits' present values. */
  load() {
    const [data, layout, facts] = this.names.map((name) => this.frame.model.get(name));
    this.facts = facts;
    this.blocks = columns(data, layout);
    this.count = this.blocks.sm.length;
    this.chosen = -1;
    this.block.textContent = "Point at a block, or focus the chart and use the arrow keys.";
    this.assignPlaces();
    this.heading.textContent = `${facts.label[0].toUpperCase()}${facts.label.slice(1)}`;
    this.waves.textContent = `${number(facts.block_threads)} threads a block: ${facts.wave_words}`;
    this.canvas.setAttribute("aria-label", `Blocks of ${number(facts.block_threads)} threads on ${facts.sm_count} SMs over time: ${facts.wave_words}. Arrow keys go from block to block.`);
    this.numbers.replaceChildren(...facts.numbers.map(([term, value, detail]) => element(
      "div", {}, element("dt", {}, term), element("dd", {}, value, " ", element("small", {}, detail)),
    )));
    this.limits.replaceChildren(
      element("div", { class: "gl-heading" }, facts.occupancy),
      element("div", { class: "gl-note" }, `Blocks per SM that each limit alone would allow, with ${facts.registers} registers a thread and ${number(facts.shared_bytes)} bytes of shared memory a block:`),
      ...facts.limits.map(({ limit, blocks, limits }) => bar(limit, blocks / facts.limit_scale, number(blocks), { strong: limits, mark: limits ? "◀ limits" : "" })),
    );
  }

  /** A place on its SM for every block: the first one free at its start. Rows come ordered by start. */
  assignPlaces() {
    const { sm, start_ns: start, end_ns: end } = this.blocks;
    const freeAt = Array.from({ length: this.facts.sm_count }, () => []);
    this.place = new Uint16Array(this.count);
    this.bySm = Array.from({ length: this.facts.sm_count }, () => []);
    // A sampled trace fills only some places; rows as wide as all of them would look empty.
    this.places = this.facts.sampled > 1 ? 1 : Math.max(1, this.facts.blocks_per_sm);
    for (let at = 0; at < this.count; at += 1) {
      const places = freeAt[sm[at]];
      if (!places) continue;
      let place = places.findIndex((until) => until <= start[at]);
      if (place < 0) place = places.push(0) - 1;
      places[place] = end[at];
      this.place[at] = place;
      this.bySm[sm[at]].push(at);
      if (place >= this.places) this.places = place + 1;
    }
  }

  draw(spanNs) {
    this.spanNs = Math.max(1, spanNs ?? this.spanNs);
    this.height = Math.max(LEAST_HEIGHT, Math.min(MOST_HEIGHT, SM_HEIGHT * this.facts.sm_count));
    const height = this.height + GAP + RUNNING_HEIGHT + AXIS_HEIGHT;
    const { pen, width, ratio } = prepare(this.canvas, height);
    this.ratio = ratio;
    this.plotWidth = Math.max(10, width - LEFT - 8);
    this.rowHeight = this.height / this.facts.sm_count;
    pen.font = canvasFont(this.frame.root, 11);
    this.drawBlocks(pen, ratio);
    this.drawRunning(pen);
    this.drawAxes(pen);
    this.drawChosen(pen);
  }

  x(timeNs) { return LEFT + (timeNs / this.spanNs) * this.plotWidth; }

  /** Top and height of the bar of `place` among `places` of an SM, on whole device pixels. */
  span(sm, place, places) {
    const inner = this.rowHeight - (this.rowHeight > 6 ? 1 : 0);
    const edge = (at) => Math.round((sm * this.rowHeight + (at * inner) / places) * this.ratio) / this.ratio;
    return [edge(place), edge(place + 1) - edge(place)];
  }

  /** Paint the blocks into pixels, in order of their start: far quicker than a rectangle each. */
  drawBlocks(pen, ratio) {
    const { sm, start_ns: start, end_ns: end, wave, tail } = this.blocks;
    const width = Math.round(this.plotWidth * ratio);
    const picture = pen.createImageData(width, Math.round(this.height * ratio));
    const pixels = new Uint32Array(picture.data.buffer);
    pixels.fill(packed(this.frame.colour("grid")));
    const shades = ["accent", "accent-2", "tail"].map((name) => packed(this.frame.colour(name)));
    const lanes = Math.max(1, Math.min(this.places, Math.floor(this.rowHeight * ratio)));
    const painted = new Int32Array(lanes * this.facts.sm_count);
    const scale = width / this.spanNs;
    for (let at = 0; at < this.count; at += 1) {
      if (sm[at] < 0 || sm[at] >= this.facts.sm_count) continue;
      const lane = Math.floor((this.place[at] * lanes) / this.places);
      const left = Math.min(width - 1, Math.floor(start[at] * scale));
      let right = Math.min(width, Math.max(left + 1, Math.floor(end[at] * scale)));
      // A block inside a pixel that its row has already painted adds nothing.
      const key = sm[at] * lanes + lane;
      if (right <= painted[key]) continue;
      painted[key] = right;
      if (right - left > 5) right -= 1;
      const [top, high] = this.span(sm[at], lane, lanes);
      const first = Math.round(top * ratio);
      const last = first + Math.round((high > 4 ? high - 1 : high) * ratio);
      const shade = shades[tail[at] ? 2 : wave[at] & 1];
      for (let row = first; row < last; row += 1) pixels.fill(shade, row * width + left, row * width + right);
    }
    pen.putImageData(picture, Math.round(LEFT * ratio), 0);
  }

  drawRunning(pen) {
    const { start_ns: start, end_ns: end } = this.blocks;
    const bins = Math.floor(this.plotWidth);
    const change = new Float64Array(bins + 1);
    const bin = (timeNs) => Math.min(bins, Math.round((timeNs / this.spanNs) * bins));
    for (let at = 0; at < this.count; at += 1) {
      change[bin(start[at])] += this.facts.sampled;
      change[bin(end[at])] -= this.facts.sampled;
    }
    const room = this.facts.blocks_per_sm * this.facts.sm_count;
    const top = this.height + GAP;
    let running = 0;
    let most = room;
    const levels = new Float64Array(bins);
    for (let at = 0; at < bins; at += 1) {
      running += change[at];
      levels[at] = running;
      most = Math.max(most, running);
    }
    const scale = (RUNNING_HEIGHT - 4) / Math.max(1, most);
    pen.fillStyle = this.frame.colour("other");
    for (let at = 0; at < bins; at += 1) {
      pen.fillRect(LEFT + at, top + RUNNING_HEIGHT - levels[at] * scale, 1, levels[at] * scale);
    }
    pen.strokeStyle = this.frame.colour("muted");
    pen.setLineDash([4, 3]);
    pen.beginPath();
    pen.moveTo(LEFT, top + RUNNING_HEIGHT - room * scale);
    pen.lineTo(LEFT + this.plotWidth, top + RUNNING_HEIGHT - room * scale);
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = this.frame.colour("fg");
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    pen.fillText(number(room), LEFT - 5, top + RUNNING_HEIGHT - room * scale + 3);
    pen.fillText("0", LEFT - 5, top + RUNNING_HEIGHT - 3);
    pen.save();
    pen.translate(8, top + RUNNING_HEIGHT / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText("running", 0, 0);
    pen.restore();
    this.markTail(pen, top);
  }

  /** The tail in words, too: its colour alone would not reach everyone. */
  markTail(pen, top) {
    const first = this.blocks.tail.indexOf(1);
    if (first < 0) return;
    const at = this.x(this.blocks.start_ns[first]);
    pen.strokeStyle = this.frame.colour("fg");
    pen.beginPath();
    pen.moveTo(at, top - GAP);
    pen.lineTo(at, top + RUNNING_HEIGHT);
    pen.stroke();
    const room = LEFT + this.plotWidth - at > 40;
    pen.textAlign = room ? "left" : "right";
    pen.fillText(room ? "tail ▸" : "◂ tail", at + (room ? 4 : -4), top + RUNNING_HEIGHT - 12);
  }

  drawAxes(pen) {
    const bottom = this.height + GAP + RUNNING_HEIGHT;
    pen.fillStyle = this.frame.colour("fg");
    pen.strokeStyle = this.frame.colour("muted");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const every = ticks(this.facts.sm_count, 8);
    for (const sm of every) {
      if (sm < this.facts.sm_count && Number.isInteger(sm)) pen.fillText(String(sm), LEFT - 5, Math.max(6, (sm + 0.5) * this.rowHeight));
    }
    pen.save();
    pen.translate(8, this.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "center";
    pen.fillText("SM", 0, 0);
    pen.restore();
    const [unit, scale] = timeUnit(this.spanNs);
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (const tick of ticks(this.spanNs / scale, Math.max(2, this.plotWidth / 90))) {
      const x = this.x(tick * scale);
      pen.beginPath();
      pen.moveTo(x, bottom);
      pen.lineTo(x, bottom + 4);
      pen.stroke();
      pen.fillText(number(tick), Math.min(x, LEFT + this.plotWidth - 6), bottom + 6);
    }
    pen.textAlign = "left";
    pen.fillStyle = this.frame.colour("muted");
    const words = this.plotWidth > 520
      ? `time since the first block started (${unit}); dashed: blocks that fit at once`
      : `time (${unit}); dashed: blocks that fit at once`;
    pen.fillText(words, LEFT, bottom + 20);
  }

  drawChosen(pen) {
    if (this.chosen < 0) return;
    const { sm, start_ns: start, end_ns: end } = this.blocks;
    const [top, high] = this.span(sm[this.chosen], this.place[this.chosen], this.places);
    const left = this.x(start[this.chosen]);
    pen.strokeStyle = this.frame.colour("fg");
    pen.lineWidth = 2;
    pen.strokeRect(left - 1, top - 1, Math.max(3, this.x(end[this.chosen]) - left) + 1, Math.max(3, high) + 1);
    pen.lineWidth = 1;
  }

  /** The block under the pointer, or -1. */
  blockAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const y = event.clientY - box.top;
    const time = ((event.clientX - box.left - LEFT) / this.plotWidth) * this.spanNs;
    const onSm = this.bySm[Math.floor(y / this.rowHeight)];
    if (!onSm || time < 0 || y >= this.height) return -1;
    const place = Math.floor(((y % this.rowHeight) / this.rowHeight) * this.places);
    const { start_ns: start, end_ns: end } = this.blocks;
    const here = onSm.filter((at) => start[at] <= time && time < end[at]);
    return here.find((at) => this.place[at] === place) ?? here[0] ?? -1;
  }

  onKey(event) {
    if (!this.count || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { sm, start_ns: start } = this.blocks;
    const at = Math.max(0, this.chosen);
    const along = (by) => {
      const row = this.bySm[sm[at]];
      return row[Math.max(0, Math.min(row.length - 1, row.indexOf(at) + by))];
    };
    const across = (by) => {
      const row = this.bySm[sm[at] + by];
      if (!row?.length) return at;
      return row.reduce((best, other) => (Math.abs(start[other] - start[at]) < Math.abs(start[best] - start[at]) ? other : best), row[0]);
    };
    const moves = {
      ArrowRight: () => along(1), ArrowLeft: () => along(-1), ArrowDown: () => across(1), ArrowUp: () => across(-1),
      Home: () => 0, End: () => this.count - 1,
    };
    if (!moves[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(this.chosen < 0 ? 0 : moves[event.key]());
  }

  choose(at) {
    if (at === this.chosen || at === undefined || at >= this.count) return;
    this.chosen = at;
    if (at >= 0) {
      const { block, sm, start_ns: start, end_ns: end, wave, tail } = this.blocks;
      this.block.textContent = `Block ${number(block[at])} on SM ${sm[at]}: from ${duration(start[at])} to ${duration(end[at])} (${duration(end[at] - start[at])}), wave ${wave[at] + 1}${tail[at] ? ", the tail" : ""}.`;
    }
    this.draw();
  }
}

function render({ model, el }) {
  const frame = new Frame(model, el, "launch-chart");
  const panels = [new LaunchPanel(frame, ["data", "layout_of_data", "facts"])];
  if (Object.keys(model.get("compare_layout")).length) {
    panels.push(new LaunchPanel(frame, ["compare_data", "compare_layout", "compare_facts"]));
  }
  const drawAll = () => {
    const span = Math.max(...panels.map((panel) => panel.facts.span_ns));
    panels.forEach((panel) => panel.draw(span));
  };

  // The slider sends one place at a time: while Python works, only the latest is kept.
  let waiting = false;
  let movedAt = 0;
  let wanted = model.get("block_threads");
  const slider = element("input", { type: "range", min: 32, max: 1024, step: 32, value: wanted, "aria-label": "Threads a block" });
  const shown = element("output", { class: "gl-slider-value" });
  const showValue = () => {
    shown.textContent = `${slider.value} threads = ${Number(slider.value) / 32} ${Number(slider.value) === 32 ? "warp" : "warps"}`;
    slider.setAttribute("aria-valuetext", shown.textContent);
  };
  let patience = 0;
  const ask = () => {
    if (waiting || wanted === model.get("block_threads")) return;
    waiting = true;
    clearTimeout(patience);
    patience = setTimeout(() => {
      if (!waiting) return;
      waiting = false;
      redrawn.textContent = "no answer from Python yet: after a restart, run the cell again";
      status.textContent = redrawn.textContent;
    }, PATIENCE_MS);
    frame.send("block_threads", wanted);
  };
  slider.addEventListener("input", () => {
    movedAt = performance.now();
    wanted = Number(slider.value);
    showValue();
    ask();
  });
  showValue();
  frame.on("block_threads", () => {
    if (waiting) return;
    wanted = model.get("block_threads");
    slider.value = String(wanted);
    showValue();
  });
  const status = element("span", { class: "gl-hidden-text", role: "status" });
  const redrawn = element("span", { class: "gl-note gl-redraw" });
  frame.on("pictures", () => {
    const asked = waiting;
    waiting = false;
    clearTimeout(patience);
    panels[0].load();
    drawAll();
    redrawn.textContent = "";
    if (!asked) return;
    if (wanted !== model.get("block_threads")) {
      ask();
      return;
    }
    // After the next frame the new picture is on the screen.
    requestAnimationFrame(() => {
      const took = performance.now() - movedAt;
      redrawn.textContent = `new picture in ${Math.round(took)} ms`;
      status.textContent = `${panels[0].facts.wave_words}. ${panels[0].facts.occupancy}`;
      frame.send("redraw_ms", took);
    });
  });

  const legend = [["accent", "odd waves"], ["accent-2", "even waves"], ["tail", "tail: last, partly filled wave"], ["grid", "idle"]]
    .map(([colour, words]) => element("span", {}, element("i", { style: `background:var(--gl-${colour})` }), words));
  frame.body.append(
    ...(model.get("has_slider") ? [element("div", { class: "gl-tools gl-slider" }, element("label", {}, "Threads a block ", slider), shown, redrawn, status)] : []),
    element("div", { class: "gl-legend" }, ...legend),
    element("div", { class: panels.length > 1 ? "gl-panels gl-two" : "gl-panels" }, ...panels.map((panel) => panel.node)),
  );
  frame.redraw(panels[0].chart, drawAll);
  frame.endings.push(() => clearTimeout(patience));
  return frame.ending();
}

export default { render };
