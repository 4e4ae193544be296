import { element } from "./frame.js";
import { Plot, pixelOf } from "./plot.js";
import { grouped } from "./words.js";

// Very many intervals over rows, from all of them down to a nanosecond: searched, walked, picked.

const NEAR_PX = 4;
const LEAST_NAMED_PX = 11;
const LEAST_NAME_PX = 26;
const MOST_OUTLINED = 400;

/** The first place from `low` on, below `high`, at which `values` (in order) is above `wanted`. */
function above(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > wanted) high = middle; else low = middle + 1;
  }
  return low;
}

export class TracksPlot extends Plot {
  constructor(frame, box) {
    super(frame, box);
    this.sort();
    this.widths = new Map();
    this.found = null; // of each name, whether it is searched for
    this.node.prepend(this.tools());
    this.canvas.addEventListener("pointerdown", (event) => {
      this.pressed = event.clientX;
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.picked = [];
    for (const trait of Object.keys(this.item.picks ?? {})) frame.on(trait, () => { this.pick(); this.show(); });
    this.pick();
  }

  /** The intervals of each place in order of their start, and how far those up to each one reach. */
  sort() {
    const { item, count } = this;
    let places = 0;
    this.firsts = item.lanes.map((lanes) => { places += lanes; return places - lanes; });
    const sizes = new Uint32Array(places + 1);
    const placeOf = (at) => this.firsts[item.row[at]] + item.lane[at];
    for (let at = 0; at < count; at += 1) sizes[placeOf(at) + 1] += 1;
    for (let place = 0; place < places; place += 1) sizes[place + 1] += sizes[place];
    const next = sizes.slice();
    const order = new Uint32Array(count);
    for (let at = 0; at < count; at += 1) { order[next[placeOf(at)]] = at; next[placeOf(at)] += 1; }
    this.places = Array.from({ length: places }, (_, place) => {
      const which = order.subarray(sizes[place], sizes[place + 1]);
      const [start, reach] = [new Float64Array(which.length), new Float64Array(which.length)];
      which.forEach((at, i) => {
        start[i] = item.x0[at];
        reach[i] = Math.max(item.x1[at], i ? reach[i - 1] : -Infinity);
      });
      return { which, start, reach };
    });
  }

  /** Top and height of an interval. */
  place(at) {
    const { item } = this;
    const each = item.heights[item.row[at]] / item.lanes[item.row[at]];
    return [item.tops[item.row[at]] + item.lane[at] * each, each];
  }

  // Painting --------------------------------------------------------------------------------------
  draw_tracks(item) {
    const { ratio, box } = this;
    const width = Math.max(1, Math.round(this.wide * ratio));
    const bottom = Math.max(1, ...item.tops.map((top, row) => top + item.heights[row]));
    const picture = this.pen.createImageData(width, Math.round(bottom * ratio) + 1);
    const pixels = new Uint32Array(picture.data.buffer);
    const shade = (name) => pixelOf(this.frame.colour(name));
    // What a search passes over comes last, in a colour of its own.
    const shades = [...item.colours.flatMap((name) => [shade(name), shade(`${name}-pale`)]), shade("other-pale"), shade("other-pale")];
    const [ground, line, named] = [shade(item.ground), new Uint32Array(width), []];
    const cover = Array.from({ length: item.colours.length + 1 }, () => new Float32Array(width));
    item.tops.forEach((top, row) => {
      for (let lane = 0; lane < item.lanes[row]; lane += 1) {
        const each = item.heights[row] / item.lanes[row];
        const [y0, y1] = [lane, lane + 1].map((at) => Math.round((top + at * each) * ratio + 1e-6));
        const used = this.cover(this.places[this.firsts[row] + lane], cover, each >= LEAST_NAMED_PX ? named : null);
        for (let x = 0; x < width; x += 1) {
          let whole = 0;
          let most = -1;
          for (const colour of used) {
            const part = cover[colour][x];
            whole += part;
            if (part > (most < 0 ? 0 : cover[most][x]) && (colour < item.colours.length || most < 0)) most = colour;
          }
          line[x] = whole ? shades[2 * most + (whole < 0.5 ? 1 : 0)] : ground;
        }
        for (const colour of used) cover[colour].fill(0);
        const gap = item.lanes[row] > 1 && y1 - y0 > 4 * ratio ? 1 : 0;
        for (let y = y0; y < y1 - gap; y += 1) pixels.set(line, y * width);
      }
    });
    this.pen.putImageData(picture, Math.round(box.left * ratio), 0);
    this.nameTracks(item, named);
  }

  /** How much of each pixel a place covers with each colour; which colours these are. Long intervals go to `named`. */
  cover({ which, start, reach }, cover, named) {
    const { item, found } = this;
    const [low, high] = this.sight;
    const width = cover[0].length;
    const scale = width / (high - low);
    const passed = item.colours.length;
    const used = new Uint8Array(passed + 1);
    const end = above(start, high);
    for (let i = above(reach, low - 1e-9); i < end; i += 1) {
      const at = which[i];
      const from = Math.max(0, (item.x0[at] - low) * scale);
      let to = Math.min(width, (item.x1[at] - low) * scale);
      if (to < 0 || from > width) continue;
      if (named && to - from > LEAST_NAME_PX * this.ratio) named.push(at);
      if (to - from > 5) to -= 1;
      const colour = found && !found[item.name[at]] ? passed : item.colour[at];
      const column = cover[colour];
      used[colour] = 1;
      const [first, last] = [Math.min(width - 1, Math.floor(from)), Math.min(width - 1, Math.floor(to))];
      if (first === last) {
        column[first] += Math.max(1e-3, to - from); // one of no length shows, too
        continue;
      }
      column[first] += first + 1 - from;
      for (let x = first + 1; x < last; x += 1) column[x] += 1;
      column[last] += to - last;
    }
    return [...used.keys()].filter((colour) => used[colour]);
  }

  nameTracks(item, named) {
    const { pen, box } = this;
    this.font(11);
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    const passed = this.frame.colour("fg");
    for (const at of named) {
      const left = Math.max(box.left, this.x(item.x0[at]));
      const room = Math.min(box.left + this.wide, this.x(item.x1[at])) - left - 7;
      const text = this.shortened(item.shorts[item.name[at]], room);
      if (!text) continue;
      const [top, high] = this.place(at);
      pen.fillStyle = this.found && !this.found[item.name[at]] ? passed : inks[item.colour[at]];
      pen.fillText(text, left + 3, top + high / 2);
    }
  }

  /** The text as far as there is room for it, or nothing where that says too little. */
  shortened(text, room) {
    const width = (part) => {
      if (!this.widths.has(part)) this.widths.set(part, this.pen.measureText(part).width);
      return this.widths.get(part);
    };
    if (this.widths.size > 20_000) this.widths.clear();
    if (width(text) <= room) return text;
    let kept = Math.floor((text.length * room) / width(text));
    while (kept > 2 && width(`${text.slice(0, kept)}…`) > room) kept -= 1;
    return kept > 2 ? `${text.slice(0, kept)}…` : "";
  }

  drawChosen() {
    const outline = (at, colour, away) => {
      const [left, right] = [this.item.x0[at], this.item.x1[at]].map((x) => Math.max(this.box.left - 2, Math.min(this.box.left + this.wide + 2, this.x(x))));
      const [top, high] = this.place(at);
      this.pen.strokeStyle = this.frame.colour(colour);
      this.pen.lineWidth = 2;
      this.pen.strokeRect(left - away, top - away, Math.max(1, right - left) + 2 * away, high + 2 * away);
    };
    this.picked.filter((at) => this.inSight(at)).slice(0, MOST_OUTLINED).forEach((at) => outline(at, "error", 3));
    if (this.chosen >= 0 && this.inSight(this.chosen)) outline(this.chosen, "fg", 1);
  }

  // Picking ---------------------------------------------------------------------------------------
  /** The intervals of which every trait that is not -1 equals the column. */
  pick() {
    const wanted = Object.entries(this.item.picks ?? {}).map(([trait, column]) => [this.frame.model.get(trait) ?? -1, this.item[column]]).filter(([value]) => value !== -1);
    this.picked = [];
    // A timeline alone says nothing of an operation.
    if (!wanted.some(([, column]) => column !== this.item.panel)) return;
    for (let at = 0; at < this.count; at += 1) if (wanted.every(([value, column]) => column[at] === value)) this.picked.push(at);
  }

  inSight(at) { return this.item.x1[at] >= this.sight[0] && this.item.x0[at] <= this.sight[1]; }

  /** What was selected elsewhere comes into sight, and is told. */
  show() {
    const [first] = this.picked;
    if (first !== undefined && !this.picking) {
      this.chosen = first;
      this.tell();
      if (!this.picked.some((at) => this.inSight(at))) this.keepInSight();
    }
    this.draw();
  }

  /** Enter or a click: this one, or nothing where it was already. */
  turnAlone() {
    if (this.chosen < 0) return;
    const { picks } = this.item;
    const none = this.picked.includes(this.chosen) || !(this.item.operation[this.chosen] >= 0);
    this.picking = true;
    for (const [trait, column] of Object.entries(picks ?? {})) this.frame.model.set(trait, none ? -1 : this.item[column][this.chosen]);
    this.picking = false;
    this.frame.model.save_changes();
  }

  onClick(event) {
    if (Math.abs(event.clientX - (this.pressed ?? event.clientX)) > 3) return; // it was a drag
    const at = this.at(event);
    if (at < 0) return;
    this.choose(at);
    this.turnAlone();
  }

  at(event) {
    const { item } = this;
    const [x, y] = this.frame.at(event, this.canvas);
    const row = item.tops.findIndex((above_, at) => above_ <= y && y < above_ + item.heights[at]);
    if (row < 0 || x < this.box.left - 1 || x > this.box.left + this.wide + 1) return -1;
    const lane = Math.min(item.lanes[row] - 1, Math.floor(((y - item.tops[row]) / item.heights[row]) * item.lanes[row]));
    const { which, start, reach } = this.places[this.firsts[row] + lane];
    const [here, near] = [this.value(x), (NEAR_PX * (this.sight[1] - this.sight[0])) / this.wide];
    let [found, distance] = [-1, near];
    const end = above(start, here + near);
    for (let i = Math.max(above(reach, here - near), end - 50); i < end; i += 1) {
      const away = Math.max(0, item.x0[which[i]] - here, here - item.x1[which[i]]);
      if (away < distance || (away === 0 && distance === 0)) [found, distance] = [which[i], away];
    }
    return found;
  }

  onPointer(event) {
    super.onPointer(event);
    this.canvas.style.cursor = event.buttons ? "grabbing" : "default";
  }

  onWheel(event) {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (!event.ctrlKey && sideways) {
      event.preventDefault();
      this.pan((sideways / this.wide) * (this.sight[1] - this.sight[0]));
    } else super.onWheel(event);
  }

  onKey(event) {
    const by = { ArrowLeft: -0.25, ArrowRight: 0.25 }[event.key];
    if (event.shiftKey && by) {
      event.preventDefault();
      this.pan(by * (this.sight[1] - this.sight[0]));
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
        const by = { Enter: 1, ArrowDown: 1, ArrowUp: -1 }[event.key];
        if (!by) return;
        event.preventDefault();
        if (event.key === "Enter" && event.shiftKey) return;
        this.step(by);
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
    const wanted = this.search.value.trim().toLowerCase();
    this.found = wanted ? Uint8Array.from(this.item.names, (name) => name.toLowerCase().includes(wanted)) : null;
    this.matches = [];
    if (this.found) for (let at = 0; at < this.count; at += 1) if (this.found[this.item.name[at]]) this.matches.push(at);
    this.match = -1;
    this.told.textContent = this.found ? `${grouped(this.matches.length)} found` : "";
    this.draw();
  }

  step(by) {
    const many = this.matches?.length;
    if (!many || !this.found) return;
    this.match = this.match < 0 ? (by > 0 ? 0 : many - 1) : (this.match + by + many) % many;
    const at = this.matches[this.match];
    this.told.textContent = `${grouped(this.match + 1)} of ${grouped(many)}`;
    const takes = Math.max(1, this.item.x1[at] - this.item.x0[at]);
    if ((takes / (this.sight[1] - this.sight[0])) * this.wide < 3) this.zoom(((this.sight[1] - this.sight[0]) / takes) * (12 / this.wide), this.item.x0[at]);
    this.choose(at);
    this.keepInSight();
  }
}
