// Layout of a view that fills the window: type grows until the last row of a room can read it, and charts
// take the remaining space.

const ROOM = {
  least: 1.4, // smallest zoom in a window at least 1,400 px wide: the smallest type, 10 px, becomes 14 px
  least_px: 1000, // a narrower window has the smallest type at 1 % of its width, but never under 10 px
  natural_px: 900, // a view's layout is made for this width
  most: 2.4, // largest zoom
  step: 0.92,
  row_px: 6, // height of an SM's row at which it can be distinguished from its neighbours, if there is space
  chart_px: 80, // smallest height of a chart; lower plots are strips of something else
  growth: 2, // largest growth of a chart, relative to its height
};

/** Layout of a view in the whole window, as a page or above the notebook. */
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
    this.frame.painters.forEach((draw) => draw());
  }

  /** Height of the content, in pixels of the view. */
  get contentHeight() {
    return Math.max(...[...this.frame.root.children].map((child) => child.offsetTop + child.offsetHeight)) + 14;
  }

  /** Use the largest zoom at which everything is visible, or the smallest; then charts fill the rest of the window. */
  fit() {
    const [windowWidth, windowHeight] = [window.innerWidth, window.innerHeight];
    const missing = (plot, zoom) => Math.max(0, plot.missingHeight(ROOM.row_px / zoom));
    const least = Math.min(ROOM.least, Math.max(1, windowWidth / ROOM.least_px));
    let zoom = Math.min(ROOM.most, Math.max(least, windowWidth / ROOM.natural_px));
    for (; ; zoom = Math.max(least, zoom * ROOM.step)) {
      this.lay(zoom, (plot) => missing(plot, zoom));
      if (zoom <= least || this.contentHeight * zoom <= windowHeight) break;
    }
    this.lay(zoom, () => 0);
    const spare = Math.max(0, windowHeight / zoom - this.contentHeight);
    const { charts } = this;
    const chartRows = new Set(charts.map(({ node }) => Math.round(node.getBoundingClientRect().top))).size;
    // A chart in a row of boxes also takes the space that a higher neighbour leaves.
    const slack = new Map(charts.map((plot) => {
      const place = plot.node.closest(".gl-row > div");
      return [plot, place ? place.clientHeight - place.firstElementChild.offsetHeight : 0];
    }));
    this.lay(zoom, (plot) => (charts.includes(plot) ? Math.min(Math.max(missing(plot, zoom), ROOM.growth * plot.box.height), slack.get(plot) + spare / chartRows) : 0));
  }

  leave() {
    this.lay(1, () => 0);
  }
}
