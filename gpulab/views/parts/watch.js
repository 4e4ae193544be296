import { above, boxes, upTo } from "../parts/items.js";

// What was watched at every step, and where to stop, as Python evaluated it: everything here is looked up.

const LANES = upTo(32);

/** A watch expression's row at a step, -1 for none. */
const rowAt = (steps, watch, step) => {
  const [from, to] = steps.watch_rows.slice(watch, watch + 2);
  const row = above(steps.watch_step, step, from, to) - 1;
  return row >= from ? row : -1;
};

const valueAt = (steps, watch, step, lane) => {
  const [what, ctype, type] = steps.contents.watches[watch];
  const row = rowAt(steps, watch, step);
  if (row < 0 || !((steps.watch_known[row] >>> lane) & 1)) return null;
  return { what, ctype, type, step: steps.watch_step[row], bits: steps.bits("watch", row, lane) };
};

/** Watch expressions with their values in a lane after a step; `said` is the reason where there is none. */
export function watched(steps, step, lane) {
  return steps.contents.watches.map(([what, ctype], watch) => {
    const [value, row] = [valueAt(steps, watch, step, lane), rowAt(steps, watch, step)];
    const outside = row >= 0 && (steps.watch_outside[row] >>> lane) & 1;
    const note = steps.says("watch_note", watch);
    const said = value ? "" : outside ? note : row < 0 ? note.split(":")[0] : "not known here";
    return { what, ctype, value, said, why: outside || row < 0 ? note : "not computed yet, or others may have changed it" };
  });
}

/** A watch expression's values in all lanes after a step; null if nothing of this name is watched. */
export function watchedIn(steps, name, step) {
  const watch = steps.contents.watches.findIndex(([what]) => what === name);
  return watch < 0 ? null : LANES.map((lane) => valueAt(steps, watch, step, lane));
}

/** Why steps from `first` to `last` stop, in words. */
export function stopWords(steps, first, last) {
  const [from, to] = [first - 1, last].map((step) => above(steps.stop_step ?? [], step));
  const most = steps.contents.most_briefs;
  const said = upTo(Math.min(most, to - from), (at) => ` ${steps.says("stop_words", from + at)}`);
  return said.join("") + (to - from > most ? " …" : "");
}

/** Marks above the bars of the steps that stop; `shown` are the steps that have a bar. */
export function stopMarks(steps, shown, placeOf) {
  const places = Array.from(steps.stop_step ?? [], (step) => [step, placeOf(step)]).filter(([step, at]) => shown[at] === step);
  return boxes(places.map(([, at]) => [at, at + 1, 0, 7, 0]), ["warn"], { inset: -1 });
}
