// Items of a display list that a page makes itself, with what `plots.py` gives them unless told otherwise.

export const upTo = (count, made = (at) => at) => Array.from({ length: count }, (_, at) => made(at));

/** The first place at which `values`, in order, is above `wanted`. */
export function above(values, wanted, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > wanted) high = middle; else low = middle + 1;
  }
  return low;
}

/** Things by a key, those with the same one together. */
export function groupedBy(things, keyOf) {
  const found = new Map();
  for (const thing of things) {
    if (!found.has(keyOf(thing))) found.set(keyOf(thing), []);
    found.get(keyOf(thing)).push(thing);
  }
  return found;
}

/** What lets each of an item's rectangles say a sentence of its own. */
export const speaking = (sentences) => ({ at: upTo(sentences.length), say: [["at", sentences]] });

/** Rectangles; `colour` is one name, or for each its number among `colours`. */
export const rects = (x0, x1, y0, y1, colour, colours = [], more = {}) => ({
  item: "rects", x0, x1, y0, y1, ...(typeof colour === "string" ? { colour: x0.map(() => 0), colours: [colour] } : { colour, colours }),
  inset: 0, outline: false, hatch: false, ...more,
});

export const line = (x, y, colour, more = {}) => ({ item: "line", x, y, colour, width: 1, fill: "", base: 0, step: false, ...more });

export const rules = (x0, y0, x1, y1, colour, more = {}) => ({ item: "rules", x0, y0, x1, y1, colour, width: 1, dash: false, arrow: false, most: 0, ...more });

export const labels = (x, y, text, more = {}) => ({
  item: "labels", x, y, text, anchor: "start", colour: "fg", size: 11, weight: "normal", dx: 0, room: null, spread: false, turn: false, mono: false, pin: false, of_rows: false, ...more,
});

/** Texts left of a plot that begins at 0. */
export const ticks = (y, text, more = {}) => labels(text.map(() => 0), y, text, { anchor: "end", dx: -5, pin: true, ...more });

export const plotted = (height, domain, items, label, left, right) => ({ box: "plot", height, domain, left, right, label, zoom: false, items });

const columns = (rows, count) => upTo(count, (part) => rows.map((row) => row[part]));

/** Rectangles as rows: x0, x1, y0, y1, the number of its colour. */
export const boxes = (rows, colours, more) => rects(...columns(rows, 5), colours, more);

/** Texts as rows: x, y, text, and the room that it may take. */
export function texts(rows, more) {
  const [x, y, text, room] = columns(rows, 4);
  return labels(x, y, text, { anchor: "middle", room, ...more });
}

/** The upper edge of areas that reach beyond the chart: a line in teeth. */
export function torn([low, high], top, teeth = 40) {
  const x = upTo(2 * teeth + 1, (at) => low + (at * (high - low)) / (2 * teeth));
  return line(x, x.map((_, at) => top + 5 * (at % 2)), "bg", { width: 3 });
}
