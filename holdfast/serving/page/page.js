// Ask, teach, and see what is remembered. It follows plot.js of the report's page.

const SHOWN = 200; // facts; the others are found by their words
const EVERY = 4000; // milliseconds between looks at what is remembered

const by = (id) => document.getElementById(id);
let key = sessionStorage.getItem("key") ?? ""; // for this tab, until it is closed

function use(given) {
  sessionStorage.setItem("key", (key = given));
}

// The part of the address behind # is never sent; neither the history nor a copied address keeps it.
function takeKey() {
  const given = new URLSearchParams(location.hash.slice(1)).get("key");
  if (given) use(given);
  if (location.hash) history.replaceState(null, "", location.pathname);
}
takeKey();

let model = "";
let latest = null; // what /facts told last

async function send(path, body) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  const response = await fetch(path, options);
  if (response.status === 401) by("unlock").hidden = false;
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response;
}

const call = async (path, body) => (await send(path, body)).json();

// The choices of a stream of server-sent events, as they come.
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
    reader.cancel(); // so the server stops to write what nobody reads
  }
}

const whole = (share) => `${Math.round(100 * share)}%`;
const several = (count, one) => `${count} ${one}${count === 1 ? "" : one === "batch" ? "es" : "s"}`;
const sure = (probability) => (probability < 0.01 ? "less than 1%" : whole(probability));

function say(place, kind, ...children) {
  place.replaceChildren(make("div", { class: `said ${kind}` }, ...children));
}

const paragraph = (text, kind = "") => make("p", kind ? { class: kind } : {}, text);

// Do something while a form's button rests; what goes wrong is said in `place`.
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

