import { Frame, element, unpack } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { upTo } from "../parts/items.js";
import { LANES, offsetsOf, patternOf } from "./rule.js";
import { expression, figures, laneSentences, notes } from "./access_text.js";
import { banksPlot, lanesPlot, memoryPlot } from "./picture.js";

// One access of a warp: 32 lanes with their sectors (left) and banks (right). Sliders change a pattern without
// Python; an access of a kernel is selected in a table, and can also be edited.

const SPACES = [["both", "memory and banks"], ["global", "global memory"], ["shared", "shared memory"]];

const figure = ([value, term, detail, over]) => element(
  "div", { class: over ? "gl-figure gl-over" : "gl-figure" },
  element("b", {}, value), element("span", {}, term), element("small", {}, detail ? `${over ? "✗" : "✓"} ${detail}` : "\u00a0"),
);

/** A plot whose elements belong to lanes; the selected lane is the same in all such plots. */
class LanePlot extends Plot {
  constructor(frame, onLane) {
    const nothing = { box: "plot", height: 1, domain: [0, 1], left: 0, right: 0, label: "", items: [{ item: "rects", x0: [], x1: [], y0: [], y1: [], colour: [], colours: [], say: [] }] };
    super(frame, nothing);
    this.onLane = onLane;
    this.line.remove();
  }

  show(box, lane) {
    Object.assign(this, { box, sight: [...box.domain], item: box.items.find(({ say }) => say) });
    this.canvas.setAttribute("aria-label", `${box.label}; arrow keys choose a lane`);
    this.chosen = this.item.lane.indexOf(lane);
    this.draw();
  }

  choose(at) {
    const lane = at >= 0 ? this.item?.lane?.[at] : undefined;
    if (lane !== undefined && at !== this.chosen) this.onLane(lane);
  }
}

