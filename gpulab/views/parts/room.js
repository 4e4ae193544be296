// The window as a view's room: type grows until a room reads it from the back, charts take what is left.

const ROOM = {
  least: 1.4, // the smallest type has 10 px, and 14 in a full window
  natural_px: 900, // a view's layout is made for this width
  most: 2.4,
  step: 0.92,
  row_px: 6, // an SM's row that can be told from its neighbours
  chart_px: 80, // lower ones are strips of something else
  growth: 2, // of a chart, in its own heights
};

/** Lays a view out in the whole window, as a page alone or above all else. */
export class Room {
  constructor(frame) {
    this.frame = frame;
    this.zoom = 1;
    this.plots = new Set();
  }

  /** The plots on the page that are charts, not strips of other things. */
  get charts() {
    for (const plot of this.plots) if (!this.frame.root.contains(plot.node)) this.plots.delete(plot);
    return [...this.plots].filter(({ node, box }) => node.offsetParent && box.height >= ROOM.chart_px);
  }

  lay(zoom, growth) {
    this.zoom = zoom;
    this.frame.root.style.setProperty("--gl-zoom", zoom);
    for (const plot of this.plots) plot.growth = growth(plot);
    this.frame.drawn.forEach((draw) => draw());
  }

  /** How far down the content reaches, in the view's own pixels. */
  get reach() {
    return Math.max(...[...this.frame.root.children].map((child) => child.offsetTop + child.offsetHeight)) + 12;
  }

  /** The largest type at which everything is seen at once, or the least; then charts grow into what is left. */
  fit() {
    const [wide, high] = [window.innerWidth, window.innerHeight];
    let zoom = Math.min(ROOM.most, Math.max(ROOM.least, wide / ROOM.natural_px));
    for (; ; zoom = Math.max(ROOM.least, zoom * ROOM.step)) {
      this.lay(zoom, (plot) => Math.max(0, plot.wanted(ROOM.row_px / zoom)));
      if (zoom <= ROOM.least || this.reach * zoom <= high) break;
    }
    const left = high / zoom - this.reach;
    const { charts } = this;
    const below = new Set(charts.map(({ node }) => Math.round(node.getBoundingClientRect().top))).size;
    this.lay(zoom, (plot) => Math.max(plot.growth, charts.includes(plot) ? plot.growth + Math.min(ROOM.growth * plot.box.height, left / below) : 0));
  }

  leave() {
    this.lay(1, () => 0);
  }
}
