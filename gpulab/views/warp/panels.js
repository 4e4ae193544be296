import { element } from "../parts/frame.js";
import { upTo } from "../parts/items.js";
import { watched } from "../parts/watch.js";
import { sharedWord, valueText } from "./record.js";

// Panels with the values of one lane, and with shared memory as 4-byte words (32 banks by rows of 128 bytes).

const MOST_ROWS = 16; // the style sheet hides some of them in low windows
const LEAST_ROWS = 5;
const DIGIT_PX = 5.75; // of the table's letters, 9.5 pixels high
const READINGS = { stored: "as stored", f32: "f32", s32: "s32", u32: "u32", hex: "hexadecimal" };
const ARROWS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 32, ArrowUp: -32 };

/** A list of a lane's variables or registers; selecting one shows it in all 32 lanes. */
export function valuesPanel(onChoose) {
  const heading = element("div", { class: "gl-heading" });
  const list = element("div", { class: "gl-registers", role: "group", "aria-label": "Values of the lane" });
  const rows = new Map();
  const rowOf = (name) => {
    const spans = ["name", "type", "value", "line"].map((kind) => element("span", { class: `gl-register-${kind}` }));
    if (!rows.has(name)) rows.set(name, element("button", { type: "button", class: "gl-register", onclick: () => onChoose(name) }, ...spans));
    return rows.get(name);
  };

  /** Show the values of a lane after a step: variables in scope at `line`, or registers if `line` is null. */
  const show = (steps, step, lane, chosen, line) => {
    const variables = line === null ? [] : steps.variables(step, lane, line);
    const watches = watched(steps, step, lane);
    const otherValues = line === null ? steps.registers(step, lane).map((value) => ({ what: value.what, ctype: value.type, known: true, value })) : variables;
    const values = [...watches, ...otherValues.filter(({ what }) => !watches.some((entry) => entry.what === what))];
    const kind = line === null ? "Registers" : "Variables";
    heading.textContent = values.length ? `${kind} of lane ${lane} after this ${line === null ? "step" : "line"}` : `${kind}: none known here`;
    const [optimizedOut, optimizedOutHelp] = steps.contents.optimized_out;
    const nodes = values.map(({ what, ctype, known, value, said: reason, why: explanation }) => {
      const row = rowOf(what);
      const isNow = value?.step === step;
      const place = !value ? "" : isNow ? "now" : steps.place(value.step);
      const text = value ? valueText(value.bits, value.type) : reason || (known ? "not yet" : optimizedOut);
      [what, ctype, text, place].forEach((entry, index) => { row.children[index].textContent = entry; });
      row.classList.toggle("gl-now", Boolean(isNow));
      row.classList.toggle("gl-unknown", !value);
      row.classList.toggle("gl-watch", reason !== undefined);
      row.classList.toggle("gl-lost", !known && reason === undefined);
      row.setAttribute("aria-pressed", String(what === chosen));
      row.setAttribute("aria-label", `${what}, ${ctype}: ${text}${place && `, written ${place}`}`);
      row.title = value ? `${what} (${ctype}) = ${valueText(value.bits, value.type, true)}, written by ${steps.instruction(value.step)}. Press to see it in all lanes.` : explanation ?? (known ? "the compiled code has not computed it yet" : optimizedOutHelp);
      return row;
    });
    // Rows that stay are not touched, so that a focused one keeps the focus.
    nodes.forEach((row, index) => { if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null); });
    while (list.children.length > nodes.length) list.lastChild.remove();
    list.hidden = !nodes.length;
    const currentRow = nodes.find((row) => row.classList.contains("gl-now"));
    if (!currentRow || list.contains(document.activeElement)) return;
    if (currentRow.offsetTop < list.scrollTop || currentRow.offsetTop > list.scrollTop + list.clientHeight - 24) list.scrollTop = currentRow.offsetTop - list.clientHeight / 2;
  };
  return { node: element("div", { class: "gl-register-panel" }, heading, list), show };
}

