import { element } from "../parts/frame.js";
import { valueText } from "./record.js";

// Shared memory as 4-byte words: a column is a bank, a row 128 bytes.

const ROWS_SHOWN = 16;
const READINGS = { stored: "as stored", f32: "f32", s32: "s32", u32: "u32", hex: "hexadecimal" };
const ARROWS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 32, ArrowUp: -32 };

export function sharedPanel(memory) {
  const written = element("div", { class: "gl-note", "aria-live": "polite" });
  const chosenText = element("div", { class: "gl-note gl-word-text", "aria-live": "polite" });
  const reading = element("select", { "aria-label": "Read words as", onchange: () => refresh() }, ...Object.entries(READINGS).map(([value, text]) => element("option", { value }, text)));
  const page = (by) => () => { top = Math.max(0, Math.min(lastTop, top + by * ROWS_SHOWN)); follow.checked = false; refresh(); };
  const up = element("button", { type: "button", onclick: page(-1), "aria-label": "Lower addresses" }, "▲");
  const down = element("button", { type: "button", onclick: page(1), "aria-label": "Higher addresses" }, "▼");
  const follow = element("input", { type: "checkbox", checked: true });
  const totalRows = Math.ceil(memory.words / 32);
  const lastTop = Math.max(0, totalRows - ROWS_SHOWN);
  let top = 0;
  let chosen = 0;
  let now = { sequence: -1, loaded: new Set() };

  const heads = Array.from({ length: 32 }, (_, bank) => element("th", { scope: "col", title: `bank ${bank}` }, String(bank)));
  const cells = Array.from({ length: Math.min(ROWS_SHOWN, totalRows) }, () => ({
    label: element("th", { scope: "row" }), row: Array.from({ length: 32 }, () => element("td", { role: "gridcell" })),
  }));
  const table = element(
    "table", { class: "gl-words", role: "grid", tabindex: 0, "aria-label": "Words of shared memory; arrow keys choose one" },
    element("thead", {}, element("tr", {}, element("th", {}, "byte"), ...heads)),
    element("tbody", {}, ...cells.map(({ label, row }) => element("tr", {}, label, ...row))),
  );
  const showRow = (row) => { if (row < top || row >= top + ROWS_SHOWN) top = Math.max(0, Math.min(lastTop, row)); };
  const choose = (word) => {
    chosen = Math.max(0, Math.min(memory.words - 1, word));
    showRow(chosen >> 5);
    refresh();
  };
  table.addEventListener("click", (event) => {
    const at = event.target.closest("td")?.dataset.word;
    if (at !== undefined) choose(Number(at));
  });
  table.addEventListener("keydown", (event) => {
    const by = ARROWS[event.key];
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
  const textOf = (at, word, long) => {
    if (!word) return long ? "never written: garbage on a GPU" : "·";
    const plain = `${long ? "0x" : ""}${word.bits.toString(16).padStart(8, "0")}`;
    if (reading.value === "hex") return plain;
    if (reading.value !== "stored") return short(BigInt(word.bits), reading.value, long);
    if (word.width < 8) return word.width < 4 ? plain : short(BigInt(word.bits), word.type, long);
    if (word.second && !long) return "″";
    const [low, high] = word.second ? [memory.word(at - 1, now.sequence), word] : [word, memory.word(at + 1, now.sequence)];
    return short((BigInt(high.bits) << 32n) | BigInt(low.bits), word.type, long);
  };

  const refresh = () => {
    cells.forEach(({ label, row }, at) => {
      label.textContent = String(128 * (top + at));
      row.forEach((cell, bank) => {
        const place = 32 * (top + at) + bank;
        const inside = place < memory.words;
        const word = memory.word(place, now.sequence);
        cell.dataset.word = inside ? place : -1;
        cell.dataset.state = !inside ? "none" : !word ? "never" : word.sequence === now.sequence ? "changed" : "written";
        cell.classList.toggle("gl-touched", inside && now.loaded.has(place));
        cell.textContent = inside ? textOf(place, word, false) : "";
        cell.title = inside ? textOf(place, word, true) : "";
        cell.setAttribute("aria-selected", String(inside && place === chosen));
      });
    });
    up.setAttribute("aria-disabled", String(top === 0));
    down.setAttribute("aria-disabled", String(top === lastTop));
    const word = memory.word(chosen, now.sequence);
    const by = word ? `, written by lane ${word.lane} of warp ${word.warp}` : "";
    chosenText.textContent = `Bytes ${4 * chosen} to ${4 * chosen + 3} (bank ${chosen & 31}): ${textOf(chosen, word, true)}${by}.`;
  };

  /** Show the memory after a step of a warp, and which words the step loads. */
  const show = (steps, step) => {
    const access = steps.access(step);
    now = { sequence: steps.sequence[step], loaded: new Set() };
    if (access?.reads) {
      for (const { address } of access.lanes) {
        for (let at = address >> 2; at <= (address + access.sizeBytes - 1) >> 2; at += 1) now.loaded.add(at);
      }
    }
    if (follow.checked && steps.shared_first[step] >= 0) showRow(steps.shared_first[step] >> 5);
    written.textContent = steps.says("shared_words", step);
    refresh();
  };

  const key = (text, more) => element("span", { class: "gl-key", ...more }, text);
  const node = element(
    "details", { class: "gl-shared", open: true },
    element("summary", {}, "Shared memory after this step"),
    element("div", { class: "gl-tools" }, written, element("label", {}, "Read words ", reading), ...(lastTop ? [up, down, element("label", {}, follow, " follow the step")] : [])),
    element("div", { class: "gl-words-box" }, table),
    element("div", { class: "gl-keys" }, key("written in this step", { "data-state": "changed" }), key("loaded in this step", { class: "gl-key gl-touched" }), key("· never written", { "data-state": "never" })),
    chosenText,
  );
  return { node, show };
}
