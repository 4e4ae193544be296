import { element } from "./frame.js";
import { duration, grouped, number, sized, timeUnit } from "./words.js";

// The canvas painter of a plot. It paints items of the display list at any width and in any theme.

const MOST_ZOOM = 64;
const HATCH_PX = 5;
const TICK_PX = 72;
const LEADING_PX = 2;

/** A colour "#rrggbb" as a pixel of ImageData (bytes red, green, blue, opaque). */
export function pixelOf(colour) {
  const pixel = new Uint32Array(1);
  const bytes = new Uint8Array(pixel.buffer);
  for (let part = 0; part < 3; part += 1) bytes[part] = parseInt(colour.slice(1 + 2 * part, 3 + 2 * part), 16);
  bytes[3] = 255;
  return pixel[0];
}

/** A size and the rate at which it was moved, as `make_element_sentence` in Python. */
function sizeAndRate(bytes, ns) {
  if (!bytes) return "";
  return `, ${sized(bytes)} at ${number(bytes / Math.max(1, ns))} GB/s`;
}

/** A text in at most `maxLines` lines, each of at most `maxWidth` pixels; null if it does not fit. */
function broken(pen, text, maxWidth, maxLines) {
  const lines = [];
  for (const word of maxLines > 1 ? text.split(" ") : [text]) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && pen.measureText(longer).width <= maxWidth) lines[lines.length - 1] = longer;
    else lines.push(word);
    if (lines.length > maxLines || pen.measureText(lines.at(-1)).width > maxWidth) return null;
  }
  return lines;
}

/** The sentence of one element of an item, or another text of such pieces. */
export function elementSentence(item, index, pieces = item.say) {
  return pieces.map((piece) => {
    if (typeof piece === "string") return piece;
    const [name, texts, subtrahend, startName] = piece;
    const number = item[name][index];
    if (texts === "moved") return sizeAndRate(number, item[subtrahend][index] - item[startName][index]);
    if (texts === "time") return duration(number - (subtrahend ? item[subtrahend][index] : 0));
    return texts ? (typeof texts === "string" ? item[texts] : texts)[number] : grouped(number);
  }).join("");
}

function niceStep(minimum) {
  const power = 10 ** Math.floor(Math.log10(minimum));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= minimum * (1 - 1e-9));
}

/** A time axis' name and its ticks, as `make_time_ticks` in Python. */
export function timeTicks(low, high, tickCount, since) {
  const [unit, scale] = timeUnit(high - low);
  const larger = { ns: "µs", "µs": "ms" }[unit] ?? "s";
  const base = scale < 1e9 ? Math.floor(low / (scale * 1000)) * scale * 1000 : 0;
  const step = Math.max(1, niceStep((high - low) / Math.max(1, tickCount)));
  const digits = Math.max(0, -Math.floor(Math.log10(step / scale) + 1e-9));
  const ticks = [];
  for (let tick = Math.ceil((low - base) / step - 1e-9); tick <= Math.floor((high - base) / step + 1e-9); tick += 1) {
    const [integerDigits, ...decimals] = ((tick * step) / scale || 0).toFixed(digits).split(".");
    ticks.push([base + tick * step, [grouped(integerDigits), ...decimals].join(".")]);
  }
  return [`time since ${since}${base ? ` + ${grouped(base / (scale * 1000))} ${larger}` : ""} (${unit})`, ticks];
}

