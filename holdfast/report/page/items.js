// Which facts go first: the items of one run, to search and to sort, and the life of one.

const SHOWN = 50; // rows of the list at first, and more with each press of the button

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

async function livesOfRun(view, run) {
  if (run.lives) return run.lives;
  if (!run.packed) return { tasks: 0, items: [] };
  const [facts, told] = await Promise.all([unpacked(view.lives.facts[run.facts]), unpacked(run.packed)]);
  const items = facts.task.map((task, i) =>
    lifeOf(task, facts.number[i], facts.question[i], facts.answer[i], told.life[i], told.rows, told.asked?.[i]),
  );
  run.lives = { tasks: told.tasks, items, sampled: Boolean(told.asked) };
  return run.lives;
}

const COLUMNS = [
  { title: "Task", value: (item) => item.task, first: 1, look: "text" },
  { title: "Question", value: (item) => item.question, first: 1, look: "text wrap" },
  { title: "Answer", value: (item) => item.answer, first: 1, look: "text wrap" },
  { title: "Life", value: (item) => item.share, first: -1 },
  { title: "Lost at age", value: (item) => item.lostAge, first: 1 },
  { title: "Samples", value: (item) => item.sampled, first: -1, sampled: true },
];

// What is missing stays last; equal ones keep the order of the tasks.
function sorted(items, column, direction) {
  const compared = (a, b) => {
    const [x, y] = [column.value(a), column.value(b)];
    if (!known(x) || !known(y)) return Number(!known(x)) - Number(!known(y));
    return direction * (typeof x === "string" ? x.localeCompare(y, "en") : x - y);
  };
  return [...items].sort(compared);
}

function itemsSection(place, view, tables) {
  const { runs } = view.lives;
  const body = make("div");
  const show = async (run) => {
    const lives = await livesOfRun(view, run);
    const list = lives.items.length ? itemList(lives) : [];
    body.replaceChildren(...list, ...samplesCharts(view.name, run, tables));
  };
  if (runs.length > 1) {
    const choice = make("select");
    runs.forEach((run, i) => choice.append(make("option", { value: i }, `${run.method}, seed ${run.seed}`)));
    choice.addEventListener("change", () => show(runs[Number(choice.value)]));
    place.append(make("label", { class: "choice" }, "Run ", choice));
  }
  place.append(body);
  show(runs[0]);
}

function itemList({ tasks, items, sampled }) {
  const columns = COLUMNS.filter((column) => sampled || !column.sampled);
  const state = { query: "", column: columns[4], direction: 1, shown: SHOWN, picked: null };
  const mapPlace = make("div");
  const detail = make("div", { class: "detail", role: "status" });
  const rows = make("tbody");
  const count = make("span", { class: "soft" });
  const more = make("button", { type: "button" }, "Show more");
  const search = make("input", { type: "search", "aria-label": "Search questions and answers", placeholder: "Search" });
  const headers = columns.map((column) => {
    const button = make("button", { type: "button" }, column.title);
    const header = make("th", { scope: "col", class: column.look ? "text" : null }, button);
    button.addEventListener("click", () => {
      state.direction = state.column === column ? -state.direction : column.first;
      state.column = column;
      update();
    });
    return header;
  });
  let found = [];
  const update = () => {
    const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = items.filter((item) => words.every((word) => item.text.includes(word)));
    found = sorted(fits, state.column, state.direction);
    state.shown = SHOWN;
    headers.forEach((header, i) => {
      if (columns[i] !== state.column) header.removeAttribute("aria-sort");
      else header.setAttribute("aria-sort", state.direction > 0 ? "ascending" : "descending");
    });
    mapPlace.replaceChildren(lifeMap(found, tasks, pick));
    list();
  };
  const list = () => {
    rows.replaceChildren(...found.slice(0, state.shown).map(row));
    more.hidden = found.length <= state.shown;
    count.textContent = `${Math.min(state.shown, found.length)} of ${found.length} items`;
  };
  const row = (item) => {
    const button = make("button", { type: "button", class: "pick" }, item.question);
    button.addEventListener("click", () => pick(item));
    const strip = lifePicture([item], tasks);
    strip.setAttribute("class", "strip");
    const cells = {
      Task: [item.task], Question: [button], Answer: [item.answer], Life: [strip],
      "Lost at age": [item.lostAge ?? (item.never ? "never known" : "–")], Samples: [item.sampled ?? "–"],
    };
    const line = make("tr", { "aria-current": item === state.picked ? "true" : null });
    for (const { title, look } of columns) line.append(make("td", { class: look }, ...cells[title]));
    return line;
  };
  const pick = (item) => {
    state.picked = item;
    [...rows.children].forEach((line, i) => {
      if (found[i] === item) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    });
    detail.replaceChildren(
      make("p", { class: "question" }, item.question),
      make("p", { class: "answer" }, item.answer),
      make("p", { class: "soft" }, lifeText(item)),
      ...lifeDetail(item, tasks),
    );
  };
  search.addEventListener("input", () => {
    state.query = search.value;
    update();
  });
  more.addEventListener("click", () => {
    state.shown += SHOWN;
    list();
  });
  rows.addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!step) return;
    event.preventDefault();
    event.target.closest("tr")[step]?.querySelector("button").focus();
  });
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...headers)), rows);
  update();
  pick(found[0]);
  return [
    make("p", {}, summary(items)),
    lifeKey(),
    make("div", { class: "pair even" }, mapPlace, detail),
    make("div", { class: "finder" }, search, count),
    scrollable(make("div", { class: "scroll items" }, table)),
    more,
  ];
}

function summary(items) {
  const lost = items.filter((item) => item.lost !== null).length;
  const never = items.filter((item) => item.never).length;
  const kept = items.length - lost - never;
  return `Of ${items.length} items: ${kept} recalled at the end, ${lost} lost, ${never} never recalled. ` +
    "Lost: not recalled again up to the last row.";
}

function lifeText(item) {
  const samples = item.sampled === null ? "" : ` It was asked by ${samplesText(item.sampled)}.`;
  const share = `recalled in ${percent(item.share)} of ${item.seen.length} rows`;
  return `Item ${item.number} of task ${item.task}: ${fate(item)}, ${share}.${samples}`;
}
