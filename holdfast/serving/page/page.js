// Ask, teach, and see what is remembered. It follows plot.js of the report's page.

const SHOWN = 200; // facts; the others are found by their words
const EVERY = 4000; // milliseconds between looks at what is remembered

const by = (id) => document.getElementById(id);
// The part of the address behind # is never sent.
let key = new URLSearchParams(location.hash.slice(1)).get("key") ?? "";
let model = "";
let latest = null; // what /facts told last

async function call(path, body) {
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const options = body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers };
  const response = await fetch(path, options);
  const values = await response.json();
  if (response.status === 401) by("unlock").hidden = false;
  if (!response.ok) throw new Error(values.error.message);
  return values;
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

async function ask(question) {
  by("question").value = question;
  await busy(by("ask"), by("answer"), async () => {
    const reply = await call("/v1/completions", { model, prompt: question });
    const { text, holdfast: told } = reply.choices[0];
    if (told.taught !== false) {
      say(by("answer"), "", paragraph(text), paragraph(`${sure(told.probability)} sure`, "soft"));
      return;
    }
    const would = `It would say “${told.would_say ?? ""}”, ${sure(told.probability)} sure.`;
    const like = told.nearest.map((one) => {
      const button = make("button", { type: "button" }, one);
      button.addEventListener("click", () => ask(one));
      return button;
    });
    const offered = like.length ? [paragraph("It was taught:", "soft"), ...like] : [];
    say(by("answer"), "untaught", paragraph(text), paragraph(would, "soft"), ...offered);
  });
}

async function teach() {
  await busy(by("teach"), by("lesson"), async () => {
    const fact = { question: by("fact-question").value, answer: by("fact-answer").value };
    say(by("lesson"), "", paragraph("Learning; this takes a minute or so."));
    const told = await call("/facts", { facts: [fact] });
    const lines = [told.batches.length ? "Learned." : "This was known already."];
    if (told.missed.length) lines[0] = "Learned, but it is not recalled yet; teach it again.";
    for (const one of told.corrected) lines.push(`Corrected: it is “${one.is}”, was “${one.was}”.`);
    if (told.recalled !== null) lines.push(`${told.recalled} of ${several(told.known, "fact")} recalled.`);
    say(by("lesson"), "", ...lines.map((line) => paragraph(line)));
    by("teach").reset();
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
      make("td", {}, `batch ${fact.batch_name}`),
      make("td", {}, fact.recalled ? "yes" : "no"),
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
  by("state").textContent = `${several(latest.batches, "batch")} learned · ${state}`;
  by("teaching").hidden = !latest.teach;
  const recalled = latest.facts.filter((fact) => fact.recalled).length;
  by("count").textContent = latest.facts.length
    ? `${recalled} of ${several(latest.facts.length, "fact")} recalled now, newest first`
    : "Nothing yet.";
  showFacts();
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

on("ask", () => ask(by("question").value));
on("teach", teach);
on("unlock", () => {
  key = by("key").value;
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
