// Ask, teach, and list the facts. All text is inserted as text nodes; nothing here parses HTML.

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

const SHOWN = 200; // facts; the filter finds the others
const EVERY = 4000; // milliseconds between requests of the facts

const by = (id) => document.getElementById(id);
let key = sessionStorage.getItem("key") ?? ""; // for this tab, until it is closed

function use(given) {
  sessionStorage.setItem("key", (key = given));
}

// The key stands behind # in the address, so it is never sent; remove it there and in the history.
function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) use(given);
  if (location.hash) history.replaceState(null, "", location.pathname);
}
takeKey();

let model = "";
let latest = null; // the last response of /facts

async function send(path, body, method = body ? "POST" : "GET") {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (response.status === 401) by("unlock").hidden = false;
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response;
}

const call = async (...request) => (await send(...request)).json();

// Yield the choices of a stream of server-sent events as they arrive.
async function* choices(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const data = event.replace(/^data: /, "");
        if (data === "[DONE]") return;
        const values = JSON.parse(data);
        if (values.error) throw new Error(values.error.message);
        yield* values.choices;
      }
    }
  } finally {
    reader.cancel(); // so that the server stops writing what nobody reads
  }
}

const several = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

function say(place, kind, ...children) {
  place.replaceChildren(make("div", { class: `said ${kind}` }, ...children));
}

const paragraph = (text, kind = "") => make("p", kind ? { class: kind } : {}, text);

// Do `work` while a form's button is disabled; an error is shown in `place`.
async function busy(form, place, work) {
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    await work();
  } catch (error) {
    say(place, "wrong", paragraph(error.message));
  } finally {
    button.disabled = false;
  }
}

const SOURCES = {
  weights: "From the weights.",
  list: "From the list of facts; the weights say something else.",
  model: "The model's own answer; it was not taught that.",
};

// A question without case and punctuation; signs that carry meaning stay, as in C#.
const plain = (text) =>
  text.toLocaleLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{S}#%&*@/-]+/gu, " ").trim();

// The line below an answer: where it comes from, and what was taught if it was asked otherwise.
function remark(told) {
  const waits = "From the list of facts; its lesson is not learned yet.";
  const source = told.waiting ? waits : (SOURCES[told.source] ?? "");
  const taught = told.fact ? [told.fact, ...told.further] : [];
  const asked = taught.length === 1 && plain(taught[0]) === plain(told.question);
  return taught.length && !asked ? `${source} Taught: ${taught.join(" ")}` : source;
}

function showAnswer(text, told) {
  const below = remark(told);
  const like = (told.nearest ?? []).map((one) => {
    const button = make("button", { type: "button" }, one);
    button.addEventListener("click", () => ask(one));
    return button;
  });
  const offered = like.length ? [paragraph("It was taught:", "soft"), ...like] : [];
  const kind = told.taught === false ? "untaught" : "";
  say(by("answer"), kind, paragraph(text), ...(below ? [paragraph(below, "soft")] : []), ...offered);
}

let asking = 0; // the number of the latest question; streams of earlier ones are dropped

async function ask(question) {
  by("question").value = question;
  const mine = ++asking;
  try {
    let [text, told] = ["", {}];
    const response = await send("/v1/completions", { model, prompt: question, stream: true });
    for await (const choice of choices(response)) {
      if (mine !== asking) return;
      text += choice.text;
      showAnswer(text, (told = choice.holdfast ?? told));
    }
  } catch (error) {
    if (mine === asking) say(by("answer"), "wrong", paragraph(error.message));
  }
}

// Lines for a response to taught facts, or for the state of a lesson.
function lessonLines(told, notices = []) {
  const lines = [];
  if (told.state === "waiting") lines.push(`Lesson ${told.lesson} waits; it goes on if you leave.`);
  if (told.state === "learning") lines.push(`Lesson ${told.lesson}: ${told.learned} of ${told.total} learned.`);
  if (told.state === "failed") lines.push(`Lesson ${told.lesson} failed: ${told.reason}`);
  if (told.state === "learned") {
    lines.push(told.lesson ? "Learned." : "This was known already.");
    if (told.missed?.length) {
      lines[0] = "Learned; the answer comes from the list, since the weights say something else.";
    }
  }
  for (const one of told.corrected) lines.push(`Corrected: it is “${one.is}”, was “${one.was}”.`);
  return [...lines, ...notices];
}

async function teach() {
  await busy(by("teach"), by("lesson"), async () => {
    const fact = { question: by("fact-question").value, answer: by("fact-answer").value };
    say(by("lesson"), "", paragraph("Learning; this takes a minute or so."));
    let told = await call("/facts", { facts: [fact] });
    const notices = told.notices;
    by("teach").reset();
    let shown = "";
    const show = () => {
      const lines = lessonLines(told, notices);
      if (lines.join("\n") === shown) return; // a message about another lesson stays
      shown = lines.join("\n");
      say(by("lesson"), "", ...lines.map((line) => paragraph(line)));
    };
    show();
    // A lesson keeps its name, but its number changes if an earlier one is cancelled.
    const name = told.lesson && (await call(`/lessons/${told.lesson}`)).name;
    await lookAtQueue();
    while (told && (told.state === "waiting" || told.state === "learning")) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      told = (await call("/lessons")).lessons.find((one) => one.name === name);
      if (told) show();
      else say(by("lesson"), "", paragraph("This lesson was cancelled."));
    }
    await look();
  });
}