/** One plot: its canvas, the selected element, and the line with the element's sentence. */
export class Plot {
  constructor(frame, box) {
    this.frame = frame;
    this.box = box;
    this.sight = [...box.domain];
    this.item = box.items.find(({ say }) => say);
    this.chosen = box.trait ? this.traitIndex() : -1;
    this.alone = -1; // the row that is shown alone, or -1
    this.growth = 0; // additional pixels of height in a larger layout
    frame.room.plots.add(this);
    const isActive = this.item || box.zoom;
    this.canvas = element("canvas", {
      tabindex: isActive ? 0 : null, role: box.trait ? "slider" : isActive ? "application" : "img", "aria-label": box.label,
      "aria-roledescription": isActive && !box.trait ? "chart" : null,
      ...(isActive ? { onkeydown: (event) => this.onKey(event), onpointermove: (event) => this.onPointer(event), onwheel: (event) => this.onWheel(event) } : {}),
      ...(this.item ? { onfocus: () => { if (this.chosen < 0 && this.count) this.choose(0); }, onclick: (event) => this.onClick(event) } : {}),
    });
    this.line = element("div", { class: "gl-said", "aria-live": "polite" }, box.hint ?? "");
    this.holder = element("div", { class: "gl-plot" }, this.canvas);
    this.node = element("div", { class: "gl-plot-box" }, this.holder, ...(this.item && !box.trait ? [this.line] : []));
    if (box.trait) {
      this.canvas.setAttribute("aria-valuemin", box.values[0]);
      this.canvas.setAttribute("aria-valuemax", box.values.at(-1));
      frame.on(box.trait, () => { this.chosen = this.traitIndex(); this.draw(); });
    }
  }

  /** Index of the item whose elements can be selected. */
  get selectableIndex() { return this.box.items.findIndex(({ say }) => say); }

  get count() { return this.item?.x0.length ?? 0; }

  traitIndex() { return this.box.values.indexOf(this.frame.model.get(this.box.trait)); }

  /** Continue with the selection and focus of the plot that this one replaces, while a record grows. */
  continueFrom(old, hadFocus) {
    if (old?.item?.item !== "readings" || this.item?.item !== "readings" || old.chosen < 0) return;
    const time = old.item.x1[old.chosen];
    this.chosen = this.item.x1.findIndex((end, index) => this.item.x0[index] < time && time <= end);
    if (this.chosen >= 0) this.tell();
    if (hadFocus) this.canvas.focus({ preventScroll: true });
  }

  // Scales ----------------------------------------------------------------------------------------
  x(value) { return this.box.left + ((value - this.sight[0]) / (this.sight[1] - this.sight[0])) * this.wide; }

  value(x) { return this.sight[0] + ((x - this.box.left) / this.wide) * (this.sight[1] - this.sight[0]); }

  // A larger room ----------------------------------------------------------------------------------
  get smRows() { return this.box.items.find(({ item, row_names }) => item === "spans" && row_names?.length); }

  /** Pixels that the rows of SMs lack to be `rowHeight` high each. */
  missingHeight(rowHeight) { return this.smRows?.rows ? this.smRows.rows * rowHeight - this.smRows.height : 0; }

