import { Room } from "./room.js";

// Shared by every view: elements, binary columns, and the frame with title, caption and error.

/** An element with attributes, listeners (`onclick`) and children. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
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

/** The tree that `pack` took apart, typed arrays in their places again. */
export function unpack(tree, view) {
  // A message's buffers start anywhere; typed arrays need a multiple of their size.
  const buffer = view?.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  const walk = (node) => {
    if (Array.isArray(node)) return node.map(walk);
    if (node === null || typeof node !== "object") return node;
    if (node.$) return new ARRAYS[node.$[0]](buffer, node.$[1], node.$[2]);
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, walk(value)]));
  };
  return walk(tree);
}

/**
 * Keep plain keys inside the view: JupyterLab would take arrows from sliders, and delete the cell on
 * "d d". Escape, shift+Enter and keys with ctrl, alt or command still reach it.
 */
export function keepPlainKeys(event) {
  const forLab = event.ctrlKey || event.altKey || event.metaKey || event.key === "Escape" || (event.shiftKey && event.key === "Enter");
  if (!forLab) event.stopPropagation();
}

/** The view's frame: title, provenance, body, error text and caption; listeners end with the view. */
export class Frame {
  constructor({ model, el }, name = "plain") {
    this.model = model;
    this.endings = [];
    this.saved = Boolean(model.get("saved"));
    this.alone = this.saved && location.search !== "?notebook"; // a page may show it as a notebook would
    this.room = new Room(this);
    this.drawn = new Set(); // what draws canvases anew
    this.body = element("div", { class: "gl-body" });
    const title = element("div", { class: "gl-title" });
    const chip = element("span", { class: "gl-chip" });
    const error = element("div", { class: "gl-error", role: "alert", hidden: true });
    this.error = error;
    const caption = element("div", { class: "gl-caption" });
    this.root = element(
      "section",
      { class: `gpulab-view gpulab-${name}${this.alone ? " gl-page" : ""}`, onkeydown: (event) => this.onKey(event) },
      element("div", { class: "gl-head" }, title, chip, ...(this.saved ? [] : [this.filling()])), this.body, error, caption,
      ...(this.saved ? [element("div", { class: "gl-note gl-saved" }, model.get("saved"))] : []),
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
    if (this.alone) this.keepFitted();
  }

  /** The button that gives the view the whole window, and takes it back. */
  filling() {
    return element("button", {
      type: "button", class: "gl-filling", "aria-pressed": "false", "aria-label": "Fill the window", title: "Fill the window (Escape: back)",
      onclick: () => this.fill(!this.filled),
    }, "⤢");
  }

  get filled() { return this.root.classList.contains("gl-filled"); }

  /** Lay the view over everything else, out of reach of what clips or moves it in the notebook. */
  fill(on) {
    if (on === this.filled) return;
    const { root } = this;
    const filler = root.querySelector(".gl-filling");
    filler.setAttribute("aria-pressed", String(on));
    root.classList.toggle("gl-filled", on);
    if (on) {
      root.popover = "manual";
      root.showPopover();
      this.unfit = this.keepFitted();
    } else {
      this.unfit();
      root.hidePopover();
      root.removeAttribute("popover");
      this.room.leave();
      root.scrollIntoView({ block: "nearest" });
    }
    filler.focus();
  }

  /** Fit the view to its window now, whenever that changes, and once more when all is in its place. */
  keepFitted() {
    const fit = () => this.room.fit();
    const asked = requestAnimationFrame(() => requestAnimationFrame(fit));
    window.addEventListener("resize", fit);
    const end = () => {
      cancelAnimationFrame(asked);
      window.removeEventListener("resize", fit);
    };
    this.endings.push(end);
    return end;
  }

  onKey(event) {
    if (event.key === "Escape" && this.filled) {
      this.fill(false);
      event.stopPropagation();
    } else keepPlainKeys(event);
  }

  /** Device pixels of one of the view's own. */
  get ratio() { return (window.devicePixelRatio || 1) * this.room.zoom; }

  /** Where an event is on a node, in the view's own pixels. */
  at(event, node) {
    const { left, top } = node.getBoundingClientRect();
    return [(event.clientX - left) / this.room.zoom, (event.clientY - top) / this.room.zoom];
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
    this.drawn.add(draw);
    const themes = new MutationObserver(ask);
    themes.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", ask);
    this.endings.push(() => {
      this.drawn.delete(draw);
      sizes.disconnect();
      themes.disconnect();
      scheme.removeEventListener("change", ask);
      cancelAnimationFrame(asked);
    });
  }

  /** The value of a colour in the present theme. */
  colour(name) {
    return getComputedStyle(this.root).getPropertyValue(`--gl-${name}`).trim();
  }

  /** Ends the view. JupyterLab keeps the element of a view that is gone: it is left empty. */
  ending() {
    return () => {
      this.endings.splice(0).forEach((end) => end());
      this.room.plots.clear();
      this.root.remove();
      for (const part of [this.root, this.body]) part.replaceChildren();
    };
  }
}