function render({ model, el }) {
  const frame = new Frame({ model, el }, "access-microscope");
  const contents = unpack(model.get("contents"), model.get("data"));
  const { traced, said: texts } = contents;
  const get = (name) => model.get(name);
  const pattern = () => ({ stride: get("stride"), offset: get("offset"), element_bytes: get("element_bytes"), padding: get("padding"), swizzle: get("swizzle") });

  // The displayed access ------------------------------------------------------------------------------
  const requests = () => contents.begin[get("row") + 1] - contents.begin[get("row")];
  const chosen = () => {
    if (!traced) return { addresses: offsetsOf(pattern()), size_bytes: get("element_bytes"), space: get("space") === "shared" ? "shared" : "global", rule: "load" };
    if (!contents.rows.length || !requests()) return null;
    const at = contents.begin[get("row")] + Math.min(get("request"), requests() - 1);
    const [space, rule] = contents.kinds[at];
    return { addresses: [...contents.addresses.slice(LANES * at, LANES * (at + 1))], size_bytes: contents.size_bytes[at], space, rule };
  };
  const access = () => {
    const current = chosen();
    if (!current || !traced || !get("edited")) return current;
    const offsets = offsetsOf(pattern());
    return { ...current, size_bytes: get("element_bytes"), addresses: current.addresses.map((oldAddress, lane) => (oldAddress < 0 ? -1 : offsets[lane])) };
  };
  const sides = ({ space }) => {
    const spaceShown = traced ? (space === "shared" ? "shared" : "global") : get("space");
    return [spaceShown !== "shared", spaceShown !== "global"];
  };

  // Elements ----------------------------------------------------------------------------------------
  const chooseLane = (lane) => frame.send("lane", lane);
  const [lanes, memory, banks] = upTo(3, () => new LanePlot(frame, chooseLane));
  const said = element("div", { class: "gl-said gl-lane-said", role: "status" });
  const code = element("code", { class: "gl-words-mono gl-pattern" });
  const note = element("div", { class: "gl-note" });
  const swatch = (kind, text) => element("div", { class: "gl-legend" }, element("span", {}, element("i", { class: kind }), text));
  const panel = (heading, plot, kind, text) => {
    const figures = element("div", { class: "gl-figures", "aria-live": "polite" });
    const head = element("div", { class: "gl-words-heading" }, heading);
    const node = element("div", { class: "gl-panel" }, head, figures, plot.node, swatch(kind, text));
    const show = (isShown, figureRows, box) => {
      node.hidden = !isShown;
      if (!isShown) return;
      figures.replaceChildren(...figureRows.map(figure));
      plot.show(box, get("lane"));
    };
    return { node, head, show };
  };
  const left = panel(contents.memory_heading, memory, "gl-unused", contents.unused);
  const right = panel(contents.banks_heading, banks, "gl-extra", contents.extra);

  /** Change the pattern; for a kernel's access, the change begins an edit of that access. */
  const change = (name, value) => {
    if (traced && !get("edited")) {
      for (const [trait, traitValue] of Object.entries(patternOf(access()) ?? {})) model.set(trait, traitValue);
      model.set("edited", true);
    }
    frame.send(name, value);
  };
  const steps = (label, trait, values, text) => {
    const input = element("input", { type: "range", min: 0, max: values.length - 1, "aria-label": label, oninput: () => change(trait, values[Number(input.value)]) });
    const value = element("output", { class: "gl-slider-value" });
    const show = () => {
      const current = get(trait);
      const position = values.indexOf(current);
      input.value = String(position >= 0 ? position : values.findLastIndex((candidate) => candidate <= current));
      value.textContent = text(current);
      input.setAttribute("aria-valuetext", value.textContent);
    };
    frame.show(trait, show);
    return element("div", { class: "gl-step" }, element("label", {}, element("span", {}, label), input), value);
  };
  const elements = (count) => `${count} element${count === 1 ? "" : "s"}`;
  const swizzle = element("input", { type: "checkbox", onchange: () => change("swizzle", swizzle.checked) });
  frame.show("swizzle", (on) => { swizzle.checked = on; });
  const space = element("select", { onchange: () => frame.send("space", space.value) }, ...SPACES.map(([value, text]) => element("option", { value }, text)));
  frame.show("space", (value) => { space.value = value; });
  const back = element("button", { type: "button", onclick: () => frame.send("edited", false) }, "As traced");
  const sliders = element(
    "div", { class: "gl-steps" },
    steps("Stride", "stride", contents.strides, elements), steps("Offset", "offset", contents.offsets, elements),
    steps("Element size", "element_bytes", contents.sizes, (size) => `${size} byte${size === 1 ? "" : "s"}`), steps("Padding a row", "padding", contents.paddings, elements),
    element("label", { class: "gl-check" }, swizzle, " Swizzle (column ^ row)"),
    traced ? back : element("label", {}, "Show ", space),
  );

  // A kernel's accesses -----------------------------------------------------------------------------
  const chooseRow = (requestedRow) => {
    const row = Math.max(0, Math.min(contents.rows.length - 1, requestedRow));
    model.set("edited", false);
    model.set("request", 0);
    frame.send("row", row);
    lines[row].querySelector("button").focus();
  };
  const lines = (contents.rows ?? []).map(({ cells: [line, ...rest], over }, at) => element(
    "tr", { class: over ? "gl-over" : null, onclick: () => chooseRow(at) },
    element("th", { scope: "row" }, element("button", { type: "button", "aria-label": `Line ${line}, ${rest[1]}` }, line)),
    ...rest.map((text, column) => element("td", { class: column ? null : "gl-source" }, text)),
  ));
  const move = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  const table = element(
    "div", { class: "gl-accesses", onkeydown: (event) => {
      if (!(event.key in move)) return;
      event.preventDefault();
      chooseRow(get("row") + move[event.key]);
    } },
    element("table", {}, element("caption", {}, "Memory accesses by source line, worst first; choose one"),
      element("thead", {}, element("tr", {}, ...contents.headings.map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...lines)),
  );
  const which = element("span", { class: "gl-which" });
  const request = element("input", { type: "range", min: 0, "aria-label": "Request", oninput: () => frame.send("request", Number(request.value)) });
  const chooser = element("div", { class: "gl-tools gl-chooser" }, which, request);
  const edit = element("details", { class: "gl-edit" }, element("summary", {}, "Edit this access"), sliders);
  const picture = element("div", { class: "gl-picture" }, lanes.node, said, element("div", { class: "gl-panels" }, left.node, right.node), note);
  // The sliders and the picture that they change are next to each other.
  frame.body.append(...(traced ? [table, chooser, edit, code, picture] : [sliders, code, picture]));

  const show = () => {
    const held = access();
    if (traced) {
      const row = contents.rows[get("row")];
      const [count, at] = [row ? requests() : 0, get("request")];
      lines.forEach((line, place) => {
        line.classList.toggle("gl-chosen", place === get("row"));
        line.querySelector("button").setAttribute("aria-pressed", String(place === get("row")));
        line.querySelector("button").tabIndex = place === get("row") ? 0 : -1;
      });
      request.max = String(Math.max(0, count - 1));
      request.value = String(at);
      request.hidden = count < 2;
      const named = row ? `Line ${row.cells[0]}, ${row.cells[2]}` : "The kernel made no access to memory.";
      const many = row && row.total > count ? `${count} shown of ${row.total}` : String(count);
      which.textContent = !row ? named : count ? `${named}: request ${at + 1} of ${many}, ${contents.whose}${get("edited") ? ", edited" : ""}` : `${named}: ${contents.whose} did not make it.`;
      back.disabled = !get("edited");
    }
    code.hidden = traced && !get("edited");
    code.textContent = expression(texts, pattern());
    [picture.hidden, edit.hidden] = [!held, !held];
    if (!held) return;
    const [inMemory, inBanks] = sides(held);
    const say = laneSentences(texts, held, inMemory, inBanks);
    note.textContent = notes(texts, held, inMemory, inBanks);
    said.textContent = say[get("lane")];
    lanes.show(lanesPlot(held, say), get("lane"));
    left.head.textContent = held.space === "const" ? contents.constant_heading : contents.memory_heading;
    left.show(inMemory, figures(held, held.space === "const" ? texts.constant : texts.memory), memoryPlot(held, say));
    right.show(inBanks, figures(held, texts.banks), banksPlot(held, say));
  };
  let isPending = false;
  const later = () => {
    if (isPending) return;
    isPending = true;
    queueMicrotask(() => { isPending = false; show(); });
  };
  for (const trait of ["stride", "offset", "element_bytes", "padding", "swizzle", "space", "lane", "row", "request", "edited"]) frame.on(trait, later);
  frame.redraw(picture, show);
  show();
  return frame.ending();
}

export default { render };
