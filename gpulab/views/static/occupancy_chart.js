import { Frame, bar, element, number } from "./base.js";

// Theoretical occupancy for every block size, the chosen one marked and its limiter named.

const WIDTH = 620;
const HEIGHT = 250;
const LEFT = 44;
const TOP = 22;
const PLOT_HEIGHT = 186;

function render({ model, el }) {
  const frame = new Frame(model, el, "occupancy-chart");
  const { points, colours, other_colour: otherColour } = model.get("facts");
  const wide = (WIDTH - LEFT - 6) / points.length;
  const y = (fraction) => TOP + PLOT_HEIGHT * (1 - fraction);
  const choose = (at) => frame.send("chosen", points[Math.max(0, Math.min(points.length - 1, at))].threads);
  const chosenAt = () => points.findIndex(({ threads }) => threads === model.get("chosen"));

  const bars = points.map((point, at) => {
    const node = element(
      "svg:rect",
      {
        x: LEFT + at * wide + 1, y: y(point.fraction), width: Math.max(1, wide - 2), height: PLOT_HEIGHT * point.fraction,
        fill: colours[point.limiter] ?? otherColour, onclick: () => choose(at),
      },
      element("svg:title", {}, point.words),
    );
    return node;
  });
  const every = Math.max(1, Math.round(points.length / 8));
  const axis = [0, 0.25, 0.5, 0.75, 1].flatMap((fraction) => [
    element("svg:line", { x1: LEFT, x2: WIDTH - 6, y1: y(fraction), y2: y(fraction), class: "gl-grid-line" }),
    element("svg:text", { x: LEFT - 6, y: y(fraction) + 4, class: "gl-axis gl-end" }, `${100 * fraction} %`),
  ]);
  const labels = points.map(({ threads }, at) => ((at + 1) % every ? null : element(
    "svg:text", { x: LEFT + (at + 0.5) * wide, y: TOP + PLOT_HEIGHT + 15, class: "gl-axis gl-mid" }, String(threads),
  )));
  const mark = element("svg:text", { class: "gl-axis gl-chosen-mark" });
  const chart = element(
    "svg:svg",
    {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "slider", "aria-label": "Threads a block", class: "gl-occupancy",
      "aria-valuemin": points[0].threads, "aria-valuemax": points.at(-1).threads,
      onkeydown: (event) => {
        const to = { ArrowLeft: chosenAt() - 1, ArrowDown: chosenAt() - 1, ArrowRight: chosenAt() + 1, ArrowUp: chosenAt() + 1, Home: 0, End: points.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        choose(to);
      },
    },
    axis, bars, labels, mark,
    element("svg:text", { x: LEFT + (WIDTH - LEFT) / 2, y: HEIGHT - 8, class: "gl-axis gl-mid" }, "threads a block"),
  );
  const used = [...new Set(points.map(({ limiter }) => limiter))].filter(Boolean);
  const legend = element("div", { class: "gl-legend" }, ...used.map((limiter) => element(
    "span", {}, element("i", { style: `background:${colours[limiter] ?? otherColour}` }), `limited by ${limiter}`,
  )));
  const detail = element("div", { class: "gl-detail" });
  const spoken = element("div", { class: "gl-hidden-text", role: "status" });
  frame.body.append(
    legend,
    element("div", { class: "gl-columns" }, element("div", { class: "gl-left" }, chart), element("div", { class: "gl-right" }, detail)),
    element("div", { class: "gl-note" }, "Click a bar, or focus the chart and use the arrow keys."),
    spoken,
  );
  let first = true;
  frame.show("chosen", () => {
    const at = chosenAt();
    const point = points[at];
    bars.forEach((node, other) => node.classList.toggle("gl-chosen", other === at));
    const left = LEFT + (at + 0.5) * wide;
    const before = left > WIDTH / 2;
    mark.setAttribute("x", left + (before ? 5 : -5));
    mark.setAttribute("text-anchor", before ? "end" : "start");
    // Above all bars: beside a taller one the number could not be read.
    mark.setAttribute("y", TOP - 6);
    mark.textContent = before ? `${point.threads} ▼` : `▼ ${point.threads}`;
    chart.setAttribute("aria-valuenow", point.threads);
    chart.setAttribute("aria-valuetext", point.words);
    if (!first) spoken.textContent = point.words;
    first = false;
    detail.replaceChildren(
      element("div", { class: "gl-heading" }, `${point.threads} threads a block`),
      element("div", {}, point.detail),
      element("div", { class: "gl-note" }, `${point.registers} registers a thread, ${number(point.shared_bytes)} bytes of shared memory a block. Blocks per SM that each limit alone would allow:`),
      ...point.limits.map(({ limit, blocks, limits }) => bar(limit, blocks / point.limit_scale, number(blocks), { strong: limits, mark: limits ? "◀ limits" : "" })),
    );
  });
  return frame.ending();
}

export default { render };
