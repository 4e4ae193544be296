import { Plot } from "./plot.js";

// Nodes of a graph: walked along the arrows or one by one with Tab, picked by a click or Enter.

const CORNER_PX = 5;
const SLANT_PX = 8;

/** The outline of a shape, as `outline` in Python. */
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
    if (this.item.picks) frame.on(this.item.picks, () => this.draw());
  }

  /** The node that the trait's value belongs to. */
  get picked() {
    const value = this.item.picks ? this.frame.model.get(this.item.picks) ?? -1 : -1;
    return value < 0 ? -1 : this.item.owner[value] ?? -1;
  }

  draw_nodes(item) {
    const { pen } = this;
    const shades = item.colours.map((name) => this.frame.colour(name));
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || this.frame.colour("fg"));
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (let at = 0; at < this.count; at += 1) {
      const [left, right, top, bottom] = this.sides(at);
      outline(pen, item.shape[at], left, top, right, bottom);
      pen.fillStyle = shades[item.colour[at]];
      pen.fill();
      if (item.mark[at] >= 0) {
        pen.strokeStyle = shades[item.mark[at]];
        pen.lineWidth = 3;
        pen.stroke();
      }
      pen.fillStyle = inks[item.colour[at]];
      const room = right - left - 10 - (item.shape[at] && item.shape[at] !== 3 ? SLANT_PX : 0);
      const lines = [[item.text[at], 11, ""], [item.detail[at], 10, ""]].filter(([text]) => text);
      lines.forEach(([text, size], i) => {
        this.font(size);
        pen.fillText(this.cut(text, room), (left + right) / 2, (top + bottom) / 2 + (i - (lines.length - 1) / 2) * 14);
      });
    }
  }

  cut(text, room) {
    if (this.pen.measureText(text).width <= room) return text;
    let kept = text.length;
    while (kept && this.pen.measureText(`${text.slice(0, kept)}…`).width > room) kept -= 1;
    return kept ? `${text.slice(0, kept)}…` : "";
  }

  sides(at) { return [this.x(this.item.x0[at]), this.x(this.item.x1[at]), this.item.y0[at], this.item.y1[at]]; }

  drawChosen() {
    const mark = (at, colour, away) => {
      if (at < 0 || at >= this.count) return;
      const [left, right, top, bottom] = this.sides(at);
      outline(this.pen, this.item.shape[at], left - away, top - away, right + away, bottom + away);
      this.pen.strokeStyle = this.frame.colour(colour);
      this.pen.lineWidth = away + 0.5;
      this.pen.stroke();
    };
    mark(this.picked, "error", 2.5);
    mark(this.chosen, "fg", 1.5);
  }

  /** Enter or a click: this one, or nothing where it was already. */
  turnAlone() {
    if (!this.item.picks || this.chosen < 0) return;
    this.frame.send(this.item.picks, this.picked === this.chosen ? -1 : this.item.first[this.chosen]);
  }

  tell() { this.line.textContent = this.item.says[this.chosen]; }

  at(event) {
    const [x, y] = this.frame.at(event, this.canvas);
    for (let at = 0; at < this.count; at += 1) {
      const [x0, x1, y0, y1] = this.sides(at);
      if (x0 <= x && x < x1 && y0 <= y && y < y1) return at;
    }
    return -1;
  }

  /** Where an arrow key leads: up and down in a layer, else to the nearest of the next one. */
  next(key) {
    const { item } = this;
    const at = Math.max(0, this.chosen);
    const by = { ArrowRight: 1, ArrowLeft: -1 }[key];
    let [best, away] = [at, Infinity];
    for (let other = 0; other < this.count; other += 1) {
      const step = item.y0[other] - item.y0[at];
      const fits = by ? item.layer[other] === item.layer[at] + by : item.layer[other] === item.layer[at] && (key === "ArrowDown" ? step > 0 : step < 0);
      if (fits && Math.abs(step) < away) [best, away] = [other, Math.abs(step)];
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
