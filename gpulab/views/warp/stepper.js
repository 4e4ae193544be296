import { Frame, element, unpack } from "../parts/frame.js";
import { WarpRecord, cellText, firstAtLeast, spaced, upTo, valueText } from "./record.js";
import { accessPanel, timeline } from "./pictures.js";
import { registerPanel, sharedPanel } from "./panels.js";

// Steps the warps of a block through their kernel: source line beside 32 lanes, registers, each memory
// access as a picture, and shared memory. What it says and where it goes is looked up.

const STATES = {
  active: ["●", "active", "executes this instruction"],
  inactive: ["○", "inactive", "is elsewhere, or has ended"],
  off: ["◐", "predicated off", "is here, but the instruction's own condition is false for it"],
  none: ["–", "no thread", "the block's last warp has fewer threads"],
};
const PLAY_MS = 350;

/** Whether a toggle is on, for the eye and for a screen reader. */
const press = (node, on) => node.setAttribute("aria-pressed", String(on));

/** The kernel's lines, or the instructions that ran: fill it for a warp, mark the row of a step. */
function listing() {
  const node = element("ol", { class: "gl-listing", tabindex: 0, role: "group", "aria-label": "Kernel text; keys step through it" });
  let [rows, current, column] = [new Map(), null, ""];
  const fill = (steps, code, ptx) => {
    column = ptx ? "site_pc" : "site_line";
    const visits = new Map();
    steps[column].forEach((key, site) => visits.set(key, (visits.get(key) ?? 0) + steps.site_visits[site]));
    const ran = Array.from(steps.site_pc, (pc, site) => [pc, steps.says("site_code", site)]).sort(([a], [b]) => a - b);
    current = null;
    rows = new Map((ptx ? ran : code.map((text, at) => [at + 1, text])).map(([key, text]) => {
      const [shown, count] = [element("code", {}, text || " "), visits.get(key)];
      const times = element("span", { class: "gl-line-visits", title: count ? `${spaced(count)} steps` : "not run by this warp" }, count ? `${spaced(count)}×` : "");
      return [key, { shown, text: text || " ", row: element("li", { class: "gl-line" }, element("span", { class: "gl-line-number" }, String(key)), times, shown) }];
    }));
    node.replaceChildren(...Array.from(rows.values(), ({ row }) => row));
  };
  const mark = (steps, site) => {
    current?.row.classList.remove("gl-current");
    current?.row.removeAttribute("aria-current");
    if (current) current.shown.textContent = current.text;
    current = rows.get(steps[column][site]) ?? null;
    if (!current) return;
    const { row, shown, text } = current;
    row.classList.add("gl-current");
    row.setAttribute("aria-current", "step");
    const from = column === "site_pc" ? -1 : steps.site_column[site] - 1;
    const word = from < 0 ? null : /^(?:[A-Za-z_]\w*|[\d.]+\w*|\S)/.exec(text.slice(from))?.[0];
    if (word) shown.replaceChildren(text.slice(0, from), element("mark", { class: "gl-word" }, word), text.slice(from + word.length));
    node.scrollTop = row.offsetTop - node.clientHeight / 2;
  };
  return { node, fill, mark };
}