const LATER = { waiting: "waits", learning: "is learned", failed: "failed" };

// List the lessons that are not learned, each with a button that cancels it.
async function lookAtQueue() {
  const lessons = latest?.teach ? (await call("/lessons")).lessons : [];
  const rows = lessons.filter((one) => one.state in LATER).map((one) => {
    const words = `Lesson ${one.lesson}, ${several(one.facts, "fact")}, ${LATER[one.state]}`;
    const button = make("button", { type: "button", "aria-label": `Cancel lesson ${one.lesson}` }, "Cancel");
    button.addEventListener("click", () => cancel(one, button));
    return make("li", {}, make("span", {}, words), button);
  });
  by("queue").replaceChildren(...rows);
  by("queue").hidden = !rows.length;
}

async function cancel(one, button) {
  button.disabled = true;
  try {
    // Later lessons move up when one is cancelled elsewhere.
    const now = await call(`/lessons/${one.lesson}`);
    if (now.name !== one.name) throw new Error("The lessons have changed; look again.");
    await call(`/lessons/${one.lesson}`, undefined, "DELETE");
    say(by("lesson"), "", paragraph(`Lesson ${one.lesson} is cancelled.`));
  } catch (error) {
    say(by("lesson"), "wrong", paragraph(error.message));
  }
  await look();
}

// Buttons that correct and forget a fact; forgetting needs a second press.
function factButtons(fact) {
  const change = make("button", { type: "button", "aria-label": `Correct: ${fact.question}` }, "Correct");
  change.addEventListener("click", () => {
    by("fact-question").value = fact.question;
    by("fact-answer").value = fact.answer;
    by("fact-answer").select();
    by("fact-answer").focus();
  });
  const gone = make("button", { type: "button", "aria-label": `Forget: ${fact.question}` }, "Forget");
  gone.addEventListener("click", () => {
    if (gone.dataset.sure) return forget(fact, gone);
    gone.dataset.sure = "yes";
    gone.textContent = "For good?";
  });
  gone.addEventListener("blur", () => {
    delete gone.dataset.sure;
    if (!gone.disabled) gone.textContent = "Forget";
  });
  return make("span", { class: "buttons" }, change, gone);
}

async function forget(fact, button) {
  button.disabled = true;
  button.textContent = "Forgetting";
  try {
    const told = await call(`/facts?question=${encodeURIComponent(fact.question)}`, undefined, "DELETE");
    const again = told.others ? ` ${told.answered} of ${several(told.others, "other fact")} of its lessons learned again.` : "";
    say(by("lesson"), "", paragraph(`Forgotten: ${fact.question}${again}`));
  } catch (error) {
    say(by("lesson"), "wrong", paragraph(error.message));
    showFacts();
  }
  await look();
}

function showFacts() {
  if (!latest) return; // the server does not answer
  const words = by("filter").value.toLocaleLowerCase();
  const has = (fact) => `${fact.question} ${fact.answer}`.toLocaleLowerCase().includes(words);
  const found = latest.facts.filter(has);
  const rows = found.slice(0, SHOWN).map((fact) =>
    make(
      "tr",
      {},
      make("td", {}, fact.question),
      make("td", {}, fact.answer),
      make("td", {}, /^lesson/i.test(fact.batch_name) ? fact.batch_name : `lesson ${fact.batch_name}`),
      make("td", {}, fact.source),
      ...(latest.teach ? [make("td", {}, factButtons(fact))] : []),
    ),
  );
  by("facts").tBodies[0].replaceChildren(...rows);
  by("facts").hidden = !latest.facts.length;
  by("changes").hidden = !latest.teach;
  by("filter").hidden = latest.facts.length < 10;
  by("more").hidden = found.length <= SHOWN;
  by("more").textContent = `and ${found.length - SHOWN} more`;
}

function show() {
  document.title = by("name").textContent = latest.memory;
  const state = latest.teaching ? "learning" : "ready";
  by("state").textContent = `${several(latest.batches, "lesson")} learned · ${state}`;
  by("teaching").hidden = !latest.teach;
  const recalled = latest.facts.filter((fact) => fact.recalled).length;
  by("count").textContent = latest.facts.length
    ? `${recalled} of ${several(latest.facts.length, "fact")} from the weights, newest first`
    : "Nothing yet.";
  showFacts();
}

async function look() {
  try {
    model ||= (await call("/v1/models")).data[0].id;
    const told = await call("/facts");
    by("unlock").hidden = true;
    if (JSON.stringify(told) !== JSON.stringify(latest)) {
      latest = told;
      show();
    }
    await lookAtQueue();
  } catch (error) {
    latest = null;
    by("state").textContent = error instanceof TypeError ? "The server does not answer." : error.message;
  }
}

function on(id, work) {
  by(id).addEventListener("submit", (event) => {
    event.preventDefault();
    work();
  });
}

window.addEventListener("hashchange", () => {
  takeKey();
  look();
});
on("ask", () => ask(by("question").value));
on("teach", teach);
on("unlock", () => {
  use(by("key").value);
  look();
});
by("filter").addEventListener("input", showFacts);
// Enter teaches, as in a field of one line; Shift and Enter begin a new line.
by("teach").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target.type !== "textarea") return;
  event.preventDefault();
  if (!by("teach").querySelector("button").disabled) by("teach").requestSubmit();
});

async function keepLooking() {
  if (!document.hidden) await look();
  setTimeout(keepLooking, EVERY);
}
keepLooking();
