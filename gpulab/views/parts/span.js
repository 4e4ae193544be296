import { element } from "./frame.js";
import { above } from "./items.js";
import { duration, grouped, number, percent, timeUnit } from "./words.js";

// The measurement of a span of tracks: its times, and what ran inside on each row.

const MOST_NAMES = 4;

/** A time with enough digits to tell the edges of a short span from each other. */
function exact(ns) {
  const [unit, scale] = timeUnit(ns);
  return `${number(ns / scale, 6)} ${unit}`;
}

/** The busy time of a row inside a span, and the number and time of its intervals by name. */
export function ranInside({ item, firsts, places }, row, [low, high]) {
  const intervals = [];
  for (const { which: indices, start, reach } of places.slice(firsts[row], firsts[row] + item.lanes[row])) {
    const end = above(start, high);
    for (let i = above(reach, low - 1e-9); i < end; i += 1) {
      const [x0, x1] = [item.x0[indices[i]], item.x1[indices[i]]];
      if ((x1 > low && x0 < high) || (x0 === x1 && x0 >= low)) intervals.push([Math.max(low, x0), Math.min(high, x1), item.shorts[item.name[indices[i]]]]);
    }
  }
  intervals.sort(([first], [second]) => first - second);
  let [busy, coveredTo] = [0, low];
  const names = new Map();
  for (const [from, to, name] of intervals) {
    busy += Math.max(0, to - Math.max(from, coveredTo));
    coveredTo = Math.max(coveredTo, to);
    const [count, time] = names.get(name) ?? [0, 0];
    names.set(name, [count + 1, time + to - from]);
  }
  return { busy, names };
}

/** The elements of the report of a plot's span, with a button that closes it. */
export function spanReport(plot, close) {
  const { item, span } = plot;
  const [low, high] = span;
  const length = high - low;
  const rows = item.measured.map((name, row) => [name, row]).filter(([name]) => name).map(([name, row]) => {
    const { busy, names } = ranInside(plot, row, span);
    const longest = [...names].sort(([, [, first]], [, [, second]]) => second - first);
    const texts = longest.slice(0, MOST_NAMES).map(([text, [count]]) => (count > 1 ? `${grouped(count)} × ${text}` : text));
    if (longest.length > MOST_NAMES) texts.push(`${longest.length - MOST_NAMES} more`);
    const share = length ? busy / length : 0;
    return element(
      "tr", {}, element("th", { scope: "row" }, name), element("td", {}, duration(busy)),
      element("td", { style: `--share:${(100 * share).toFixed(1)}%` }, percent(share)), element("td", {}, texts.join(", ") || "nothing"),
    );
  });
  const text = `Span ${exact(length)}, from ${exact(low)} to ${exact(high)}, ${item.origin}`;
  return [
    element("div", { class: "gl-tools" }, element("b", { role: "status" }, text), element("button", { type: "button", "aria-label": "Close the measurement", title: "Close the measurement", onclick: close }, "×")),
    element("table", { class: "gl-matrix" }, element("thead", {}, element("tr", {}, ...["inside the span", "busy", "of the span", "what ran"].map((heading) => element("th", { scope: "col" }, heading)))), element("tbody", {}, ...rows)),
  ];
}
