import { element, keepPlainKeys } from "../views/parts/frame.js";

// The course's forms: a prediction to lock, a comparison that waits for it, and a quiz.
// Native radio buttons and fields in a fieldset, so that keyboards and screen readers know them.

function choices(texts, name, onpick) {
  return texts.map((text, at) => {
    const input = element("input", { type: "radio", name, value: String(at), onchange: () => onpick(at) });
    return { input, label: element("label", { class: "gl-choice" }, input, element("span", {}, text)) };
  });
}

/** A question, its answer as a number or a choice, and the button that locks it. */
function prediction(root, facts, name, tell) {
  let picked = "";
  const problem = element("div", { class: "gl-problem", role: "alert", id: `${name}-problem` });
  const said = element("div", { class: "gl-said", role: "status" });
  const lock = () => { if (button.getAttribute("aria-disabled") !== "true") tell({ do: "press", value: field ? field.value : picked }); };
  const button = element("button", { type: "button", onclick: lock }, "Lock");
  const options = choices(facts.choices, name, (at) => { picked = facts.choices[at]; });
  const field = options.length ? null : element("input", {
    type: "text", inputmode: "decimal", autocomplete: "off", placeholder: "a number",
    "aria-label": facts.unit ? `Your prediction in ${facts.unit}` : "Your prediction, a number", "aria-describedby": `${name}-problem`,
    onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey) lock(); },
  });
  const answer = field ? [field, ...(facts.unit ? [facts.unit] : [])] : [element("div", { class: "gl-choices" }, ...options.map(({ label }) => label))];
  root.append(element(
    "fieldset", {}, element("legend", {}, element("b", {}, "Predict: "), facts.question),
    element("div", { class: "gl-answer" }, ...answer, button), problem, said,
  ));
  return ({ value, locked, final, note, wrong }) => {
    if (field) {
      if (locked) field.value = value;
      field.readOnly = locked;
      field.setAttribute("aria-invalid", String(Boolean(wrong)));
    }
    options.forEach(({ input }, at) => {
      if (locked) input.checked = facts.choices[at] === value;
      input.disabled = locked;
    });
    if (locked) picked = value;
    button.textContent = locked ? "Change" : "Lock";
    button.setAttribute("aria-disabled", String(final));
    problem.textContent = wrong;
    said.textContent = note;
  };
}

/** The comparison, once there is a prediction or the learner asks for it. */
function reveal(root, facts, name, tell) {
  const text = element("div", { role: "status", tabindex: -1 });
  const button = element("button", { type: "button", onclick: () => { tell({ do: "show" }); text.focus(); } }, "Show it anyway");
  root.append(element("fieldset", { "aria-label": "Comparison" }, text, button));
  return ({ shown }) => {
    text.textContent = shown || facts.wait;
    button.hidden = Boolean(shown);
  };
}

/** Questions with feedback for every choice. */
function quiz(root, facts, name, tell) {
  const feedbacks = facts.questions.map(({ text, choices: texts }, at) => {
    const options = choices(texts, `${name}-${at}`, (choice) => tell({ do: "answer", number: at + 1, choice: choice + 1 }));
    const feedback = element("div", { class: "gl-said", role: "status" });
    root.append(element("fieldset", {}, element("legend", {}, `${at + 1}. ${text}`), element("div", { class: "gl-choices gl-list" }, ...options.map(({ label }) => label)), feedback));
    return { options, feedback };
  });
  root.prepend(element("div", { class: "gl-title" }, facts.title));
  const score = element("div", { role: "status" });
  root.append(score);
  return ({ answers, score: words }) => {
    feedbacks.forEach(({ options, feedback }, at) => {
      const given = answers[at + 1];
      if (!given) return;
      options[given.choice - 1].input.checked = true;
      feedback.className = `gl-said ${given.right ? "gl-right" : "gl-wrong"}`;
      feedback.replaceChildren(element("b", {}, given.right ? "✓ " : "✗ "), given.text);
    });
    score.textContent = words;
  };
}

const FORMS = { prediction, reveal, quiz };
const PATIENCE_MS = 6000;
let forms = 0;

function render({ model, el }) {
  forms += 1;
  const facts = model.get("facts");
  const root = element("div", { class: "gpulab-form", onkeydown: keepPlainKeys });
  // After a restart, or in a saved notebook, nobody answers; a form that does nothing would puzzle.
  const silence = element("div", { class: "gl-problem", role: "alert" });
  let waiting = 0;
  const answered = () => {
    clearTimeout(waiting);
    silence.textContent = "";
  };
  const unanswered = () => { silence.textContent = "No answer from Python. Run this cell again."; };
  const tell = (message) => {
    answered();
    waiting = setTimeout(unanswered, PATIENCE_MS);
    try {
      model.send(message);
    } catch {
      unanswered();
    }
  };
  const update = FORMS[model.get("form")](root, facts, `gpulab-form-${forms}-${model.get("form")}`, tell);
  const changed = () => update(model.get("state"));
  changed();
  model.on("change:state", changed);
  model.on("change:heard", answered);
  const notice = element("div", { class: "gl-problem", role: "alert" });
  const noticed = () => { notice.textContent = model.get("notice"); };
  noticed();
  model.on("change:notice", noticed);
  root.append(silence, notice);
  el.replaceChildren(root);
  return () => {
    clearTimeout(waiting);
    model.off("change:state", changed);
    model.off("change:heard", answered);
    model.off("change:notice", noticed);
  };
}

export default { render };
