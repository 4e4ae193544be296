import { element, isLive, keepPlainKeys } from "gpulab/parts/frame.js";

// The course's forms: a prediction to lock, a comparison that waits for it, a quiz, and an interview card.
// Native controls in a fieldset, so that keyboards and screen readers know them.

/** Text as nodes, with what stands between backticks as code. */
function prose(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

function group(question, ...children) {
  return element("fieldset", {}, element("legend", {}, ...question), ...children);
}

/** A question, its answer as a number, a choice or code, and two buttons that lock it. */
function prediction(root, facts, name, tell) {
  let picked = "";
  const problem = element("div", { class: "gl-problem", role: "alert", id: `${name}-problem` });
  const said = element("span", { class: "gl-said", role: "status" });
  const lock = (sure) => tell({ value: field ? field.value : picked, sure });
  const sure = element("button", { type: "button", onclick: () => lock(true) }, facts.sure ?? "I am sure");
  const guess = element("button", { type: "button", onclick: () => lock(false) }, facts.guess ?? "I guess");
  const change = element("button", { type: "button", class: "gl-quiet", onclick: () => tell({}) }, "Change");
  const radios = facts.choices.map((text, at) => element("input", { type: "radio", name, value: String(at), onchange: () => { picked = text; } }));
  const isCode = facts.code !== undefined;
  const field = radios.length ? null : element(isCode ? "textarea" : "input", {
    autocomplete: "off", "aria-describedby": `${name}-problem`,
    ...(isCode
      ? { rows: 14, class: "gl-code", spellcheck: false, "aria-label": "Your kernel" }
      : { type: "text", inputmode: "decimal", placeholder: "a number", "aria-label": facts.unit ? `Your prediction in ${facts.unit}` : "Your prediction, a number" }),
    oninput: () => {
      problem.textContent = "";
      said.textContent = "";
      field.setAttribute("aria-invalid", "false");
    },
    // Whether it is sure is for the learner to say: Enter goes to the buttons.
    onkeydown: (event) => {
      if (event.key !== "Enter" || event.shiftKey || isCode) return;
      said.textContent = "Are you sure, or do you guess? Choose with Tab and Enter.";
      sure.focus();
      event.preventDefault();
    },
  });
  if (isCode) field.value = facts.code;
  const answer = field
    ? [field, facts.unit]
    : [element("div", { class: "gl-choices" }, radios.map((radio, at) => element("label", { class: "gl-choice" }, radio, element("span", {}, prose(facts.choices[at])))))];
  root.append(group([element("b", {}, `${facts.label ?? "Predict"}: `), ...prose(facts.question)], element("div", { class: "gl-answer" }, ...answer, sure, guess, said, change), problem));
  return ({ value, locked, final, note, wrong }) => {
    if (field) {
      if (locked) field.value = value;
      field.readOnly = locked;
      field.setAttribute("aria-invalid", String(Boolean(wrong)));
    }
    radios.forEach((radio, at) => {
      if (locked) radio.checked = facts.choices[at] === value;
      radio.disabled = locked;
    });
    if (locked) picked = value;
    const pressed = [sure, guess, change].includes(document.activeElement);
    sure.hidden = locked;
    guess.hidden = locked;
    change.hidden = !locked || final;
    // The button that was pressed is gone: what takes its place gets the focus.
    if (pressed && (locked || wrong)) (final ? root : locked ? change : field ?? radios.find(({ checked }) => checked) ?? sure).focus();
    problem.textContent = wrong;
    said.textContent = note;
  };
}

/** The comparison, once there is a prediction or the learner asks for it. */
function reveal(root, facts, name, tell) {
  const text = element("div", { role: "status", tabindex: -1 });
  const button = element("button", { type: "button", class: "gl-quiet", onclick: () => { tell({}); text.focus(); } }, "Show it anyway");
  const box = element("fieldset", { "aria-label": "Comparison" }, text, button);
  root.append(box);
  return ({ verdict, sign, head, rest }) => {
    box.className = verdict ? `gl-${verdict}` : "";
    text.replaceChildren(...(head ? [element("b", { class: "gl-head" }, element("span", { class: "gl-sign" }, sign && `${sign} `), ...prose(head)), " ", ...prose(rest)] : [facts.wait]));
    button.hidden = Boolean(head);
  };
}

/** A question with choices: each is a button that answers with its reason. */
function choices({ text, choices: texts }, number, tell) {
  const buttons = texts.map((choice, at) => element("button", { type: "button", class: "gl-option", "aria-pressed": "false", onclick: () => tell({ number, answer: at + 1 }) }, element("span", { class: "gl-sign", "aria-hidden": "true" }), element("span", {}, prose(choice))));
  const said = element("div", { class: "gl-said", role: "status" });
  const box = group([`${number}. `, ...prose(text)], element("div", { class: "gl-options" }, ...buttons), said);
  const update = ({ choice, right, text: why }) => {
    if (!choice) return;
    buttons.forEach((button, at) => {
      const mine = at === choice - 1;
      button.setAttribute("aria-pressed", String(mine));
      button.firstChild.textContent = mine ? (right ? "✓ " : "✗ ") : "";
    });
    box.className = right ? "gl-right" : "gl-wrong";
    said.replaceChildren(element("b", { class: "gl-sign" }, right ? "✓ " : "✗ "), ...prose(why));
  };
  return { box, said, update };
}

/** A question for a reason: words of one's own, then the points that a good answer makes, to tick. */
function reason({ text, label, written = true }, number, tell) {
  const words = element("textarea", { rows: 2, hidden: !written, "aria-label": label ?? `Your answer to question ${number}`, placeholder: "In your own words" });
  const compare = element("button", { type: "button", class: "gl-quiet", onclick: () => tell({ number, answer: words.value }) }, "Compare");
  const said = element("div", { class: "gl-said", role: "status" });
  const head = label ? element("b", {}, `${label}: `) : `${number}. `;
  const box = group([head, ...prose(text)], words, element("div", {}, compare), said);
  const update = ({ words: written, points = [], ticked = [] }) => {
    if (!points.length) return;
    if (!words.value) words.value = written;
    compare.hidden = true;
    const boxes = points.map((point, at) => element("input", { type: "checkbox", checked: ticked.includes(at), onchange: () => tell({ number, ticked: points.map((_, other) => other).filter((other) => boxes[other].checked) }) }));
    if (said.childElementCount) return;
    said.replaceChildren(written ? "These are the points of a good answer. Tick the points that your answer contains:" : "", ...points.map((point, at) => element("label", { class: "gl-point" }, boxes[at], element("span", {}, prose(point)))));
  };
  return { box, said, update };
}

/** Questions with feedback, one at a time; the row of numbers shows which are answered, and leads to each. */
function quiz(root, facts, name, tell) {
  let current = -1;
  const score = element("span", { class: "gl-score", role: "status" });
  const parts = facts.questions.map((question, at) => (question.choices.length ? choices : reason)(question, at + 1, tell));
  const numbers = parts.map((_, at) => element("button", { type: "button", class: "gl-number", onclick: () => show(at) }));
  const next = element("button", { type: "button", class: "gl-quiet", onclick: () => show(current + 1) }, "Next question");
  const show = (at) => {
    const hadFocus = next === document.activeElement;
    current = at;
    parts.forEach(({ box }, other) => { box.hidden = other !== at; });
    numbers.forEach((number, other) => number.setAttribute("aria-current", other === at ? "step" : "false"));
    next.hidden = at + 1 === parts.length;
    if (hadFocus) parts[at].box.querySelector("button, textarea, input")?.focus();
  };
  const bar = element("div", { class: "gl-numbers", role: "group", "aria-label": "Questions" }, ...numbers);
  bar.hidden = parts.length === 1;
  root.append(element("div", { class: "gl-title" }, facts.title, " ", score), bar, ...parts.map(({ box }) => box), next);
  return ({ answers, score: words }) => {
    const signs = answers.map(({ choice, right, points }) => (choice ? (right ? "✓" : "✗") : points?.length ? "✓" : ""));
    parts.forEach(({ update }, at) => update(answers[at]));
    numbers.forEach((number, at) => {
      number.replaceChildren(`${at + 1}`, ...(signs[at] ? [" ", element("span", { class: "gl-sign" }, signs[at])] : []));
      number.setAttribute("aria-label", `Question ${at + 1} of ${parts.length}${signs[at] ? ", answered" : ""}`);
    });
    if (current < 0) show(Math.max(0, signs.indexOf("")));
    score.textContent = words;
  };
}

/** Seconds as minutes and seconds, such as 2:05. */
const clockText = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

const HIDDEN_CLOCK = "gpulab-clock-hidden";

/** A clock that counts the seconds of a card, and a button that hides it in this and in later cards. */
function clock(isCounting) {
  let hidden = localStorage.getItem(HIDDEN_CLOCK) === "yes";
  let times = { elapsed_s: 0, since_s: null };
  const time = element("span", { class: "gl-time", role: "timer", "aria-label": "Time on this card" });
  const button = element("button", { type: "button", class: "gl-link", onclick: () => {
    hidden = !hidden;
    localStorage.setItem(HIDDEN_CLOCK, hidden ? "yes" : "no");
    draw();
  } });
  const draw = () => {
    // The kernel's clock can differ from the browser's if they are on different computers.
    const open_s = times.since_s === null || !isCounting() ? 0 : Math.max(0, Date.now() / 1000 - times.since_s);
    time.textContent = clockText(times.elapsed_s + open_s);
    time.hidden = hidden;
    button.textContent = hidden ? "Show clock" : "Hide";
    button.setAttribute("aria-label", hidden ? "Show the clock" : "Hide the clock");
  };
  const timer = setInterval(draw, 1000);
  return {
    box: element("span", { class: "gl-clock" }, time, button),
    set: (value) => { times = value; draw(); },
    end: () => clearInterval(timer),
  };
}

/** An answered question with its result, or a question with the truth for the interviewer. */
function step({ question, truth, html, said, label, right }, rubric) {
  const items = element("div");
  items.innerHTML = html; // tables and code, made by Python
  const result = said && element("div", { class: `gl-result gl-${right ? "right" : "wrong"}` }, element("b", { class: "gl-sign" }, right ? "✓ " : "✗ "), ...prose(said), " ", element("span", { class: "gl-origin" }, label));
  return element("div", { class: "gl-step" }, element("div", { class: "gl-question" }, ...prose(question)), rubric, truth && element("div", { class: "gl-truth" }, element("b", {}, "Truth: "), ...prose(truth)), items, result || null);
}

/** An interview card: question and answer, then truth, points of a strong answer, and the way to the next card. */
function interview(root, facts, name, tell, model) {
  let shown = {};
  let update = {};
  const time = clock(() => isLive(model));
  const place = element("div", { class: "gl-place" });
  const title = element("div", { class: "gl-title" });
  const steps = element("div");
  const open = element("div"); // the current question
  const status = element("div", { class: "gl-said", role: "status" });
  const rubric = element("div");
  const sentence = element("div", { class: "gl-sentence" });
  const scorecard = element("div");
  const source = element("span", { class: "gl-source" });
  const warning = element("span", { class: "gl-problem", role: "alert" });
  const next = element("button", { type: "button", class: "gl-quiet", onclick: () => tell({ next: true }) });
  root.classList.add("gl-card");
  root.append(element("div", { class: "gl-top" }, place, time.box), title, steps, open, status, rubric, sentence, scorecard, element("div", { class: "gl-foot" }, source, warning, next));
  const answer = (message) => {
    status.textContent = "The true value is being computed …";
    tell({ ...message, key: shown.question });
  };
  /** Replace a part when its key changes; returns whether there is a new one. */
  const renew = (slot, box, part, make) => {
    if (shown[slot] === part?.key) return false;
    shown[slot] = part?.key;
    box.replaceChildren();
    update[slot] = part ? make(part) : () => {};
    return Boolean(part);
  };
  const render = (state) => {
    const active = root.contains(document.activeElement) ? document.activeElement : null;
    place.textContent = state.place;
    title.textContent = state.title;
    source.textContent = state.source;
    time.set(state.clock);
    status.textContent = "";
    const hasNewRubric = renew("rubric", rubric, state.rubric, (part) => {
      const { box, update: show } = reason(part, 1, tell);
      rubric.append(box);
      return show;
    });
    if (state.rubric) update.rubric(state.rubric);
    const early = state.rubric && !state.rubric.written; // the interviewer listens for the points
    steps.replaceChildren(...state.steps.map((part, at) => step(part, early && at === 0 ? rubric : null)));
    if (!early && rubric.nextSibling !== sentence) sentence.before(rubric);
    const hasNewQuestion = renew("question", open, state.question, (part) => {
      const items = element("div");
      items.innerHTML = part.html;
      open.append(items);
      return prediction(open, part, `${name}-${part.key}`, answer);
    });
    update.question({ value: "", locked: false, final: false, note: "", wrong: state.wrong });
    sentence.replaceChildren(...(state.rubric?.sentence ? [`${state.rubric.score}. `, element("b", {}, "In one sentence: "), ...prose(state.rubric.sentence)] : []));
    scorecard.innerHTML = state.scorecard;
    warning.textContent = state.warning;
    next.textContent = state.next;
    next.hidden = !state.next;
    // The focus goes to the new question or explanation, or stays where it was.
    const fresh = hasNewQuestion ? open : hasNewRubric ? rubric : null;
    if (active && fresh) fresh.querySelector("textarea, input, button").focus({ preventScroll: true });
    else if (active && !root.contains(document.activeElement)) active.focus({ preventScroll: true });
  };
  render.end = time.end;
  return render;
}

const FORMS = { prediction, reveal, quiz, interview };
const PATIENCE_MS = 6000;
let forms = 0;

function render({ model, el }) {
  forms += 1;
  const facts = model.get("facts");
  const root = element("div", { class: "gpulab-form", tabindex: -1, onkeydown: keepPlainKeys });
  // After a restart, or in a saved notebook, nobody answers; a form that does nothing would puzzle.
  const silence = element("div", { class: "gl-problem", role: "alert" });
  let waiting = 0;
  const answered = () => {
    clearTimeout(waiting);
    silence.textContent = "";
  };
  const tell = (message) => {
    const active = document.activeElement;
    const near = (root.contains(active) && active.closest("fieldset")) || root;
    const unanswered = () => {
      near.append(silence);
      silence.textContent = "No answer from Python. Run this cell again.";
    };
    answered();
    waiting = setTimeout(unanswered, PATIENCE_MS);
    try {
      model.send(message);
    } catch {
      unanswered();
    }
  };
  const update = FORMS[model.get("form")](root, facts, `gpulab-form-${forms}-${model.get("form")}`, tell, model);
  const changed = () => update(model.get("state"));
  changed();
  model.on("change:state", changed);
  model.on("change:heard", answered);
  const notice = element("div", { class: "gl-problem", role: "alert" });
  const noticed = () => { notice.textContent = model.get("notice"); };
  noticed();
  model.on("change:notice", noticed);
  root.append(notice);
  el.replaceChildren(root);
  return () => {
    clearTimeout(waiting);
    update.end?.();
    model.off("change:state", changed);
    model.off("change:heard", answered);
    model.off("change:notice", noticed);
  };
}

export default { render };
