import { Frame, element, unpack } from "../parts/frame.js";
import { above, upTo } from "../parts/items.js";
import { WarpRecord, cellText, valueText } from "./record.js";
import { listing } from "./listing.js";
import { accessPanel, timeline } from "./pictures.js";
import { sharedPanel, valuesPanel } from "./panels.js";
import { player } from "../parts/player.js";

// Steps the warps of a block through their kernel: source line beside 32 lanes, values, each memory access
// as a picture, and shared memory. A step is a visit of a source line, or an instruction.

const LANE_DIGIT_PX = 6.6; // a digit in a lane's cell, at most

/** Whether a toggle is on, for the eye and for a screen reader. */
const press = (node, on) => node.setAttribute("aria-pressed", String(on));

function render({ model, el }) {
  const frame = new Frame({ model, el }, "warp-stepper");
  const contents = unpack(model.get("contents"), model.get("data"));
  const warps = new Map(contents.warps.map((warp) => [warp[0], new WarpRecord(contents, warp)]));
  const every = [...warps.values()];
  let steps = warps.get(model.get("warp"));

  const [step, byLine] = [() => model.get("step"), () => model.get("by_line")];
  const move = (to) => { if (steps.clamp(to) !== step()) frame.send("step", steps.clamp(to)); };
  const go = (name) => () => move(steps.target(name, step()));
  const stop = (name) => () => move(steps.target(byLine() ? `${name}_visit` : name, step()));
  const by = (name, count) => () => (byLine() ? go(name)() : move(step() + count));
  const [next, previous] = [by("next_line", 1), by("previous_line", -1)];
  const atEnd = () => (byLine() ? steps.visit(steps.clamp(step())) === steps.visit_begin.length - 1 : step() >= steps.length - 1);
  const toEnd = () => move(byLine() ? steps.visit_begin[steps.visit_begin.length - 1] : steps.length - 1);
  const chooseLane = (lane) => frame.send("lane", Math.max(0, Math.min(31, lane)));
  const chooseValue = (name) => frame.send("register", model.get("register") === name ? "" : name);
  const chooseWarp = (warp) => {
    const to = warps.get(warp);
    if (!to || to === steps) return;
    const reached = to.sequence ? above(to.sequence, steps.sequence[steps.clamp(step())]) - 1 : 0;
    model.set("warp", warp);
    frame.send("step", to.clamp(reached));
  };
  /** To the next step at which a row of the listing runs, or else to its first. */
  const jump = (column, key) => {
    const [at, line] = [steps.clamp(step()), column === "visit_line"];
    const length = line ? steps.visit_begin.length : steps.length;
    const from = line ? steps.visit(at) : at;
    const here = (place) => (line ? steps.visit_line[place] : steps.site_pc[steps.site[place]]) === key;
    for (let ahead = 1; ahead <= length; ahead += 1) {
      const place = (from + ahead) % length;
      if (here(place)) return move(line ? steps.visit_begin[place] : place);
    }
    return undefined;
  };
  const play = player(frame, {
    advance: (count) => {
      if (byLine()) move(steps.visit_begin[Math.min(steps.visit_begin.length - 1, steps.visit(step()) + count)]);
      else move(step() + count);
      return !atEnd();
    },
    begin: () => { if (atEnd()) move(0); },
    length: () => (byLine() ? steps.visit_begin.length : steps.length),
  });

  // Buttons: name, label, key as the page calls it, key as the browser does, text ---------------------
  const keys = {
    ",": () => chooseLane(model.get("lane") - 1), ".": () => chooseLane(model.get("lane") + 1),
    "[": () => chooseWarp(model.get("warp") - 1), "]": () => chooseWarp(model.get("warp") + 1),
    ArrowUp: go("previous_line"), ArrowDown: go("next_line"), PageUp: go("previous_access"), " ": play.toggle,
  };
  const buttons = { play: play.button };
  for (const [name, label, shown, key, text, onclick] of [
    ["first", "First step", "Home", "Home", "|◀", () => move(0)],
    ["previous", "Previous step", "Left arrow", "ArrowLeft", "◀", previous],
    ["next", "Next step", "Right arrow", "ArrowRight", "▶", next],
    ["last", "Last step", "End", "End", "▶|", toEnd],
    ["access", "Next memory access", "Page Down", "PageDown", "Next access", go("next_access")],
    ["previous-iteration", "Previous iteration", "Shift+I", "I", "◀", go("previous_iteration")],
    ["next-iteration", "Next iteration", "I", "i", "Iteration ▶", go("next_iteration")],
    ["past-loop", "Past the loop", "O", "o", "Past loop", go("past_loop")],
    ["previous-stop", "Previous stop (run back)", "Shift+S", "S", "◀", stop("previous_stop")],
    ["next-stop", "Next stop", "S", "s", "Stop ▶", stop("next_stop")],
  ]) {
    keys[key] = onclick;
    buttons[name] = element("button", { type: "button", onclick, "aria-label": label, title: `${label} (${shown})`, "data-move": name }, text);
  }
  const showPtx = () => {
    const on = !model.get("show_ptx");
    model.set("by_line", !on);
    frame.send("show_ptx", on);
  };
  const toggle = (text, title, onclick) => element("button", { type: "button", title, onclick }, text);
  const ptx = toggle("PTX", "Show the compiler's instructions and step by them", showPtx);
  const fold = toggle("Fold loops", "Show one turn of each loop in the bar", () => frame.send("fold", !model.get("fold")));
  const choice = (label, options, onChoice) => element("select", { "aria-label": label, onchange: (event) => onChoice(event.target.value) }, ...options.map(([value, text]) => element("option", { value }, text)));
  const unit = choice("One step is", [["line", "source line"], ["step", contents.granularity]], (value) => frame.send("by_line", value === "line"));
  const warpChoice = choice("Warp", contents.warps.map(([warp, threads]) => [warp, `${warp} (${threads} threads)`]), (value) => chooseWarp(Number(value)));

  const turnsText = element("span", { class: "gl-turns" });
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => move(byLine() ? steps.visit_begin[Number(slider.value)] : Number(slider.value)) });
  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const note = (text, more = "") => element("div", { class: `gl-note${more}` }, text);
  const [lanesNote, code, lanesOverSteps, access] = [note("", " gl-lanes-note"), listing(jump), timeline(frame, move), accessPanel(frame)];
  const values = every.some((each) => each.call_holders) ? valuesPanel(chooseValue) : null;
  const memory = contents.shared && sharedPanel(contents.shared, contents.texts);
  const cells = upTo(32, (lane) => {
    const [number, symbol, value] = ["gl-lane-number", "gl-symbol", "gl-value"].map((name) => element("span", { class: name, "aria-hidden": "true" }));
    number.textContent = String(lane);
    return { cell: element("button", { type: "button", class: "gl-lane", onclick: () => chooseLane(lane) }, number, symbol, value), symbol, value };
  });
  const lanes = element("div", { class: "gl-lanes", role: "group", "aria-label": "32 lanes of the warp; choose one to see its values" }, ...cells.map(({ cell }) => cell));
  const states = Object.entries(contents.lane_states).filter(([state]) => state !== "none" || every.some(({ threads }) => threads < 32));
  const legend = element("div", { class: "gl-keys" }, ...states.map(([, [symbol, words, help]]) => element("span", { title: help }, `${symbol} ${words}`)));
  const group = (more, ...nodes) => element("div", { class: `gl-tools ${more}` }, ...nodes.map((node) => buttons[node] ?? node));
  const looping = every.some((each) => each.turn);
  frame.body.append(
    ...contents.notes.map((text) => note(text, " gl-confirmation")),
    element(
      "div", { class: "gl-bar-top" },
      element("div", { class: "gl-groups" },
        group("", ...(warps.size > 1 ? [element("label", {}, "Warp ", warpChoice)] : []), "first", "previous", "next", "last", "play", play.speed),
        group("gl-loops", "access", ...(looping ? ["previous-iteration", "next-iteration", "past-loop", fold, turnsText] : [])),
        ...(contents.stopping ? [group("", "previous-stop", "next-stop")] : []),
        group("gl-unit", element("label", {}, "Step by ", unit), ptx)),
      lanesOverSteps.node, slider, spoken,
    ),
    element("div", { class: "gl-columns" }, element("div", { class: "gl-left" }, code.node), element("div", { class: "gl-right" }, lanes, legend, lanesNote, values?.node)),
    access.node, ...(memory ? [memory.node] : []), note(contents.keys),
  );
  frame.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || (event.shiftKey && !"IS".includes(event.key))) return;
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
    buttons.access.disabled = !steps.access_step;
    showListing();
  };
  const showStep = () => {
    if (!steps.length) { spoken.textContent = contents.empty; return; }
    const [at, line] = [steps.clamp(step()), byLine()];
    const visit = steps.visit(at);
    slider.max = String((line ? steps.visit_begin.length : steps.length) - 1);
    slider.value = String(line ? visit : at);
    spoken.textContent = steps.sentence(at, line);
    slider.setAttribute("aria-valuetext", spoken.textContent);
    unit.value = line ? "line" : "step";
    press(fold, model.get("fold"));
    press(ptx, model.get("show_ptx"));
    const turns = steps.turns(line ? steps.visitEnd(visit) : at) || "not in a loop";
    turnsText.textContent = turns[0].toUpperCase() + turns.slice(1);
    // A disabled button would drop the focus, and the keys with it.
    const stays = (name) => steps.target(name, at) === at;
    const [first, last] = [line ? visit === 0 : at === 0, atEnd()];
    const ends = {
      first, previous: first, next: last, last,
      "past-loop": stays("past_loop"), "previous-iteration": stays("previous_iteration"), "next-iteration": stays("next_iteration"),
      "previous-stop": stays(`previous_stop${line ? "_visit" : ""}`), "next-stop": stays(`next_stop${line ? "_visit" : ""}`),
    };
    for (const [name, end] of Object.entries(ends)) buttons[name].setAttribute("aria-disabled", String(end));
    const site = steps.site[at];
    if (model.get("show_ptx")) code.mark(steps.site_pc[site], 0);
    else if (line) code.mark(steps.visit_line[visit], 0);
    else code.mark(steps.site_line[site], steps.site_column[site]);
    showLanes(at, line);
    [access, memory, lanesOverSteps].forEach((panel) => panel?.show(steps, at, { fold: model.get("fold"), byLine: line }));
  };
  const showLanes = (at, line) => {
    const [chosen, lane] = [model.get("register"), model.get("lane")];
    const after = line ? steps.visitEnd(steps.visit(at)) : at;
    const room = Math.max(3, Math.floor(cells[0].cell.clientWidth / LANE_DIGIT_PX));
    const values32 = (chosen ? steps.named(chosen, after) : line ? steps.lineResult(at) : steps.result(at)) ?? [];
    cells.forEach(({ cell, symbol, value }, here) => {
      const [state, shown] = [steps.laneState(at, here, line), values32[here]];
      cell.dataset.state = state;
      [symbol.textContent] = contents.lane_states[state];
      value.textContent = shown ? cellText(shown.bits, shown.type, room) : "";
      value.title = shown ? valueText(shown.bits, shown.type, true) : "";
      press(cell, here === lane);
      cell.setAttribute("tabindex", here === lane ? "0" : "-1");
      cell.setAttribute("aria-label", `lane ${here}: ${contents.lane_states[state][1]}${shown ? `, ${valueText(shown.bits, shown.type)}` : ""}`);
    });
    const some = values32.find((each) => each);
    const what = some ? ` · numbers: ${some.what} (${some.ctype ?? (some.type || "bits")}) after this ${line ? "line" : "step"}` : chosen ? ` · ${chosen} has no value yet` : "";
    const back = chosen ? [" ", element("button", { type: "button", class: "gl-small", onclick: () => frame.send("register", "") }, "Show each step's result")] : [];
    lanesNote.replaceChildren(`mask 0x${steps.mask_active[steps.mask[at]].toString(16).padStart(8, "0")}${what}`, ...back);
    values?.show(steps, after, lane, chosen, line ? steps.visit_line[steps.visit(at)] : null);
  };

  frame.on("warp", showWarp);
  for (const trait of ["step", "by_line", "fold", "lane", "register"]) frame.on(trait, showStep);
  frame.on("show_ptx", showListing);
  frame.redraw(lanesOverSteps.node, () => { lanesOverSteps.draw(); access.draw(); });
  requestAnimationFrame(showWarp);
  frame.endings.push(play.stop);
  return frame.ending();
}

export default { render };
