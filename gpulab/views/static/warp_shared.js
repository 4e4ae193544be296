import { element, number } from "./base.js";
import { valueText } from "./warp_steps.js";

// Shared memory as 4-byte words: a column is a bank, a row 128 bytes.

const ROWS_SHOWN = 16;
const READINGS = { stored: "as stored", f32: "f32", s32: "s32", u32: "u32", hex: "hexadecimal" };

export function sharedPanel(memory) {
  const words = element("div", { class: "gl-note", "aria-live": "polite" });
  const chosenText = element("div", { class: "gl-note gl-word-text", "aria-live": "polite" });
  const reading = element("select", { "aria-label": "Read words as", onchange: () => refresh() }, ...Object.entries(READINGS).map(([value, text]) => element("option", { value }, text)));
  const page = (by) => () => { top = Math.max(0, Math.min(lastTop, top + by * ROWS_SHOWN)); follow.checked = false; refresh(); };
  const up = element("button", { type: "button", onclick: page(-1), "aria-label": "Lower addresses" }, "▲");
  const down = element("button", { type: "button", onclick: page(1), "aria-label": "Higher addresses" }, "▼");
  const follow = element("input", { type: "checkbox", checked: true });
  const table = element("table", { class: "gl-words", role: "grid", tabindex: 0, "aria-label": "Words of shared memory; arrow keys choose one" });
  const totalRows = Math.ceil(memory.words / 32);
  const lastTop = Math.max(0, totalRows - ROWS_SHOWN);
  let top = 0;
  let chosen = 0;
  let state = { sequence: -1, changed: new Set(), touched: new Set() };

  table.append(element("thead", {}, element("tr", {}, element("th", {}, "byte"), ...Array.from({ length: 32 }, (_, bank) => element("th", { scope: "col", title: `bank ${bank}` }, String(bank))))));
  const body = element("tbody");
  table.append(body);
  const cells = Array.from({ length: Math.min(ROWS_SHOWN, totalRows) }, () => {
    const label = element("th", { scope: "row" });
    const row = Array.from({ length: 32 }, () => element("td", { role: "gridcell" }));
    body.append(element("tr", {}, label, ...row));
    return { label, row };
  });
  const choose = (word) => {
    chosen = Math.max(0, Math.min(memory.words - 1, word));
    const row = chosen >> 5;
    if (row < top || row >= top + ROWS_SHOWN) top = Math.max(0, Math.min(lastTop, row - (ROWS_SHOWN >> 1)));
    refresh();
  };
  table.addEventListener("click", (event) => {
    const at = event.target.closest("td")?.dataset.word;
    if (at !== undefined) choose(Number(at));
  });
  table.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 32, ArrowUp: -32 }[event.key];
    if (!by || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    choose(chosen + by);
  });

  /** At most about five characters unless `long`, for a column is narrow. */
  const short = (bits, type, long) => {
    const text = valueText(bits, type, long, 3);
    return !long && text.length > 6 ? text.replace(/^(-?\d)\d*(?:\.\d+)?e/, "$1e") : text;
  };

  /** A word as text; `long` for the line below the table. */
  const textOf = (word, long) => {
    const writer = memory.writer(word);
    if (!writer) return long ? "never written: garbage on a GPU" : "·";
    const bits = BigInt(memory.bytes.getUint32(4 * word, true));
    const hex = `${long ? "0x" : ""}${bits.toString(16).padStart(8, "0")}`;
    if (reading.value === "hex") return hex;
    if (reading.value !== "stored") return short(bits, reading.value, long);
    if (writer.width === 8) {
      if (word !== writer.at >> 2 && !long) return "″";
      return short(memory.bytes.getBigUint64(writer.at, true), writer.type, long);
    }
    return writer.width < 4 ? hex : short(bits, writer.type, long);
  };

  const refresh = () => {
    cells.forEach(({ label, row }, at) => {
      label.textContent = String(128 * (top + at));
      row.forEach((cell, bank) => {
        const word = 32 * (top + at) + bank;
        const inside = word < memory.words;
        const written = inside && memory.lastWrite[word] >= 0;
        cell.dataset.word = inside ? word : -1;
        cell.dataset.state = !inside ? "none" : !written ? "never" : state.changed.has(word) ? "changed" : "written";
        cell.classList.toggle("gl-touched", inside && state.touched.has(word));
        cell.textContent = inside ? textOf(word, false) : "";
        cell.title = inside ? textOf(word, true) : "";
        cell.setAttribute("aria-selected", String(inside && word === chosen));
      });
    });
    up.setAttribute("aria-disabled", String(top === 0));
    down.setAttribute("aria-disabled", String(top === lastTop));
    const writer = memory.writer(chosen);
    const by = writer ? `, written by lane ${writer.lane} of warp ${writer.warp}` : "";
    chosenText.textContent = `Bytes ${4 * chosen} to ${4 * chosen + 3} (bank ${chosen & 31}): ${textOf(chosen, true)}${by}.`;
  };

  /** Show the memory after a step, and which words it loads. */
  const show = (sequence, touched) => {
    memory.goTo(sequence);
    state = { sequence, changed: memory.changed(sequence), touched };
    const first = Math.min(...state.changed, ...state.touched);
    if (follow.checked && Number.isFinite(first)) {
      const row = first >> 5;
      if (row < top || row >= top + ROWS_SHOWN) top = Math.min(lastTop, row);
    }
    words.textContent = `${number(memory.writtenWords())} of ${number(memory.words)} words written so far, ${number(state.changed.size)} in this step.`;
    refresh();
  };

  const node = element(
    "details", { class: "gl-shared", open: true },
    element("summary", {}, "Shared memory after this step"),
    element("div", { class: "gl-tools" }, words, element("label", {}, "Read words ", reading), ...(lastTop ? [up, down, element("label", {}, follow, " follow the step")] : [])),
    element("div", { class: "gl-words-box" }, table),
    element("div", { class: "gl-legend" }, element("span", { class: "gl-key", "data-state": "changed" }, "written in this step"), element("span", { class: "gl-key gl-touched" }, "loaded in this step"), element("span", { class: "gl-key", "data-state": "never" }, "· never written")),
    chosenText,
  );
  return { node, show };
}
