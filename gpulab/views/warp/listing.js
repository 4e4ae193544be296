import { element } from "../parts/frame.js";
import { grouped } from "../parts/words.js";

// The kernel's lines, or the instructions that ran, with a mark at the row of the current step.

/** A line's tokens as elements. */
const tokenNodes = (tokens) => tokens.map(([kind, text]) => element("span", { class: kind ? `gl-code-${kind}` : null }, text));

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
    const blank = code.findIndex((tokens) => tokens.some(([, text]) => text.trim()));
    const instructions = Array.from(steps.site_pc, (pc, site) => [pc, [["", steps.says("site_code", site)]]]).sort(([a], [b]) => a - b);
    const lines = code.map((tokens, index) => [index + 1, tokens]).slice(Math.max(0, blank));
    current = null;
    rows = new Map((ptx ? instructions : lines).map(([key, tokens]) => {
      const [codeNode, count] = [element("code", {}, ...tokenNodes(tokens)), counts.get(key)];
      const countNode = element("span", { class: "gl-line-visits", title: count ? `run ${grouped(count)} times` : "not run by this warp" }, count ? `${grouped(count)}×` : "");
      const button = count && element("button", { type: "button", class: "gl-line-number", tabindex: -1, "aria-label": `line ${key}: go to its next step`, title: "Go to its next step" }, String(key));
      const number = button || element("span", { class: "gl-line-number" }, String(key));
      return [key, { codeNode, button, row: element("li", { class: count ? "gl-line gl-ran" : "gl-line" }, number, countNode, codeNode) }];
    }));
    const widest = Math.max(0, ...Array.from(counts.values(), (count) => grouped(count).length + 1));
    node.style.setProperty("--gl-visits", `${widest}ch`);
    node.style.setProperty("--gl-number", `${String(Math.max(0, ...rows.keys())).length}ch`);
    node.replaceChildren(...Array.from(rows.values(), ({ row }) => row));
  };

  const centre = () => { if (current) node.scrollTop = current.row.offsetTop - node.clientHeight / 2; };

  /** Mark the row of a step, and the token at `tokenColumn` in it (0: no token). */
  const mark = (key, tokenColumn) => {
    current?.row.classList.remove("gl-current");
    current?.row.removeAttribute("aria-current");
    current?.button?.setAttribute("tabindex", "-1");
    node.querySelector(".gl-word")?.classList.remove("gl-word");
    current = rows.get(key) ?? null;
    if (!current) return;
    const { row, codeNode, button } = current;
    row.classList.add("gl-current");
    row.setAttribute("aria-current", "step");
    button?.setAttribute("tabindex", "0");
    let end = 0;
    const token = [...codeNode.children].find(({ textContent }) => (end += textContent.length) >= tokenColumn);
    if (tokenColumn > 0) token?.classList.add("gl-word");
    centre();
  };
  return { node, fill, mark, draw: centre };
}
