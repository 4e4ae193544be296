import { above, upTo } from "../parts/items.js";

// Watch expressions and stops at every step. Python has evaluated them; here they are only looked up.

const LANES = upTo(32);

/** The row of a watch expression's value at a step, or -1. */
const rowAt = (steps, watch, step) => {
  const [first, end] = steps.watch_rows.slice(watch, watch + 2);
  const row = above(steps.watch_step, step, first, end) - 1;
  return row >= first ? row : -1;
};

const valueAt = (steps, watch, step, lane) => {
  const [what, ctype, type] = steps.contents.watches[watch];
  const row = rowAt(steps, watch, step);
  if (row < 0 || !((steps.watch_known[row] >>> lane) & 1)) return null;
  return { what, ctype, type, step: steps.watch_step[row], bits: steps.bits("watch", row, lane) };
};

/** Watch expressions with their values in a lane after a step; `said` is the reason if there is no value. */
export function watched(steps, step, lane) {
  return steps.contents.watches.map(([what, ctype], watch) => {
    const [value, row] = [valueAt(steps, watch, step, lane), rowAt(steps, watch, step)];
    const outside = row >= 0 && (steps.watch_outside[row] >>> lane) & 1;
    const note = steps.says("watch_note", watch);
    const reason = value ? "" : outside ? note : row < 0 ? note.split(":")[0] : "not known here";
    return { what, ctype, value, said: reason, why: outside || row < 0 ? note : "not computed yet, or others may have changed it" };
  });
}

/** The values of a watch expression in all lanes after a step; null if there is no such expression. */
export function watchedIn(steps, name, step) {
  const watch = steps.contents.watches.findIndex(([what]) => what === name);
  return watch < 0 ? null : LANES.map((lane) => valueAt(steps, watch, step, lane));
}

/** The reasons for stops at the steps from `first` to `last`, in words. */
export function stopWords(steps, first, last) {
  const [firstStop, endStop] = [first - 1, last].map((step) => above(steps.stop_step ?? [], step));
  const maxSentences = steps.contents.most_briefs;
  const sentences = upTo(Math.min(maxSentences, endStop - firstStop), (index) => ` ${steps.says("stop_words", firstStop + index)}`);
  return sentences.join("") + (endStop - firstStop > maxSentences ? " …" : "");
}