// What is said below an answer: where it comes from, or how sure the model is.
function remark(told) {
  if (told.waiting) return "From the list of facts; its lesson is not learned yet.";
  if (told.source) return SOURCES[told.source];
  if (told.taught !== false) return `${sure(told.probability)} sure`;
  if (told.would_say === undefined) return "";
  return `It would say “${told.would_say ?? ""}”, ${sure(told.probability)} sure.`;
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

let asking = 0; // the number of the last question; an earlier one's stream is left

async function ask(question) {
  by("question").value = question;
  const mine = ++asking;
  await busy(by("ask"), by("answer"), async () => {
    let [text, told] = ["", {}];
    const response = await send("/v1/completions", { model, prompt: question, stream: true });
    for await (const choice of choices(response)) {
      if (mine !== asking) return;
      text += choice.text;
      showAnswer(text, (told = choice.holdfast ?? told));
    }
  });
}

// What a response to taught facts, or the state of a lesson, says in lines.
function lessonLines(told) {
  const lines = [];
  if (told.state === "waiting") lines.push(`Lesson ${told.lesson} waits; it goes on if you leave.`);
  if (told.state === "learning") lines.push(`Lesson ${told.lesson}: ${told.learned} of ${told.total} learned.`);
  if (told.state === "failed") lines.push(`Lesson ${told.lesson} failed: ${told.reason}`);
  if (told.state === "learned" || told.batches) {
    const fresh = told.batches ? told.batches.length : told.lesson;
    lines.push(fresh ? "Learned." : "This was known already.");
    if (told.missed?.length) {
      lines[0] = told.batches
        ? "Learned, but it is not recalled yet; teach it again."
        : "Learned; the answer comes from the list, since the weights say something else.";
    }
  }
  for (const one of told.corrected) lines.push(`Corrected: it is “${one.is}”, was “${one.was}”.`);
  if (told.recalled != null) lines.push(`${told.recalled} of ${several(told.known, "fact")} recalled.`);
  return lines;
}

async function teach() {
  await busy(by("teach"), by("lesson"), async () => {
    const fact = { question: by("fact-question").value, answer: by("fact-answer").value };
    say(by("lesson"), "", paragraph("Learning; this takes a minute or so."));
    let told = await call("/facts", { facts: [fact] });
    by("teach").reset();
    const show = () => say(by("lesson"), "", ...lessonLines(told).map((line) => paragraph(line)));
    show();
    while (told.state === "waiting" || told.state === "learning") {
      await new Promise((resolve) => setTimeout(resolve, 500));
      told = await call(`/lessons/${told.lesson}`);
      show();
    }
    await look();
  });
}

function showFacts() {
  const words = by("filter").value.toLocaleLowerCase();
  const has = (fact) => `${fact.question} ${fact.answer}`.toLocaleLowerCase().includes(words);
  const found = latest.facts.filter(has);
  const rows = found.slice(0, SHOWN).map((fact) =>
    make(
      "tr",
      {},
      make("td", {}, fact.question),
      make("td", {}, fact.answer),
      make("td", {}, `${latest.unit} ${fact.batch_name}`),
      make("td", {}, fact.source ?? (fact.recalled ? "yes" : "no")),
    ),
  );
  by("facts").tBodies[0].replaceChildren(...rows);
  by("facts").hidden = !latest.facts.length;
  by("filter").hidden = latest.facts.length < 10;
  by("more").hidden = found.length <= SHOWN;
  by("more").textContent = `and ${found.length - SHOWN} more`;
}

function show() {
  document.title = by("name").textContent = latest.memory;
  const state = latest.teaching ? "learning" : "ready";
  by("state").textContent = `${several(latest.batches, latest.unit)} learned · ${state}`;
  by("teaching").hidden = !latest.teach;
  const recalled = latest.facts.filter((fact) => fact.recalled).length;
  const [all, how] = [several(latest.facts.length, "fact"), latest.model ? "from the weights" : "recalled now"];
  by("count").textContent = latest.facts.length
    ? `${recalled} of ${all} ${how}, newest first`
    : "Nothing yet.";
  by("where").textContent = latest.model ? "From" : "Recalled";
  showFacts();
  // How a batch fades was measured only where batches share their weights.
  by("retention").hidden = Boolean(latest.model);
  const [first, half] = [latest.retention[0], latest.half_life];
  by("life").textContent = latest.retention.length < 2
    ? "How much of a batch is recalled after later ones shows from the second batch on."
    : `Recall of a batch, by how many were learned since; a corrected answer counts as forgotten. ${
        half === null
          ? `It has not fallen to half of ${whole(first)}.`
          : `It falls below half after ${several(half, "batch")}.`
      }`;
  drawChart();
}

function curve(retention, width) {
  const [height, left, right, top, bottom] = [240, 44, 12, 12, 42];
  const last = retention.length - 1;
  const x = (age) => left + (age / last) * (width - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  const read = retention.map((one, age) => `${age}: ${known(one) ? whole(one) : "unknown"}`);
  const label = `Recall by age: ${read.join(", ")}`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const share of [0, 0.5, 1]) {
    svg.append(
      shape("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      shape("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, whole(share)),
    );
  }
  for (const age of ticks(0, last, width < 480 ? 4 : 8)) {
    svg.append(shape("text", { x: x(age), y: height - 24, "text-anchor": "middle" }, age));
  }
  svg.append(
    shape("text", { x: (left + width) / 2, y: height - 5, "text-anchor": "middle" }, "batches learned since"),
  );
  const points = retention.flatMap((share, age) => (known(share) ? [[x(age), y(share)]] : []));
  svg.append(shape("polyline", { class: "curve", points: points.join(" ") }));
  if (last <= 40) for (const [cx, cy] of points) svg.append(shape("circle", { class: "point", cx, cy, r: 3 }));
  return svg;
}

async function look() {
  try {
    model ||= (await call("/v1/models")).data[0].id;
    const told = await call("/facts");
    by("unlock").hidden = true;
    if (JSON.stringify(told) === JSON.stringify(latest)) return;
    latest = told;
    show();
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

const drawChart = drawnToWidth(by("chart"), (width) => {
  const retention = latest?.retention ?? [];
  by("chart").replaceChildren(...(retention.length < 2 ? [] : [curve(retention, width)]));
});

async function keepLooking() {
  if (!document.hidden) await look();
  setTimeout(keepLooking, EVERY);
}
keepLooking();
