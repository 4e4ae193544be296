import { element } from "../parts/frame.js";
import { valueText } from "./record.js";

// The registers of one lane as a list; choosing one shows it in all 32 lanes.

export function registerPanel(onChoose) {
  const heading = element("div", { class: "gl-heading" });
  const list = element("div", { class: "gl-registers", role: "group", "aria-label": "Registers" });
  const node = element("div", { class: "gl-register-panel" }, heading, list);
  const rows = new Map();

  const rowOf = (name) => {
    if (!rows.has(name)) {
      const parts = ["name", "type", "value", "line"].map((kind) => element("span", { class: `gl-register-${kind}` }));
      rows.set(name, { row: element("button", { type: "button", class: "gl-register", onclick: () => onChoose(name) }, ...parts), parts });
    }
    return rows.get(name);
  };

  /** Show the registers of a lane after a step; `chosen` is the one shown in all lanes. */
  const show = (steps, step, lane, chosen) => {
    const found = steps.registersOf(step, lane);
    heading.textContent = `Registers of lane ${lane} after this step (${found.length})`;
    const nodes = found.map(({ name, type, bits, step: wrote }) => {
      const { row, parts } = rowOf(name);
      const when = wrote === step ? "now" : steps.place(wrote);
      const texts = [name, type, valueText(bits, type), when];
      parts.forEach((part, at) => { part.textContent = texts[at]; });
      row.classList.toggle("gl-now", wrote === step);
      row.setAttribute("aria-pressed", String(name === chosen));
      row.setAttribute("aria-label", `${name}, ${type}: ${texts[2]}, written ${when}`);
      row.title = `${name} (${type}) = ${valueText(bits, type, true)}, written by ${steps.instruction(wrote)}. Press to see it in all lanes.`;
      return row;
    });
    // Rows that stay are not touched, so that a focused one keeps the focus.
    nodes.forEach((row, at) => { if (list.children[at] !== row) list.insertBefore(row, list.children[at] ?? null); });
    while (list.children.length > nodes.length) list.lastChild.remove();
    const now = nodes.find((row) => row.classList.contains("gl-now"));
    if (!now || list.contains(document.activeElement)) return;
    const above = now.offsetTop;
    if (above < list.scrollTop || above > list.scrollTop + list.clientHeight - 24) list.scrollTop = above - list.clientHeight / 2;
  };
  return { node, show };
}