  /** The items of a plot that has grown: rows of SMs grow, or everything above the horizontal axis. */
  grownItems() {
    const { growth, box } = this;
    const { items } = box;
    if (!growth) return items;
    const sms = this.smRows;
    const end = sms?.rows ? sms.top + sms.height : items.find(({ item }) => item === "axis" || item === "time")?.y ?? box.height;
    const y = (old) => (old < end ? old * (1 + growth / end) : old + growth);
    const all = (values) => Array.from(values, y);
    const number = (value) => typeof value === "number";
    return items.map((item) => {
      const grown = { ...item };
      for (const name of ["y", "base", "top"]) if (item[name] !== undefined) grown[name] = number(item[name]) ? y(item[name]) : all(item[name]);
      for (const name of ["y0", "y1", "tops"]) if (item[name]) grown[name] = all(item[name]);
      if (item.item === "readings") grown.values = item.values.map(([height, ...names]) => [y(height), ...names]);
      if (item.height) grown.height = y(item.top + item.height) - y(item.top);
      if (item.heights) grown.heights = Array.from(item.heights, (height, row) => y(item.tops[row] + height) - y(item.tops[row]));
      return grown;
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
    const items = this.grownItems();
    const height = box.height + this.growth;
    // Elements are selected at the positions at which they are drawn.
    if (this.item) this.item = items[this.selectableIndex] ?? this.item;
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

  /** Top and height of a lane in its row, rounded to device pixels. */
  band(item, row, lane, lanes) {
    const rowHeight = item.height / this.rows(item);
    const innerHeight = rowHeight - (rowHeight > 6 && !item.joined ? 1 : 0);
    const rowIndex = this.alone < 0 ? row : 0;
    // Adding 1e-6 keeps the end of a row and the start of the next one on one pixel despite rounding.
    const edge = (index) => Math.round((item.top + rowIndex * rowHeight + (index * innerHeight) / lanes) * this.ratio + 1e-6) / this.ratio;
    return [edge(lane), Math.max(edge(lane + 1) - edge(lane), 1 / this.ratio)];
  }

  /** Paint spans pixel by pixel, in order of their start, which is much faster than rectangles. */
  draw_spans(item) {
    if (item.lane && !item.busy && Math.floor((item.height / this.rows(item)) * this.ratio) < item.lanes) {
      this.drawShares(item);
      return;
    }
    const { ratio } = this;
    const { x0, x1, row, lane, colour } = item;
    const width = Math.max(1, Math.round(this.wide * ratio));
    const topPx = Math.round(item.top * ratio);
    const picture = this.pen.createImageData(width, Math.max(1, Math.round((item.top + item.height) * ratio) - topPx));
    const pixels = new Uint32Array(picture.data.buffer);
    pixels.fill(pixelOf(this.frame.colour(item.ground)));
    const shades = item.colours.map((name) => pixelOf(this.frame.colour(name)));
    const rows = this.rows(item);
    const lanes = Math.max(1, Math.min(item.lanes, Math.floor((item.height / rows) * ratio)));
    const bands = Array.from({ length: lanes * rows }, (_, key) => {
      const [top, laneHeight] = this.band(item, Math.floor(key / lanes), key % lanes, lanes);
      const firstRowPx = Math.round(top * ratio) - topPx;
      return [firstRowPx, firstRowPx + Math.max(1, Math.round((laneHeight > 4 && !item.joined ? laneHeight - 1 : laneHeight) * ratio))];
    });
    const paintedTo = new Int32Array(lanes * rows);
    const scale = width / (this.sight[1] - this.sight[0]);
    const inside = (x) => Math.max(0, Math.min(width, Math.floor((x - this.sight[0]) * scale)));
    const { busy } = item;
    for (let index = 0; busy && index < busy.row.length; index += 1) {
      if (this.hidden(busy.row[index], item)) continue;
      const firstBand = this.alone < 0 ? busy.row[index] * lanes : 0;
      const shade = pixelOf(this.frame.colour(busy.colour));
      for (let y = bands[firstBand][0]; y < bands[firstBand + lanes - 1][1]; y += 1) pixels.fill(shade, y * width + inside(busy.x0[index]), y * width + inside(busy.x1[index]));
    }
    for (let index = 0; index < x0.length; index += 1) {
      if (this.hidden(row[index], item)) continue;
      const laneIndex = lane ? Math.floor((lane[index] * lanes) / item.lanes) : 0;
      const left = Math.max(0, Math.min(width - 1, Math.floor((x0[index] - this.sight[0]) * scale)));
      let right = Math.min(width, Math.max(left + 1, Math.floor((x1[index] - this.sight[0]) * scale)));
      const key = (this.alone < 0 ? row[index] : 0) * lanes + laneIndex;
      // Skip a span inside a pixel that is already painted, or outside the visible interval.
      if (right <= paintedTo[key] || x1[index] < this.sight[0] || x0[index] > this.sight[1]) continue;
      paintedTo[key] = right;
      if (right - left > 5 && !item.joined) right -= 1;
      for (let y = bands[key][0]; y < bands[key][1]; y += 1) pixels.fill(shades[colour[index]], y * width + left, y * width + right);
    }
    this.pen.putImageData(picture, Math.round(this.box.left * ratio), topPx);
    this.nameSpans(item, lanes);
  }

  /** Paint rows that are too low for their lanes: the share of the lanes in use mixes colour and background. */
  drawShares(item) {
    const { ratio } = this;
    const width = Math.max(1, Math.round(this.wide * ratio));
    const topPx = Math.round(item.top * ratio);
    const picture = this.pen.createImageData(width, Math.max(1, Math.round((item.top + item.height) * ratio) - topPx));
    const pixels = new Uint32Array(picture.data.buffer);
    pixels.fill(pixelOf(this.frame.colour(item.ground)));
    const channels = (name) => [0, 8, 16].map((shift) => (pixelOf(this.frame.colour(name)) >>> shift) & 255);
    const ground = channels(item.ground);
    const offsets = item.colours.map((name) => channels(name).map((channel, index) => channel - ground[index]));
    const rows = this.rows(item);
    const scale = width / (this.sight[1] - this.sight[0]);
    const shift = new Float32Array(3 * (width + 1)); // change of the colour's channels from one pixel to the next
    const alone = this.alone;
    const ofRow = Array.from({ length: rows }, () => []);
    for (let index = 0; index < item.x0.length; index += 1) if (!this.hidden(item.row[index], item)) ofRow[alone < 0 ? item.row[index] : 0].push(index);
    for (let row = 0; row < rows; row += 1) {
      shift.fill(0);
      for (const index of ofRow[row]) {
        const [left, right] = [item.x0[index], item.x1[index]].map((x) => Math.max(0, Math.min(width, (x - this.sight[0]) * scale)));
        const offset = offsets[item.colour[index]];
        for (const [x, sign] of [[left, 1], [right, -1]]) {
          const pixel = Math.min(width - 1, Math.floor(x));
          for (let channel = 0; channel < 3; channel += 1) {
            const change = (sign * offset[channel]) / item.lanes;
            shift[3 * pixel + channel] += change * (pixel + 1 - x);
            shift[3 * (pixel + 1) + channel] += change * (x - pixel);
          }
        }
      }
      const [top, rowHeight] = this.band(item, alone < 0 ? row : alone, 0, 1);
      const [first, last] = [Math.round(top * ratio) - topPx, Math.round((top + rowHeight) * ratio) - topPx];
      const sum = [...ground];
      for (let x = 0; x < width; x += 1) {
        for (let channel = 0; channel < 3; channel += 1) sum[channel] += shift[3 * x + channel];
        const [red, green, blue] = sum.map((value) => Math.max(0, Math.min(255, Math.round(value))));
        const shade = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
        for (let y = first; y < last; y += 1) pixels[y * width + x] = shade;
      }
    }
    this.pen.putImageData(picture, Math.round(this.box.left * ratio), topPx);
  }

  /** Write texts into spans that have enough space for them. */
  nameSpans(item, lanes) {
    const { pen, box } = this;
    const laneHeight = item.height / this.rows(item) / lanes;
    pen.textBaseline = "middle";
    if (!item.written.length || laneHeight < 13 || lanes < item.lanes) return;
    this.font(11);
    pen.textAlign = "left";
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    for (let index = 0; index < item.x0.length; index += 1) {
      if (this.hidden(item.row[index], item)) continue;
      const left = Math.max(box.left, this.x(item.x0[index]));
      const maxWidth = Math.min(box.left + this.wide, this.x(item.x1[index])) - left - 6;
      if (maxWidth < 6) continue;
      const text = elementSentence(item, index, item.written);
      if (pen.measureText(text).width > maxWidth) continue;
      const [top, textHeight] = this.band(item, item.row[index], item.lane ? item.lane[index] : 0, item.lanes);
      pen.fillStyle = inks[item.colour[index]];
      pen.fillText(text, left + 3, top + textHeight / 2);
    }
  }

  draw_rects(item) {
    const shades = item.colours.map((name) => this.frame.colour(name));
    for (let index = 0; index < item.x0.length; index += 1) {
      if (item.x1[index] < this.sight[0] || item.x0[index] > this.sight[1]) continue;
      const left = this.x(item.x0[index]) + item.inset;
      if (item.outline) {
        const outlineWidth = this.x(item.x1[index]) - left;
        this.pen.strokeStyle = shades[item.colour[index]];
        if (outlineWidth >= 4) this.pen.strokeRect(left + 0.5, item.y0[index] + 0.5, outlineWidth - 1, item.y1[index] - item.y0[index] - 1);
        continue;
      }
      if (item.hatch) {
        this.hatch(left, this.x(item.x1[index]) - item.inset, item.y0[index], item.y1[index], shades[item.colour[index]]);
        continue;
      }
      this.pen.fillStyle = shades[item.colour[index]];
      this.pen.fillRect(left, item.y0[index], Math.max(1, this.x(item.x1[index]) - item.inset - left), item.y1[index] - item.y0[index]);
    }
  }

  /** Draw slanted lines across a rectangle; the lines of adjacent rectangles continue each other. */
  hatch(left, right, top, bottom, shade) {
    const { pen } = this;
    pen.save();
    pen.beginPath();
    pen.rect(left, top, right - left, bottom - top);
    pen.clip();
    pen.beginPath();
    for (let index = Math.floor((left + top) / HATCH_PX) * HATCH_PX; index < right + bottom; index += HATCH_PX) {
      pen.moveTo(index - top, top);
      pen.lineTo(index - bottom, bottom);
    }
    pen.lineWidth = 1.2;
    pen.strokeStyle = shade;
    pen.stroke();
    pen.restore();
  }

  draw_line(item) {
    const { pen } = this;
    if (!item.x.length) return;
    const tracePath = () => {
      pen.lineTo(this.x(item.x[0]), item.y[0]);
      for (let index = 1; index < item.x.length; index += 1) {
        if (item.step) pen.lineTo(this.x(item.x[index]), item.y[index - 1]);
        pen.lineTo(this.x(item.x[index]), item.y[index]);
      }
    };
    if (item.fill) {
      pen.beginPath();
      pen.moveTo(this.x(item.x[0]), item.base);
      tracePath();
      pen.lineTo(this.x(item.x[item.x.length - 1]), item.base);
      pen.fillStyle = this.frame.colour(item.fill);
      pen.fill();
    }
    if (!item.width) return;
    pen.beginPath();
    tracePath();
    pen.lineWidth = item.width;
    pen.strokeStyle = this.frame.colour(item.colour);
    pen.stroke();
  }

  draw_rules(item) {
    const { pen } = this;
    pen.strokeStyle = this.frame.colour(item.colour);
    pen.fillStyle = pen.strokeStyle;
    pen.lineWidth = item.width;
    const visible = [];
    for (let index = 0; index < item.x0.length; index += 1) {
      if (Math.max(item.x0[index], item.x1[index]) < this.sight[0] || Math.min(item.x0[index], item.x1[index]) > this.sight[1]) continue;
      if (item.most && visible.length === item.most) return;
      visible.push(index);
    }
    for (const index of visible) {
      const [left, right] = [this.x(item.x0[index]), this.x(item.x1[index])];
      const [top, bottom] = [item.y0[index], item.y1[index]];
      pen.setLineDash(item.dash ? [4, 3] : []);
      pen.beginPath();
      pen.moveTo(left, top);
      pen.lineTo(right, bottom);
      pen.stroke();
      if (!item.arrow) continue;
      const angle = Math.atan2(bottom - top, right - left);
      pen.beginPath();
      pen.moveTo(right, bottom);
      for (const angleOffset of [2.7, -2.7]) pen.lineTo(right + 8 * Math.cos(angle + angleOffset), bottom + 8 * Math.sin(angle + angleOffset));
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
    const rightEdges = new Map();
    const scale = this.wide / (item.pin ? box.domain[1] - box.domain[0] : this.sight[1] - this.sight[0]);
    item.text.forEach((forms, index) => {
      const origin = item.pin ? box.domain[0] : this.sight[0];
      const x = box.left + (item.x[index] - origin) * scale + item.dx;
      if (!item.pin && (item.x[index] < this.sight[0] || item.x[index] > this.sight[1])) return;
      if (item.spread && x < (rightEdges.get(item.y[index]) ?? -Infinity)) return;
      const fitting = (form) => broken(pen, form, item.room ? item.room[index] * scale - 4 : Infinity, item.lines ?? 1);
      const lines = forms.split("\n").map(fitting).find((candidate) => candidate);
      if (!lines?.[0]) return;
      const width = Math.max(...lines.map((text) => pen.measureText(text).width));
      const left = x - (item.anchor === "middle" ? width / 2 : item.anchor === "end" ? width : 0);
      if (item.spread && left < (rightEdges.get(item.y[index]) ?? -Infinity) + 6) return;
      rightEdges.set(item.y[index], left + width);
      pen.save();
      pen.translate(x, item.y[index]);
      if (item.turn) pen.rotate(-Math.PI / 2);
      lines.forEach((text, row) => pen.fillText(text, 0, row * (item.size + LEADING_PX)));
      pen.restore();
    });
  }

  /** Readings are invisible, except for the selected one. */
  draw_readings() {}

  /** Draw a line at a reading's time, with its values on the side that has more space. */
  drawReading(item, index) {
    const { pen, box } = this;
    const x = this.x((item.x0[index] + item.x1[index]) / 2);
    if (x < box.left || x > box.left + this.wide) return;
    pen.fillStyle = this.frame.colour("fg");
    pen.fillRect(x - 0.5, item.y0[index], 1, item.y1[index] - item.y0[index]);
    this.font(11, "bold");
    pen.textBaseline = "middle";
    const isRightHalf = x > box.left + this.wide / 2;
    pen.textAlign = isRightHalf ? "right" : "left";
    const values = item.values.map(([y, which, texts]) => [y, item[texts][item[which][index]]]);
    for (const [y, text] of [...values, [item.y1[index] + 12, duration(item.x1[index])]]) {
      if (!text) continue;
      const width = pen.measureText(text).width;
      const start = isRightHalf ? Math.max(x - 5, box.left + width) : Math.min(x + 5, box.left + this.wide + box.right - width);
      pen.fillStyle = this.frame.colour("bg");
      pen.fillRect(isRightHalf ? start - width - 2 : start - 2, y - 7, width + 4, 14);
      pen.fillStyle = this.frame.colour("fg");
      pen.fillText(text, start, y);
    }
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
    texts.forEach((text, index) => {
      const x = this.x(index * step);
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
    if (item.item === "readings") {
      this.drawReading(item, chosen);
      return;
    }
    const [left, right] = [this.x(item.x0[chosen]), this.x(item.x1[chosen])];
    if (right < box.left || left > box.left + this.wide) return;
    if (item.item === "spans" && this.hidden(item.row[chosen], item)) return;
    const [top, height] = item.item === "spans"
      ? this.band(item, item.row[chosen], item.lane ? item.lane[chosen] : 0, item.lanes)
      : [item.y0[chosen], item.y1[chosen] - item.y0[chosen]];
    pen.strokeStyle = this.frame.colour("fg");
    pen.lineWidth = 2;
    const inset = item.inset ?? 0;
    pen.strokeRect(left + inset - 1, top - 1, Math.max(3, right - left - 2 * inset + 2), Math.max(3, height) + 2);
    if (box.values) {
      this.canvas.setAttribute("aria-valuetext", elementSentence(item, chosen));
      this.canvas.setAttribute("aria-valuenow", box.values[chosen]);
    }
    if (!box.marks) return;
    // On the side of the farther edge, so that the text is never cut off.
    const isRightHalf = left > box.left + this.wide / 2;
    this.font(11, "bold");
    pen.fillStyle = this.frame.colour("fg");
    pen.textBaseline = "middle";
    pen.textAlign = isRightHalf ? "right" : "left";
    pen.fillText(isRightHalf ? `${box.marks[chosen]} ▼` : `▼ ${box.marks[chosen]}`, (left + right) / 2 + (isRightHalf ? 5 : -5), box.mark_y * (1 + this.growth / box.height));
  }

  // Pointing and keys -----------------------------------------------------------------------------
  onClick(event) {
    const index = this.at(event);
    this.choose(index);
    if (index >= 0) this.turnAlone();
  }

  /** Show only the row of the selected element, or all rows again. */
  turnAlone() {
    if (!this.item.row_names?.length || this.chosen < 0 || this.item.rows < 2) return;
    this.alone = this.alone < 0 ? this.item.row[this.chosen] : -1;
    this.tell();
    this.draw();
  }

  tell() {
    const hint = this.alone < 0 ? "" : " Click or Enter: all SMs.";
    this.line.textContent = `${elementSentence(this.item, this.chosen)}${hint}`;
  }

  choose(index) {
    if (index === undefined || index < 0 || index >= this.count || index === this.chosen) return;
    if (this.box.trait) {
      this.frame.send(this.box.trait, this.box.values[index]);
      return;
    }
    this.chosen = index;
    if (this.alone >= 0) this.alone = this.item.row[index];
    this.tell();
    this.draw();
  }

  /** Index of the element at the pointer, or -1. */
  at(event) {
    const { item } = this;
    const [x, y] = this.frame.at(event, this.canvas);
    if (!item || x < this.box.left || x > this.box.left + this.wide) return -1;
    const pointerValue = this.value(x);
    if (item.item !== "spans") {
      // In a chart of bars, the whole column of a bar belongs to it.
      for (let index = 0; index < this.count; index += 1) {
        if (item.x0[index] <= pointerValue && pointerValue < item.x1[index] && (this.box.trait || (item.y0[index] <= y && y < item.y1[index]))) return index;
      }
      return -1;
    }
    const rowHeight = item.height / this.rows(item);
    const rowIndex = Math.floor((y - item.top) / rowHeight);
    if (rowIndex < 0 || rowIndex >= this.rows(item)) return -1;
    const row = this.alone < 0 ? rowIndex : this.alone;
    const lane = Math.floor((((y - item.top) % rowHeight) / rowHeight) * item.lanes);
    let candidate = -1;
    for (let index = 0; index < this.count && item.x0[index] <= pointerValue; index += 1) {
      if (item.row[index] !== row || item.x1[index] <= pointerValue) continue;
      if (!item.lane || item.lane[index] === lane) return index;
      if (candidate < 0) candidate = index;
    }
    return candidate;
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

  zoom(factor, around) {
    const [low, high] = this.box.domain;
    const width = Math.min(high - low, Math.max((high - low) / (this.box.most_zoom ?? MOST_ZOOM), (this.sight[1] - this.sight[0]) / factor));
    const share = (around - this.sight[0]) / (this.sight[1] - this.sight[0]);
    this.sight = [around - share * width, around + (1 - share) * width];
    this.pan(0);
  }

  pan(offset) {
    const [low, high] = this.box.domain;
    const width = this.sight[1] - this.sight[0];
    const start = Math.max(low, Math.min(high - width, this.sight[0] + offset));
    this.sight = [start, start + width];
    this.draw();
  }

  /** Index of the element that an arrow key selects: in the same row, or the nearest start in the next row. */
  next(key) {
    const { item } = this;
    const index = Math.max(0, this.chosen);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    if (!item.row) return Math.max(0, Math.min(this.count - 1, index + (this.box.trait && key === "ArrowDown" ? -1 : this.box.trait && key === "ArrowUp" ? 1 : step)));
    if (key === "ArrowRight" || key === "ArrowLeft") {
      for (let other = index + step; other >= 0 && other < this.count; other += step) if (item.row[other] === item.row[index]) return other;
      return index;
    }
    let best = index;
    for (let other = 0; other < this.count; other += 1) {
      if (item.row[other] === item.row[index] + step && (best === index || Math.abs(item.x0[other] - item.x0[index]) < Math.abs(item.x0[best] - item.x0[index]))) best = other;
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

  /** Move the visible interval so that the selected element is in it. */
  keepInSight() {
    if (this.chosen < 0 || this.box.trait) return;
    const start = this.item.x0[this.chosen];
    if (start < this.sight[0] || start > this.sight[1]) this.pan(start - (this.sight[0] + this.sight[1]) / 2);
  }
}
