import { showScene } from "../parts/boxes.js";
import { Frame, element } from "../parts/frame.js";

// Device card: its display list, and live readings below.

const HISTORY = 60;
const PERIODS_MS = [[500, "0.5 s"], [1000, "1 s"], [2000, "2 s"], [5000, "5 s"]];

/** The last readings as a small line chart, from 0 (or the lowest value) to the highest value. */
function sparkline(values) {
  if (values.length < 2) return null;
  const top = Math.max(...values);
  const low = Math.min(0, ...values);
  const points = values.map((value, index) => `${(index * 90) / (HISTORY - 1)},${(20 - (18 * (value - low)) / (top - low || 1)).toFixed(1)}`).join(" ");
  const figure = element("span", { "aria-hidden": "true" });
  figure.innerHTML = `<svg viewBox="0 0 90 22" width="90" height="22"><polyline points="${points}" class="gl-spark"/></svg>`;
  return figure;
}

function liveReadings(frame) {
  const { model } = frame;
  const history = new Map();
  let timer = 0;
  let readings = 0;
  const refresh = () => model.send({ kind: "refresh" });
  const refreshButton = element("button", { type: "button", onclick: refresh, disabled: frame.saved }, "Read now");
  const autoButton = element("button", { type: "button", "aria-pressed": "false", disabled: frame.saved }, "Read by itself");
  const period = element("select", { "aria-label": "Period", disabled: frame.saved }, ...PERIODS_MS.map(([ms, text]) => element("option", { value: ms, selected: ms === 1000 }, text)));
  const note = element("span", { class: "gl-note", role: "status" });
  const body = element("tbody");
  const table = element("table", { class: "gl-readings", "aria-label": "Live readings" }, body);
  const stop = (reason = "") => {
    clearInterval(timer);
    timer = 0;
    autoButton.textContent = "Read by itself";
    autoButton.setAttribute("aria-pressed", "false");
    note.textContent = reason;
  };
  const tick = () => {
    if (!frame.root.isConnected) return stop();
    if (document.hidden || !frame.root.offsetParent) return undefined;
    readings += 1;
    if (readings > model.get("automatic_readings")) return stop(`paused after ${model.get("automatic_readings")} readings`);
    refresh();
    return undefined;
  };
  const start = () => {
    readings = 0;
    note.textContent = "";
    autoButton.textContent = "Pause";
    autoButton.setAttribute("aria-pressed", "true");
    clearInterval(timer);
    timer = setInterval(tick, Number(period.value));
    tick();
  };
  autoButton.addEventListener("click", () => (timer ? stop("paused") : start()));
  period.addEventListener("change", () => { if (timer) start(); });
  const caption = element("div", { class: "gl-note" });
  frame.show("readings", ({ rows = [], label = "" }) => {
    for (const { name, value } of rows) {
      if (value === null) continue;
      const values = history.get(name) ?? [];
      values.push(value);
      if (values.length > HISTORY) values.shift();
      history.set(name, values);
    }
    body.replaceChildren(...rows.map(({ name, value, text, why: reason }) => element(
      "tr", {},
      element("th", { scope: "row" }, name),
      element("td", { class: value === null && text === "not available" ? "gl-missing" : "" }, text),
      element("td", { class: "gl-why" }, reason || (value === null ? null : sparkline(history.get(name)))),
    )));
    caption.textContent = label ? `Readings ${label}; lines show the last ${HISTORY} of them.` : "";
  });
  frame.endings.push(() => stop());
  return element(
    "div", { class: "gl-live" },
    element("div", { class: "gl-words-heading" }, "Live readings"),
    element("div", { class: "gl-tools" }, refreshButton, autoButton, element("label", {}, "every ", period), note),
    table, caption,
  );
}

function render(context) {
  const frame = new Frame(context, "device-card");
  showScene(frame);
  if (context.model.get("has_metrics")) frame.body.append(liveReadings(frame));
  return frame.ending();
}

export default { render };
