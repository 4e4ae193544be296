import { Frame, columns, element, number } from "./base.js";
import { WarpSteps, boxText, laneCount, valueText } from "./warp_steps.js";
import { SharedMemory, firstAtLeast } from "./warp_state.js";
import { bankPicture, sectorPicture } from "./warp_access.js";
import { registerPanel } from "./warp_registers.js";
import { sharedPanel } from "./warp_shared.js";
import { Timeline } from "./warp_timeline.js";

// Steps the warps of a block through their kernel: source line beside 32 lanes, registers, each memory
// access as a picture, and shared memory.

const SYMBOLS = { active: "●", inactive: "○", off: "◐", none: "–" };
const STATE_WORDS = { active: "active", inactive: "inactive", off: "predicated off", none: "no thread" };
const STATE_HELP = {
  active: "executes this instruction",
  inactive: "is elsewhere, or has ended",
  off: "is here, but the instruction's own condition is false for it",
  none: "the block's last warp has fewer threads",
};
const PLAY_MS = 350;

/** Columns by the part of their name before the slash. */
function columnGroups(flat) {
  const groups = new Map();
  for (const [name, column] of Object.entries(flat)) {
    const [group, key] = name.split("/");
    if (!groups.has(group)) groups.set(group, {});
    groups.get(group)[key] = column;
  }
  return groups;
}

