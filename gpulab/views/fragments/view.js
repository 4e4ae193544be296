import { Frame, element, unpack } from "../parts/frame.js";
import { Plot } from "../parts/plot.js";
import { boxes, texts, upTo } from "../parts/items.js";
import { filled, number } from "../parts/words.js";

// The matrix instructions of a warp: a table of them, and for one execution its matrices (lane, register and
// value of each element) and their bytes in shared memory. The lane and the element that are selected are the
// same in all plots.

const VALUE_DIGITS = 4;
const LABEL_PX = 10;
const TOO_LONG = "…"; // in a cell whose text does not fit
const [GROUP_LANES, WORD_BYTES, BANKS, LANES] = [4, 4, 32, 32];

const valueText = (value) => (Number.isNaN(value) ? "NaN" : Number.isFinite(value) ? number(value, VALUE_DIGITS) : value > 0 ? "inf" : "-inf");

/** A value as text, with a rounded form and a mark for narrow cells. */
function valueForms(value) {
  const text = valueText(value);
  const rounded = Number.isFinite(value) ? number(value, 1) : text;
  return [text, ...(rounded === text ? [] : [`≈${rounded}`]), TOO_LONG].join("\n");
}

/** The texts of a matrix's cells, as `make_cell_texts` in Python. */
function cellTexts(matrix, shown) {
  if (shown === "value") return Array.from(matrix.values, valueForms);
  if (shown === "address") return Array.from(matrix.address, (address) => (address >= 0 ? `${address}\n${TOO_LONG}` : ""));
  return upTo(matrix.values.length, (cell) => `${cell % LANES}·${matrix.first_register + Math.floor(cell / LANES / matrix.per_register)}\n${cell % LANES}`);
}

/** A sentence about an element, as `element_sentence` in Python. */
function sentenceOfElement(templates, role, matrix, index, lane) {
  const cell = index * LANES + lane;
  const [item] = matrix.plot.items;
  const [width, part, address] = [32 / matrix.per_register, index % matrix.per_register, matrix.address[cell]];
  return filled(templates.element, {
    matrix: matrix.name, row: item.row[cell], column: item.column[cell], value: valueText(matrix.values[cell]), lane,
    before: matrix.before ? filled(templates.before, { before: valueText(matrix.before[cell]) }) : "",
    register: matrix.first_register + Math.floor(index / matrix.per_register), name: matrix.registers[Math.floor(index / matrix.per_register)],
    bits: width < 32 ? filled(templates.bits, { first: part * width, last: (part + 1) * width - 1 }) : "",
    memory: address < 0 ? "" : filled(templates.origin[role], { address: String(address), bank: Math.floor(address / WORD_BYTES) % BANKS }),
  });
}

/** A sentence with all elements of a lane, as `lane_sentence` in Python. */
function sentenceOfLane(templates, matrices, lane, listed) {
  const elements = matrices.map(({ name, plot: { items: [item] }, values }) => {
    const cells = upTo(Math.min(listed, values.length / LANES), (index) => index * LANES + lane);
    return `${name} ${cells.map((cell) => `(${item.row[cell]}, ${item.column[cell]})`).join(", ")}`;
  });
  return filled(templates.lane, { lane, group: Math.floor(lane / GROUP_LANES), position: lane % GROUP_LANES, elements: elements.join("; ") });
}

/** A plot whose cells belong to lanes. The selected cell and the cells of the same lane have a frame. */
class FragmentPlot extends Plot {
  constructor(frame, onCell) {
    const nothing = { box: "plot", height: 1, domain: [0, 1], left: 0, right: 0, label: "", items: [{ item: "rects", x0: [], x1: [], y0: [], y1: [], colour: [], colours: [], say: [] }] };
    super(frame, nothing);
    this.onCell = onCell;
    this.line.remove();
  }

