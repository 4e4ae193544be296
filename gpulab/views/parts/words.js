// Numbers, sizes, times and plurals, written as `gpulab/words.py` writes them.

const EXACT = 40; // additional digits for exact rounding

export const grouped = (whole) => String(whole).replace(/\B(?=(\d{3})+$)/g, ",");

/** `value` with a number of decimals; a half is rounded to the even digit, as in Python. */
function fixed(value, decimals) {
  const exact = value.toFixed(decimals + EXACT);
  const cut = exact.slice(0, -EXACT);
  return /[02468]\.?$/.test(cut) && /^50*$/.test(exact.slice(-EXACT)) ? cut.replace(/\.$/, "") : value.toFixed(decimals);
}

/** A number with a number of significant digits, and commas at thousands. */
export function number(value, digits = 3) {
  if (value === 0 || Math.abs(value) >= 10 ** (digits - 1) || Number.isInteger(value)) return grouped(fixed(value, 0));
  const power = Number(value.toExponential().split("e")[1]);
  return fixed(value, digits - 1 - power).replace(/\.?0+$/, "");
}

/** The singular or plural of a noun for a count; by default the plural ends in s. */
export const noun = (value, one, many = `${one}s`) => (value === 1 ? one : many);

export const count = (value, one, many) => `${number(value)} ${noun(value, one, many)}`;

export function percent(fraction) {
  const share = 100 * fraction;
  if (share >= 99.5 && share < 100 - 1e-10) return `${fixed(Math.min(share, 99.9), 1)} %`;
  return `${number(share, 1)} %`;
}

/** A byte count in binary units. */
export function sized(bytes) {
  const [unit, scale] = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]].find((entry) => bytes >= entry[1]) ?? ["B", 1];
  return `${number(bytes / scale)} ${unit}`;
}

/** The unit that suits a time, and its nanoseconds. */
export const timeUnit = (ns) => [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find((entry) => ns >= entry[1]) ?? ["ns", 1];

export function duration(ns) {
  const [unit, scale] = timeUnit(ns);
  return `${number(ns / scale)} ${unit}`;
}

/** Fill a template: `{name}` is a value, and `<name one|several>` a choice by whether the value is 1. */
export function filled(text, words) {
  const withNouns = text.replace(/<(\w+) ([^|>]*)\|([^>]*)>/g, (_, name, one, several) => (words[name] === 1 ? one : several));
  return withNouns.replace(/\{(\w+)\}/g, (_, name) => (typeof words[name] === "number" ? grouped(words[name]) : words[name]));
}
