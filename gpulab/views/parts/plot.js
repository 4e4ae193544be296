import { element } from "./frame.js";
import { duration, grouped, number, sized, timeUnit } from "./words.js";

// The canvas painter of a plot: items of the display list, made in Python, at any width and in any theme.

const MOST_ZOOM = 64;
const HATCH_PX = 5;
const TICK_PX = 72;

/** A colour "#rrggbb" as a pixel of ImageData (bytes red, green, blue, opaque). */
export function pixelOf(colour) {
  const pixel = new Uint32Array(1);
  const bytes = new Uint8Array(pixel.buffer);
  for (let part = 0; part < 3; part += 1) bytes[part] = parseInt(colour.slice(1 + 2 * part, 3 + 2 * part), 16);
  bytes[3] = 255;
  return pixel[0];
}

/** What was moved, and how fast, as `said` in Python. */
function moved(bytes, ns) {
  if (!bytes) return "";
  return `, ${sized(bytes)} at ${number(bytes / Math.max(1, ns))} GB/s`;
}

/** The sentence of one span or rect, or another text of such pieces. */
export function said(item, at, pieces = item.say) {
  return pieces.map((piece) => {
    if (typeof piece === "string") return piece;
    const [name, texts, less, from] = piece;
    const number = item[name][at];
    if (texts === "moved") return moved(number, item[less][at] - item[from][at]);
    if (texts === "time") return duration(number - (less ? item[less][at] : 0));
    return texts ? (typeof texts === "string" ? item[texts] : texts)[number] : grouped(number);
  }).join("");
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * (1 - 1e-9));
}

/** The axis' name and its ticks, as `time_ticks` in Python. */
export function timeTicks(low, high, wanted, since) {
  const [unit, scale] = timeUnit(high - low);
  const larger = { ns: "µs", "µs": "ms" }[unit] ?? "s";
  const base = scale < 1e9 ? Math.floor(low / (scale * 1000)) * scale * 1000 : 0;
  const step = Math.max(1, niceStep((high - low) / Math.max(1, wanted)));
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  const ticks = [];
  for (let at = Math.ceil((low - base) / step - 1e-9); at <= Math.floor((high - base) / step + 1e-9); at += 1) {
    const [whole, ...rest] = ((at * step) / scale || 0).toFixed(digits).split(".");
    ticks.push([base + at * step, [grouped(whole), ...rest].join(".")]);
  }
  return [`time since ${since}${base ? ` + ${grouped(base / (scale * 1000))} ${larger}` : ""} (${unit})`, ticks];
}

/** One plot: its canvas, what is chosen in it, and the line of text that says so. */
export class Plot {
  constructor(frame, box) {
    this.frame = frame;
    this.box = box;
    this.sight = [...box.domain];
    this.item = box.items.find(({ say }) => say);
    this.chosen = box.trait ? this.held() : -1;
    this.alone = -1; // the row that is shown alone
    this.growth = 0; // pixels beyond its height that a larger room gives it
    frame.room.plots.add(this);
    const active = this.item || box.zoom;
    this.canvas = element("canvas", {
      tabindex: active ? 0 : null, role: box.trait ? "slider" : active ? "application" : "img", "aria-label": box.label,
      "aria-roledescription": active && !box.trait ? "chart" : null,
      ...(active ? { onkeydown: (event) => this.onKey(event), onpointermove: (event) => this.onPointer(event), onwheel: (event) => this.onWheel(event) } : {}),
      ...(this.item ? { onfocus: () => { if (this.chosen < 0 && this.count) this.choose(0); }, onclick: (event) => this.onClick(event) } : {}),
    });
    this.line = element("div", { class: "gl-said", "aria-live": "polite" }, box.hint ?? "");
    this.holder = element("div", { class: "gl-plot" }, this.canvas);
    this.node = element("div", { class: "gl-plot-box" }, this.holder, ...(this.item && !box.trait ? [this.line] : []));
    if (box.trait) {
      this.canvas.setAttribute("aria-valuemin", box.values[0]);
      this.canvas.setAttribute("aria-valuemax", box.values.at(-1));
      frame.on(box.trait, () => { this.chosen = this.held(); this.draw(); });
    }
  }

  /** Which of the items speaks. */
  get speaker() { return this.box.items.findIndex(({ say }) => say); }

  get count() { return this.item?.x0.length ?? 0; }

  held() { return this.box.values.indexOf(this.frame.model.get(this.box.trait)); }

