// Shared by every view: elements, theme, columns, canvas, numbers, and the frame with caption and error.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (`onclick`) and children; "svg:rect" makes SVG. */
export function element(tag, attributes = {}, ...children) {
  const node = tag.startsWith("svg:")
    ? document.createElementNS(SVG, tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

const ARRAYS = {
  i1: Int8Array, u1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array, u4: Uint32Array,
  i8: BigInt64Array, u8: BigUint64Array, f4: Float32Array, f8: Float64Array,
};

/** Typed arrays over the buffer that `_columns.pack` made. */
export function columns(view, layout) {
  // A message's buffers start anywhere; typed arrays need a multiple of their size.
  const buffer = view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  const arrays = {};
  for (const [name, [code, offset, length]] of Object.entries(layout)) {
    arrays[name] = new ARRAYS[code](buffer, offset, length);
  }
  return arrays;
}

/** Numbers as `_text.number` writes them. */
export function number(value, digits = 3) {
  if (value === 0) return "0";
  if (Math.abs(value) >= 10 ** (digits - 1) || Number.isInteger(value)) {
    return Math.round(value).toLocaleString("en-US").replaceAll(",", "\u202f");
  }
  return String(Number(value.toPrecision(digits)));
}

const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

/** The unit and its nanoseconds that suit a span. */
export function timeUnit(spanNs) {
  return TIME_UNITS.find(([, scale]) => spanNs >= scale) ?? ["ns", 1];
}

export function duration(timeNs) {
  const [unit, scale] = timeUnit(timeNs);
  return `${number(timeNs / scale)} ${unit}`;
}

/** Round tick positions from 0 to `limit`, about `wanted` of them. */
export function ticks(limit, wanted) {
  if (!(limit > 0)) return [0];
  const raw = limit / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const positions = [];
  for (let i = 0; i * step <= limit * 1.0001; i += 1) positions.push(i * step);
  return positions;
}

/**
 * Keep plain keys inside the view: JupyterLab would take arrows from sliders, and delete the cell on
 * "d d". Escape, shift+Enter and keys with ctrl, alt or command still reach it.
 */
function keepPlainKeys(event) {
  const forLab = event.ctrlKey || event.altKey || event.metaKey || event.key === "Escape" || (event.shiftKey && event.key === "Enter");
  if (!forLab) event.stopPropagation();
}

/** The view's frame: title, provenance, body, error text and caption; listeners end with the view. */
export class Frame {
  constructor(model, el, name) {
    this.model = model;
    this.endings = [];
    this.body = element("div", { class: "gl-body" });
    const title = element("div", { class: "gl-title" });
    const chip = element("span", { class: "gl-chip" });
    const error = element("div", { class: "gl-error", role: "alert", hidden: true });
    const caption = element("div", { class: "gl-caption" });
    this.root = element(
      "section",
      { class: `gpulab-view gpulab-${name}`, onkeydown: keepPlainKeys },
      element("div", { class: "gl-head" }, title, chip), this.body, error, caption,
    );
    this.show("title", (text) => {
      title.textContent = text;
      this.root.setAttribute("aria-label", text);
    });
    this.show("source", (text) => {
      chip.textContent = text;
      chip.dataset.source = text;
    });
    this.show("caption", (text) => { caption.textContent = text; });
    this.show("error", (text) => {
      error.textContent = text;
      error.hidden = !text;
    });
    el.replaceChildren(this.root);
  }

  /** Call `update` with a trait's value now and whenever it changes. */
  show(trait, update) {
    update(this.model.get(trait));
    this.on(trait, () => update(this.model.get(trait)));
  }

  /** Listen to a trait until the view ends. */
  on(trait, listener) {
    this.model.on(`change:${trait}`, listener);
    this.endings.push(() => this.model.off(`change:${trait}`, listener));
  }

  /** Send a trait's new value to Python. */
  send(trait, value) {
    this.model.set(trait, value);
    this.model.save_changes();
  }

  /** Redraw when the size or the colour theme changes, at most once a frame. */
  redraw(node, draw) {
    let asked = 0;
    const ask = () => {
      cancelAnimationFrame(asked);
      asked = requestAnimationFrame(draw);
    };
    const sizes = new ResizeObserver(ask);
    sizes.observe(node);
    const themes = new MutationObserver(ask);
    themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", ask);
    this.endings.push(() => {
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", ask);
      cancelAnimationFrame(asked);
    });
  }

  /** The value of a colour variable in the present theme. */
  colour(name) {
    return getComputedStyle(this.root).getPropertyValue(`--gl-${name}`).trim();
  }

  ending() {
    return () => this.endings.forEach((end) => end());
  }
}

/** Size a canvas to its box in device pixels and clear it; drawing is then in page pixels. */
export function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.floor(canvas.parentElement.clientWidth));
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, ratio };
}

/** A font for canvas text in the page's own family. */
export function canvasFont(node, sizePx, weight = "normal") {
  return `${weight} ${sizePx}px ${getComputedStyle(node).fontFamily}`;
}

/** A horizontal bar as HTML: label, bar of a share (0 to 1), value text, and a mark in words. */
export function bar(label, share, value, { mark = "", strong = false } = {}) {
  const fill = element("span", { class: "gl-fill", style: `width:${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%` });
  return element(
    "div",
    { class: `gl-bar${strong ? " gl-strong" : ""}` },
    element("span", { class: "gl-bar-label" }, label),
    element("span", { class: "gl-track", "aria-hidden": "true" }, fill),
    element("span", { class: "gl-bar-value" }, value, mark ? element("b", { class: "gl-mark" }, ` ${mark}`) : null),
  );
}
