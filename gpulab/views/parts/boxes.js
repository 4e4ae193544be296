import { element, unpack } from "./frame.js";
import { Plot } from "./plot.js";
import { DagPlot } from "./dag.js";
import { TracksPlot } from "./tracks.js";

// Boxes of the display list as elements of the page; plots are canvases.

// Plots whose first item needs more than the painter.
const PLOTS = { tracks: TracksPlot, nodes: DagPlot };

const make = {
  column: (box, build) => element("div", { class: "gl-column", style: `gap:${box.gap}px` }, ...box.boxes.map(build)),
  row: (box, build) => element(
    "div", { class: "gl-row", style: `column-gap:${box.gap}px;flex-wrap:${box.above ? "wrap-reverse" : "wrap"};align-items:${box.above ? "flex-end" : "normal"}` },
    ...box.boxes.map((inner, at) => element("div", { style: `flex:${box.weights[at]} 1 ${box.least[at]}px;min-width:0` }, build(inner))),
  ),
  words: ({ text, style }) => element("div", { class: `gl-words-${style}` }, text),
  legend: ({ entries }) => element("div", { class: "gl-legend" }, ...entries.map(([colour, text]) => element(
    "span", {}, element("i", { style: `background:var(--gl-${colour})` }), text,
  ))),
  numbers: ({ rows, least }) => element(
    "dl", { class: "gl-numbers", style: `grid-template-columns:repeat(auto-fill,minmax(min(100%,${least}px),1fr))` },
    ...rows.map(([term, value, detail]) => element("div", {}, element("dt", {}, term), element("dd", {}, value, " ", element("small", {}, detail)))),
  ),
  bars: ({ rows, label }) => element("div", { class: "gl-bars", style: `grid-template-columns:${100 * label}% 1fr max-content` }, ...rows.map((row) => element(
    "div", { class: `gl-bar${row.strong ? " gl-strong" : ""}`, title: row.title },
    element("span", { class: "gl-bar-label" }, row.label),
    element("span", { class: "gl-track", "aria-hidden": "true" }, row.share === null ? null : element("span", {
      class: "gl-fill", style: `width:${(100 * Math.min(1, Math.max(0, row.share))).toFixed(2)}%;background:var(--gl-${row.colour ?? (row.strong ? "accent" : "other")})`,
    })),
    element("span", { class: "gl-bar-value" }, row.value, row.mark ? element("b", { class: "gl-mark" }, ` ${row.mark}`) : null),
  ))),
  table: ({ rows, headings, title }) => element(
    "table", {},
    ...(title ? [element("caption", {}, title)] : []),
    ...(headings.length ? [element("thead", {}, element("tr", {}, ...headings.map((text) => element("th", { scope: "col" }, text))))] : []),
    element("tbody", {}, ...rows.map(([first, ...rest]) => element("tr", {}, element("th", { scope: "row" }, first), ...rest.map((text) => element("td", {}, text))))),
  ),
  matrix: ({ rows, headings }) => element(
    "table", { class: "gl-matrix" },
    element("thead", {}, element("tr", {}, element("td"), ...headings.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map(({ label, cells, strong, title }) => element(
      "tr", { class: strong ? "gl-strong" : null },
      element("th", { scope: "row", title }, label),
      ...cells.map(([text, share]) => element("td", { style: share === null ? null : `--share:${(100 * share).toFixed(1)}%` }, text)),
    ))),
  ),
  fold: (box, build) => element("details", { open: box.opened }, element("summary", {}, box.summary), build(box.inner)),
  switch: (box, build, { frame, draw }) => {
    const node = element("div", { class: "gl-switch", "aria-live": "polite" });
    const fill = () => node.replaceChildren(build(box.cases[String(frame.model.get(box.trait))] ?? box.cases[box.chosen]));
    fill();
    frame.on(box.trait, () => { fill(); draw(); });
    return node;
  },
  plot: (box, _, { frame, plots }) => {
    const plot = new (PLOTS[box.items[0]?.item] ?? Plot)(frame, box);
    plots.add(plot);
    return plot.node;
  },
  slider: (box, _, { frame }) => slider(frame, box),
};

/** A model beside the view's that tells whether its kernel is there; a saved page has none. */
const lifeOf = (model) => model.get("layout");
const isLive = (model) => lifeOf(model)?.comm_live !== false;

/**
 * A slider that Python answers, of two places a switch. It sends one place at a time: while Python works,
 * only the latest is kept. The view says in `pictured` what its picture shows, which may be another place.
 */
function slider(frame, { label, trait, values, texts }) {
  const { model } = frame;
  const pictured = () => Math.max(0, values.indexOf(model.get("pictured")?.[trait] ?? model.get(trait)));
  const two = values.length === 2;
  const input = element("input", { ...(two ? { type: "checkbox", role: "switch" } : { type: "range", min: 0, max: values.length - 1 }), "aria-label": label, disabled: frame.saved });
  const place = () => (two ? Number(input.checked) : Number(input.value));
  const shown = element("output", { class: "gl-slider-value" });
  const note = element("span", { class: "gl-note gl-redraw" }, frame.saved ? "needs Python: not in a saved page" : "");
  const status = element("span", { class: "gl-hidden-text", role: "status" });
  let wanted = values[pictured()];
  let waiting = false;
  let movedAt = 0;
  const showPlace = (at) => {
    if (two) input.checked = Boolean(at);
    else input.value = String(at);
    shown.textContent = texts[at];
    input.setAttribute("aria-valuetext", texts[at]);
  };
  const wait = (on) => {
    waiting = on;
    frame.root.classList.toggle("gl-waiting", on);
  };
  const say = (text) => {
    note.textContent = text;
    status.textContent = text;
  };
  /** Nobody will answer: back to what the picture shows. */
  const forsaken = () => {
    wait(false);
    wanted = values[pictured()];
    showPlace(pictured());
    say(`no answer: Python has gone; still showing ${texts[pictured()]}. Run the cell again.`);
  };
  const ask = () => {
    const asked = wanted === model.get(trait);
    if (waiting || (asked && wanted === values[pictured()])) return;
    if (!isLive(model)) {
      forsaken();
      return;
    }
    if (asked) return; // and it failed: that is told
    wait(true);
    note.textContent = "waiting for Python";
    frame.send(trait, wanted);
  };
  input.addEventListener("input", () => {
    movedAt = performance.now();
    wanted = values[place()];
    showPlace(place());
    ask();
  });
  showPlace(pictured());
  frame.on("pictured", () => {
    if (waiting) return;
    wanted = values[pictured()];
    showPlace(pictured());
  });
  const lost = () => { if (waiting && !isLive(model)) forsaken(); };
  lifeOf(model)?.on?.("comm_live_update", lost);
  frame.on("pictures", () => {
    const asked = waiting;
    wait(false);
    note.textContent = "";
    if (!asked) return;
    if (wanted !== model.get(trait)) {
      ask();
      return;
    }
    // What waits for the end of the next frame comes when the new picture is on the screen.
    requestAnimationFrame(() => setTimeout(() => {
      const took = performance.now() - movedAt;
      const failed = model.get("failed");
      note.textContent = failed || `new picture in ${Math.round(took)} ms`;
      status.textContent = failed || (model.get("status") ?? "");
      frame.send("redraw_ms", took);
    }));
  });
  frame.endings.push(() => lifeOf(model)?.off?.("comm_live_update", lost));
  return element("div", { class: `gl-tools gl-slider${two ? " gl-two" : ""}` }, element("label", {}, `${label} `, input), shown, note, status);
}

/** Show the view's scene (and its controls, which stay) in the frame's body; `after` follows each drawing. */
export function showScene(frame) {
  const { model } = frame;
  const holder = element("div", { class: "gl-scene" });
  let plots = new Set();
  const draw = () => plots.forEach((plot) => { if (holder.contains(plot.node)) plot.draw(); else plots.delete(plot); });
  const build = (box) => {
    if (box.only === "picture") return element("div", { hidden: true });
    const node = make[box.box](box, build, { frame: inner, plots, draw });
    if (box.name) node.classList.add(`gl-${box.name}`);
    return node;
  };
  // Listeners of a picture end with it, not with the view.
  let inner = frame;
  const show = () => {
    inner.endings?.splice(0).forEach((end) => end());
    inner = Object.assign(Object.create(frame), { endings: [] });
    plots = new Set();
    holder.replaceChildren(build(unpack(model.get("scene"), model.get("data"))));
    draw();
  };
  let asked = false;
  const change = () => {
    if (asked) return;
    asked = true;
    queueMicrotask(() => { asked = false; show(); });
  };
  const controls = (model.get("controls") ?? []).map((box) => make[box.box](box, build, { frame, plots, draw }));
  // What went wrong stands where it was asked for, and the picture that stayed does not look like the answer.
  frame.body.append(...controls, frame.error, holder);
  frame.show("failed", (text) => frame.root.classList.toggle("gl-stale", Boolean(text)));
  inner = Object.assign(Object.create(frame), { endings: [] });
  show();
  frame.on("scene", change);
  frame.on("data", change);
  frame.redraw(holder, draw);
  frame.endings.push(() => inner.endings.splice(0).forEach((end) => end()));
}