  // Scales ----------------------------------------------------------------------------------------
  x(value) { return this.box.left + ((value - this.sight[0]) / (this.sight[1] - this.sight[0])) * this.wide; }

  value(x) { return this.sight[0] + ((x - this.box.left) / this.wide) * (this.sight[1] - this.sight[0]); }

  // A larger room ----------------------------------------------------------------------------------
  get smRows() { return this.box.items.find(({ item, row_names }) => item === "spans" && row_names?.length); }

  /** Pixels that its rows of SMs lack to be `least` high each. */
  wanted(least) { return this.smRows?.rows ? this.smRows.rows * least - this.smRows.height : 0; }

  /** The items in a larger room: rows of SMs grow, or what is above the horizontal axis; type does not. */
  laid() {
    const { growth, box } = this;
    const { items } = box;
    if (!growth) return items;
    const sms = this.smRows;
    const end = sms?.rows ? sms.top + sms.height : items.find(({ item }) => item === "axis" || item === "time")?.y ?? box.height;
    const y = (at) => (at < end ? at * (1 + growth / end) : at + growth);
    const all = (values) => Array.from(values, y);
    const number = (value) => typeof value === "number";
    return items.map((item) => {
      const moved = { ...item };
      for (const name of ["y", "base", "top"]) if (item[name] !== undefined) moved[name] = number(item[name]) ? y(item[name]) : all(item[name]);
      for (const name of ["y0", "y1", "tops"]) if (item[name]) moved[name] = all(item[name]);
      if (item.height) moved.height = y(item.top + item.height) - y(item.top);
      if (item.heights) moved.heights = Array.from(item.heights, (height, row) => y(item.tops[row] + height) - y(item.tops[row]));
      return moved;
    });
  }

  font(size, weight = "normal", mono = false) {
    const family = mono ? "ui-monospace, Menlo, Consolas, monospace" : getComputedStyle(this.frame.root).fontFamily;
    this.pen.font = `${weight} ${size}px ${family}`;
  }

