import { element, isLive, lifeOf, unpack } from "./frame.js";
import { Plot } from "./plot.js";
import { DagPlot } from "./dag.js";
import { playback } from "./player.js";
import { RingPlot } from "./ring.js";
import { TracksPlot } from "./tracks.js";

// Boxes of the display list as elements of the page; plots are canvases.

// Plots whose first item needs a special class.
const PLOTS = { tracks: TracksPlot, nodes: DagPlot, ring: RingPlot };

const make = {
  column: (box, build) => element("div", { class: "gl-column", style: `gap:${box.gap}px` }, ...box.boxes.map(build)),
  row: (box, build) => element(
    "div", { class: "gl-row", style: `column-gap:${box.gap}px;flex-wrap:${box.above ? "wrap-reverse" : "wrap"};align-items:${box.above ? "flex-end" : "normal"}` },
    ...box.boxes.map((inner, at) => element("div", { style: `flex:${box.weights[at]} 1 ${box.least[at]}px;min-width:0` }, build(inner))),
  ),
  words: ({ text, style }) => element("div", { class: `gl-words-${style}` }, text),
  legend: ({ entries }) => element("div", { class: "gl-legend" }, ...entries.map(([colour, text, style]) => element(
    "span", {}, element("i", { style: style === "outline" ? `border:2px solid var(--gl-${colour})` : `background:var(--gl-${colour})` }), text,
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
  remarks: ({ title, trait, texts }, _, { frame }) => element(
    "div", { class: "gl-remarks" }, element("b", {}, title),
    element("ol", {}, ...texts.map((text, index) => {
      const set = (value) => frame.model.set(trait, value);
      const leave = (event) => { if (event.target !== document.activeElement) set(-1); };
      return element("li", { tabindex: 0, onfocus: () => set(index), onblur: () => set(-1), onmouseenter: () => set(index), onmouseleave: leave }, text);
    })),
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
  player: (box, _, { frame }) => playback(frame, box),
};

/**
 * A slider, or a switch for two values, to which Python replies with a new picture. It sends one value at a
 * time; while Python works, only the latest position is kept. The trait `pictured` contains the values that
 * the picture shows, which may differ from the slider's position.
 */
function slider(frame, { label, trait, values, texts }) {
  const { model } = frame;
  const picturedIndex = () => Math.max(0, values.indexOf(model.get("pictured")?.[trait] ?? model.get(trait)));
  const isSwitch = values.length === 2;
  const input = element("input", { ...(isSwitch ? { type: "checkbox", role: "switch" } : { type: "range", min: 0, max: values.length - 1 }), "aria-label": label, disabled: frame.saved });
  const position = () => (isSwitch ? Number(input.checked) : Number(input.value));
  const valueText = element("output", { class: "gl-slider-value" });
  const note = element("span", { class: "gl-note gl-redraw" }, frame.saved ? "needs Python: not in a saved page" : "");
  const status = element("span", { class: "gl-hidden-text", role: "status" });
  let target = values[picturedIndex()];
  let waiting = false;
  let lastMoveMs = 0;
  const showPosition = (index) => {
    if (isSwitch) input.checked = Boolean(index);
    else input.value = String(index);
    valueText.textContent = texts[index];
    input.setAttribute("aria-valuetext", texts[index]);
  };
  const setWaiting = (isOn) => {
    waiting = isOn;
    frame.root.classList.toggle("gl-waiting", isOn);
  };
  const showNote = (text) => {
    note.textContent = text;
    status.textContent = text;
  };
  /** Return to the values that the picture shows, because the kernel is no longer alive. */
  const onLost = () => {
    setWaiting(false);
    target = values[picturedIndex()];
    showPosition(picturedIndex());
    showNote(`Run this cell again: its kernel has ended. Still showing ${texts[picturedIndex()]}.`);
  };
  const sendTarget = () => {
    const isSent = target === model.get(trait);
    if (waiting || (isSent && target === values[picturedIndex()])) return;
    if (!isLive(model)) {
      onLost();
      return;
    }
    if (isSent) return; // it failed, and the note reports that
    setWaiting(true);
    note.textContent = "waiting for Python";
    frame.send(trait, target);
  };
  input.addEventListener("input", () => {
    lastMoveMs = performance.now();
    target = values[position()];
    showPosition(position());
    sendTarget();
  });
  showPosition(picturedIndex());
  frame.on("pictured", () => {
    if (waiting) return;
    target = values[picturedIndex()];
    showPosition(picturedIndex());
  });
  const checkKernel = () => { if (waiting && !isLive(model)) onLost(); };
  lifeOf(model)?.on?.("comm_live_update", checkKernel);
  frame.on("pictures", () => {
    const isSent = waiting;
    setWaiting(false);
    note.textContent = "";
    if (!isSent) return;
    if (target !== model.get(trait)) {
      sendTarget();
      return;
    }
    // After the end of the next frame, the new picture is on the screen.
    requestAnimationFrame(() => setTimeout(() => {
      const durationMs = performance.now() - lastMoveMs;
      const failed = model.get("failed");
      note.textContent = failed || `new picture in ${Math.round(durationMs)} ms`;
      status.textContent = failed || (model.get("status") ?? "");
      frame.send("redraw_ms", durationMs);
    }));
  });
  frame.endings.push(() => lifeOf(model)?.off?.("comm_live_update", checkKernel));
  return element("div", { class: `gl-tools gl-slider${isSwitch ? " gl-two" : ""}` }, element("label", {}, `${label} `, input), valueText, note, status);
}

/** Show the view's scene, and its controls, which stay, in the frame's body. */
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
  // Listeners of a picture end with the picture, not with the view.
  let inner = frame;
  const show = () => {
    inner.endings?.splice(0).forEach((end) => end());
    inner = Object.assign(Object.create(frame), { endings: [] });
    const old = [...plots];
    const focused = document.activeElement;
    plots = new Set();
    holder.replaceChildren(build(unpack(model.get("scene"), model.get("data"))));
    [...plots].forEach((plot, index) => plot.continueFrom?.(old[index], focused === old[index]?.canvas));
    draw();
  };
  let isPending = false;
  const change = () => {
    if (isPending) return;
    isPending = true;
    queueMicrotask(() => { isPending = false; show(); });
  };
  const controls = (model.get("controls") ?? []).map((box) => make[box.box](box, build, { frame, plots, draw }));
  // An error is shown next to the controls, and a picture that is out of date is marked.
  frame.body.append(...controls, frame.error, holder);
  frame.show("failed", (text) => frame.root.classList.toggle("gl-stale", Boolean(text)));
  inner = Object.assign(Object.create(frame), { endings: [] });
  show();
  frame.on("scene", change);
  frame.on("data", change);
  frame.redraw(holder, draw);
  frame.endings.push(() => inner.endings.splice(0).forEach((end) => end()));
}