  /** Show a plot; `cellLabels` are the texts of its cells, if they are not part of the plot. */
  show(box, lane, isChosen, keys, cellLabels = null) {
    const cells = box.items.find(({ say }) => say);
    const chosen = cells.x0.findIndex((_, index) => isChosen(cells, index));
    const ofLane = upTo(cells.x0.length).filter((index) => cells.lane[index] === lane);
    const marked = ofLane.map((index) => [cells.x0[index], cells.x1[index], cells.y0[index], cells.y1[index], Number(index === chosen)]);
    const marks = [boxes(marked, ["fg", cellLabels ? "accent" : "fg"], cellLabels ? { inset: 0.5 } : { outline: true })];
    if (cellLabels) {
      const labelled = (indices, colour) => texts(indices.map((index) => [(cells.x0[index] + cells.x1[index]) / 2, (cells.y0[index] + cells.y1[index]) / 2, cellLabels[index], 1.15]), { colour, size: LABEL_PX });
      const inLane = new Set(ofLane);
      marks.push(labelled(upTo(cells.x0.length).filter((index) => !inLane.has(index)), "on-lane"));
      marks.push(labelled(ofLane.filter((index) => index !== chosen), "bg"), labelled(ofLane.filter((index) => index === chosen), "on-accent"));
    }
    this.cells = cells;
    Object.assign(this, { box: { ...box, items: [...box.items, ...marks] }, sight: [...box.domain], item: cells, chosen });
    this.canvas.setAttribute("aria-label", `${box.label}; ${keys}`);
    this.draw();
  }

  choose(index) {
    if (index >= 0 && index < this.count && index !== this.chosen) this.onCell(this.cells, index);
  }

  /** Pointing alone selects nothing: a click does. */
  onPointer() {}

  /** The neighbour of the selected cell in the direction of an arrow key. */
  next(key) {
    const { cells, chosen } = this;
    const middle = (index) => [(cells.x0[index] + cells.x1[index]) / 2, (cells.y0[index] + cells.y1[index]) / 2];
    const [x, y] = middle(Math.max(0, chosen));
    const [alongX, sign] = { ArrowRight: [true, 1], ArrowLeft: [true, -1], ArrowDown: [false, 1], ArrowUp: [false, -1] }[key];
    let [best, least] = [Math.max(0, chosen), Infinity];
    for (let index = 0; index < this.count; index += 1) {
      const [dx, dy] = [middle(index)[0] - x, middle(index)[1] - y];
      const [along, across] = alongX ? [dx * sign, Math.abs(dy)] : [dy * sign, Math.abs(dx)];
      const distance = along + 1000 * across;
      if (along > 1e-6 && (!alongX || across < 1e-6) && distance < least) [best, least] = [index, distance];
    }
    return best;
  }
}

