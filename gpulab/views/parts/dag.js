import { Plot } from "./plot.js";

// Nodes of a graph. Arrow keys and Tab select a node; a click or Enter sends it to a trait.

const CORNER_PX = 5;
const SLANT_PX = 8;

/** Trace the outline of a shape, as `_find_outline` in Python. */
function outline(pen, shape, left, top, right, bottom) {
  const slant = Math.min(SLANT_PX, (right - left) / 4);
  const middle = (top + bottom) / 2;
  const corners = {
    1: [[left + slant, top], [right - slant, top], [right, bottom], [left, bottom]],
    2: [[left, top], [right, top], [right - slant, bottom], [left + slant, bottom]],
    4: [[left, middle], [left + slant, top], [right - slant, top], [right, middle], [right - slant, bottom], [left + slant, bottom]],
  }[shape];
  pen.beginPath();
  if (corners) {
    corners.forEach(([x, y]) => pen.lineTo(x, y));
    pen.closePath();
  } else pen.roundRect(left, top, right - left, bottom - top, shape === 3 ? (bottom - top) / 2 : CORNER_PX);
}

export class DagPlot extends Plot {
  constructor(frame, box) {
    super(frame, box);
    for (const trait of [this.item.picks, this.item.moment]) if (trait) frame.on(trait, () => this.draw());
  }

  /** Index of the node with the trait's value, or -1. */
  get picked() {
    const value = this.item.picks ? this.frame.model.get(this.item.picks) ?? -1 : -1;
    return value < 0 ? -1 : this.item.owner[value] ?? -1;
  }

  draw_nodes(item) {
    const { pen } = this;
    const shades = item.colours.map((name) => this.frame.colour(name));
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    const now = item.moment ? this.frame.model.get(item.moment) : -1;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let index = 0; index < this.count; index += 1) {
      const [left, right, top, bottom] = this.sides(index);
      outline(pen, item.shape[index], left, top, right, bottom);
      const isKnown = now >= 0 && item.starts[index] >= 0;
      const isPale = isKnown && now < item.starts[index];
      pen.globalAlpha = isPale ? 0.25 : 1;
      pen.fillStyle = shades[item.colour[index]];
      pen.fill();
      pen.globalAlpha = 1;
      if (item.mark[index] >= 0) {
        pen.strokeStyle = shades[item.mark[index]];
        pen.lineWidth = 3;
        pen.stroke();
      } else if (isKnown && item.starts[index] <= now && now < item.ends[index]) {
        pen.strokeStyle = this.frame.colour("fg");
        pen.lineWidth = 3;
        pen.stroke();
      }
      pen.fillStyle = isPale ? this.frame.colour("fg") : inks[item.colour[index]];
      const room = right - left - 10 - (item.shape[index] && item.shape[index] !== 3 ? SLANT_PX : 0);
      const lines = [[item.text[index], 11, ""], [item.detail[index], 10, ""]].filter(([text]) => text);
      lines.forEach(([text, size], i) => {
        this.font(size);
        pen.fillText(this.cut(text, room), (left + right) / 2, (top + bottom) / 2 + (i - (lines.length - 1) / 2) * 14);
      });
    }
  }

  cut(text, room) {
    if (this.pen.measureText(text).width <= room) return text;
    let length = text.length;
    while (length && this.pen.measureText(`${text.slice(0, length)}…`).width > room) length -= 1;
    return length ? `${text.slice(0, length)}…` : "";
  }

  sides(index) { return [this.x(this.item.x0[index]), this.x(this.item.x1[index]), this.item.y0[index], this.item.y1[index]]; }

  drawChosen() {
    const mark = (index, colour, distance) => {
      if (index < 0 || index >= this.count) return;
      const [left, right, top, bottom] = this.sides(index);
      outline(this.pen, this.item.shape[index], left - distance, top - distance, right + distance, bottom + distance);
      this.pen.strokeStyle = this.frame.colour(colour);
      this.pen.lineWidth = distance + 0.5;
      this.pen.stroke();
    };
    mark(this.picked, "error", 2.5);
    mark(this.chosen, "fg", 1.5);
  }

  /** Send the selected node to the trait, or -1 if it was sent before. */
  turnAlone() {
    if (!this.item.picks || this.chosen < 0) return;
    this.frame.send(this.item.picks, this.picked === this.chosen ? -1 : this.item.first[this.chosen]);
  }

  tell() { this.line.textContent = this.item.says[this.chosen]; }

  at(event) {
    const [x, y] = this.frame.at(event, this.canvas);
    for (let index = 0; index < this.count; index += 1) {
      const [x0, x1, y0, y1] = this.sides(index);
      if (x0 <= x && x < x1 && y0 <= y && y < y1) return index;
    }
    return -1;
  }

  /** Index of the node that an arrow key selects: in the same layer, or the nearest in the next layer. */
  next(key) {
    const { item } = this;
    const index = Math.max(0, this.chosen);
    const layerStep = { ArrowRight: 1, ArrowLeft: -1 }[key];
    let [best, distance] = [index, Infinity];
    for (let candidate = 0; candidate < this.count; candidate += 1) {
      const difference = item.y0[candidate] - item.y0[index];
      const isCandidate = layerStep ? item.layer[candidate] === item.layer[index] + layerStep : item.layer[candidate] === item.layer[index] && (key === "ArrowDown" ? difference > 0 : difference < 0);
      if (isCandidate && Math.abs(difference) < distance) [best, distance] = [candidate, Math.abs(difference)];
    }
    return best;
  }

  onKey(event) {
    const step = event.key === "Tab" ? (event.shiftKey ? -1 : 1) : 0;
    const other = this.chosen + step;
    if (step && !event.ctrlKey && !event.altKey && !event.metaKey && other >= 0 && other < this.count) {
      event.preventDefault();
      this.choose(other);
    } else if (event.key === "Enter" && !event.shiftKey && this.item.picks) {
      event.preventDefault();
      event.stopPropagation();
      this.turnAlone();
    } else super.onKey(event);
  }
}