function render({ model, el }) {
  const frame = new Frame({ model, el }, "warp-stepper");
  const contents = unpack(model.get("contents"), model.get("data"));
  const warps = new Map(contents.warps.map((warp) => [warp[0], new WarpRecord(contents, warp)]));
  const every = [...warps.values()];
  let [steps, playing] = [warps.get(model.get("warp")), 0];

  const step = () => model.get("step");
  const move = (to) => { if (steps.clamp(to) !== step()) frame.send("step", steps.clamp(to)); };
  const go = (name) => () => move(steps.target(name, step()));
  const by = (name, count) => () => (model.get("by_line") ? go(name)() : move(step() + count));
  const [next, previous] = [by("next_line", 1), by("previous_line", -1)];
  const play = (on) => {
    clearInterval(playing);
    playing = on && setInterval(() => {
      const before = step();
      next();
      if (step() === before) play(false);
    }, PLAY_MS);
    buttons.play.textContent = on ? "Pause" : "Play";
    press(buttons.play, on);
  };
  const togglePlay = () => { if (!playing && step() >= steps.length - 1) move(0); play(!playing); };
  const chooseLane = (lane) => frame.send("lane", Math.max(0, Math.min(31, lane)));
  const chooseRegister = (name) => frame.send("register", model.get("register") === name ? "" : name);
  const chooseWarp = (warp) => {
    const to = warps.get(warp);
    if (!to || to === steps) return;
    const reached = to.sequence ? firstAtLeast(to.sequence, steps.sequence[steps.clamp(step())] + 1) - 1 : 0;
    model.set("warp", warp);
    frame.send("step", to.clamp(reached));
  };

  // Buttons: name, label, key as the page calls it, key as the browser does, text ---------------------
  const keys = {
    ",": () => chooseLane(model.get("lane") - 1), ".": () => chooseLane(model.get("lane") + 1),
    "[": () => chooseWarp(model.get("warp") - 1), "]": () => chooseWarp(model.get("warp") + 1), ArrowUp: go("previous_line"), PageUp: go("previous_access"),
  };
  const buttons = {};
  for (const [name, label, shown, key, text, onclick] of [
    ["first", "First step", "Home", "Home", "|◀", () => move(0)],
    ["previous", "Previous step", "Left arrow", "ArrowLeft", "◀", previous],
    ["next", "Next step", "Right arrow", "ArrowRight", "▶", next],
    ["last", "Last step", "End", "End", "▶|", () => move(steps.length - 1)],
    ["play", "Play or pause", "Space", " ", "Play", togglePlay],
    ["line", "Next source line", "Down arrow", "ArrowDown", "Next line", go("next_line")],
    ["access", "Next memory access", "Page Down", "PageDown", "Next memory access", go("next_access")],
    ["previous-iteration", "Previous iteration", "Shift+I", "I", "◀ Iteration", go("previous_iteration")],
    ["next-iteration", "Next iteration", "I", "i", "Iteration ▶", go("next_iteration")],
    ["past-loop", "Past the loop", "O", "o", "Past the loop", go("past_loop")],
  ]) {
    keys[key] = onclick;
    buttons[name] = element("button", { type: "button", onclick, "aria-label": label, title: `${label} (${shown})`, "data-move": name }, text);
  }
  const [ptx, fold] = [["show_ptx", "Show PTX"], ["fold", "Fold loops"]].map(([trait, text]) => element("button", { type: "button", onclick: () => frame.send(trait, !model.get(trait)) }, text));
  const choice = (label, options, onChoice) => element("select", { "aria-label": label, onchange: (event) => onChoice(event.target.value) }, ...options.map(([value, text]) => element("option", { value }, text)));
  const unit = choice("One step is", [["step", contents.granularity], ["line", "source line"]], (value) => frame.send("by_line", value === "line"));
  const warpChoice = choice("Warp", contents.warps.map(([warp, threads]) => [warp, `${warp} (${threads} threads)`]), (value) => chooseWarp(Number(value)));

  const turnsText = element("span", { class: "gl-turns" });
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => move(Number(slider.value)) });
  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const note = (text, more = "") => element("div", { class: `gl-note${more}` }, text);
  const [lanesNote, code, lanesOverSteps, access] = [note(""), listing(), timeline(frame, move), accessPanel(frame)];
  const registers = every.some((each) => each.call_holders) ? registerPanel(chooseRegister) : null;
  const memory = contents.shared && sharedPanel(contents.shared, contents.texts);
  const cells = upTo(32, (lane) => {
    const [number, symbol, value] = ["gl-lane-number", "gl-symbol", "gl-value"].map((name) => element("span", { class: name, "aria-hidden": "true" }));
    number.textContent = String(lane);
    return { cell: element("button", { type: "button", class: "gl-lane", onclick: () => chooseLane(lane) }, number, symbol, value), symbol, value };
  });
  const lanes = element("div", { class: "gl-lanes", role: "group", "aria-label": "32 lanes of the warp; choose one to see its registers" }, ...cells.map(({ cell }) => cell));
  const states = Object.entries(STATES).filter(([state]) => state !== "none" || every.some(({ threads }) => threads < 32));
  const legend = element("div", { class: "gl-keys" }, ...states.map(([, [symbol, words, help]]) => element("span", { title: help }, `${symbol} ${words}`)));
  const tools = (more, names, ...rest) => element("div", { class: `gl-tools${more}` }, ...names.map((name) => buttons[name] ?? name), ...rest);
  frame.body.append(
    ...contents.notes.map((text) => note(text, " gl-confirmation")),
    tools("", [...(warps.size > 1 ? [element("label", {}, "Warp ", warpChoice)] : []), "first", "previous", "next", "last", "play", "line", "access"], element("label", {}, "Step by ", unit), ptx),
    ...(every.some((each) => each.turn) ? [tools(" gl-loops", ["previous-iteration", "next-iteration", "past-loop"], fold, turnsText)] : []),
    lanesOverSteps.node, slider, spoken,
    element("div", { class: "gl-columns" }, element("div", { class: "gl-left" }, code.node), element("div", { class: "gl-right" }, lanes, legend, lanesNote, registers?.node)),
    access.node, ...(memory ? [memory.node] : []), note(contents.keys),
  );
  frame.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || (event.shiftKey && event.key !== "I")) return;
    const inside = event.target.closest("select, input, button, summary");
    // A focused button keeps its own space bar, a list its own arrows.
    if (inside?.matches("select") || (event.key === " " && inside) || !keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });

  const showListing = () => { code.fill(steps, contents.code, model.get("show_ptx")); showStep(); };
  const showWarp = () => {
    steps = warps.get(model.get("warp")) ?? steps;
    warpChoice.value = String(model.get("warp"));
    slider.max = String(Math.max(0, steps.length - 1));
    buttons.access.disabled = !steps.access_step;
    showListing();
  };
  const showStep = () => {
    if (!steps.length) { spoken.textContent = contents.empty; return; }
    const at = steps.clamp(step());
    slider.value = String(at);
    spoken.textContent = steps.sentence(at);
    slider.setAttribute("aria-valuetext", spoken.textContent);
    unit.value = model.get("by_line") ? "line" : "step";
    press(fold, model.get("fold"));
    press(ptx, model.get("show_ptx"));
    const turns = steps.turns(at) || "not in a loop";
    turnsText.textContent = turns[0].toUpperCase() + turns.slice(1);
    // A disabled button would drop the focus, and the keys with it.
    const stays = (name) => steps.target(name, at) === at;
    const ends = {
      first: at === 0, previous: at === 0, next: at === steps.length - 1, last: at === steps.length - 1,
      "past-loop": stays("past_loop"), "previous-iteration": stays("previous_iteration"), "next-iteration": stays("next_iteration"),
    };
    for (const [name, end] of Object.entries(ends)) buttons[name].setAttribute("aria-disabled", String(end));
    code.mark(steps, steps.site[at]);
    showLanes(at);
    [access, memory, lanesOverSteps].forEach((panel) => panel?.show(steps, at, model.get("fold")));
  };
  const showLanes = (at) => {
    const [chosen, lane] = [model.get("register"), model.get("lane")];
    const values = chosen ? upTo(32, (each) => steps.registers(at, each, chosen)[0] ?? null) : steps.result(at) ?? [];
    cells.forEach(({ cell, symbol, value }, here) => {
      const [state, shown] = [steps.laneState(at, here), values[here]];
      cell.dataset.state = state;
      [symbol.textContent] = STATES[state];
      value.textContent = shown ? cellText(shown.bits, shown.type) : "";
      value.title = shown ? valueText(shown.bits, shown.type, true) : "";
      press(cell, here === lane);
      cell.setAttribute("tabindex", here === lane ? "0" : "-1");
      cell.setAttribute("aria-label", `lane ${here}: ${STATES[state][1]}${shown ? `, ${valueText(shown.bits, shown.type)}` : ""}`);
    });
    const some = values.find((each) => each);
    const what = some ? ` · numbers: ${some.what} (${some.type || "bits"}) after this step` : chosen ? ` · ${chosen} has no value yet` : "";
    const back = chosen ? [" ", element("button", { type: "button", class: "gl-small", onclick: () => frame.send("register", "") }, "Show each step's result")] : [];
    lanesNote.replaceChildren(`mask 0x${steps.mask_active[steps.mask[at]].toString(16).padStart(8, "0")}${what}`, ...back);
    registers?.show(steps, at, lane, chosen);
  };

  frame.on("warp", showWarp);
  for (const trait of ["step", "by_line", "fold", "lane", "register"]) frame.on(trait, showStep);
  frame.on("show_ptx", showListing);
  frame.redraw(lanesOverSteps.node, () => { lanesOverSteps.draw(); access.draw(); });
  requestAnimationFrame(showWarp);
  frame.endings.push(() => play(false));
  return frame.ending();
}

export default { render };
