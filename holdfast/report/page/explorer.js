// The composition explorer: switch mechanisms, see that composition.

const finished = (view, method) =>
  view.runs.filter((run) => run.method === method && run.matrix.tasks === view.horizon);

// The seed in the middle by Final, as the paper's figure of matrices takes it.
function medianRun(runs) {
  const sorted = [...runs].sort((a, b) => (a.final ?? -1) - (b.final ?? -1));
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

function explorer(place, view, differences) {
  const on = new Set(view.explorer.start);
  let seed = null;
  const statement = make("p", { class: "statement", role: "status" });
  const matrixPlace = make("div", { class: "explored" });
  const effects = make("div", { class: "effects" });
  const seeds = make("div", { class: "toggles seeds", role: "group", "aria-label": "Seed" });
  const tagOf = (mechanisms) =>
    view.explorer.tags[view.explorer.factors.map((name) => Number(mechanisms.has(name))).join("")];
  const chart = survivalChart(view.curves, () => {
    const tag = tagOf(on);
    return new Map(view.curves[tag] ? [[tag, {}]] : []);
  });
  const update = () => {
    const tag = tagOf(on);
    const runs = finished(view, tag);
    for (const button of toggles.children) {
      button.setAttribute("aria-pressed", on.has(button.dataset.mechanism));
    }
    statement.replaceChildren(...describe(view, tag, runs));
    const run = runs.find((one) => one.seed === seed) ?? medianRun(runs);
    seeds.replaceChildren(...(runs.length > 1 ? seedButtons(runs, run) : []));
    matrixPlace.replaceChildren(
      run
        ? heatmap(run, `${tag}, seed ${run.seed}`, [make("code", {}, tag), ` seed ${run.seed}`])
        : make("p", { class: "absent" }, "No matrix: this composition was not run to the end."),
    );
    effects.replaceChildren(effectTable(view, on, tagOf, differences));
    chart.redraw();
  };
  const seedButtons = (runs, shown) =>
    runs.map((run) => {
      const attributes = { type: "button", "aria-pressed": run === shown, "data-seed": run.seed };
      const button = make("button", attributes, `seed ${run.seed}`);
      button.addEventListener("click", () => {
        seed = run.seed;
        update();
        seeds.querySelector(`[data-seed="${run.seed}"]`).focus();
      });
      return button;
    });
  const toggles = make("div", { class: "toggles", role: "group", "aria-label": "Mechanisms" });
  for (const name of view.explorer.factors) {
    const attributes = { type: "button", "data-mechanism": name };
    const button = make("button", attributes, view.explorer.labels[name]);
    button.addEventListener("click", () => {
      if (!on.delete(name)) on.add(name);
      update();
    });
    toggles.append(button);
  }
  place.append(
    toggles,
    statement,
    make("div", { class: "pair" }, make("div", {}, matrixPlace, seeds), make("div", {}, chart.element, effects)),
  );
  update();
}

function describe(view, tag, runs) {
  const name = make("code", {}, tag);
  const mean = view.means[tag];
  if (!mean) {
    const begun = view.runs.some((run) => run.method === tag);
    return [name, begun ? " has not been learned to the end yet." : " was not run in this study."];
  }
  const seeds = mean.seeds === 1 ? "one seed" : `${mean.seeds} seeds`;
  return [name, ` recalls ${spread(mean.final, mean.final_sd)} after task ${view.horizon} (${seeds}).`];
}

// What switching each mechanism does here, beside what it does on average over all compositions.
function effectTable(view, on, tagOf, differences) {
  const average = view.explorer.effects;
  const head = ["mechanism", "here", "95% interval", "without → with", ...(average ? ["main effect", "p"] : [])];
  const table = make("table", {}, make("caption", {}, "What each mechanism adds, in points of Final"));
  table.append(make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))));
  const body = make("tbody");
  for (const name of view.explorer.factors) {
    const tags = [tagOf(new Set([...on].filter((other) => other !== name))), tagOf(new Set([...on, name]))];
    const [without, withIt] = tags.map((tag) => view.means[tag]);
    const both = without && withIt;
    const cells = [
      both ? points(withIt.final - without.final) : "not run",
      apart(view.name, tags, differences),
      `${percent(without?.final)} → ${percent(withIt?.final)}`,
    ];
    if (average) cells.push(points(average[name].effect), average[name].p);
    body.append(
      make(
        "tr",
        {},
        make("th", { scope: "row" }, view.explorer.labels[name]),
        ...cells.map((text) => make("td", {}, text)),
      ),
    );
  }
  table.append(body);
  return scrollable(make("div", { class: "scroll" }, table));
}

// The interval of the second method's Final minus the first's; the table has the better one first.
function apart(dataset, [without, withIt], differences) {
  const about = { dataset, metric: "final" };
  const [up] = rowsOf(differences, { ...about, method: withIt, other: without });
  if (up) return `${points(up.low)} to ${points(up.high)}`;
  const [down] = rowsOf(differences, { ...about, method: without, other: withIt });
  return down ? `${points(-down.high)} to ${points(-down.low)}` : "–";
}

// One heat map a method; the seed in the middle unless one is chosen.
function gallery(place, view) {
  const grid = make("div", { class: view.methods.length > 2 ? "gallery" : "gallery few" });
  const seeds = [...new Set(view.runs.map((run) => run.seed))].sort((a, b) => a - b);
  let chosen = null;
  const draw = () => {
    const figures = [];
    for (const method of view.methods) {
      const whole = finished(view, method);
      const own = view.runs.filter((run) => run.method === method);
      const run =
        chosen === null
          ? medianRun(whole.length ? whole : own)
          : [...whole, ...own].find((one) => one.seed === chosen);
      if (!run) continue;
      const note = run.matrix.tasks < view.horizon ? `, ${run.matrix.tasks} tasks so far` : "";
      const caption = [make("code", {}, method), ` ${percent(run.final)}, seed ${run.seed}${note}`];
      figures.push(heatmap(run, `${method}, seed ${run.seed}`, caption, { small: view.methods.length > 2 }));
    }
    grid.replaceChildren(...figures);
  };
  const chooser = make("div", { class: "toggles seeds", role: "group", "aria-label": "Seed" });
  const paint = () => {
    for (const button of chooser.children) {
      button.setAttribute("aria-pressed", button.dataset.seed === String(chosen));
    }
  };
  const choices = seeds.length > 1 && view.methods.length > 1 ? [null, ...seeds] : [];
  if (view.methods.length === 1 && seeds.length > 1) choices.push(...seeds);
  if (view.methods.length === 1) chosen = medianRun(view.runs).seed;
  for (const seed of choices) {
    const text = seed === null ? "median seed" : `seed ${seed}`;
    const button = make("button", { type: "button", "data-seed": String(seed) }, text);
    button.addEventListener("click", () => {
      chosen = seed;
      paint();
      draw();
    });
    chooser.append(button);
  }
  paint();
  draw();
  place.append(colourKey(), ...(choices.length ? [chooser] : []), grid);
}
