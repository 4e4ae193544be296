import { Room } from "./room.js";

// Elements, binary columns, and the frame with title, caption and error, for every view.

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

/** Restore the tree that `pack` converted, with its typed arrays. */
export function unpack(tree, view) {
  // A message's buffer can start at any byte; typed arrays need a multiple of their size.
  const buffer = view?.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength);
  const restore = (node) => {
    if (Array.isArray(node)) return node.map(restore);
    if (node === null || typeof node !== "object") return node;
    if (node.$) return new ARRAYS[node.$[0]](buffer, node.$[1], node.$[2]);
    return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, restore(value)]));
  };
  return restore(tree);
}

/**
 * Keep plain keys inside the view: JupyterLab would take arrows from sliders, and delete the cell on
 * "d d". Escape, shift+Enter and keys with ctrl, alt or command still reach it.
 */
export function keepPlainKeys(event) {
  const isForLab = event.ctrlKey || event.altKey || event.metaKey || event.key === "Escape" || (event.shiftKey && event.key === "Enter");
  if (!isForLab) event.stopPropagation();
}

/** The model of the view's layout, which knows whether the kernel is alive; a saved page has none. */
export const lifeOf = (model) => model.get("layout");
export const isLive = (model) => lifeOf(model)?.comm_live !== false;

/** The view's frame: title, provenance, body, error text and caption; listeners end with the view. */
export class Frame {
  constructor({ model, el }, name = "plain") {
    this.model = model;
    this.endings = [];
    this.saved = Boolean(model.get("saved"));
    this.alone = this.saved && location.search !== "?notebook"; // a page may show it as a notebook would
    this.room = new Room(this);
    this.painters = new Set(); // functions that redraw canvases
    this.body = element("div", { class: "gl-body" });
    const title = element("div", { class: "gl-title" });
    const chip = element("span", { class: "gl-chip" });
    const error = element("div", { class: "gl-error", role: "alert", hidden: true });
    this.error = error;
    const caption = element("div", { class: "gl-caption" });
    this.root = element(
      "section",
      { class: `gpulab-view gpulab-${name}${this.alone ? " gl-page" : ""}`, onkeydown: (event) => this.onKey(event) },
      element("div", { class: "gl-head" }, title, chip, ...(this.saved ? [] : [this.fillButton()])), this.body, error, caption,
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

  /** The button that makes the view fill the window, or shows it in the notebook again. */
  fillButton() {
    return element("button", {
      type: "button", class: "gl-filling", "aria-pressed": "false", "aria-label": "Fill the window", title: "Fill the window (Escape: back)",
      onclick: () => this.fill(!this.filled),
    }, "⤢");
  }

  get filled() { return this.root.classList.contains("gl-filled"); }

  /** Show the view above everything else, where nothing in the notebook clips or moves it; or end that. */
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

  /** Fit the view to its window whenever the window's size changes, and once after the layout is complete. */
  keepFitted() {
    const fit = () => this.room.fit();
    const request = requestAnimationFrame(() => requestAnimationFrame(fit));
    window.addEventListener("resize", fit);
    const end = () => {
      cancelAnimationFrame(request);
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

  /** Device pixels per pixel of the view. */
  get ratio() { return (window.devicePixelRatio || 1) * this.room.zoom; }

  /** Position of an event on a node, in pixels of the view. */
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

  /** Redraw when the size or the colour theme changes, at most once per frame. */
  redraw(node, draw) {
    let request = 0;
    const requestDraw = () => {
      cancelAnimationFrame(request);
      request = requestAnimationFrame(draw);
    };
    const sizeObserver = new ResizeObserver(requestDraw);
    sizeObserver.observe(node);
    this.painters.add(draw);
    const themeObserver = new MutationObserver(requestDraw);
    themeObserver.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-jp-theme-name", "class"] });
    const colourScheme = matchMedia("(prefers-color-scheme: dark)");
    colourScheme.addEventListener("change", requestDraw);
    this.endings.push(() => {
      this.painters.delete(draw);
      sizeObserver.disconnect();
      themeObserver.disconnect();
      colourScheme.removeEventListener("change", requestDraw);
      cancelAnimationFrame(request);
    });
  }

  /** The value of a colour in the current theme. */
  colour(name) {
    return getComputedStyle(this.root).getPropertyValue(`--gl-${name}`).trim();
  }

  /** A function that ends the view. JupyterLab keeps the element of an ended view, so it is emptied. */
  ending() {
    return () => {
      this.endings.splice(0).forEach((end) => end());
      this.room.plots.clear();
      this.root.remove();
      for (const part of [this.root, this.body]) part.replaceChildren();
    };
  }
}