function render({ model, el }) {
  const frame = new Frame(model, el, "warp-stepper");
  const facts = model.get("facts");
  const groups = columnGroups(columns(model.get("data"), model.get("layout_of_data")));
  const warps = new Map(facts.warps.map(([warp, threads]) => [warp, new WarpSteps(groups.get(String(warp)), facts, threads)]));
  const shared = groups.has("shared") ? new SharedMemory(groups.get("shared"), facts.shared_bytes, facts.types) : null;
  const anyLoops = [...warps.values()].some((each) => each.loops.length);
  let steps = warps.get(model.get("warp"));
  let playing = 0;

  // Moves -----------------------------------------------------------------------------------
  const step = () => model.get("step");
  const move = (to) => {
    const wanted = steps.clamp(to);
    if (wanted !== step()) frame.send("step", wanted);
  };
  const next = () => move(model.get("by_line") ? steps.nextLine(step()) : step() + 1);
  const previous = () => move(model.get("by_line") ? steps.previousLine(step()) : step() - 1);
  const stop = () => {
    clearInterval(playing);
    playing = 0;
    play.textContent = "Play";
    play.setAttribute("aria-pressed", "false");
  };
  const togglePlay = () => {
    if (playing) return stop();
    if (step() >= steps.length - 1) move(0);
    play.textContent = "Pause";
    play.setAttribute("aria-pressed", "true");
    playing = setInterval(() => {
      const before = step();
      next();
      if (step() === before) stop();
    }, PLAY_MS);
    return undefined;
  };
  const chooseLane = (lane) => frame.send("lane", Math.max(0, Math.min(31, lane)));
  const chooseRegister = (name) => frame.send("register", model.get("register") === name ? "" : name);
  const chooseWarp = (warp) => {
    const to = warps.get(warp);
    if (!to || to === steps) return;
    const now = steps.sequence?.[steps.clamp(step())] ?? 0;
    const reached = to.sequence ? firstAtLeast(to.sequence, now + 1) - 1 : 0;
    model.set("warp", warp);
    frame.send("step", to.clamp(reached));
  };
  const keys = {
    ArrowRight: next,
    ArrowLeft: previous,
    ArrowDown: () => move(steps.nextLine(step())),
    ArrowUp: () => move(steps.previousLine(step())),
    PageDown: () => move(steps.nextAccess(step())),
    PageUp: () => move(steps.previousAccess(step())),
    Home: () => move(0),
    End: () => move(steps.length - 1),
    " ": togglePlay,
    i: () => move(steps.nextIteration(step())),
    I: () => move(steps.previousIteration(step())),
    o: () => move(steps.pastLoop(step())),
    ",": () => chooseLane(model.get("lane") - 1),
    ".": () => chooseLane(model.get("lane") + 1),
    "[": () => chooseWarp(model.get("warp") - 1),
    "]": () => chooseWarp(model.get("warp") + 1),
  };

  // Parts -----------------------------------------------------------------------------------
  const button = (name, label, key, onclick, text) => element(
    "button",
    { type: "button", onclick, "aria-label": label, title: `${label} (${key})`, "data-move": name },
    text,
  );
  const toggle = (trait, text) => element("button", { type: "button", "aria-pressed": String(model.get(trait)), onclick: () => frame.send(trait, !model.get(trait)) }, text);
  const first = button("first", "First step", "Home", keys.Home, "|◀");
  const back = button("previous", "Previous step", "Left arrow", previous, "◀");
  const on = button("next", "Next step", "Right arrow", next, "▶");
  const last = button("last", "Last step", "End", keys.End, "▶|");
  const play = button("play", "Play or pause", "Space", togglePlay, "Play");
  const line = button("line", "Next source line", "Down arrow", keys.ArrowDown, "Next line");
  const memory = button("access", "Next memory access", "Page Down", keys.PageDown, "Next memory access");
  const unit = element(
    "select",
    { "aria-label": "One step is", onchange: () => frame.send("by_line", unit.value === "line") },
    element("option", { value: "step" }, facts.granularity),
    element("option", { value: "line" }, "source line"),
  );
  const ptx = toggle("show_ptx", "Show PTX");
  const fold = toggle("fold", "Fold loops");
  const earlier = button("previous-iteration", "Previous iteration", "Shift+I", keys.I, "◀ Iteration");
  const later = button("next-iteration", "Next iteration", "I", keys.i, "Iteration ▶");
  const past = button("past-loop", "Past the loop", "O", keys.o, "Past the loop");
  const turnsText = element("span", { class: "gl-turns" });
  const warpChoice = element(
    "select", { "aria-label": "Warp", onchange: () => chooseWarp(Number(warpChoice.value)) },
    ...facts.warps.map(([warp, threads]) => element("option", { value: warp }, `${warp} (${threads} threads)`)),
  );
  const canvas = element("canvas", { "aria-hidden": "true" });
  const timeline = new Timeline(frame, canvas);
  const timelineBox = element("div", { class: "gl-timeline" }, canvas);
  const slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Step", oninput: () => move(Number(slider.value)) });
  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const listing = element("ol", { class: "gl-listing", tabindex: 0, role: "group", "aria-label": "Kernel text; keys step through it" });
  const lanes = element("div", { class: "gl-lanes", role: "group", "aria-label": "32 lanes of the warp; choose one to see its registers" });
  const lanesNote = element("div", { class: "gl-note" });
  const access = element("div", { class: "gl-access" });
  const registers = facts.registers.length ? registerPanel(chooseRegister) : null;
  const block = shared && sharedPanel(shared);
  const cells = Array.from({ length: 32 }, (_, lane) => {
    const symbol = element("span", { class: "gl-symbol", "aria-hidden": "true" });
    const value = element("span", { class: "gl-value", "aria-hidden": "true" });
    const cell = element("button", { type: "button", class: "gl-lane", onclick: () => chooseLane(lane) }, element("span", { class: "gl-lane-number", "aria-hidden": "true" }, String(lane)), symbol, value);
    lanes.append(cell);
    return { cell, symbol, value };
  });
  const ragged = facts.warps.some(([, threads]) => threads < 32);

  frame.body.append(
    ...facts.notes.map((note) => element("div", { class: "gl-note gl-confirmation" }, note)),
    element("div", { class: "gl-tools" }, ...(warps.size > 1 ? [element("label", {}, "Warp ", warpChoice)] : []), first, back, on, last, play, line, memory, element("label", {}, "Step by ", unit), ptx),
    ...(anyLoops ? [element("div", { class: "gl-tools gl-loops", role: "group", "aria-label": "Loops" }, earlier, later, past, fold, turnsText)] : []),
    timelineBox, slider, spoken,
    element(
      "div", { class: "gl-columns" },
      element("div", { class: "gl-left" }, listing),
      element(
        "div", { class: "gl-right" }, lanes,
        element("div", { class: "gl-legend" }, ...Object.keys(SYMBOLS).filter((s) => s !== "none" || ragged)
          .map((state) => element("span", { title: STATE_HELP[state] }, `${SYMBOLS[state]} ${STATE_WORDS[state]}`))),
        lanesNote,
        registers?.node,
      ),
    ),
    access,
    ...(block ? [block.node] : []),
    element("div", { class: "gl-note" }, "Keys: ← → step, ↑ ↓ source line, Page Up and Page Down memory access, Home, End, space plays",
      anyLoops ? ", i and I iteration, o out of the loop" : "", registers ? ", comma and full stop lane" : "", warps.size > 1 ? ", [ and ] warp" : "", "."),
  );
  frame.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || (event.shiftKey && event.key !== "I")) return;
    const inside = event.target.closest("select, input, button, summary");
    // A focused button keeps its own space bar, a list its own arrows.
    if (inside?.matches("select") || (event.key === " " && inside)) return;
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    move(timeline.seek(event.clientX));
  });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons) move(timeline.seek(event.clientX)); });

  // The listing: source lines, or the instructions that ran ------------------------------------
  let rows = new Map();
  let current = null;
  const fillListing = () => {
    const showPtx = model.get("show_ptx");
    ptx.setAttribute("aria-pressed", String(showPtx));
    const visits = new Map();
    const keyOf = (at) => (showPtx ? steps.pc[at] : steps.line[at]);
    for (let at = 0; at < steps.length; at += 1) visits.set(keyOf(at), (visits.get(keyOf(at)) ?? 0) + 1);
    const entries = showPtx
      ? [...new Map(Array.from(steps.pc, (pc, at) => [pc, steps.instruction(at)]))].sort(([a], [b]) => a - b)
      : facts.code.map((text, at) => [at + 1, text]);
    current = null;
    rows = new Map(entries.map(([key, text]) => {
      const code = element("code", {}, text || " ");
      const row = element(
        "li", { class: "gl-row" },
        element("span", { class: "gl-row-number" }, String(key)),
        element("span", { class: "gl-row-visits", title: visits.has(key) ? `${visits.get(key)} steps` : "not run by this warp" }, visits.has(key) ? `${number(visits.get(key))}×` : ""),
        code,
      );
      return [key, { row, code, text: text || " " }];
    }));
    listing.replaceChildren(...[...rows.values()].map(({ row }) => row));
  };

  /** Mark the row of a step, and the word at its column where that is known. */
  const markRow = (at) => {
    if (current) {
      current.row.classList.remove("gl-current");
      current.row.removeAttribute("aria-current");
      current.code.textContent = current.text;
    }
    current = rows.get(model.get("show_ptx") ? steps.pc[at] : steps.line[at]) ?? null;
    if (!current) return;
    current.row.classList.add("gl-current");
    current.row.setAttribute("aria-current", "step");
    const from = steps.column[at] - 1;
    const word = model.get("show_ptx") || from < 0 ? null : /^(?:[A-Za-z_]\w*|[\d.]+\w*|\S)/.exec(current.text.slice(from));
    if (word) {
      current.code.replaceChildren(current.text.slice(0, from), element("mark", { class: "gl-word" }, word[0]), current.text.slice(from + word[0].length));
    }
    listing.scrollTop = current.row.offsetTop - listing.clientHeight / 2;
  };

  // Showing one step -------------------------------------------------------------------------
  const showWarp = () => {
    steps = warps.get(model.get("warp")) ?? steps;
    warpChoice.value = String(model.get("warp"));
    slider.max = String(Math.max(0, steps.length - 1));
    memory.disabled = steps.accesses.length === 0;
    fillListing();
    showStep();
  };

  const showStep = () => {
    if (!steps.length) {
      spoken.textContent = "The warp ran no instruction.";
      return;
    }
    const at = steps.clamp(step());
    slider.value = String(at);
    spoken.textContent = steps.sentence(at);
    slider.setAttribute("aria-valuetext", spoken.textContent);
    // A disabled button would drop the focus, and the keys with it.
    for (const node of [first, back]) node.setAttribute("aria-disabled", String(at === 0));
    for (const node of [on, last]) node.setAttribute("aria-disabled", String(at === steps.length - 1));
    unit.value = model.get("by_line") ? "line" : "step";
    showTurns(at);
    markRow(at);
    showLanes(at);
    const what = steps.access(at);
    showAccess(at, what);
    if (block) block.show(steps.sequence[at], touchedWords(what, steps.executed[at]));
    timeline.draw(steps, at, model.get("fold"));
  };

  const showTurns = (at) => {
    const run = steps.loops.innermost(at);
    const words = steps.loops.words(at);
    fold.setAttribute("aria-pressed", String(model.get("fold")));
    turnsText.textContent = words ? words[0].toUpperCase() + words.slice(1) : "Not in a loop";
    earlier.setAttribute("aria-disabled", String(steps.previousIteration(at) === at));
    later.setAttribute("aria-disabled", String(steps.nextIteration(at) === at));
    past.setAttribute("aria-disabled", String(run < 0));
  };

  /** Words of shared memory that a step loads. */
  const touchedWords = (what, executed) => {
    const words = new Set();
    if (what?.space !== "shared" || what.kind === "store" || !what.addresses) return words;
    what.addresses.forEach((address, lane) => {
      if (!((executed >>> lane) & 1)) return;
      for (let at = Number(address) >> 2; at <= (Number(address) + what.sizeBytes - 1) >> 2; at += 1) words.add(at);
    });
    return words;
  };

  const showLanes = (at) => {
    const chosen = model.get("register");
    const lane = model.get("lane");
    const kept = chosen ? steps.registers.ofName(at, chosen) : null;
    const values = kept ? { what: kept.register, ...kept } : chosen ? null : steps.result(at);
    cells.forEach(({ cell, symbol, value }, number_) => {
      const state = steps.laneState(at, number_);
      const bits = values?.bits[number_] ?? null;
      const shown = bits !== null && (kept || state === "active");
      cell.dataset.state = state;
      symbol.textContent = SYMBOLS[state];
      const words = shown ? valueText(bits, values.type) : "";
      value.textContent = boxText(words);
      value.title = shown ? valueText(bits, values.type, true) : "";
      cell.setAttribute("aria-pressed", String(number_ === lane));
      cell.setAttribute("tabindex", number_ === lane ? "0" : "-1");
      cell.setAttribute("aria-label", `lane ${number_}: ${STATE_WORDS[state]}${words ? `, ${words}` : ""}`);
    });
    const mask = `mask 0x${steps.active[at].toString(16).padStart(8, "0")}`;
    const what = values ? `numbers: ${values.what} (${values.type || "bits"}) after this step` : chosen ? `${chosen} has no value yet` : "";
    lanesNote.replaceChildren(what ? `${mask} · ${what}` : mask, ...(chosen ? [" ", element("button", { type: "button", class: "gl-small", onclick: () => frame.send("register", "") }, "Show each step's result")] : []));
    registers?.show(steps, at, lane, chosen);
  };

  const showAccess = (at, what) => {
    access.hidden = !what && steps.accesses.length === 0;
    if (!what) {
      access.replaceChildren(element("div", { class: "gl-note" }, "No memory access in this step."));
      return;
    }
    const drawable = what.addresses && (what.space === "shared" || what.space === "global" || what.space === "generic");
    const picture = !drawable ? null : what.space === "shared" ? bankPicture(what, steps.executed[at]) : sectorPicture(what, steps.executed[at]);
    const banks = what.space === "shared";
    const [spent, ideal] = banks ? [what.wavefronts, what.idealWavefronts] : [what.sectors, what.idealSectors];
    const heading = `${what.space} ${what.kind} · ${what.sizeBytes} bytes a lane × ${laneCount(steps.executed[at])} lanes`;
    const verdict = !drawable || !spent
      ? null
      : element("span", { class: spent > ideal ? "gl-verdict gl-over" : "gl-verdict" },
        `${number(spent)} ${banks ? (spent === 1 ? "pass" : "passes") : spent === 1 ? "sector" : "sectors"}, at best ${number(ideal)} ${spent > ideal ? `(${number(spent / Math.max(1, ideal))}×)` : "✓"}`);
    access.replaceChildren(
      element("div", { class: "gl-heading" }, `${banks ? "Banks" : "Sectors"}: ${heading} `, verdict),
      ...(picture ? [picture.svg] : []),
      ...(picture?.note ? [element("div", { class: "gl-note" }, picture.note)] : []),
      ...(what.space === "local" ? [element("div", { class: "gl-note" }, "Local memory is private to each lane and interleaved, so equal offsets of the lanes lie side by side.")] : []),
    );
  };

  frame.on("warp", showWarp);
  for (const trait of ["step", "by_line", "fold", "lane", "register"]) frame.on(trait, showStep);
  frame.on("show_ptx", () => { fillListing(); showStep(); });
  frame.redraw(timelineBox, () => { if (steps.length) timeline.draw(steps, steps.clamp(step()), model.get("fold")); });
  requestAnimationFrame(showWarp);
  frame.endings.push(stop);
  return frame.ending();
}

export default { render };
