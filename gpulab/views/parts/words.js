// Numbers, sizes, times and plurals, written as `gpulab/words.py` writes them.

const EXACT = 40; // more digits than decide how a number is rounded

export const grouped = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");

/** `value` with so many decimals, halves to the even digit, as Python rounds. */
function fixed(value, places) {
  const exact = value.toFixed(places + EXACT);
  const kept = exact.slice(0, -EXACT);
  return /[02468]\.?$/.test(kept) && /^50*$/.test(exact.slice(-EXACT)) ? kept.replace(/\.$/, "") : value.toFixed(places);
}

/** A number with so many significant digits and commas at thousands. */
export function number(value, digits = 3) {
  if (value === 0 || Math.abs(value) >= 10 ** (digits - 1) || Number.isInteger(value)) return grouped(fixed(value, 0));
  const power = Number(value.toExponential().split("e")[1]);
  return fixed(value, digits - 1 - power).replace(/\.?0+$/, "");
}

/** The noun for so many: a plural that is not the noun with an s is given. */
export const noun = (value, one, many = `${one}s`) => (value === 1 ? one : many);

export const count = (value, one, many) => `${number(value)} ${noun(value, one, many)}`;

export function percent(fraction) {
  const share = 100 * fraction;
  if (share >= 99.5 && share < 100 - 1e-10) return `${fixed(Math.min(share, 99.9), 1)} %`;
  return `${number(share, 1)} %`;
}

/** A byte count in binary units. */
export function sized(bytes) {
  const [unit, scale] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find((each) => bytes >= each[1]) ?? ["B", 1];
  return `${number(bytes / scale)} ${unit}`;
}

/** The unit that suits a time, and its nanoseconds. */
export const timeUnit = (ns) => [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find((each) => ns >= each[1]) ?? ["ns", 1];

export function duration(ns) {
  const [unit, scale] = timeUnit(ns);
  return `${number(ns / scale)} ${unit}`;
}

/** A text of Python's with words and numbers in it: `{name}`, and `<name one|several>` by whether a number is 1. */
export function filled(text, words) {
  const chosen = text.replace(/<(\w+) ([^|>]*)\|([^>]*)>/g, (_, name, one, several) => (words[name] === 1 ? one : several));
  return chosen.replace(/\{(\w+)\}/g, (_, name) => (typeof words[name] === "number" ? grouped(words[name]) : words[name]));
}
