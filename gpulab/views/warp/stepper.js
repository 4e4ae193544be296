import { Frame, element, unpack } from "../parts/frame.js";
import { above, upTo } from "../parts/items.js";
import { WarpRecord, cellText, valueText } from "./record.js";
import { listing } from "./listing.js";
import { accessPanel, timeline } from "./pictures.js";
import { sharedPanel, valuesPanel } from "./panels.js";
import { player } from "../parts/player.js";

// The steps of a block's warps through their kernel: source lines, 32 lanes, values, pictures of memory accesses,
// and shared memory. A step is a visit of a source line, or an instruction.

const LANE_DIGIT_PX = 6.6; // width of a digit in a lane's cell, at most

/** Whether a toggle is on, for the eye and for a screen reader. */
const press = (node, on) => node.setAttribute("aria-pressed", String(on));

function render({ model, el }) {
  const frame = new Frame({ model, el }, "warp-stepper");
  const contents = unpack(model.get("contents"), model.get("data"));
  const warps = new Map(contents.warps.map((warp) => [warp[0], new WarpRecord(contents, warp)]));
  const allSteps = [...warps.values()];
  let steps = warps.get(model.get("warp"));

  const [step, byLine] = [() => model.get("step"), () => model.get("by_line")];
  const move = (target) => { if (steps.clamp(target) !== step()) frame.send("step", steps.clamp(target)); };
  const go = (name) => () => move(steps.target(name, step()));
  const stop = (name) => () => move(steps.target(byLine() ? `${name}_visit` : name, step()));
  const by = (name, count) => () => (byLine() ? go(name)() : move(step() + count));
  const [next, previous] = [by("next_line", 1), by("previous_line", -1)];
  const atEnd = () => (byLine() ? steps.visit(steps.clamp(step())) === steps.visit_begin.length - 1 : step() >= steps.length - 1);
  const toEnd = () => move(byLine() ? steps.visit_begin[steps.visit_begin.length - 1] : steps.length - 1);
  const chooseLane = (lane) => frame.send("lane", Math.max(0, Math.min(31, lane)));
  const chooseValue = (name) => frame.send("register", model.get("register") === name ? "" : name);
  const chooseWarp = (warp) => {
    const target = warps.get(warp);
    if (!target || target === steps) return;
    const reachedStep = target.sequence ? above(target.sequence, steps.sequence[steps.clamp(step())]) - 1 : 0;
    model.set("warp", warp);
    frame.send("step", target.clamp(reachedStep));
  };
  /** Move to the next step that runs a row of the listing, or to the first one. */
  const jump = (column, key) => {
    const [current, isLine] = [steps.clamp(step()), column === "visit_line"];
    const length = isLine ? steps.visit_begin.length : steps.length;
    const start = isLine ? steps.visit(current) : current;
    const isTarget = (candidate) => (isLine ? steps.visit_line[candidate] : steps.site_pc[steps.site[candidate]]) === key;
    for (let distance = 1; distance <= length; distance += 1) {
      const candidate = (start + distance) % length;
      if (isTarget(candidate)) return move(isLine ? steps.visit_begin[candidate] : candidate);
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

  // Buttons: name, label, displayed key, key of the browser's event, text --------------------------------
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
  const fold = toggle("Fold loops", "Show one iteration of each loop in the strip", () => frame.send("fold", !model.get("fold")));
  const choice = (label, options, onChoice) => element("select", { "aria-label": label, onchange: (event) => onChoice(event.target.value) }, ...options.map(([value, text]) => element("option", { value }, text)));
  const unit = choice("One step is", [["line", "by source line"], ["step", `by ${contents.granularity}`]], (value) => frame.send("by_line", value === "line"));
  const warpChoice = choice("Warp", contents.warps.map(([warp, threads]) => [warp, threads < 32 ? `${warp} (${threads} threads)` : warp]), (value) => chooseWarp(Number(value)));

  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const note = (text, className = "") => element("div", { class: `gl-note${className}` }, text);
  const [lanesNote, code, lanesOverSteps, access] = [note("", " gl-lanes-note"), listing(jump), timeline(frame, move), accessPanel(frame)];
  const values = allSteps.some((record) => record.call_holders) ? valuesPanel(chooseValue) : null;
  const memory = contents.shared && sharedPanel(contents.shared, contents.texts);
  const cells = upTo(32, (lane) => {
    const [number, symbol, value] = ["gl-lane-number", "gl-symbol", "gl-value"].map((name) => element("span", { class: name, "aria-hidden": "true" }));
    number.textContent = String(lane);
    return { cell: element("button", { type: "button", class: "gl-lane", onclick: () => chooseLane(lane) }, number, symbol, value), symbol, value };
  });
  const lanes = element("div", { class: "gl-lanes", role: "group", "aria-label": "32 lanes of the warp; choose one to see its values" }, ...cells.map(({ cell }) => cell));
  const states = Object.entries(contents.lane_states).filter(([state]) => state !== "none" || allSteps.some(({ threads }) => threads < 32));
  const marks = [["tail", "memory access", "access_step"], ["purple", "stop", "stop_step"], ["accent-2", "iterations of a loop", "turn"]];
  const columnText = element("span");
  const legend = element(
    "div", { class: "gl-legend" }, columnText,
    ...states.map(([state, [symbol, words, help]]) => element("span", { title: help }, element("i", { "data-state": state }, symbol), words)),
    ...marks.filter(([, , column]) => allSteps.some((record) => record[column])).map(([colour, words]) => element("span", {}, element("i", { style: `background: var(--gl-${colour})` }), words)),
  );
  const group = (className, ...nodes) => element("div", { class: `gl-tools ${className}` }, ...nodes.map((node) => buttons[node] ?? node));
  const looping = allSteps.some((record) => record.turn);
  frame.body.append(
    ...contents.notes.map((text) => note(text, " gl-confirmation")),
    element(
      "div", { class: "gl-bar-top" },
      element("div", { class: "gl-groups" },
        group("", ...(warps.size > 1 ? [element("label", {}, "Warp ", warpChoice)] : []), "first", "previous", "next", "last", "play", play.speed),
        group("gl-loops", "access", ...(looping ? ["previous-iteration", "next-iteration", "past-loop", fold] : [])),
        ...(contents.stopping ? [group("", "previous-stop", "next-stop")] : []),
        group("gl-unit", unit, ptx)),
      lanesOverSteps.node, legend, spoken,
    ),
    element("div", { class: "gl-panes" }, code.node, element("div", { class: "gl-warp" }, lanes, lanesNote), values?.node, access.node, memory?.node),
    note(contents.keys, " gl-key-list"),
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
    const [current, isLine] = [steps.clamp(step()), byLine()];
    const visit = steps.visit(current);
    spoken.textContent = steps.sentence(current, isLine);
    lanesOverSteps.slider.setAttribute("aria-valuetext", spoken.textContent);
    unit.value = isLine ? "line" : "step";
    columnText.textContent = `Lanes in each ${isLine ? "source line" : contents.granularity}:`;
    press(fold, model.get("fold"));
    press(ptx, model.get("show_ptx"));
    // A disabled button would drop the focus, and the keys with it.
    const isWithoutTarget = (name) => steps.target(name, current) === current;
    const [isFirst, isLast] = [isLine ? visit === 0 : current === 0, atEnd()];
    const ends = {
      first: isFirst, previous: isFirst, next: isLast, last: isLast,
      "past-loop": isWithoutTarget("past_loop"), "previous-iteration": isWithoutTarget("previous_iteration"), "next-iteration": isWithoutTarget("next_iteration"),
      "previous-stop": isWithoutTarget(`previous_stop${isLine ? "_visit" : ""}`), "next-stop": isWithoutTarget(`next_stop${isLine ? "_visit" : ""}`),
    };
    for (const [name, isEnd] of Object.entries(ends)) buttons[name].setAttribute("aria-disabled", String(isEnd));
    const site = steps.site[current];
    if (model.get("show_ptx")) code.mark(steps.site_pc[site], 0);
    else if (isLine) code.mark(steps.visit_line[visit], 0);
    else code.mark(steps.site_line[site], steps.site_column[site]);
    showLanes(current, isLine);
    [access, memory, lanesOverSteps].forEach((panel) => panel?.show(steps, current, { fold: model.get("fold"), byLine: isLine }));
  };
  const showLanes = (current, isLine) => {
    const [chosen, lane] = [model.get("register"), model.get("lane")];
    const valueStep = isLine ? steps.visitEnd(steps.visit(current)) : current;
    const maxLetters = Math.max(3, Math.floor((cells[0].cell.clientWidth - 4) / LANE_DIGIT_PX));
    const values32 = (chosen ? steps.named(chosen, valueStep) : isLine ? steps.lineResult(current) : steps.result(current)) ?? [];
    cells.forEach(({ cell, symbol, value }, cellLane) => {
      const [state, laneValue] = [steps.laneState(current, cellLane, isLine), values32[cellLane]];
      cell.dataset.state = state;
      [symbol.textContent] = contents.lane_states[state];
      value.textContent = laneValue ? cellText(laneValue.bits, laneValue.type, maxLetters) : "";
      value.title = laneValue ? valueText(laneValue.bits, laneValue.type, true) : "";
      press(cell, cellLane === lane);
      cell.setAttribute("tabindex", cellLane === lane ? "0" : "-1");
      cell.setAttribute("aria-label", `lane ${cellLane}: ${contents.lane_states[state][1]}${laneValue ? `, ${valueText(laneValue.bits, laneValue.type)}` : ""}`);
    });
    const firstValue = values32.find((candidate) => candidate);
    const valuesText = firstValue ? ` · numbers: ${firstValue.what} (${firstValue.ctype ?? (firstValue.type || "bits")})` : chosen ? ` · ${chosen} has no value yet` : "";
    const resetButton = chosen ? [" ", element("button", { type: "button", class: "gl-small", onclick: () => frame.send("register", "") }, "Show each step's result")] : [];
    lanesNote.replaceChildren(`mask 0x${steps.mask_active[steps.mask[current]].toString(16).padStart(8, "0")}${valuesText}`, ...resetButton);
    values?.show(steps, valueStep, lane, chosen, isLine ? steps.visit_line[steps.visit(current)] : null);
  };

  frame.on("warp", showWarp);
  for (const trait of ["step", "by_line", "fold", "lane", "register"]) frame.on(trait, showStep);
  frame.on("show_ptx", showListing);
  frame.redraw(lanesOverSteps.node, () => [code, lanesOverSteps, access, memory].forEach((panel) => panel?.draw()));
  requestAnimationFrame(showWarp);
  frame.endings.push(play.stop);
  return frame.ending();
}

export default { render };