function render({ model, el }) {
  const frame = new Frame({ model, el }, "fragment-view");
  const contents = unpack(model.get("contents"), model.get("data"));
  const templates = contents.said;
  const get = (name) => model.get(name);
  const row = () => contents.rows[get("row")];
  const execution = () => row().executions[Math.min(get("execution"), row().executions.length - 1)];

  // The table of instructions -----------------------------------------------------------------------
  const chooseRow = (requestedRow) => {
    const chosenRow = Math.max(0, Math.min(contents.rows.length - 1, requestedRow));
    for (const [trait, value] of [["execution", 0], ["matrix", 0], ["element", 0]]) model.set(trait, value);
    frame.send("row", chosenRow);
    lines[chosenRow].querySelector("button").focus();
  };
  const lines = contents.rows.map(({ cells: [line, ...rest], over }, at) => element(
    "tr", { class: over ? "gl-over" : null, onclick: () => chooseRow(at) },
    element("th", { scope: "row" }, element("button", { type: "button", "aria-label": `Line ${line}, ${rest[1]}` }, line)),
    ...rest.map((text, column) => element("td", { class: column ? null : "gl-source" }, text)),
  ));
  const moves = { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity };
  const table = element(
    "div", { class: "gl-accesses", onkeydown: (event) => {
      if (!(event.key in moves)) return;
      event.preventDefault();
      chooseRow(get("row") + moves[event.key]);
    } },
    element("table", {}, element("caption", { class: "gl-hidden-text" }, "Matrix instructions and accesses to shared memory of the warp; choose one"),
      element("thead", {}, element("tr", {}, ...contents.headings.map((text) => element("th", { scope: "col" }, text)))), element("tbody", {}, ...lines)),
  );
  const which = element("span", { class: "gl-which" });
  const slider = element("input", { type: "range", min: 0, "aria-label": "Execution", oninput: () => frame.send("execution", Number(slider.value)) });
  const shownInput = element("select", { onchange: () => frame.send("shown", shownInput.value) }, ...contents.shown.map(([value, text]) => element("option", { value }, text)));
  const chooser = element("div", { class: "gl-tools gl-chooser" }, which, slider, element("span", { class: "gl-space" }), element("label", {}, "In a cell ", shownInput));

  // The plots ---------------------------------------------------------------------------------------
  const keys = "arrow keys choose an element";
  const choose = (matrix, index, lane) => {
    model.set("matrix", matrix);
    model.set("element", index);
    frame.send("lane", lane);
  };
  const lanes = new FragmentPlot(frame, (cells, index) => frame.send("lane", cells.lane[index]));
  const most = Math.max(...contents.rows.flatMap(({ executions }) => executions.map(({ matrices }) => matrices.length)));
  const panels = upTo(most, (at) => {
    const plot = new FragmentPlot(frame, (cells, index) => choose(at, cells.element[index], cells.lane[index]));
    const heading = element("div", { class: "gl-words-heading" });
    return { plot, heading, node: element("div", { class: "gl-panel" }, heading, plot.node) };
  });
  const memory = new FragmentPlot(frame, (cells, index) => {
    const at = execution().matrices.findIndex((matrix) => matrix.index === cells.matrix[index]);
    choose(Math.max(0, at), cells.element[index], cells.lane[index]);
  });
  const memoryHeading = element("div", { class: "gl-words-heading" });
  const passNote = element("div", { class: "gl-note" }, contents.pass_note);
  const memoryPanel = element("div", {}, memoryHeading, memory.node, passNote);
  const said = element("div", { class: "gl-said gl-selection", role: "status" });
  const saidOfLane = element("div", { class: "gl-said gl-note" });
  const picture = element("div", { class: "gl-picture" }, lanes.node, said, element("div", { class: "gl-panels" }, ...panels.map(({ node }) => node)), memoryPanel, saidOfLane);
  frame.body.append(table, chooser, picture);

  const show = () => {
    const [current, lane, shown] = [execution(), get("lane"), get("shown")];
    const { matrices, role } = current;
    const count = row().executions.length;
    const place = Math.min(get("execution"), count - 1);
    lines.forEach((line, at) => {
      line.classList.toggle("gl-chosen", at === get("row"));
      line.querySelector("button").setAttribute("aria-pressed", String(at === get("row")));
      line.querySelector("button").tabIndex = at === get("row") ? 0 : -1;
    });
    slider.max = String(count - 1);
    slider.value = String(place);
    slider.hidden = count < 2;
    const many = row().total > count ? `${number(row().total)} (${count} can be shown)` : String(count);
    which.textContent = `Execution ${place + 1} of ${many}${current.costs ? `: ${current.costs}` : ""}`;
    shownInput.value = shown;
    shownInput.parentNode.hidden = !matrices.length;
    const at = Math.min(get("matrix"), matrices.length - 1);
    const index = matrices.length ? Math.min(get("element"), matrices[at].values.length / LANES - 1) : 0;
    said.textContent = matrices.length ? sentenceOfElement(templates, role, matrices[at], index, lane) : current.sentences[lane];
    saidOfLane.textContent = matrices.length ? sentenceOfLane(templates, matrices, lane, contents.listed) : "";
    lanes.show(contents.lanes, lane, (cells, cell) => cells.lane[cell] === lane, "arrow keys choose a lane");
    panels.forEach(({ plot, heading, node }, order) => {
      const matrix = matrices[order];
      node.hidden = !matrix;
      if (!matrix) return;
      node.style.flex = `${matrix.columns + 1.5} 1 0`;
      heading.textContent = matrix.title;
      plot.show(matrix.plot, lane, (cells, cell) => order === at && cells.lane[cell] === lane && cells.element[cell] === index, keys, cellTexts(matrix, shown));
    });
    memoryPanel.hidden = !current.memory;
    passNote.hidden = !current.conflict;
    if (!current.memory) return;
    memoryHeading.textContent = contents.headings_of_memory[matrices.length ? 0 : 1];
    memory.show(current.memory, lane, (cells, cell) => cells.lane[cell] === lane && (!matrices.length || (cells.matrix[cell] === matrices[at].index && cells.element[cell] === index)), matrices.length ? keys : "arrow keys choose a lane");
  };
  let isPending = false;
  const later = () => {
    if (isPending) return;
    isPending = true;
    queueMicrotask(() => { isPending = false; show(); });
  };
  for (const trait of ["row", "execution", "matrix", "element", "lane", "shown"]) frame.on(trait, later);
  frame.redraw(picture, show);
  show();
  return frame.ending();
}

export default { render };
