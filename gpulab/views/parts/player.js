import { element } from "../parts/frame.js";

// Playback: a number of steps per second, or the whole trace in a few seconds.

const SPEEDS = [1, 3, 10, 30];
const FAST_S = 8;
const FRAME_MS = 33;

/**
 * A button and a choice of speeds. `advance(count)` moves by some steps and returns whether there are more,
 * `begin` is called at the start, and `length` returns the number of all steps.
 */
export function player(frame, { advance, begin, length }) {
  const button = element("button", { type: "button", "aria-label": "Play or pause", title: "Play or pause (Space)", "data-move": "play" }, "Play");
  const speed = element(
    "select", { "aria-label": "Speed", title: "How fast Play goes" },
    ...SPEEDS.map((rate) => element("option", { value: rate, selected: rate === 3 }, `${rate}/s`)),
    element("option", { value: "fast" }, "fast"),
  );
  let timer = 0;
  const stop = () => {
    clearTimeout(timer);
    timer = 0;
    button.textContent = "Play";
    button.setAttribute("aria-pressed", "false");
  };
  const tick = () => {
    const fast = speed.value === "fast";
    timer = setTimeout(() => {
      const hasMore = advance(fast ? Math.max(1, Math.round((length() * FRAME_MS) / 1000 / FAST_S)) : 1);
      if (hasMore) tick();
      else stop();
    }, fast ? FRAME_MS : 1000 / Number(speed.value));
  };
  const toggle = () => {
    if (timer) return stop();
    begin();
    button.textContent = "Pause";
    button.setAttribute("aria-pressed", "true");
    return tick();
  };
  button.addEventListener("click", toggle);
  speed.addEventListener("change", () => { if (timer) { clearTimeout(timer); tick(); } });
  return { button, speed, toggle, stop };
}
