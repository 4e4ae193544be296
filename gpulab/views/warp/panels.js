import { element } from "../parts/frame.js";
import { upTo } from "../parts/items.js";
import { watched } from "../parts/watch.js";
import { sharedWord, valueText } from "./record.js";

// The values of one lane, and shared memory as 4-byte words: a column is a bank, a row 128 bytes.

const ROWS_SHOWN = 16;
const DIGIT_PX = 5.75; // of the table's letters, 9.5 pixels high
const READINGS = { stored: "as stored", f32: "f32", s32: "s32", u32: "u32", hex: "hexadecimal" };
const ARROWS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 32, ArrowUp: -32 };

/** A lane's variables, or registers, as a list; choosing one shows it in all 32 lanes. */
export function valuesPanel(onChoose) {
  const heading = element("div", { class: "gl-heading" });
  const list = element("div", { class: "gl-registers", role: "group", "aria-label": "Values of the lane" });
  const rows = new Map();
  const rowOf = (name) => {
    const spans = ["name", "type", "value", "line"].map((kind) => element("span", { class: `gl-register-${kind}` }));
    if (!rows.has(name)) rows.set(name, element("button", { type: "button", class: "gl-register", onclick: () => onChoose(name) }, ...spans));
    return rows.get(name);
  };
  const UNKNOWN = "the compiler keeps it in no register of its own";

  /** Show the values of a lane after a step: of variables in scope at `line`, or of registers if that is null. */
  const show = (steps, step, lane, chosen, line) => {
    const variables = line === null ? [] : steps.variables(step, lane, line);
    const watches = watched(steps, step, lane);
    const others = line === null ? steps.registers(step, lane).map((value) => ({ what: value.what, ctype: value.type, known: true, value })) : variables;
    const found = [...watches, ...others.filter(({ what }) => !watches.some((each) => each.what === what))];
    const kind = line === null ? "Registers" : "Variables";
    heading.textContent = found.length ? `${kind} of lane ${lane} after this ${line === null ? "step" : "line"}` : `${kind}: none known here`;
    const nodes = found.map(({ what, ctype, known, value, said, why }) => {
      const row = rowOf(what);
      const now = value?.step === step;
      const where = !value ? "" : now ? "now" : steps.place(value.step);
      const text = value ? valueText(value.bits, value.type) : said || (known ? "not yet" : "not known");
      [what, ctype, text, where].forEach((each, at) => { row.children[at].textContent = each; });
      row.classList.toggle("gl-now", Boolean(now));
      row.classList.toggle("gl-unknown", !value);
      row.classList.toggle("gl-watch", said !== undefined);
      row.setAttribute("aria-pressed", String(what === chosen));
      row.setAttribute("aria-label", `${what}, ${ctype}: ${text}${where && `, written ${where}`}`);
      row.title = value ? `${what} (${ctype}) = ${valueText(value.bits, value.type, true)}, written by ${steps.instruction(value.step)}. Press to see it in all lanes.` : why ?? (known ? "the compiled code has not computed it yet" : UNKNOWN);
      return row;
    });
    // Rows that stay are not touched, so that a focused one keeps the focus.
    nodes.forEach((row, at) => { if (list.children[at] !== row) list.insertBefore(row, list.children[at] ?? null); });
    while (list.children.length > nodes.length) list.lastChild.remove();
    list.hidden = !nodes.length;
    const now = nodes.find((row) => row.classList.contains("gl-now"));
    if (!now || list.contains(document.activeElement)) return;
    if (now.offsetTop < list.scrollTop || now.offsetTop > list.scrollTop + list.clientHeight - 24) list.scrollTop = now.offsetTop - list.clientHeight / 2;
  };
  return { node: element("div", { class: "gl-register-panel" }, heading, list), show };
}

