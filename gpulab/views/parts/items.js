// Items of a display list that are made in the browser, with the same defaults as in `plots.py`.

export const upTo = (count, valueOf = (index) => index) => Array.from({ length: count }, (_, index) => valueOf(index));

/** The first index at which the sorted `values` exceed `limit`. */
export function above(values, limit, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}

/** Group items by a key. */
export function groupedBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    if (!groups.has(keyOf(item))) groups.set(keyOf(item), []);
    groups.get(keyOf(item)).push(item);
  }
  return groups;
}

/** The fields of an item that give each of its rectangles its own sentence. */
export const speaking = (sentences) => ({ at: upTo(sentences.length), say: [["at", sentences]] });

/** Rectangles; `colour` is one name, or an index into `colours` for each. */
export const rects = (x0, x1, y0, y1, colour, colours = [], more = {}) => ({
  item: "rects", x0, x1, y0, y1, ...(typeof colour === "string" ? { colour: x0.map(() => 0), colours: [colour] } : { colour, colours }),
  inset: 0, outline: false, hatch: false, ...more,
});

export const line = (x, y, colour, more = {}) => ({ item: "line", x, y, colour, width: 1, fill: "", base: 0, step: false, ...more });

export const rules = (x0, y0, x1, y1, colour, more = {}) => ({ item: "rules", x0, y0, x1, y1, colour, width: 1, dash: false, arrow: false, most: 0, ...more });

export const labels = (x, y, text, more = {}) => ({
  item: "labels", x, y, text, anchor: "start", colour: "fg", size: 11, weight: "normal", dx: 0, room: null, lines: 1, spread: false, turn: false, mono: false, pin: false, of_rows: false, ...more,
});

/** Texts left of a plot that begins at 0. */
export const ticks = (y, text, more = {}) => labels(text.map(() => 0), y, text, { anchor: "end", dx: -5, pin: true, ...more });

export const plotted = (height, domain, items, label, left, right) => ({ box: "plot", height, domain, left, right, label, zoom: false, items });

const columns = (rows, count) => upTo(count, (column) => rows.map((row) => row[column]));

/** Rectangles from rows of x0, x1, y0, y1 and the index of the colour. */
export const boxes = (rows, colours, more) => rects(...columns(rows, 5), colours, more);

/** Texts from rows of x, y, text and its largest width. */
export function texts(rows, more) {
  const [x, y, text, maxWidths] = columns(rows, 4);
  return labels(x, y, text, { anchor: "middle", room: maxWidths, ...more });
}

/** A zigzag line at the upper edge of areas that exceed the chart. */
export function torn([low, high], top, teeth = 40) {
  const x = upTo(2 * teeth + 1, (index) => low + (index * (high - low)) / (2 * teeth));
  return line(x, x.map((_, index) => top + 5 * (index % 2)), "bg", { width: 3 });
}
