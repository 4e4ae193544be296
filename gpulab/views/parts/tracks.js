import { element } from "./frame.js";
import { above } from "./items.js";
import { spanReport } from "./span.js";
import { Plot, pixelOf } from "./plot.js";
import { grouped } from "./words.js";

// Any number of intervals over rows, with zoom down to a nanosecond, a search, and selection.

const NEAR_PX = 4;
const MIN_NAMED_PX = 11;
const MIN_NAME_PX = 26;
const MAX_OUTLINED = 400;

export class TracksPlot extends Plot {
  constructor(frame, box) {
    super(frame, box);
    this.sort();
    this.widths = new Map();
    this.found = null; // for each name, whether it matches the search
    this.span = null; // the measured times, from and to
    this.anchor = -1; // the interval at which a measurement by keys starts, or -1
    this.node.prepend(this.tools());
    this.report = element("div", { class: "gl-span", hidden: true });
    this.node.append(this.report);
    this.canvas.addEventListener("pointerdown", (event) => {
      this.pressed = event.clientX;
      this.pressedTime = this.timeAt(event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    if (this.item.moment) frame.on(this.item.moment, () => this.draw());
    if (this.item.advised?.length) frame.on("advised", () => this.showAdvised());
    this.picked = [];
    for (const trait of Object.keys(this.item.picks ?? {})) frame.on(trait, () => { this.pick(); this.show(); });
    this.pick();
  }

  /** Sort the intervals of each lane by start, with the latest end of all intervals up to each one. */
  sort() {
    const { item, count } = this;
    let laneCount = 0;
    this.firsts = item.lanes.map((lanes) => { laneCount += lanes; return laneCount - lanes; });
    const sizes = new Uint32Array(laneCount + 1);
    const placeOf = (index) => this.firsts[item.row[index]] + item.lane[index];
    for (let index = 0; index < count; index += 1) sizes[placeOf(index) + 1] += 1;
    for (let place = 0; place < laneCount; place += 1) sizes[place + 1] += sizes[place];
    const nextSlots = sizes.slice();
    const order = new Uint32Array(count);
    for (let index = 0; index < count; index += 1) { order[nextSlots[placeOf(index)]] = index; nextSlots[placeOf(index)] += 1; }
    this.places = Array.from({ length: laneCount }, (_, place) => {
      const indices = order.subarray(sizes[place], sizes[place + 1]);
      const [start, latestEnds] = [new Float64Array(indices.length), new Float64Array(indices.length)];
      indices.forEach((index, i) => {
        start[i] = item.x0[index];
        latestEnds[i] = Math.max(item.x1[index], i ? latestEnds[i - 1] : -Infinity);
      });
      return { which: indices, start, reach: latestEnds };
    });
  }

  /** Top and height of an interval. */
  place(index) {
    const { item } = this;
    const height = item.heights[item.row[index]] / item.lanes[item.row[index]];
    return [item.tops[item.row[index]] + item.lane[index] * height, height];
  }

  // Painting --------------------------------------------------------------------------------------
  draw_tracks(item) {
    const { ratio, box } = this;
    const width = Math.max(1, Math.round(this.wide * ratio));
    const bottom = Math.max(1, ...item.tops.map((top, row) => top + item.heights[row]));
    const picture = this.pen.createImageData(width, Math.round(bottom * ratio) + 1);
    const pixels = new Uint32Array(picture.data.buffer);
    const shade = (name) => pixelOf(this.frame.colour(name));
    // The last colour is for intervals that are dim.
    const shades = [...item.colours.flatMap((name) => [shade(name), shade(`${name}-pale`)]), shade("other-pale"), shade("other-pale")];
    const [ground, linePixels, named] = [shade(item.ground), new Uint32Array(width), []];
    const cover = Array.from({ length: item.colours.length + 1 }, () => new Float32Array(width));
    item.tops.forEach((top, row) => {
      for (let lane = 0; lane < item.lanes[row]; lane += 1) {
        const laneHeight = item.heights[row] / item.lanes[row];
        const [y0, y1] = [lane, lane + 1].map((index) => Math.round((top + index * laneHeight) * ratio + 1e-6));
        const usedColours = this.cover(this.places[this.firsts[row] + lane], cover, laneHeight >= MIN_NAMED_PX ? named : null);
        for (let x = 0; x < width; x += 1) {
          let total = 0;
          let largest = -1;
          for (const colour of usedColours) {
            const share = cover[colour][x];
            total += share;
            if (share > (largest < 0 ? 0 : cover[largest][x]) && (colour < item.colours.length || largest < 0)) largest = colour;
          }
          linePixels[x] = total ? shades[2 * largest + (total < 0.5 ? 1 : 0)] : ground;
        }
        for (const colour of usedColours) cover[colour].fill(0);
        const gap = item.lanes[row] > 1 && y1 - y0 > 4 * ratio ? 1 : 0;
        for (let y = y0; y < y1 - gap; y += 1) pixels.set(linePixels, y * width);
      }
    });
    this.pen.putImageData(picture, Math.round(box.left * ratio), 0);
    this.nameTracks(item, named);
  }

  /** Add up how much of each pixel a lane covers with each colour, and return the colours; collect long intervals. */
  cover({ which: indices, start, reach: latestEnds }, cover, named) {
    const { item } = this;
    const [low, high] = this.sight;
    const width = cover[0].length;
    const scale = width / (high - low);
    const unmatched = item.colours.length;
    const isUsed = new Uint8Array(unmatched + 1);
    const end = above(start, high);
    for (let i = above(latestEnds, low - 1e-9); i < end; i += 1) {
      const index = indices[i];
      const left = Math.max(0, (item.x0[index] - low) * scale);
      let right = Math.min(width, (item.x1[index] - low) * scale);
      if (right < 0 || left > width) continue;
      if (named && right - left > MIN_NAME_PX * this.ratio) named.push(index);
      if (right - left > 5) right -= 1;
      const colour = this.isDim(index) ? unmatched : item.colour[index];
      const column = cover[colour];
      isUsed[colour] = 1;
      const [first, last] = [Math.min(width - 1, Math.floor(left)), Math.min(width - 1, Math.floor(right))];
      if (first === last) {
        column[first] += Math.max(1e-3, right - left); // an interval of length 0 is visible, too
        continue;
      }
      column[first] += first + 1 - left;
      for (let x = first + 1; x < last; x += 1) column[x] += 1;
      column[last] += right - last;
    }
    return [...isUsed.keys()].filter((colour) => isUsed[colour]);
  }

  /** Whether an interval does not match the search, or a piece of advice that is pointed at. */
  isDim(index) {
    const { item, found } = this;
    return Boolean((found && !found[item.name[index]]) || (this.lines && !this.lines.has(item.line[index])));
  }

  nameTracks(item, named) {
    const { pen, box } = this;
    this.font(11);
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    const unmatchedInk = this.frame.colour("fg");
    for (const index of named) {
      const left = Math.max(box.left, this.x(item.x0[index]));
      const maxWidth = Math.min(box.left + this.wide, this.x(item.x1[index])) - left - 7;
      const text = this.shortened(item.shorts[item.name[index]], maxWidth);
      if (!text) continue;
      const [top, laneHeight] = this.place(index);
      pen.fillStyle = this.isDim(index) ? unmatchedInk : inks[item.colour[index]];
      pen.fillText(text, left + 3, top + laneHeight / 2);
    }
  }

  /** The text, shortened to a width, or an empty text if hardly anything would remain. */
  shortened(text, maxWidth) {
    const widthOf = (piece) => {
      if (!this.widths.has(piece)) this.widths.set(piece, this.pen.measureText(piece).width);
      return this.widths.get(piece);
    };
    if (this.widths.size > 20_000) this.widths.clear();
    if (widthOf(text) <= maxWidth) return text;
    let length = Math.floor((text.length * maxWidth) / widthOf(text));
    while (length > 2 && widthOf(`${text.slice(0, length)}…`) > maxWidth) length -= 1;
    return length > 2 ? `${text.slice(0, length)}…` : "";
  }

  drawChosen() {
    const outline = (index, colour, distance) => {
      const [left, right] = [this.item.x0[index], this.item.x1[index]].map((x) => Math.max(this.box.left - 2, Math.min(this.box.left + this.wide + 2, this.x(x))));
      const [top, height] = this.place(index);
      this.pen.strokeStyle = this.frame.colour(colour);
      this.pen.lineWidth = 2;
      this.pen.strokeRect(left - distance, top - distance, Math.max(1, right - left) + 2 * distance, height + 2 * distance);
    };
    this.picked.filter((index) => this.inSight(index)).slice(0, MAX_OUTLINED).forEach((index) => outline(index, "error", 3));
    if (this.chosen >= 0 && this.inSight(this.chosen)) outline(this.chosen, "fg", 1);
    const now = this.item.moment ? this.frame.model.get(this.item.moment) : -1;
    if (now >= 0) this.drawOnly([0, now], "fg");
    if (this.span) this.drawOnly(this.span, "tail");
  }

  /** Draw the edges of a span of time, and everything outside of it dim. */
  drawOnly(span, colour) {
    const { pen, box } = this;
    const [left, right] = [box.left, box.left + this.wide];
    const [from, to] = span.map((time) => Math.max(left, Math.min(right, this.x(time))));
    const bottom = Math.max(...this.item.tops.map((top, row) => top + this.item.heights[row]));
    pen.globalAlpha = 0.6;
    pen.fillStyle = this.frame.colour("bg");
    this.item.tops.forEach((top, row) => {
      pen.fillRect(left, top, from - left, this.item.heights[row]);
      pen.fillRect(to, top, right - to, this.item.heights[row]);
    });
    pen.globalAlpha = 1;
    pen.fillStyle = this.frame.colour(colour);
    for (const x of [from, to]) pen.fillRect(x - 1, 0, 2, bottom + 6);
    pen.fillRect(from, bottom + 3, to - from, 2);
  }

  // Picking ---------------------------------------------------------------------------------------
  /** Find the intervals for which every trait that is not -1 equals its column. */
  pick() {
    const conditions = Object.entries(this.item.picks ?? {}).map(([trait, column]) => [this.frame.model.get(trait) ?? -1, this.item[column]]).filter(([value]) => value !== -1);
    this.picked = [];
    // A panel alone does not identify operations.
    if (!conditions.some(([, column]) => column !== this.item.panel)) return;
    for (let index = 0; index < this.count; index += 1) if (conditions.every(([value, column]) => column[index] === value)) this.picked.push(index);
  }

  inSight(index) { return this.item.x1[index] >= this.sight[0] && this.item.x0[index] <= this.sight[1]; }

  /** Show intervals that were selected in another view, and the sentence of the first one. */
  show() {
    const [firstPicked] = this.picked;
    if (firstPicked !== undefined && !this.picking) {
      this.chosen = firstPicked;
      this.tell();
      if (!this.picked.some((index) => this.inSight(index))) this.keepInSight();
    }
    this.draw();
  }

  /** Send the selected interval to the traits, or -1 if it was sent before. */
  turnAlone() {
    if (this.chosen < 0) return;
    const { picks } = this.item;
    const isCleared = this.picked.includes(this.chosen) || !(this.item.operation[this.chosen] >= 0);
    this.picking = true;
    for (const [trait, column] of Object.entries(picks ?? {})) this.frame.model.set(trait, isCleared ? -1 : this.item[column][this.chosen]);
    this.picking = false;
    this.frame.model.save_changes();
  }

  onClick(event) {
    if (this.isDrag(event)) return;
    this.measure(null);
    const index = this.at(event);
    if (index < 0) return;
    this.choose(index);
    this.turnAlone();
  }

  at(event) {
    const { item } = this;
    const [x, y] = this.frame.at(event, this.canvas);
    const row = item.tops.findIndex((top, index) => top <= y && y < top + item.heights[index]);
    if (row < 0 || x < this.box.left - 1 || x > this.box.left + this.wide + 1) return -1;
    const lane = Math.min(item.lanes[row] - 1, Math.floor(((y - item.tops[row]) / item.heights[row]) * item.lanes[row]));
    const { which: indices, start, reach: latestEnds } = this.places[this.firsts[row] + lane];
    const [pointerValue, tolerance] = [this.value(x), (NEAR_PX * (this.sight[1] - this.sight[0])) / this.wide];
    let [nearest, distance] = [-1, tolerance];
    const end = above(start, pointerValue + tolerance);
    for (let i = Math.max(above(latestEnds, pointerValue - tolerance), end - 50); i < end; i += 1) {
      const gap = Math.max(0, item.x0[indices[i]] - pointerValue, pointerValue - item.x1[indices[i]]);
      if (gap < distance || (gap === 0 && distance === 0)) [nearest, distance] = [indices[i], gap];
    }
    return nearest;
  }

  isDrag(event) { return Math.abs(event.clientX - (this.pressed ?? event.clientX)) > 3; }

  /** A drag measures a span, with Shift it moves the visible interval. */
  onPointer(event) {
    this.canvas.style.cursor = event.shiftKey ? (event.buttons ? "grabbing" : "grab") : "crosshair";
    if (!event.buttons || event.shiftKey) super.onPointer(event);
    else if (this.isDrag(event)) this.measure([this.pressedTime, this.timeAt(event)]);
  }

  // Measuring -------------------------------------------------------------------------------------
  /** The time at the pointer, or the edge of an interval that is close to it. */
  timeAt(event) {
    const [x] = this.frame.at(event, this.canvas);
    const index = this.at(event);
    const edges = index < 0 ? [] : [this.item.x0[index], this.item.x1[index]];
    const edge = edges.find((time) => Math.abs(this.x(time) - x) <= NEAR_PX);
    return edge ?? Math.round(Math.max(this.sight[0], Math.min(this.sight[1], this.value(x))));
  }

  /** Start a measurement at the selected interval, or end it. */
  measureByKeys() {
    this.anchor = this.anchor < 0 ? this.chosen : -1;
    this.extend();
  }

  /** Measure from the first interval of a measurement by keys to the selected one. */
  extend() {
    if (this.anchor < 0) return;
    const both = [this.anchor, this.chosen];
    this.measure([Math.min(...both.map((index) => this.item.x0[index])), Math.max(...both.map((index) => this.item.x1[index]))]);
  }

  /** Show the measurement of a span, or end it. */
  measure(span) {
    if (!span) this.anchor = -1;
    if (!span && !this.span) return;
    this.span = span && [Math.min(...span), Math.max(...span)];
    cancelAnimationFrame(this.reporting);
    this.reporting = requestAnimationFrame(() => {
      const isNew = this.report.hidden === Boolean(this.span);
      this.report.hidden = !this.span;
      this.report.replaceChildren(...(this.span ? spanReport(this, () => { this.measure(null); this.canvas.focus(); }) : []));
      if (isNew && (this.frame.alone || this.frame.filled)) this.frame.room.fit();
      else this.draw();
    });
  }

  choose(index) {
    super.choose(index);
    this.extend();
  }

  // Advice ----------------------------------------------------------------------------------------
  /** Dim all intervals but those of the lines that a piece of advice names. */
  showAdvised() {
    const lines = this.item.advised[this.frame.model.get("advised")] ?? [];
    this.lines = lines.length ? new Set(lines) : null;
    const isAdvised = (_, index) => this.lines?.has(this.item.line[index]) && this.inSight(index);
    if (this.lines && !this.item.line.some(isAdvised)) this.zoom(1e-9, this.sight[0]);
    else this.draw();
  }

  onWheel(event) {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (!event.ctrlKey && sideways) {
      event.preventDefault();
      this.pan((sideways / this.wide) * (this.sight[1] - this.sight[0]));
    } else super.onWheel(event);
  }

  onKey(event) {
    const share = { ArrowLeft: -0.25, ArrowRight: 0.25 }[event.key];
    if (event.shiftKey && share) {
      event.preventDefault();
      this.pan(share * (this.sight[1] - this.sight[0]));
    } else if (event.key.toLowerCase() === "m" && !event.ctrlKey && !event.metaKey && !event.altKey && this.chosen >= 0) {
      event.preventDefault();
      this.measureByKeys();
    } else if (event.key === "/") {
      event.preventDefault();
      this.search.focus();
    } else super.onKey(event);
  }

  // Search ----------------------------------------------------------------------------------------
  tools() {
    const button = (text, label, onclick) => element("button", { type: "button", "aria-label": label, title: label, onclick }, text);
    const middle = () => (this.sight[0] + this.sight[1]) / 2;
    this.search = element("input", {
      type: "search", placeholder: "search names", "aria-label": "Search by name; Enter or the arrow keys go to the next one", spellcheck: "false",
      oninput: () => this.look(),
      onkeydown: (event) => {
        const direction = { Enter: 1, ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!direction) return;
        event.preventDefault();
        if (event.key === "Enter" && event.shiftKey) return;
        this.step(direction);
      },
    });
    this.told = element("span", { class: "gl-note", role: "status" });
    return element(
      "div", { class: "gl-tools gl-tracks-tools" }, this.search,
      button("‹", "Previous match", () => this.step(-1)), button("›", "Next match", () => this.step(1)), this.told,
      element("span", { class: "gl-space" }),
      button("+", "Zoom in", () => this.zoom(2, middle())), button("−", "Zoom out", () => this.zoom(0.5, middle())), button("all", "Show the whole time", () => this.zoom(1e-9, middle())),
    );
  }

  look() {
    const query = this.search.value.trim().toLowerCase();
    this.found = query ? Uint8Array.from(this.item.names, (name) => name.toLowerCase().includes(query)) : null;
    this.matches = [];
    if (this.found) for (let index = 0; index < this.count; index += 1) if (this.found[this.item.name[index]]) this.matches.push(index);
    this.match = -1;
    this.told.textContent = this.found ? `${grouped(this.matches.length)} found` : "";
    this.draw();
  }

  step(direction) {
    const matchCount = this.matches?.length;
    if (!matchCount || !this.found) return;
    this.match = this.match < 0 ? (direction > 0 ? 0 : matchCount - 1) : (this.match + direction + matchCount) % matchCount;
    const index = this.matches[this.match];
    this.told.textContent = `${grouped(this.match + 1)} of ${grouped(matchCount)}`;
    const length = Math.max(1, this.item.x1[index] - this.item.x0[index]);
    if ((length / (this.sight[1] - this.sight[0])) * this.wide < 3) this.zoom(((this.sight[1] - this.sight[0]) / length) * (12 / this.wide), this.item.x0[index]);
    this.choose(index);
    this.keepInSight();
  }
}
