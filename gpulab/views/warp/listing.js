import { element } from "../parts/frame.js";
import { grouped } from "../parts/words.js";

// The kernel's lines, or the instructions that ran, with a mark at the row of the current step.

const WORD = /^(?:[A-Za-z_]\w*|[\d.]+\w*|\S)/;

/**
 * A listing. A row that ran has its number as a button: click it, or press Enter on it, and `onJump` gets
 * the row's key. Tab reaches the listing itself, whose keys step, and then one of the buttons, among which
 * arrows move.
 */
export function listing(onJump) {
  const node = element("ol", { class: "gl-listing", tabindex: 0, role: "group", "aria-label": "Kernel text; keys step through it" });
  let [rows, current, column] = [new Map(), null, ""];
  const buttons = () => [...node.querySelectorAll("button")];
  const rowAt = (target) => [...rows].find(([, { row }]) => row.contains(target)) ?? [];
  node.addEventListener("click", ({ target }) => {
    const [key, entry] = rowAt(target);
    if (entry?.button) onJump(column, key);
  });
  node.addEventListener("keydown", (event) => {
    if (event.target === node || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") event.stopPropagation();
    const direction = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!direction) return;
    event.preventDefault();
    event.stopPropagation();
    const allButtons = buttons();
    allButtons[Math.max(0, Math.min(allButtons.length - 1, allButtons.indexOf(event.target) + direction))].focus();
  });

  /** Show source lines or, if `ptx` is true, instructions. */
  const fill = (steps, code, ptx) => {
    column = ptx ? "site_pc" : "visit_line";
    const counts = new Map();
    if (ptx) steps.site_pc.forEach((key, site) => counts.set(key, (counts.get(key) ?? 0) + steps.site_visits[site]));
    else steps.visit_line.forEach((key) => counts.set(key, (counts.get(key) ?? 0) + 1));
    const blank = code.findIndex((text) => text.trim());
    const instructions = Array.from(steps.site_pc, (pc, site) => [pc, steps.says("site_code", site)]).sort(([a], [b]) => a - b);
    const lines = code.map((text, index) => [index + 1, text]).slice(Math.max(0, blank));
    current = null;
    rows = new Map((ptx ? instructions : lines).map(([key, text]) => {
      const [codeNode, count] = [element("code", {}, text || " "), counts.get(key)];
      const countNode = element("span", { class: "gl-line-visits", title: count ? `run ${grouped(count)} times` : "not run by this warp" }, count ? `${grouped(count)}×` : "");
      const button = count && element("button", { type: "button", class: "gl-line-number", tabindex: -1, "aria-label": `line ${key}: go to its next step`, title: "Go to its next step" }, String(key));
      const number = button || element("span", { class: "gl-line-number" }, String(key));
      return [key, { shown: codeNode, text: text || " ", button, row: element("li", { class: count ? "gl-line gl-ran" : "gl-line" }, number, countNode, codeNode) }];
    }));
    const widest = Math.max(0, ...Array.from(counts.values(), (count) => grouped(count).length + 1));
    node.style.setProperty("--gl-visits", `${widest}ch`);
    node.style.setProperty("--gl-number", `${String(Math.max(0, ...rows.keys())).length}ch`);
    node.replaceChildren(...Array.from(rows.values(), ({ row }) => row));
  };

  /** Mark the row of a step, and the word at `wordColumn` in it (0: no word). */
  const mark = (key, wordColumn) => {
    if (current) {
      current.row.classList.remove("gl-current");
      current.row.removeAttribute("aria-current");
      current.shown.textContent = current.text;
      current.button?.setAttribute("tabindex", "-1");
    }
    current = rows.get(key) ?? null;
    if (!current) return;
    const { row, shown: codeNode, text, button } = current;
    row.classList.add("gl-current");
    row.setAttribute("aria-current", "step");
    button?.setAttribute("tabindex", "0");
    const word = wordColumn > 0 ? WORD.exec(text.slice(wordColumn - 1))?.[0] : null;
    const marked = word && element("mark", { class: "gl-word" }, word);
    if (marked) codeNode.replaceChildren(text.slice(0, wordColumn - 1), marked, text.slice(wordColumn - 1 + word.length));
    node.scrollTop = row.offsetTop - node.clientHeight / 2;
    node.scrollLeft = 0; // a long current row is broken, others run out to the right
  };
  return { node, fill, mark };
}