/** Shared memory after a step; `memory` has the columns of `SharedStates`. */
export function sharedPanel(memory, texts) {
  const words = memory.word_events.length - 1;
  const totalRows = Math.ceil(words / 32);
  const lastTop = Math.max(0, totalRows - ROWS_SHOWN);
  let [top, chosen, sequence, begun, warp, loaded, room] = [0, 0, -1, -1, 0, new Set(), 5];
  const written = element("span");
  const chosenText = element("div", { class: "gl-note gl-word-text", "aria-live": "polite" });
  const reading = element("select", { "aria-label": "Read words as", onchange: () => refresh() }, ...Object.entries(READINGS).map(([value, text]) => element("option", { value }, text)));
  const follow = element("input", { type: "checkbox", checked: true });
  const turn = (by) => () => { top = Math.max(0, Math.min(lastTop, top + by * ROWS_SHOWN)); follow.checked = false; refresh(); };
  const [up, down] = [[-1, "Lower addresses", "▲"], [1, "Higher addresses", "▼"]].map(([by, label, text]) => element("button", { type: "button", onclick: turn(by), "aria-label": label }, text));
  const cells = upTo(Math.min(ROWS_SHOWN, totalRows), () => ({ label: element("th", { scope: "row" }), row: upTo(32, () => element("td", { role: "gridcell" })) }));
  const table = element(
    "table", { class: "gl-words", role: "grid", tabindex: 0, "aria-label": "Words of shared memory; arrow keys choose one" },
    element("thead", {}, element("tr", {}, element("th", {}, "byte"), ...upTo(32, (bank) => element("th", { scope: "col", title: `bank ${bank}` }, String(bank))))),
    element("tbody", {}, ...cells.map(({ label, row }) => element("tr", {}, label, ...row))),
  );
  const toRow = (row) => { if (row < top || row >= top + ROWS_SHOWN) top = Math.max(0, Math.min(lastTop, row)); };
  const choose = (word) => { chosen = Math.max(0, Math.min(words - 1, word)); toRow(chosen >> 5); refresh(); };
  table.addEventListener("click", (event) => { if (event.target.dataset.word) choose(Number(event.target.dataset.word)); });
  table.addEventListener("keydown", (event) => {
    if (!ARROWS[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    choose(chosen + ARROWS[event.key]);
  });

  /** Text that fits a column, with a sign where its beginning is left out. */
  const fitting = (text) => (text.length <= room ? text : `…${text.slice(1 - room)}`);
  /** As few digits as fit a column, unless `long`. */
  const short = (bits, type, long) => {
    const texts = [3, 2, 1].map((digits) => valueText(bits, type, long, digits));
    return long ? texts[0] : texts.map((text) => text.replace(/^(-?)0\./, "$1.")).find(({ length }) => length <= room) ?? fitting(texts[2]);
  };
  /** A word as text; `long` for the line below the table. */
  const textOf = (at, word, long) => {
    if (!word) return long ? "never written: garbage on a GPU" : "·";
    const plain = `${long ? "0x" : ""}${word.bits.toString(16).padStart(8, "0")}`;
    if (reading.value === "hex" || (reading.value === "stored" && word.width < 4)) return long ? plain : fitting(plain);
    if (reading.value !== "stored") return short(BigInt(word.bits), reading.value, long);
    if (word.width < 8) return short(BigInt(word.bits), texts[word.type], long);
    if (word.second && !long) return "″";
    const [low, high] = [at - word.second, at + 1 - word.second].map((half) => BigInt(sharedWord(memory, half, sequence).bits));
    return short((high << 32n) | low, texts[word.type], long);
  };
  const refresh = () => {
    if (!node.open || sequence < 0) return;
    room = Math.max(3, Math.floor((cells[0].row[0].clientWidth - 2) / DIGIT_PX));
    cells.forEach(({ label, row }, line) => {
      label.textContent = String(128 * (top + line));
      row.forEach((cell, bank) => {
        const at = 32 * (top + line) + bank;
        const word = at < words ? sharedWord(memory, at, sequence) : null;
        cell.dataset.state = at >= words ? "none" : !word ? "never" : word.sequence >= begun && word.warp === warp ? "changed" : "written";
        cell.dataset.word = at < words ? at : "";
        cell.textContent = at < words ? textOf(at, word, false) : "";
        cell.title = at < words ? textOf(at, word, true) : "";
        cell.classList.toggle("gl-touched", loaded.has(at));
        cell.setAttribute("aria-selected", String(at === chosen));
      });
    });
    up.setAttribute("aria-disabled", String(top === 0));
    down.setAttribute("aria-disabled", String(top === lastTop));
    const word = sharedWord(memory, chosen, sequence);
    const by = word ? `, written by lane ${word.lane} of warp ${word.warp}` : "";
    chosenText.textContent = `Bytes ${4 * chosen} to ${4 * chosen + 3} (bank ${chosen & 31}): ${textOf(chosen, word, true)}${by}.`;
  };

  /** Show the memory after a step of a warp, and which words the step loads. */
  const show = (steps, step, { byLine }) => {
    const [accesses, after] = [steps.accesses(step, byLine), byLine ? steps.visitEnd(steps.visit(step)) : step];
    begun = steps.sequence[byLine ? steps.visit_begin[steps.visit(step)] : step];
    sequence = steps.sequence[after];
    warp = steps.warp;
    const wordsOf = ({ sizeBytes, lanes }) => lanes.flatMap(({ address }) => upTo(Math.max(1, sizeBytes / 4), (part) => (address >> 2) + part));
    loaded = new Set(accesses.filter(({ reads }) => reads).flatMap(wordsOf));
    const banked = accesses.find(({ picture, lanes }) => picture === "banks" && lanes.length);
    if (follow.checked && banked) toRow(Math.min(...banked.lanes.map(({ address }) => address)) >> 7);
    written.textContent = steps.says("shared_words", after);
    refresh();
  };
  const keys = [["changed", "", "written in this step"], ["", " gl-touched", "loaded in this step"], ["never", "", "· never written"]];
  const node = element(
    "details", { class: "gl-shared", ontoggle: () => refresh() }, element("summary", {}, written),
    element("div", { class: "gl-tools" }, element("label", {}, "Read words ", reading), ...(lastTop ? [up, down, element("label", {}, follow, " follow the step")] : [])),
    element("div", { class: "gl-words-box" }, table),
    element("div", { class: "gl-keys" }, ...keys.map(([state, more, text]) => element("span", { class: `gl-key${more}`, "data-state": state }, text))), chosenText,
  );
  return { node, show };
}
