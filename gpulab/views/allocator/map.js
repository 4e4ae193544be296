import { Frame, element, unpack } from "../parts/frame.js";
import { rules } from "../parts/items.js";
import { player } from "../parts/player.js";
import { Plot } from "../parts/plot.js";
import { MapCanvas } from "./paint.js";
import { Pool, operationText } from "./state.js";

// Memory maps of one pool, or of several with the same requests, at a step: curve, maps, numbers, stack traces.

const COLOURINGS = [["line", "by line"], ["stream", "by stream"], ["age", "by age"]];
const MOST_CODE = 26;

function render({ model, el }) {
  const frame = new Frame({ model, el }, "allocator-view");
  const contents = unpack(model.get("contents"), model.get("data"));
  const pools = contents.panels.map((panel) => new Pool(panel, contents));
  const several = pools.length > 1;
  const { last, stops } = contents;
  const moment = () => Math.max(0, Math.min(last, model.get("step")));
  const go = (to) => { const at = Math.max(0, Math.min(last, to)); if (at !== moment()) frame.send("step", at); };
  const stop = (direction) => {
    const target = direction > 0 ? stops.find((stopStep) => stopStep > moment()) : stops.findLast((stopStep) => stopStep < moment());
    if (target !== undefined) go(target);
  };

  // Controls --------------------------------------------------------------------------------------
  const button = (text, label, key, onclick) => element("button", { type: "button", "aria-label": label, title: `${label} (${key})`, onclick }, text);
  const play = player(frame, {
    advance: (count) => { go(moment() + count); return moment() < last; },
    begin: () => { if (moment() >= last) go(0); },
    length: () => last,
  });
  const colours = element("select", { "aria-label": "Colour blocks by", title: "Colour blocks by (C)", onchange: () => frame.send("colour_by", colours.value) }, ...COLOURINGS.map(([value, text]) => element("option", { value }, text)));
  const turn = () => frame.send("colour_by", COLOURINGS[(COLOURINGS.findIndex(([value]) => value === model.get("colour_by")) + 1) % COLOURINGS.length][0]);
  const empty = button("Empty cache?", "What emptying the cache would give back", "E", () => frame.send("emptied", !model.get("emptied")));
  const previous = button("◀ event", "Back to the last refusal or segment event", "Page Up", () => stop(-1));
  const next = button("event ▶", "On to the next refusal or segment event", "Page Down", () => stop(1));
  const refused = contents.refused.length ? button("refused ▶", "To the next refused request", "R", () => go(contents.refused.find((at) => at > moment()) ?? contents.refused[0])) : null;
  const slider = element("input", { type: "range", min: 0, max: last, step: 1, "aria-label": several ? "Request" : "Event", oninput: () => go(Number(slider.value)) });
  const keys = {
    ArrowLeft: () => go(moment() - 1), ArrowRight: () => go(moment() + 1), ",": () => go(moment() - 1), ".": () => go(moment() + 1),
    Home: () => go(0), End: () => go(last), PageUp: () => stop(-1), PageDown: () => stop(1), " ": play.toggle,
    r: () => refused?.click(), e: () => empty.click(), c: turn,
  };

  // Curve, maps and texts -------------------------------------------------------------------------
  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const now = rules([0], [0], [0], [contents.curve.height], "fg", { width: 2 });
  const curve = new Plot(frame, { ...contents.curve, items: [...contents.curve.items, now] });
  curve.node.classList.add("gl-curve");
  curve.canvas.setAttribute("aria-hidden", "true");
  const detail = element("div", { class: "gl-detail" });
  const legend = element("div", { class: "gl-legend" });
  const hint = "Click a block, or focus the map and use the arrow keys, to see its size, age and stack trace here.";
  const panels = pools.map((pool, at) => {
    const canvas = element("canvas", { tabindex: 0, role: "application", "aria-roledescription": "memory map", "aria-label": `${pool.panel.name}: blocks` });
    const map = new MapCanvas(frame, pool, canvas);
    map.colours = [...new Set(Object.values(contents.legend).flat().map(([colour]) => colour))];
    const said = element("div", { class: "gl-said" });
    const numbers = element("dl", { class: "gl-numbers", style: "grid-template-columns:repeat(auto-fit,minmax(min(100%,128px),1fr))" });
    const choose = (tile) => {
      model.set("panel", tile < 0 ? -1 : at);
      map.chosen = tile;
      frame.send("chosen", tile < 0 ? -1 : pool.tiles.block[tile]);
      panels.forEach((other) => { if (other.map !== map) other.map.chosen = -1; });
      tell();
      paint();
    };
    canvas.addEventListener("click", (event) => choose(map.at(...frame.at(event, canvas))));
    canvas.addEventListener("keydown", (event) => {
      if (event.altKey || event.ctrlKey || event.metaKey || !/^Arrow(Left|Right|Up|Down)$/.test(event.key)) return;
      event.preventDefault();
      event.stopPropagation();
      choose(map.next(event.key));
    });
    const node = element("div", { class: "gl-pool" }, ...[element("div", { class: "gl-pool-head" }, ...(several ? [element("b", {}, `${pool.panel.name}`)] : []), ...(several ? [numbers] : []), said), several ? null : numbers, element("div", { class: "gl-plot" }, canvas)]);
    return { pool, map, said, numbers, node };
  });
  const rows = pools.reduce((sum, { panel }) => sum + panel.rows, 0);
  const rowPx = Math.max(14, Math.min(44, Math.floor((several ? 180 : 210) / Math.max(1, rows))));
  frame.root.classList.toggle("gl-several", several);

  /** A function that returns the colour of a block, as an index into the map's colours. */
  const colouring = ({ pool, map }) => {
    const { block, segment } = pool.panel;
    const number = new Map(map.colours.map((name, index) => [name, index]));
    const [ofLines, ofStreams] = ["line", "stream"].map((kind) => contents.colours[kind].map((name) => number.get(name)));
    if (model.get("colour_by") === "stream") return (index) => ofStreams[segment.stream[block.segment[index]]];
    if (model.get("colour_by") === "age") {
      const ages = contents.ages.map(([maxAge, , colour]) => [maxAge, number.get(colour)]);
      return (index) => ages.find(([maxAge]) => (block.begin[index] ? pool.at - block.begin[index] : 2 ** 30) < maxAge)[1];
    }
    return (index) => ofLines[block.owner[index]];
  };

  const paint = () => {
    const emptied = model.get("emptied");
    for (const panel of panels) {
      const { owner } = panel.pool.panel.block;
      panel.map.draw({ colourOf: colouring(panel), emptied, rowPx, textOf: (at) => contents.owners[owner[at]] });
    }
  };

  const tell = () => {
    const { pool, map } = panels.find((panel) => panel.map.chosen >= 0) ?? {};
    if (!map) { detail.replaceChildren(element("span", { class: "gl-note" }, hint)); return; }
    const frames = pool.frames(map.chosen);
    const kind = pool.tiles.block[map.chosen];
    const none = kind < 0 ? [] : [element("span", { class: "gl-note" }, "No stack trace was recorded.")];
    detail.replaceChildren(element("div", { role: "status" }, pool.tileText(map.chosen)), ...(frames.length ? [element("ol", {}, ...frames.map((text) => element("li", {}, text)))] : none));
  };

  const coded = (text) => (text ? element("code", {}, text.length > MOST_CODE ? `${text.slice(0, MOST_CODE)}…` : text) : "");

  const showLegend = () => {
    const swatch = (colour, text, className = "", code = "") => element("span", {}, element("i", { class: className, style: colour && `background:var(--gl-${colour})` }), text, " ", coded(code));
    const waiting = pools.some(({ panel: { block } }) => block.freed.some((freedStep, row) => freedStep < block.end[row] - 1));
    const holes = pools.some(({ panel: { segment } }) => segment.expandable.some(Boolean));
    const widened = pools.some(({ panel: { segment } }) => segment.widened.some(Boolean));
    legend.replaceChildren(
      ...contents.legend[model.get("colour_by")].map(([colour, text, code]) => swatch(colour, text, "", code)),
      swatch("", "free", "gl-free"), ...(waiting ? [swatch("", "freed, waits for a stream", "gl-waiting")] : []), ...(holes ? [swatch("", "not mapped", "gl-hole")] : []),
      ...(widened ? [swatch("", contents.said.widened, "gl-widened")] : []), ...contents.curves.map(([colour, text], index) => swatch(colour, text, index ? "gl-curve-line" : "")),
    );
  };

  const drawCurve = () => {
    now.x0 = now.x1 = [moment()];
    curve.draw();
  };

  const showStep = () => {
    const position = moment();
    const selections = panels.map(({ pool, map }) => (map.chosen < 0 ? null : [pool.tiles.block[map.chosen], pool.tiles.address[map.chosen]]));
    slider.value = String(position);
    spoken.textContent = operationText(contents, position);
    slider.setAttribute("aria-valuetext", spoken.textContent);
    panels.forEach(({ pool, map, said, numbers }, panelIndex) => {
      pool.go(pool.step(position));
      const [text, isRefused] = pool.sentence(position ? pool.step(position - 1) : -1);
      const emptied = model.get("emptied");
      said.textContent = emptied ? pool.emptying() : text;
      said.classList.toggle("gl-refused", isRefused && !emptied);
      numbers.replaceChildren(...pool.numbers(emptied).map(([term, value, details]) => element("div", {}, element("dt", {}, several ? term.replace(", of reserved", "") : term), element("dd", {}, value, " ", element("small", {}, details)))));
      if (!selections[panelIndex]) return;
      const [block, address] = selections[panelIndex];
      map.chosen = -1;
      for (let tile = 0; tile < pool.tiles.count; tile += 1) if (pool.tiles.block[tile] === block && (block >= 0 || pool.tiles.address[tile] === address)) map.chosen = tile;
    });
    for (const [node, isOff] of [[previous, !stops.length || stops[0] >= position], [next, !stops.length || stops.at(-1) <= position]]) node.setAttribute("aria-disabled", String(isOff));
    empty.setAttribute("aria-pressed", String(model.get("emptied")));
    colours.value = model.get("colour_by");
    tell();
    drawCurve();
    paint();
  };

  const tools = (...nodes) => element("div", { class: "gl-tools" }, ...nodes);
  const steps = [
    button("|◀", "First", "Home", keys.Home), button("◀", "Step back", "Left arrow", keys.ArrowLeft),
    button("▶", "Step on", "Right arrow", keys.ArrowRight), button("▶|", "Last", "End", keys.End), play.button, play.speed,
  ];
  const bar = element("div", { class: "gl-groups" }, ...(last ? [tools(...steps), tools(previous, next, refused)] : []), tools(colours, empty));
  const over = last ? [curve.node, element("div", { class: "gl-place" }, slider)] : [];
  frame.body.append(bar, ...over, ...(last ? [spoken] : []), ...panels.map(({ node }) => node), legend, detail, element("details", { class: "gl-keys" }, element("summary", {}, "Keys"), element("div", { class: "gl-note" }, contents.keys)));

  const pointed = (event) => go(Math.round(curve.value(frame.at(event, curve.canvas)[0])));
  curve.canvas.addEventListener("pointerdown", (event) => { curve.canvas.setPointerCapture(event.pointerId); pointed(event); });
  curve.canvas.addEventListener("pointermove", (event) => { if (event.buttons) pointed(event); });
  frame.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const inside = event.target.closest("select, button, summary, a");
    if (inside?.matches("select") || (event.key === " " && inside) || !keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
  for (const trait of ["step", "emptied"]) frame.on(trait, showStep);
  frame.on("colour_by", () => { showLegend(); showStep(); });
  showLegend();
  frame.redraw(frame.body, () => { drawCurve(); paint(); });
  requestAnimationFrame(showStep);
  frame.endings.push(play.stop);
  return frame.ending();
}

export default { render };
