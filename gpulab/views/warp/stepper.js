import { Frame, element, unpack } from "../parts/frame.js";
import { SharedRecord, WarpRecord, cellText, firstAtLeast, spaced, valueText } from "./record.js";
import { accessPanel } from "./access.js";
import { registerPanel } from "./registers.js";
import { sharedPanel } from "./shared.js";
import { Timeline } from "./timeline.js";

// Steps the warps of a block through their kernel: source line beside 32 lanes, registers, each memory
// access as a picture, and shared memory. What it says and where it goes is looked up.

const STATES = {
  active: ["●", "active", "executes this instruction"],
  inactive: ["○", "inactive", "is elsewhere, or has ended"],
  off: ["◐", "predicated off", "is here, but the instruction's own condition is false for it"],
  none: ["–", "no thread", "the block's last warp has fewer threads"],
};
const PLAY_MS = 350;

function render({ model, el }) {
  const frame = new Frame({ model, el }, "warp-stepper");
  const contents = unpack(model.get("contents"), model.get("data"));
  const warps = new Map(contents.warps.map((warp) => [warp[0], new WarpRecord(contents, warp)]));
  const every = [...warps.values()];
  const memory = contents.shared && new SharedRecord(contents.shared, contents.texts);
  let steps = warps.get(model.get("warp"));
  let playing = 0;

  // Moves -----------------------------------------------------------------------------------
  const step = () => model.get("step");
  const move = (to) => { if (steps.clamp(to) !== step()) frame.send("step", steps.clamp(to)); };
  const go = (name) => () => move(steps.target(name, step()));
  const by = (move_, steps_) => () => (model.get("by_line") ? go(move_)() : move(step() + steps_));
  const next = by("next_line", 1);
  const stop = () => {
    clearInterval(playing);
    playing = 0;
    buttons.play.textContent = "Play";
    buttons.play.setAttribute("aria-pressed", "false");
  };
  const togglePlay = () => {
    if (playing) { stop(); return; }
    if (step() >= steps.length - 1) move(0);
    buttons.play.textContent = "Pause";
    buttons.play.setAttribute("aria-pressed", "true");
    playing = setInterval(() => {
      const before = step();
      next();
      if (step() === before) stop();
    }, PLAY_MS);
  };
  const chooseLane = (lane) => frame.send("lane", Math.max(0, Math.min(31, lane)));
  const chooseRegister = (name) => frame.send("register", model.get("register") === name ? "" : name);
  const chooseWarp = (warp) => {
    const to = warps.get(warp);
    if (!to || to === steps) return;
    const now = steps.sequence?.[steps.clamp(step())] ?? 0;
    model.set("warp", warp);
    frame.send("step", to.clamp(to.sequence ? firstAtLeast(to.sequence, now + 1) - 1 : 0));
  };

  // Buttons: name, label, key as the page calls it, key as the browser does, text ---------------------
  const keys = { ",": () => chooseLane(model.get("lane") - 1), ".": () => chooseLane(model.get("lane") + 1), "[": () => chooseWarp(model.get("warp") - 1), "]": () => chooseWarp(model.get("warp") + 1), ArrowUp: go("previous_line"), PageUp: go("previous_access") };
  const buttons = {};
  for (const [name, label, shown, key, text, onclick] of [
    ["first", "First step", "Home", "Home", "|◀", () => move(0)],
    ["previous", "Previous step", "Left arrow", "ArrowLeft", "◀", by("previous_line", -1)],
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
  const toggles = {};
  for (const [trait, text] of [["show_ptx", "Show PTX"], ["fold", "Fold loops"]]) {
    toggles[trait] = element("button", { type: "button", onclick: () => frame.send(trait, !model.get(trait)) }, text);
  }
  const choice = (label, options, onChoice) => {
    const node = element("select", { "aria-label": label, onchange: () => onChoice(node.value) }, ...options.map(([value, text]) => element("option", { value }, text)));
    return node;
  };
  const unit = choice("One step is", [["step", contents.granularity], ["line", "source line"]], (value) => frame.send("by_line", value === "line"));
  const warpChoice = choice("Warp", contents.warps.map(([warp, threads]) => [warp, `${warp} (${threads} threads)`]), (value) => chooseWarp(Number(value)));

  // Parts -----------------------------------------------------------------------------------
  const turnsText = element("span", { class: "gl-turns" });
  const timeline = new Timeline(frame, move);
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => move(Number(slider.value)) });
  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const listing = element("ol", { class: "gl-listing", tabindex: 0, role: "group", "aria-label": "Kernel text; keys step through it" });
  const lanesNote = element("div", { class: "gl-note" });
  const access = accessPanel(frame);
  const registers = every.some((each) => each.call_holders) ? registerPanel(chooseRegister) : null;
  const block = memory && sharedPanel(memory);
  const cells = Array.from({ length: 32 }, (_, lane) => {
    const [symbol, value] = ["gl-symbol", "gl-value"].map((name) => element("span", { class: name, "aria-hidden": "true" }));
    const number = element("span", { class: "gl-lane-number", "aria-hidden": "true" }, String(lane));
    return { cell: element("button", { type: "button", class: "gl-lane", onclick: () => chooseLane(lane) }, number, symbol, value), symbol, value };
  });
  const states = Object.entries(STATES).filter(([state]) => state !== "none" || every.some(({ threads }) => threads < 32));
  const legend = element("div", { class: "gl-keys" }, ...states.map(([, [symbol, words, help]]) => element("span", { title: help }, `${symbol} ${words}`)));
  const tools = (names, ...more) => element("div", { class: "gl-tools" }, ...more.slice(0, -1), ...names.map((name) => buttons[name]), more.at(-1));
  const loops = tools(["previous-iteration", "next-iteration", "past-loop"], element("span", {}, toggles.fold, " ", turnsText));
  loops.classList.add("gl-loops");

  frame.body.append(
    ...contents.notes.map((note) => element("div", { class: "gl-note gl-confirmation" }, note)),
    tools(
      ["first", "previous", "next", "last", "play", "line", "access"],
      ...(warps.size > 1 ? [element("label", {}, "Warp ", warpChoice)] : []),
      element("span", {}, element("label", {}, "Step by ", unit), " ", toggles.show_ptx),
    ),
    ...(every.some((each) => each.turn) ? [loops] : []),
    timeline.node, slider, spoken,
    element(
      "div", { class: "gl-columns" }, element("div", { class: "gl-left" }, listing),
      element(
        "div", { class: "gl-right" },
        element("div", { class: "gl-lanes", role: "group", "aria-label": "32 lanes of the warp; choose one to see its registers" }, ...cells.map(({ cell }) => cell)),
        legend, lanesNote, registers?.node,
      ),
    ),
    access.node, ...(block ? [block.node] : []), element("div", { class: "gl-note" }, contents.keys),
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

  // The listing: source lines, or the instructions that ran ------------------------------------
  let rows = new Map();
  let current = null;
  const keyOf = (site) => (model.get("show_ptx") ? steps.site_pc[site] : steps.site_line[site]);
  const fillListing = () => {
    toggles.show_ptx.setAttribute("aria-pressed", String(model.get("show_ptx")));
    const visits = new Map();
    const code = new Map();
    steps.site_visits.forEach((count, site) => {
      visits.set(keyOf(site), (visits.get(keyOf(site)) ?? 0) + count);
      code.set(keyOf(site), steps.says("site_code", site));
    });
    const entries = model.get("show_ptx") ? [...code].sort(([a], [b]) => a - b) : contents.code.map((text, at) => [at + 1, text]);
    current = null;
    rows = new Map(entries.map(([key, text]) => {
      const shown = element("code", {}, text || " ");
      const count = visits.get(key);
      return [key, { code: shown, text: text || " ", row: element(
        "li", { class: "gl-line" },
        element("span", { class: "gl-line-number" }, String(key)),
        element("span", { class: "gl-line-visits", title: count ? `${spaced(count)} steps` : "not run by this warp" }, count ? `${spaced(count)}×` : ""),
        shown,
      ) }];
    }));
    listing.replaceChildren(...[...rows.values()].map(({ row }) => row));
  };

  /** Mark the row of a step, and the word at its column where that is known. */
  const markRow = (site) => {
    if (current) {
      current.row.classList.remove("gl-current");
      current.row.removeAttribute("aria-current");
      current.code.textContent = current.text;
    }
    current = rows.get(keyOf(site)) ?? null;
    if (!current) return;
    current.row.classList.add("gl-current");
    current.row.setAttribute("aria-current", "step");
    const from = model.get("show_ptx") ? -1 : steps.site_column[site] - 1;
    const word = from < 0 ? null : /^(?:[A-Za-z_]\w*|[\d.]+\w*|\S)/.exec(current.text.slice(from))?.[0];
    if (word) current.code.replaceChildren(current.text.slice(0, from), element("mark", { class: "gl-word" }, word), current.text.slice(from + word.length));
    listing.scrollTop = current.row.offsetTop - listing.clientHeight / 2;
  };

  // Showing one step -------------------------------------------------------------------------
  const showWarp = () => {
    steps = warps.get(model.get("warp")) ?? steps;
    warpChoice.value = String(model.get("warp"));
    slider.max = String(Math.max(0, steps.length - 1));
    buttons.access.disabled = !steps.access_step;
    fillListing();
    showStep();
  };

  const showStep = () => {
    if (!steps.length) {
      spoken.textContent = contents.empty;
      return;
    }
    const at = steps.clamp(step());
    slider.value = String(at);
    spoken.textContent = steps.sentence(at);
    slider.setAttribute("aria-valuetext", spoken.textContent);
    unit.value = model.get("by_line") ? "line" : "step";
    toggles.fold.setAttribute("aria-pressed", String(model.get("fold")));
    const turns = steps.turns(at) || "not in a loop";
    turnsText.textContent = turns[0].toUpperCase() + turns.slice(1);
    // A disabled button would drop the focus, and the keys with it.
    const ends = {
      first: at === 0, previous: at === 0, next: at === steps.length - 1, last: at === steps.length - 1, "past-loop": !steps.turns(at),
      "previous-iteration": steps.target("previous_iteration", at) === at, "next-iteration": steps.target("next_iteration", at) === at,
    };
    for (const [name, end] of Object.entries(ends)) buttons[name].setAttribute("aria-disabled", String(end));
    markRow(steps.site[at]);
    showLanes(at);
    access.show(steps, at);
    block?.show(steps, at);
    timeline.show(steps, at, model.get("fold"));
  };

  const showLanes = (at) => {
    const chosen = model.get("register");
    const lane = model.get("lane");
    const values = chosen ? steps.register(at, chosen) : steps.result(at);
    cells.forEach(({ cell, symbol, value }, here) => {
      const state = steps.laneState(at, here);
      const bits = values && (chosen || state === "active") ? values.bits[here] : null;
      const words = bits === null ? "" : valueText(bits, values.type);
      cell.dataset.state = state;
      [symbol.textContent] = STATES[state];
      value.textContent = words && cellText(bits, values.type);
      value.title = bits === null ? "" : valueText(bits, values.type, true);
      cell.setAttribute("aria-pressed", String(here === lane));
      cell.setAttribute("tabindex", here === lane ? "0" : "-1");
      cell.setAttribute("aria-label", `lane ${here}: ${STATES[state][1]}${words ? `, ${words}` : ""}`);
    });
    const mask = `mask 0x${steps.active(at).toString(16).padStart(8, "0")}`;
    const what = values ? ` · numbers: ${values.what} (${values.type || "bits"}) after this step` : chosen ? ` · ${chosen} has no value yet` : "";
    lanesNote.replaceChildren(mask + what, ...(chosen ? [" ", element("button", { type: "button", class: "gl-small", onclick: () => frame.send("register", "") }, "Show each step's result")] : []));
    registers?.show(steps, at, lane, chosen);
  };

  frame.on("warp", showWarp);
  for (const trait of ["step", "by_line", "fold", "lane", "register"]) frame.on(trait, showStep);
  frame.on("show_ptx", () => { fillListing(); showStep(); });
  frame.redraw(timeline.node, () => { timeline.plot.draw(); access.draw(); });
  requestAnimationFrame(showWarp);
  frame.endings.push(stop);
  return frame.ending();
}

export default { render };