  // Painting --------------------------------------------------------------------------------------
  draw() {
    const { canvas, box } = this;
    const { ratio } = this.frame;
    const width = Math.floor(this.holder.clientWidth);
    if (width < 1) return;
    const items = this.laid();
    const height = box.height + this.growth;
    // What speaks is picked where it is drawn.
    if (this.item) this.item = items[this.speaker] ?? this.item;
    this.ratio = ratio;
    this.wide = Math.max(10, width - box.left - box.right);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.pen = canvas.getContext("2d");
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const item of items) {
      this.pen.save();
      if (!item.pin && item.item !== "axis" && item.item !== "time" && item.item !== "labels") {
        this.pen.beginPath();
        this.pen.rect(box.left - 1, 0, this.wide + 2, height);
        this.pen.clip();
      }
      this[`draw_${item.item}`](item);
      this.pen.restore();
    }
    this.drawChosen();
  }

  rows(item) { return this.alone < 0 ? item.rows : 1; }

  hidden(row, item) { return row < 0 || row >= item.rows || (this.alone >= 0 && row !== this.alone); }

  /** Top and height of a place on its row, on whole device pixels. */
  band(item, row, lane, lanes) {
    const high = item.height / this.rows(item);
    const inner = high - (high > 6 && !item.joined ? 1 : 0);
    const place = this.alone < 0 ? row : 0;
    // The grain keeps the end of a row and the start of the next, equal but for rounding, on one pixel.
    const edge = (at) => Math.round((item.top + place * high + (at * inner) / lanes) * this.ratio + 1e-6) / this.ratio;
    return [edge(lane), Math.max(edge(lane + 1) - edge(lane), 1 / this.ratio)];
  }

  /** Spans go into pixels, in order of their start: far quicker than a rectangle each. */
  draw_spans(item) {
    const { ratio } = this;
    const { x0, x1, row, lane, colour } = item;
    const width = Math.max(1, Math.round(this.wide * ratio));
    const above = Math.round(item.top * ratio);
    const picture = this.pen.createImageData(width, Math.max(1, Math.round((item.top + item.height) * ratio) - above));
    const pixels = new Uint32Array(picture.data.buffer);
    pixels.fill(pixelOf(this.frame.colour(item.ground)));
    const shades = item.colours.map((name) => pixelOf(this.frame.colour(name)));
    const rows = this.rows(item);
    const lanes = Math.max(1, Math.min(item.lanes, Math.floor((item.height / rows) * ratio)));
    const bands = Array.from({ length: lanes * rows }, (_, key) => {
      const [top, high] = this.band(item, Math.floor(key / lanes), key % lanes, lanes);
      const first = Math.round(top * ratio) - above;
      return [first, first + Math.max(1, Math.round((high > 4 && !item.joined ? high - 1 : high) * ratio))];
    });
    const painted = new Int32Array(lanes * rows);
    const scale = width / (this.sight[1] - this.sight[0]);
    const inside = (x) => Math.max(0, Math.min(width, Math.floor((x - this.sight[0]) * scale)));
    const { busy } = item;
    for (let at = 0; busy && at < busy.row.length; at += 1) {
      if (this.hidden(busy.row[at], item)) continue;
      const first = this.alone < 0 ? busy.row[at] * lanes : 0;
      const shade = pixelOf(this.frame.colour(busy.colour));
      for (let y = bands[first][0]; y < bands[first + lanes - 1][1]; y += 1) pixels.fill(shade, y * width + inside(busy.x0[at]), y * width + inside(busy.x1[at]));
    }
    for (let at = 0; at < x0.length; at += 1) {
      if (this.hidden(row[at], item)) continue;
      const place = lane ? Math.floor((lane[at] * lanes) / item.lanes) : 0;
      const left = Math.max(0, Math.min(width - 1, Math.floor((x0[at] - this.sight[0]) * scale)));
      let right = Math.min(width, Math.max(left + 1, Math.floor((x1[at] - this.sight[0]) * scale)));
      const key = (this.alone < 0 ? row[at] : 0) * lanes + place;
      // One inside a pixel that its row has already painted adds nothing; nor does one out of sight.
      if (right <= painted[key] || x1[at] < this.sight[0] || x0[at] > this.sight[1]) continue;
      painted[key] = right;
      if (right - left > 5 && !item.joined) right -= 1;
      for (let y = bands[key][0]; y < bands[key][1]; y += 1) pixels.fill(shades[colour[at]], y * width + left, y * width + right);
    }
    this.pen.putImageData(picture, Math.round(this.box.left * ratio), above);
    this.nameSpans(item, lanes);
  }

  /** Names in spans that have room for them. */
  nameSpans(item, lanes) {
    const { pen, box } = this;
    const high = item.height / this.rows(item) / lanes;
    pen.textBaseline = "middle";
    if (!item.written.length || high < 13 || lanes < item.lanes) return;
    this.font(11);
    pen.textAlign = "left";
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    for (let at = 0; at < item.x0.length; at += 1) {
      if (this.hidden(item.row[at], item)) continue;
      const left = Math.max(box.left, this.x(item.x0[at]));
      const room = Math.min(box.left + this.wide, this.x(item.x1[at])) - left - 6;
      if (room < 6) continue;
      const text = said(item, at, item.written);
      if (pen.measureText(text).width > room) continue;
      const [top, tall] = this.band(item, item.row[at], item.lane ? item.lane[at] : 0, item.lanes);
      pen.fillStyle = inks[item.colour[at]];
      pen.fillText(text, left + 3, top + tall / 2);
    }
  }

  draw_rects(item) {
    const shades = item.colours.map((name) => this.frame.colour(name));
    for (let at = 0; at < item.x0.length; at += 1) {
      if (item.x1[at] < this.sight[0] || item.x0[at] > this.sight[1]) continue;
      const left = this.x(item.x0[at]) + item.inset;
      if (item.outline) {
        const wide = this.x(item.x1[at]) - left;
        this.pen.strokeStyle = shades[item.colour[at]];
        if (wide >= 4) this.pen.strokeRect(left + 0.5, item.y0[at] + 0.5, wide - 1, item.y1[at] - item.y0[at] - 1);
        continue;
      }
      if (item.hatch) {
        this.hatch(left, this.x(item.x1[at]) - item.inset, item.y0[at], item.y1[at], shades[item.colour[at]]);
        continue;
      }
      this.pen.fillStyle = shades[item.colour[at]];
      this.pen.fillRect(left, item.y0[at], Math.max(1, this.x(item.x1[at]) - item.inset - left), item.y1[at] - item.y0[at]);
    }
  }

  /** Slanted lines across a rectangle, in one pattern over all of them. */
  hatch(left, right, top, bottom, shade) {
    const { pen } = this;
    pen.save();
    pen.beginPath();
    pen.rect(left, top, right - left, bottom - top);
    pen.clip();
    pen.beginPath();
    for (let at = Math.floor((left + top) / HATCH_PX) * HATCH_PX; at < right + bottom; at += HATCH_PX) {
      pen.moveTo(at - top, top);
      pen.lineTo(at - bottom, bottom);
    }
    pen.lineWidth = 1.2;
    pen.strokeStyle = shade;
    pen.stroke();
    pen.restore();
  }

  draw_line(item) {
    const { pen } = this;
    if (!item.x.length) return;
    const trace = () => {
      pen.lineTo(this.x(item.x[0]), item.y[0]);
      for (let at = 1; at < item.x.length; at += 1) {
        if (item.step) pen.lineTo(this.x(item.x[at]), item.y[at - 1]);
        pen.lineTo(this.x(item.x[at]), item.y[at]);
      }
    };
    if (item.fill) {
      pen.beginPath();
      pen.moveTo(this.x(item.x[0]), item.base);
      trace();
      pen.lineTo(this.x(item.x[item.x.length - 1]), item.base);
      pen.fillStyle = this.frame.colour(item.fill);
      pen.fill();
    }
    if (!item.width) return;
    pen.beginPath();
    trace();
    pen.lineWidth = item.width;
    pen.strokeStyle = this.frame.colour(item.colour);
    pen.stroke();
  }

  draw_rules(item) {
    const { pen } = this;
    pen.strokeStyle = this.frame.colour(item.colour);
    pen.fillStyle = pen.strokeStyle;
    pen.lineWidth = item.width;
    const seen = [];
    for (let at = 0; at < item.x0.length; at += 1) {
      if (Math.max(item.x0[at], item.x1[at]) < this.sight[0] || Math.min(item.x0[at], item.x1[at]) > this.sight[1]) continue;
      if (item.most && seen.length === item.most) return;
      seen.push(at);
    }
    for (const at of seen) {
      const [left, right] = [this.x(item.x0[at]), this.x(item.x1[at])];
      const [top, bottom] = [item.y0[at], item.y1[at]];
      pen.setLineDash(item.dash ? [4, 3] : []);
      pen.beginPath();
      pen.moveTo(left, top);
      pen.lineTo(right, bottom);
      pen.stroke();
      if (!item.arrow) continue;
      const angle = Math.atan2(bottom - top, right - left);
      pen.beginPath();
      pen.moveTo(right, bottom);
      for (const turn of [2.7, -2.7]) pen.lineTo(right + 8 * Math.cos(angle + turn), bottom + 8 * Math.sin(angle + turn));
      pen.fill();
    }
  }

  draw_labels(item) {
    const { pen, box } = this;
    this.font(item.size, item.weight, item.mono);
    pen.fillStyle = this.frame.colour(item.colour);
    pen.textBaseline = "middle";
    if (item.of_rows && this.alone >= 0) {
      if (item.turn) return;
      pen.textAlign = "right";
      pen.fillText(this.item.row_names[this.alone], box.left - 5, this.item.top + 7);
      return;
    }
    pen.textAlign = item.anchor === "middle" ? "center" : item.anchor;
    const last = new Map();
    const scale = this.wide / (item.pin ? box.domain[1] - box.domain[0] : this.sight[1] - this.sight[0]);
    item.text.forEach((forms, at) => {
      const origin = item.pin ? box.domain[0] : this.sight[0];
      const x = box.left + (item.x[at] - origin) * scale + item.dx;
      if (!item.pin && (item.x[at] < this.sight[0] || item.x[at] > this.sight[1])) return;
      if (item.spread && x < (last.get(item.y[at]) ?? -Infinity)) return;
      const text = item.room
        ? forms.split("\n").find((form) => pen.measureText(form).width <= item.room[at] * scale - 4)
        : forms.split("\n")[0];
      if (!text) return;
      const width = pen.measureText(text).width;
      const left = x - (item.anchor === "middle" ? width / 2 : item.anchor === "end" ? width : 0);
      if (item.spread && left < (last.get(item.y[at]) ?? -Infinity) + 6) return;
      last.set(item.y[at], left + width);
      pen.save();
      pen.translate(x, item.y[at]);
      if (item.turn) pen.rotate(-Math.PI / 2);
      pen.fillText(text, 0, 0);
      pen.restore();
    });
  }

  draw_axis(item) {
    const { pen, box } = this;
    this.font(11);
    const scale = this.wide / (this.sight[1] - this.sight[0]);
    const fits = ([step, texts]) => step * scale >= 16 + Math.max(pen.measureText(texts.at(-1)).width, pen.measureText(texts[texts.length >> 1]).width);
    const [step, texts] = item.levels.findLast(fits) ?? item.levels[0];
    pen.strokeStyle = this.frame.colour("muted");
    pen.fillStyle = this.frame.colour("fg");
    pen.textBaseline = "top";
    pen.textAlign = "center";
    pen.beginPath();
    pen.moveTo(box.left, item.y);
    pen.lineTo(box.left + this.wide, item.y);
    texts.forEach((text, at) => {
      const x = this.x(at * step);
      if (x < box.left - 1 || x > box.left + this.wide + 1) return;
      pen.moveTo(x, item.y);
      pen.lineTo(x, item.y + 4);
      pen.fillText(text, Math.min(x, box.left + this.wide + box.right - pen.measureText(text).width / 2), item.y + 6);
    });
    pen.stroke();
    pen.textAlign = "left";
    pen.fillStyle = this.frame.colour("muted");
    const title = item.title.find((words) => pen.measureText(words).width <= this.wide) ?? item.title.at(-1);
    pen.fillText(title, box.left, item.y + 20);
  }

  draw_time(item) {
    const { pen, box } = this;
    const right = box.left + this.wide;
    const [title, ticks] = timeTicks(...this.sight, this.wide / TICK_PX, item.since);
    this.font(11);
    pen.strokeStyle = this.frame.colour("muted");
    pen.fillStyle = this.frame.colour("fg");
    pen.textBaseline = "top";
    pen.textAlign = "center";
    pen.beginPath();
    pen.moveTo(box.left, item.y);
    pen.lineTo(right, item.y);
    for (const [value, text] of ticks) {
      const x = this.x(value);
      pen.moveTo(x, item.y);
      pen.lineTo(x, item.y + 4);
      pen.fillText(text, Math.min(x, right + box.right - pen.measureText(text).width / 2), item.y + 6);
    }
    pen.stroke();
    pen.textAlign = "left";
    pen.fillStyle = this.frame.colour("muted");
    pen.fillText(title, box.left, item.y + 20);
  }

  drawChosen() {
    const { pen, item, chosen, box } = this;
    if (!item || chosen < 0 || chosen >= this.count) return;
    const [left, right] = [this.x(item.x0[chosen]), this.x(item.x1[chosen])];
    if (right < box.left || left > box.left + this.wide) return;
    if (item.item === "spans" && this.hidden(item.row[chosen], item)) return;
    const [top, high] = item.item === "spans"
      ? this.band(item, item.row[chosen], item.lane ? item.lane[chosen] : 0, item.lanes)
      : [item.y0[chosen], item.y1[chosen] - item.y0[chosen]];
    pen.strokeStyle = this.frame.colour("fg");
    pen.lineWidth = 2;
    const inset = item.inset ?? 0;
    pen.strokeRect(left + inset - 1, top - 1, Math.max(3, right - left - 2 * inset + 2), Math.max(3, high) + 2);
    if (box.values) {
      this.canvas.setAttribute("aria-valuetext", said(item, chosen));
      this.canvas.setAttribute("aria-valuenow", box.values[chosen]);
    }
    if (!box.marks) return;
    // Away from the nearer edge, so that it is never cut off.
    const late = left > box.left + this.wide / 2;
    this.font(11, "bold");
    pen.fillStyle = this.frame.colour("fg");
    pen.textBaseline = "middle";
    pen.textAlign = late ? "right" : "left";
    pen.fillText(late ? `${box.marks[chosen]} ▼` : `▼ ${box.marks[chosen]}`, (left + right) / 2 + (late ? 5 : -5), box.mark_y * (1 + this.growth / box.height));
  }

  // Pointing and keys -----------------------------------------------------------------------------
  onClick(event) {
    const at = this.at(event);
    this.choose(at);
    if (at >= 0) this.turnAlone();
  }

  /** Show the chosen one's row alone, or all of them again. */
  turnAlone() {
    if (!this.item.row_names?.length || this.chosen < 0 || this.item.rows < 2) return;
    this.alone = this.alone < 0 ? this.item.row[this.chosen] : -1;
    this.tell();
    this.draw();
  }

  tell() {
    const way = this.alone < 0 ? "" : " Click or Enter: all SMs.";
    this.line.textContent = `${said(this.item, this.chosen)}${way}`;
  }

  choose(at) {
    if (at === undefined || at < 0 || at >= this.count || at === this.chosen) return;
    if (this.box.trait) {
      this.frame.send(this.box.trait, this.box.values[at]);
      return;
    }
    this.chosen = at;
    if (this.alone >= 0) this.alone = this.item.row[at];
    this.tell();
    this.draw();
  }

  /** The span or rect that the pointer is at, or -1. */
  at(event) {
    const { item } = this;
    const [x, y] = this.frame.at(event, this.canvas);
    if (!item || x < this.box.left || x > this.box.left + this.wide) return -1;
    const here = this.value(x);
    if (item.item !== "spans") {
      // In a chart of bars the whole column is meant.
      for (let at = 0; at < this.count; at += 1) {
        if (item.x0[at] <= here && here < item.x1[at] && (this.box.trait || (item.y0[at] <= y && y < item.y1[at]))) return at;
      }
      return -1;
    }
    const high = item.height / this.rows(item);
    const place = Math.floor((y - item.top) / high);
    if (place < 0 || place >= this.rows(item)) return -1;
    const row = this.alone < 0 ? place : this.alone;
    const lane = Math.floor((((y - item.top) % high) / high) * item.lanes);
    let found = -1;
    for (let at = 0; at < this.count && item.x0[at] <= here; at += 1) {
      if (item.row[at] !== row || item.x1[at] <= here) continue;
      if (!item.lane || item.lane[at] === lane) return at;
      if (found < 0) found = at;
    }
    return found;
  }

  onPointer(event) {
    const [x] = this.frame.at(event, this.canvas);
    if (event.buttons && this.box.zoom && this.dragged !== undefined) this.pan(((this.dragged - x) / this.wide) * (this.sight[1] - this.sight[0]));
    this.dragged = x;
    if (!this.box.trait && !event.buttons) this.choose(this.at(event));
  }

  onWheel(event) {
    if (!this.box.zoom || !event.ctrlKey) return; // the plain wheel scrolls the page
    event.preventDefault();
    this.zoom(event.deltaY < 0 ? 1.25 : 0.8, this.value(this.frame.at(event, this.canvas)[0]));
  }

  zoom(by, around) {
    const [low, high] = this.box.domain;
    const width = Math.min(high - low, Math.max((high - low) / (this.box.most_zoom ?? MOST_ZOOM), (this.sight[1] - this.sight[0]) / by));
    const share = (around - this.sight[0]) / (this.sight[1] - this.sight[0]);
    this.sight = [around - share * width, around + (1 - share) * width];
    this.pan(0);
  }

  pan(by) {
    const [low, high] = this.box.domain;
    const width = this.sight[1] - this.sight[0];
    const start = Math.max(low, Math.min(high - width, this.sight[0] + by));
    this.sight = [start, start + width];
    this.draw();
  }

  /** Where an arrow leads: along the row, or to the nearest start on the next one. */
  next(key) {
    const { item } = this;
    const at = Math.max(0, this.chosen);
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    if (!item.row) return Math.max(0, Math.min(this.count - 1, at + (this.box.trait && key === "ArrowDown" ? -1 : this.box.trait && key === "ArrowUp" ? 1 : by)));
    if (key === "ArrowRight" || key === "ArrowLeft") {
      for (let other = at + by; other >= 0 && other < this.count; other += by) if (item.row[other] === item.row[at]) return other;
      return at;
    }
    let best = at;
    for (let other = 0; other < this.count; other += 1) {
      if (item.row[other] === item.row[at] + by && (best === at || Math.abs(item.x0[other] - item.x0[at]) < Math.abs(item.x0[best] - item.x0[at]))) best = other;
    }
    return best;
  }

  onKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || (event.key === "Enter" && event.shiftKey)) return;
    const middle = (this.sight[0] + this.sight[1]) / 2;
    const zooms = this.box.zoom ? { "+": () => this.zoom(1.5, middle), "-": () => this.zoom(1 / 1.5, middle), 0: () => this.zoom(1e-9, middle) } : {};
    const arrow = () => this.choose(this.chosen < 0 ? 0 : this.next(event.key));
    const moves = this.count ? { ArrowRight: arrow, ArrowLeft: arrow, ArrowDown: arrow, ArrowUp: arrow, Home: () => this.choose(0), End: () => this.choose(this.count - 1) } : {};
    const alone = this.item?.row_names?.length ? { Enter: () => this.turnAlone() } : {};
    const move = zooms[event.key] ?? moves[event.key] ?? alone[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    move();
    this.keepInSight();
  }

  /** What the keys chose comes into sight. */
  keepInSight() {
    if (this.chosen < 0 || this.box.trait) return;
    const start = this.item.x0[this.chosen];
    if (start < this.sight[0] || start > this.sight[1]) this.pan(start - (this.sight[0] + this.sight[1]) / 2);
  }
}
