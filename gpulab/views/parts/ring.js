import { groupedBy } from "./items.js";
import { Plot } from "./plot.js";

// Devices on a circle. The marks of the moves travel along their arrows when the next step is shown.

// Largest sizes, and sizes as shares of the distance between neighbours on the circle.
const [NODE_PX, MARK_PX, HEAD_PX] = [19, 17, 8];
const [NODE, MARK, HEAD] = [0.28, 0.25, 0.12];
const LEAST_MARK_PX = 12; // for a text
const SIDE_PX = 5; // distance of an arrow from the line between its devices, so that opposite arrows are apart
const [LEAST_MS, MOST_MS] = [80, 700];

export class RingPlot extends Plot {
  constructor(frame, box) {
    super(frame, box);
    const [{ step }] = box.items;
    const now = performance.now();
    const { step: lastStep, ms } = frame.moved ?? {};
    frame.moved = { step, ms: now };
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.phase = step === lastStep + 1 && !isStill ? 0 : 1; // how far the marks have travelled
    if (this.phase < 1) this.travel(now, Math.max(LEAST_MS, Math.min(MOST_MS, 0.8 * (now - ms))));
  }

  travel(startMs, lastingMs) {
    requestAnimationFrame((now) => {
      if (!this.canvas.isConnected) return;
      this.phase = Math.min(1, Math.max(0, (now - startMs) / lastingMs));
      this.draw();
      if (this.phase < 1) this.travel(startMs, lastingMs);
    });
  }

  /** The centres of the devices, and the sizes of devices, marks and the heads of arrows, as in Python. */
  devices(item) {
    const { length } = item.names;
    const height = this.box.height + this.growth;
    const radius = Math.min(this.wide, height) / 2 - NODE_PX - 2;
    const [x, y] = [this.box.left + this.wide / 2, height / 2];
    const angles = item.names.map((_, index) => (2 * Math.PI * index) / length - Math.PI / 2);
    const distance = 2 * radius * Math.sin(Math.PI / length);
    return [angles.map((angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]), Math.min(NODE_PX, NODE * distance), Math.min(MARK_PX, MARK * distance), Math.min(HEAD_PX, HEAD * distance)];
  }

  draw_ring(item) {
    const { pen } = this;
    const [centres, nodePx, markPx, headPx] = this.devices(item);
    const fontPx = nodePx < NODE_PX - 1 ? 9 : 10;
    const ink = this.frame.colour("fg");
    const shades = item.colours.map((name) => this.frame.colour(name));
    const inks = item.colours.map((name) => this.frame.colour(`on-${name}`) || ink);
    const stroke = (from, to, colour, width) => {
      pen.beginPath();
      pen.moveTo(...from);
      pen.lineTo(...to);
      pen.lineWidth = width;
      pen.strokeStyle = this.frame.colour(colour);
      pen.stroke();
    };
    for (const [source, target] of item.links) stroke(centres[source], centres[target], "rule", 2);
    this.font(fontPx);
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    centres.forEach(([x, y], index) => {
      pen.beginPath();
      pen.arc(x, y, nodePx, 0, 2 * Math.PI);
      pen.fillStyle = this.frame.colour("panel");
      pen.fill();
      pen.lineWidth = 1;
      pen.strokeStyle = this.frame.colour("muted");
      pen.stroke();
      pen.fillStyle = ink;
      const forms = item.names[index].split("\n");
      pen.fillText(forms.find((form) => pen.measureText(form).width <= 2 * nodePx - 3) ?? forms.at(-1), x, y);
    });
    const moves = groupedBy(item.source.map((_, index) => index), (index) => `${item.source[index]} ${item.target[index]}`);
    for (const indices of moves.values()) {
      const [[x0, y0], [x1, y1]] = [item.source, item.target].map((ends) => centres[ends[indices[0]]]);
      const length = Math.hypot(x1 - x0, y1 - y0);
      const [ux, uy] = [(x1 - x0) / length, (y1 - y0) / length];
      const at = (distance) => [x0 + ux * distance - uy * SIDE_PX, y0 + uy * distance + ux * SIDE_PX];
      const [start, end] = [nodePx, length - nodePx];
      stroke(at(start), at(end), "muted", 1.5);
      const angle = Math.atan2(uy, ux);
      pen.beginPath();
      pen.moveTo(...at(end));
      for (const turn of [2.7, -2.7]) pen.lineTo(at(end)[0] + headPx * Math.cos(angle + turn), at(end)[1] + headPx * Math.sin(angle + turn));
      pen.fillStyle = this.frame.colour("muted");
      pen.fill();
      indices.forEach((index, place) => {
        const last = end - headPx - markPx / 2 - place * (markPx + 1);
        const [x, y] = at(start + (Math.max(start, last) - start) * this.phase);
        pen.fillStyle = shades[item.colour[index]];
        pen.fillRect(x - markPx / 2, y - markPx / 2, markPx, markPx);
        pen.lineWidth = 2;
        pen.strokeStyle = ink;
        pen.strokeRect(x - markPx / 2, y - markPx / 2, markPx, markPx);
        pen.fillStyle = inks[item.colour[index]];
        if (markPx >= LEAST_MARK_PX) pen.fillText(item.text[index], x, y);
      });
    }
  }
}