/** A panel with shared memory after a step; `memory` has the columns of `SharedMemoryStates`. */
export function sharedPanel(memory, texts) {
  const words = memory.word_events.length - 1;
  const totalRows = Math.ceil(words / 32);
  let [topRow, chosen, sequence, firstMoment, warp, loaded, maxLetters] = [0, 0, -1, -1, 0, new Set(), 5];
  const written = element("span");
  const chosenText = element("div", { class: "gl-note gl-word-text", "aria-live": "polite" });
  const reading = element("select", { "aria-label": "Read words as", onchange: () => refresh() }, ...Object.entries(READINGS).map(([value, text]) => element("option", { value }, text)));
  const follow = element("input", { type: "checkbox", checked: true });
  const scrollBy = (direction) => () => { topRow = limited(topRow + direction * rowCount()); follow.checked = false; refresh(); };
  const [upButton, downButton] = [[-1, "Lower addresses", "▲"], [1, "Higher addresses", "▼"]].map(([direction, label, text]) => element("button", { type: "button", onclick: scrollBy(direction), "aria-label": label }, text));
  const cells = upTo(Math.min(MOST_ROWS, totalRows), () => ({ label: element("th", { scope: "row" }), row: upTo(32, () => element("td", { role: "gridcell" })) }));
  const table = element(
    "table", { class: "gl-words", role: "grid", tabindex: 0, "aria-label": "Words of shared memory; arrow keys choose one" },
    element("thead", {}, element("tr", {}, element("th", {}, "byte"), ...upTo(32, (bank) => element("th", { scope: "col", title: `bank ${bank}` }, String(bank))))),
    element("tbody", {}, ...cells.map(({ label, row }) => element("tr", {}, label, ...row))),
  );
  const rowCount = () => cells.filter(({ label }) => label.offsetParent).length || cells.length;
  const limited = (row) => Math.max(0, Math.min(totalRows - rowCount(), row));
  const scrollToRow = (row) => { if (row < topRow || row >= topRow + rowCount()) topRow = row; };
  const choose = (word) => { chosen = Math.max(0, Math.min(words - 1, word)); scrollToRow(chosen >> 5); refresh(); };
  table.addEventListener("click", (event) => { if (event.target.dataset.word) choose(Number(event.target.dataset.word)); });
  table.addEventListener("keydown", (event) => {
    if (!ARROWS[event.key] || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    choose(chosen + ARROWS[event.key]);
  });

  /** A text, shortened at its beginning to fit into a column. */
  const fittingText = (text) => (text.length <= maxLetters ? text : `…${text.slice(1 - maxLetters)}`);
  /** A value with as few digits as necessary to fit into a column, unless `isLong`. */
  const shortText = (bits, type, isLong) => {
    const texts = [3, 2, 1].map((digits) => valueText(bits, type, isLong, digits));
    return isLong ? texts[0] : texts.map((text) => text.replace(/^(-?)0\./, "$1.")).find(({ length }) => length <= maxLetters) ?? fittingText(texts[2]);
  };
  /** A word as text; `isLong` is for the line below the table. */
  const textOf = (wordIndex, word, isLong) => {
    if (!word) return isLong ? "never written: garbage on a GPU" : "·";
    const hexText = `${isLong ? "0x" : ""}${word.bits.toString(16).padStart(8, "0")}`;
    if (reading.value === "hex" || (reading.value === "stored" && word.width < 4)) return isLong ? hexText : fittingText(hexText);
    if (reading.value !== "stored") return shortText(BigInt(word.bits), reading.value, isLong);
    if (word.width < 8) return shortText(BigInt(word.bits), texts[word.type], isLong);
    if (word.second && !isLong) return "″";
    const [lowBits, highBits] = [wordIndex - word.second, wordIndex + 1 - word.second].map((halfIndex) => BigInt(sharedWord(memory, halfIndex, sequence).bits));
    return shortText((highBits << 32n) | lowBits, texts[word.type], isLong);
  };
  const refresh = () => {
    if (!node.open || sequence < 0) return;
    topRow = limited(topRow);
    maxLetters = Math.max(3, Math.floor((cells[0].row[0].clientWidth - 2) / DIGIT_PX));
    cells.forEach(({ label, row }, line) => {
      label.textContent = String(128 * (topRow + line));
      row.forEach((cell, bank) => {
        const wordIndex = 32 * (topRow + line) + bank;
        const word = wordIndex < words ? sharedWord(memory, wordIndex, sequence) : null;
        cell.dataset.state = wordIndex >= words ? "none" : !word ? "never" : word.sequence >= firstMoment && word.warp === warp ? "changed" : "written";
        cell.dataset.word = wordIndex < words ? wordIndex : "";
        cell.textContent = wordIndex < words ? textOf(wordIndex, word, false) : "";
        cell.title = wordIndex < words ? textOf(wordIndex, word, true) : "";
        cell.classList.toggle("gl-touched", loaded.has(wordIndex));
        cell.setAttribute("aria-selected", String(wordIndex === chosen));
      });
    });
    upButton.setAttribute("aria-disabled", String(topRow === 0));
    downButton.setAttribute("aria-disabled", String(topRow === limited(totalRows)));
    const word = sharedWord(memory, chosen, sequence);
    const writerText = word ? `, written by lane ${word.lane} of warp ${word.warp}` : "";
    chosenText.textContent = `Bytes ${4 * chosen} to ${4 * chosen + 3} (bank ${chosen & 31}): ${textOf(chosen, word, true)}${writerText}.`;
  };

  /** Show the memory after a step of a warp, and mark the words that the step loads. */
  const show = (steps, step, { byLine }) => {
    const [accesses, lastStep] = [steps.accesses(step, byLine), byLine ? steps.visitEnd(steps.visit(step)) : step];
    firstMoment = steps.sequence[byLine ? steps.visit_begin[steps.visit(step)] : step];
    sequence = steps.sequence[lastStep];
    warp = steps.warp;
    const wordsOf = ({ sizeBytes, lanes }) => lanes.flatMap(({ address }) => upTo(Math.max(1, sizeBytes / 4), (wordOffset) => (address >> 2) + wordOffset));
    loaded = new Set(accesses.filter(({ reads }) => reads).flatMap(wordsOf));
    const bankAccess = accesses.find(({ picture, lanes }) => picture === "banks" && lanes.length);
    if (follow.checked && bankAccess) scrollToRow(Math.min(...bankAccess.lanes.map(({ address }) => address)) >> 7);
    written.textContent = steps.says("shared_words", lastStep);
    refresh();
  };
  const keys = [["changed", "", "written in this step"], ["", " gl-touched", "loaded in this step"], ["never", "", "· never written"]];
  const node = element(
    "details", { class: "gl-shared", open: true, ontoggle: () => refresh() }, element("summary", {}, written),
    element("div", { class: "gl-tools" }, element("label", {}, "Read words ", reading), ...(totalRows > LEAST_ROWS ? [upButton, downButton, element("label", {}, follow, " follow the step")] : [])),
    element("div", { class: "gl-words-box" }, table),
    element("div", { class: "gl-word-keys" }, chosenText, ...keys.map(([state, className, text]) => element("span", { class: `gl-key${className}`, "data-state": state }, text))),
  );
  return { node, show, draw: refresh };
}
