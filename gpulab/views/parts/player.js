import { element } from "../parts/frame.js";
import { duration } from "../parts/words.js";

// Playback: a number of steps per second, the whole trace in a few seconds, or a time that runs slowly.

const RATES = [["1/s", 1], ["3/s", 3], ["10/s", 10], ["30/s", 30], ["fast", 0]];
const FAST_S = 8;
const FRAME_MS = 33;

/**
 * A button and a choice of speeds. `advance(count)` moves by some steps and returns whether there are more,
 * `begin` is called at the start, and `length` returns the number of all steps. `rates` are texts with steps
 * per second, 0 for the whole trace in a few seconds; `smooth` moves once per frame at every rate.
 */
export function player(frame, { advance, begin, length, rates = RATES, rate = 3, smooth = false }) {
  const button = element("button", { type: "button", "aria-label": "Play or pause", title: "Play or pause (Space)", "data-move": "play" }, "Play");
  const speed = element(
    "select", { "aria-label": "Speed", title: "How fast Play goes" },
    ...rates.map(([text, value]) => element("option", { value: value || text, selected: value === rate }, text)),
  );
  let timer = 0;
  const stop = () => {
    clearTimeout(timer);
    timer = 0;
    button.textContent = "Play";
    button.setAttribute("aria-pressed", "false");
  };
  const tick = () => {
    const perSecond = Number(speed.value) || Math.max(1000 / FRAME_MS, length() / FAST_S);
    const waitMs = smooth ? FRAME_MS : Math.max(FRAME_MS, 1000 / perSecond);
    const startMs = performance.now();
    timer = setTimeout(() => {
      const passedMs = smooth ? performance.now() - startMs : waitMs;
      const hasMore = advance(Math.max(1, Math.round((perSecond * passedMs) / 1000)));
      if (hasMore) tick();
      else stop();
    }, waitMs);
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

/**
 * Buttons and keys that move a trait from 0 to `last`, as a box of the display list. Single steps go to the
 * next of `stops`, if there are any. `counts` are names with the values of the trait at which something is done.
 */
export function playback(frame, { trait, last, rates, rate, smooth, stops, counts, origin }) {
  const now = () => Math.max(0, Math.min(last, frame.model.get(trait)));
  const go = (value) => {
    frame.model.set(trait, Math.max(0, Math.min(last, value)));
    if (!smooth) frame.model.save_changes(); // the kernel need not follow every frame
  };
  const play = player(frame, {
    advance: (count) => { go(now() + count); return now() < last; },
    begin: () => { if (now() >= last) go(0); },
    length: () => last,
    rates, rate, smooth,
  });
  const button = (text, label, onclick) => element("button", { type: "button", "aria-label": label, title: label, onclick: () => { play.stop(); onclick(); } }, text);
  const back = () => go(stops.length ? stops.findLast((stop) => stop < now()) ?? 0 : now() - 1);
  const on = () => go(stops.length ? stops.find((stop) => stop > now()) ?? last : now() + 1);
  const progress = element("span", { class: "gl-progress" });
  const tell = () => {
    const texts = counts.map(([name, ends]) => `${name} ${ends.filter((end) => end <= now()).length} of ${ends.length}`);
    progress.textContent = frame.model.get(trait) < 0 ? origin : `${duration(now())}, done: ${texts.join(", ")}; ${origin}`;
  };
  if (counts.length) {
    tell();
    frame.on(trait, tell);
  }
  const onKey = (event) => {
    if (event.key !== " " || event.ctrlKey || event.altKey || event.metaKey || event.target.closest("button, select, input, summary, a")) return;
    event.preventDefault();
    play.toggle();
  };
  frame.root.addEventListener("keydown", onKey);
  frame.endings.push(play.stop, () => frame.root.removeEventListener("keydown", onKey));
  return element(
    "div", { class: "gl-tools gl-player" },
    button("|◀", "To the start", () => go(0)), button("◀", "Step back", back), play.button, button("▶", "Step on", on), play.speed,
    ...(counts.length ? [progress] : []),
  );
}
