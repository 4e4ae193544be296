import { Frame, canvasFont, columns, element, number, prepare } from "./base.js";
import { WarpSteps, laneCount } from "./warp_steps.js";
import { bankPicture, sectorPicture } from "./warp_access.js";

// Steps one warp through its kernel: source line beside 32 lanes, and each memory access as a picture.

const SYMBOLS = { active: "●", inactive: "○", off: "◐", none: "–" };
const STATE_WORDS = { active: "active", inactive: "inactive", off: "predicated off", none: "no thread" };
const PLAY_MS = 350;
const TIMELINE_HEIGHT = 60;

function render({ model, el }) {
  const frame = new Frame(model, el, "warp-stepper");
  let steps = new WarpSteps(columns(model.get("data"), model.get("layout_of_data")), model.get("facts"));
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
  };

  // Parts -----------------------------------------------------------------------------------
  const button = (name, label, key, onclick) => element(
    "button",
    { type: "button", onclick, "aria-label": label, title: `${label} (${key})`, "data-move": name },
  );
  const first = button("first", "First step", "Home", keys.Home);
  const back = button("previous", "Previous step", "Left arrow", previous);
  const on = button("next", "Next step", "Right arrow", next);
  const last = button("last", "Last step", "End", keys.End);
  first.textContent = "|◀";
  back.textContent = "◀";
  on.textContent = "▶";
  last.textContent = "▶|";
  const play = button("play", "Play or pause", "Space", togglePlay);
  play.textContent = "Play";
  const line = button("line", "Next source line", "Down arrow", keys.ArrowDown);
  line.textContent = "Next line";
  const memory = button("access", "Next memory access", "Page Down", keys.PageDown);
  memory.textContent = "Next memory access";
  memory.disabled = steps.accesses.length === 0;
  const unit = element(
    "select",
    { "aria-label": "One step is", onchange: () => frame.send("by_line", unit.value === "line") },
    element("option", { value: "step" }, steps.facts.granularity),
    element("option", { value: "line" }, "source line"),
  );
  const ptx = element("button", { type: "button", "aria-pressed": "false", onclick: () => frame.send("show_ptx", !model.get("show_ptx")) }, "Show PTX");
  const timeline = element("canvas", { "aria-hidden": "true" });
  const timelineBox = element("div", { class: "gl-timeline" }, timeline);
  const slider = element("input", {
    type: "range", min: 0, max: Math.max(0, steps.length - 1), step: 1, "aria-label": "Step",
    oninput: () => move(Number(slider.value)),
  });
  const spoken = element("div", { class: "gl-sentence", "aria-live": "polite", role: "status" });
  const listing = element("ol", { class: "gl-listing", tabindex: 0, role: "group", "aria-label": "Kernel text; keys step through it" });
  const lanes = element("div", { class: "gl-lanes", role: "group", "aria-label": "32 lanes of the warp" });
  const lanesNote = element("div", { class: "gl-note" });
  const access = element("div", { class: "gl-access" });
  const cells = Array.from({ length: 32 }, (_, lane) => {
    const symbol = element("span", { class: "gl-symbol", "aria-hidden": "true" });
    const value = element("span", { class: "gl-value", "aria-hidden": "true" });
    const cell = element("div", { class: "gl-lane", role: "img" }, element("span", { class: "gl-lane-number", "aria-hidden": "true" }, String(lane)), symbol, value);
    lanes.append(cell);
    return { cell, symbol, value };
  });

  frame.body.append(
    ...steps.facts.notes.map((note) => element("div", { class: "gl-note gl-confirmation" }, note)),
    element("div", { class: "gl-tools" }, first, back, on, last, play, line, memory, element("label", {}, "Step by ", unit), ptx),
    timelineBox, slider, spoken,
    element(
      "div", { class: "gl-columns" },
      element("div", { class: "gl-left" }, listing),
      element(
        "div", { class: "gl-right" }, lanes,
        element("div", { class: "gl-legend" }, ...Object.keys(SYMBOLS).filter((s) => s !== "none" || steps.facts.threads < 32)
          .map((state) => element("span", {}, `${SYMBOLS[state]} ${STATE_WORDS[state]}`))),
        lanesNote,
      ),
    ),
    access,
    element("div", { class: "gl-note" }, "Keys: ← → step, ↑ ↓ source line, Page Up and Page Down memory access, Home, End, space plays."),
  );
  frame.root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const inside = event.target.closest("select, input, button");
    // A focused button keeps its own space bar, a list its own arrows.
    if (inside?.matches("select") || (event.key === " " && inside)) return;
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  });
  const seek = (event) => {
    const box = timeline.getBoundingClientRect();
    move(Math.floor(((event.clientX - box.left) / box.width) * steps.length));
  };
  timeline.addEventListener("pointerdown", (event) => {
    timeline.setPointerCapture(event.pointerId);
    seek(event);
  });
  timeline.addEventListener("pointermove", (event) => { if (event.buttons) seek(event); });

  // The listing: source lines, or the instructions that ran ------------------------------------
  let rows = new Map();
  const fillListing = () => {
    const showPtx = model.get("show_ptx");
    ptx.setAttribute("aria-pressed", String(showPtx));
    const visits = new Map();
    const keyOf = (at) => (showPtx ? steps.pc[at] : steps.line[at]);
    for (let at = 0; at < steps.length; at += 1) visits.set(keyOf(at), (visits.get(keyOf(at)) ?? 0) + 1);
    const entries = showPtx
      ? [...new Map(Array.from(steps.pc, (pc, at) => [pc, steps.instruction(at)]))].sort(([a], [b]) => a - b)
      : steps.facts.code.map((text, at) => [at + 1, text]);
    rows = new Map(entries.map(([key, text]) => [key, element(
      "li", { class: "gl-row" },
      element("span", { class: "gl-row-number" }, String(key)),
      element("span", { class: "gl-row-visits", title: visits.has(key) ? `${visits.get(key)} steps` : "not run by this warp" }, visits.has(key) ? `${number(visits.get(key))}×` : ""),
      element("code", {}, text || " "),
    )]));
    listing.replaceChildren(...rows.values());
  };

  // Showing one step -------------------------------------------------------------------------
  let current = null;
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
    current?.classList.remove("gl-current");
    current?.removeAttribute("aria-current");
    current = rows.get(model.get("show_ptx") ? steps.pc[at] : steps.line[at]) ?? null;
    if (current) {
      current.classList.add("gl-current");
      current.setAttribute("aria-current", "step");
      const middle = current.offsetTop - listing.offsetTop - listing.clientHeight / 2;
      listing.scrollTop = middle;
    }
    showLanes(at);
    showAccess(at);
    drawTimeline();
  };

  const showLanes = (at) => {
    const values = steps.values(at);
    cells.forEach(({ cell, symbol, value }, lane) => {
      const state = steps.laneState(at, lane);
      cell.dataset.state = state;
      symbol.textContent = SYMBOLS[state];
      value.textContent = values && state === "active" ? values.lanes[lane] : "";
      value.title = value.textContent;
      cell.setAttribute("aria-label", `lane ${lane}: ${STATE_WORDS[state]}${value.textContent ? `, ${value.textContent}` : ""}`);
    });
    const mask = `mask 0x${steps.active[at].toString(16).padStart(8, "0")}`;
    lanesNote.textContent = values ? `${mask} · numbers: ${values.register} (${values.type}) after this step` : mask;
  };

  const showAccess = (at) => {
    const what = steps.access(at);
    access.hidden = !what && steps.accesses.length === 0;
    if (!what) {
      access.replaceChildren(element("div", { class: "gl-note" }, "No memory access in this step."));
      return;
    }
    const drawable = what.addresses && (what.space === "shared" || what.space === "global" || what.space === "generic");
    const picture = !drawable ? null : what.space === "shared" ? bankPicture(what, steps.executed[at]) : sectorPicture(what, steps.executed[at]);
    const shared = what.space === "shared";
    const [spent, ideal] = shared ? [what.wavefronts, what.idealWavefronts] : [what.sectors, what.idealSectors];
    const heading = `${what.space} ${what.kind} · ${what.sizeBytes} bytes a lane × ${laneCount(steps.executed[at])} lanes`;
    const verdict = !drawable || !spent
      ? null
      : element("span", { class: spent > ideal ? "gl-verdict gl-over" : "gl-verdict" },
        `${number(spent)} ${shared ? (spent === 1 ? "pass" : "passes") : spent === 1 ? "sector" : "sectors"}, at best ${number(ideal)} ${spent > ideal ? `(${number(spent / Math.max(1, ideal))}×)` : "✓"}`);
    access.replaceChildren(
      element("div", { class: "gl-heading" }, `${shared ? "Banks" : "Sectors"}: ${heading} `, verdict),
      ...(picture ? [picture.svg] : []),
      ...(picture?.note ? [element("div", { class: "gl-note" }, picture.note)] : []),
      ...(what.space === "local" ? [element("div", { class: "gl-note" }, "Local memory is private to each lane and interleaved, so equal offsets of the lanes lie side by side.")] : []),
    );
  };

  const drawTimeline = () => {
    const { pen, width, height } = prepare(timeline, TIMELINE_HEIGHT);
    const barsHeight = height - 21;
    const columnsUsed = Math.min(steps.length, width);
    const wide = width / columnsUsed;
    for (let column = 0; column < columnsUsed; column += 1) {
      const from = Math.floor((column * steps.length) / columnsUsed);
      const to = Math.max(from + 1, Math.floor(((column + 1) * steps.length) / columnsUsed));
      let active = 0;
      let executed = 0;
      for (let at = from; at < to; at += 1) {
        active += laneCount(steps.active[at]);
        executed += laneCount(steps.executed[at]);
      }
      const scale = barsHeight / (32 * (to - from));
      const gap = wide > 4 ? 1 : 0;
      pen.fillStyle = frame.colour("accent-2");
      pen.fillRect(column * wide, barsHeight - active * scale, wide - gap, active * scale);
      pen.fillStyle = frame.colour("accent");
      pen.fillRect(column * wide, barsHeight - executed * scale, wide - gap, executed * scale);
    }
    const x = (at) => ((at + 0.5) / steps.length) * width;
    pen.fillStyle = frame.colour("tail");
    for (const at of steps.accesses) pen.fillRect(x(at) - 1, barsHeight + 2, 2, 4);
    pen.strokeStyle = frame.colour("fg");
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x(step()), 0);
    pen.lineTo(x(step()), barsHeight + 7);
    pen.stroke();
    pen.fillStyle = frame.colour("muted");
    pen.font = canvasFont(frame.root, 10);
    pen.textBaseline = "bottom";
    pen.fillText("active lanes over steps; marks below: memory accesses", 0, height);
  };

  fillListing();
  frame.on("step", showStep);
  frame.on("by_line", showStep);
  frame.on("show_ptx", () => { fillListing(); showStep(); });
  frame.redraw(timelineBox, drawTimeline);
  requestAnimationFrame(showStep);
  frame.endings.push(stop);
  return frame.ending();
}

export default { render };
