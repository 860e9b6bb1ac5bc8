// An item's life, the map of many lives, and who is in the samples.

// The least but one, which is told from a dark page.
const [LOST, RECALLED] = [CIVIDIS[1], CIVIDIS[CIVIDIS.length - 1]];

// rows: those at which the run was evaluated; asked: task, number of samples, and so on in pairs.
function lifeOf(task, number, question, answer, life, rows, asked) {
  const own = rows.filter((row) => row >= task);
  const seen = own.map((row, i) => ({ row, verdict: life[i] })).filter((one) => one.verdict !== "-");
  const kept = seen.map((one) => one.verdict).lastIndexOf("1");
  const lost = kept >= 0 && kept + 1 < seen.length ? seen[kept + 1].row : null;
  const samples = new Map();
  for (let i = 0; asked && i < asked.length; i += 2) samples.set(asked[i], asked[i + 1]);
  return {
    task, number, question, answer, seen, samples, lost,
    verdicts: new Map(seen.map((one) => [one.row, one.verdict === "1"])),
    lostAge: lost === null ? null : lost - task,
    never: kept < 0,
    share: seen.length ? seen.filter((one) => one.verdict === "1").length / seen.length : null,
    sampled: asked ? [...samples.values()].reduce((sum, one) => sum + one, 0) : null,
    text: `${question}\n${answer}`.toLowerCase(),
  };
}

function fate(item) {
  if (item.never) return "never recalled";
  return item.lost === null ? "recalled at the end" : `lost after task ${item.lost}`;
}

// A picture: lives below each other, each one pixel high, `wide` pixels an observation.
function lifePicture(items, tasks, wide = 1) {
  const width = wide * tasks;
  const canvas = make("canvas", { width, height: Math.max(1, items.length) });
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  items.forEach((item, place) => {
    for (const { row, verdict } of item.seen) {
      const rgba = [...(verdict === "1" ? RECALLED : LOST), 255];
      const start = place * width + wide * (row - item.task);
      for (let pixel = start; pixel < start + wide; pixel++) image.data.set(rgba, 4 * pixel);
    }
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

// All lives of a list in its order: point at one to read it, click or press Enter to pick it.
function lifeMap(items, tasks, pick) {
  const [left, top, width, height, bottom] = [10, 6, 420, 220, 40];
  const svg = shape("svg", {
    viewBox: `0 0 ${left + width + 10} ${top + height + bottom}`,
    class: "lifemap",
    tabindex: 0,
    role: "img",
    "aria-label": `The lives of ${items.length} items. Arrow keys read them, Enter picks one.`,
  });
  // Many lives are averaged where they are more than the screen has lines; ages, and few lives, stay sharp.
  const href = lifePicture(items, tasks, Math.ceil((2 * width) / tasks)).toDataURL();
  svg.append(
    shape("rect", { class: "ground", x: left, y: top, width, height }),
    shape("image", {
      x: left, y: top, width, height, href, preserveAspectRatio: "none",
      class: items.length <= height ? "sharp" : "averaged",
    }),
  );
  for (const age of ticks(0, tasks - 1, 6)) {
    const x = left + ((age + 0.5) * width) / tasks;
    svg.append(shape("text", { x, y: top + height + 15, "text-anchor": "middle" }, age));
  }
  const middle = left + width / 2;
  const label = "age: tasks learned since; a line is an item, in the order of the list";
  svg.append(shape("text", { x: middle, y: top + height + 34, "text-anchor": "middle" }, label));
  const size = { x: width / tasks, y: height / Math.max(1, items.length) };
  const cursor = shape("rect", {
    class: "cursor", width: size.x, height: Math.max(2, size.y), visibility: "hidden",
  });
  svg.append(cursor);
  const reading = make("output", { class: "reading" });
  const rest = "Point at a life, or use the arrow keys; click or Enter picks it.";
  reading.textContent = rest;
  let at = [0, 0];
  let shown = false;
  const show = (place, age) => {
    at = [Math.max(0, Math.min(items.length - 1, place)), Math.max(0, Math.min(tasks - 1, age))];
    cursor.setAttribute("x", left + at[1] * size.x);
    cursor.setAttribute("y", top + at[0] * size.y);
    cursor.setAttribute("visibility", "visible");
    const item = items[at[0]];
    reading.textContent = `task ${item.task}, ${item.question} → ${item.answer}: ${verdictText(item, item.task + at[1])}`;
  };
  const leave = () => {
    cursor.setAttribute("visibility", "hidden");
    reading.textContent = rest;
  };
  if (items.length) {
    explorable(svg, {
      point: (x, y) => {
        const inside = x >= left && x < left + width && y >= top && y < top + height;
        return inside ? show(Math.floor((y - top) / size.y), Math.floor((x - left) / size.x)) : leave();
      },
      move: (dx, dy) => (shown ? show(at[0] + dy, at[1] + dx) : show(...at), (shown = true)),
      leave,
    });
    svg.addEventListener("click", () => pick(items[at[0]]));
    svg.addEventListener("keydown", (event) => event.key === "Enter" && pick(items[at[0]]));
  }
  return make("div", { class: "lives" }, svg, reading);
}

function lifeKey() {
  const swatch = (look, text) => make("span", { class: "swatch" }, make("i", { class: look }), text);
  return make("p", { class: "key" }, swatch("kept", "recalled"), swatch("lost", "not recalled"));
}

function verdictText(item, row) {
  const verdict = item.verdicts.get(row);
  const told = verdict === undefined ? "not asked" : verdict ? "recalled" : "not recalled";
  return `after task ${row}, age ${row - item.task}: ${told}`;
}

// One item: a cell for each row, and below it how many samples asked it before each task.
function lifeDetail(item, tasks) {
  const [left, width, top, band] = [34, 400, 8, 30];
  const foot = item.sampled === null ? 0 : 74;
  const svg = shape("svg", {
    viewBox: `0 0 ${left + width + 10} ${top + band + foot + 42}`,
    tabindex: 0,
    role: "img",
    "aria-label": `The life of this item, task ${item.task} to ${tasks}. Arrow keys read its rows.`,
  });
  const count = tasks - item.task + 1;
  const size = width / count;
  const x = (row) => left + (row - item.task) * size;
  svg.append(shape("rect", { class: "ground", x: left, y: top, width, height: band }));
  for (const { row, verdict } of item.seen) {
    const look = verdict === "1" ? "verdict kept" : "verdict lost";
    svg.append(shape("rect", { class: look, x: x(row), y: top, width: size, height: band }));
  }
  const base = top + band + foot;
  if (foot) {
    const most = Math.max(1, ...item.samples.values());
    svg.append(
      shape("line", { class: "grid", x1: left, x2: left + width, y1: base, y2: base }),
      shape("text", { x: left - 5, y: base - foot + 24, "text-anchor": "end" }, most),
      shape("text", { x: left - 5, y: base, "text-anchor": "end" }, 0),
    );
    for (const [task, number] of item.samples) {
      const height = ((foot - 14) * number) / most;
      if (task > item.task) {
        svg.append(shape("rect", { class: "asked", x: x(task), y: base - height, width: Math.max(1, 0.8 * size), height }));
      }
    }
  }
  for (const row of ticks(item.task, tasks, 7)) {
    svg.append(shape("text", { x: x(row) + size / 2, y: base + 15, "text-anchor": "middle" }, row));
  }
  const label = foot ? "recalled after task; below, samples that asked it before" : "recalled after task";
  svg.append(shape("text", { x: left + width / 2, y: base + 34, "text-anchor": "middle" }, label));
  const cursor = shape("rect", { class: "cursor", y: top, width: size, height: band, visibility: "hidden" });
  svg.append(cursor);
  const reading = make("output", { class: "reading" });
  let current = null;
  const show = (row) => {
    current = Math.max(item.task, Math.min(tasks, row));
    cursor.setAttribute("x", x(current));
    cursor.setAttribute("visibility", "visible");
    const number = item.samples.get(current) ?? 0;
    const asked = `; ${samplesText(number)} asked it before task ${current}`;
    const samples = foot && current > item.task ? asked : "";
    reading.textContent = `${verdictText(item, current)}${samples}`;
  };
  explorable(svg, {
    point: (px) => show(item.task + Math.floor((px - left) / size)),
    move: (dx, dy) => show(current === null ? item.task : current + dx + dy),
    leave: () => {
      cursor.setAttribute("visibility", "hidden");
      reading.textContent = "";
      current = null;
    },
  });
  return [svg, reading];
}

// Stacked bars: series: name, colour and share of each; places: what the bars stand for.
function bars(title, places, series, placeName) {
  const [left, right, top, height, bottom] = [44, 8, 8, 170, 40];
  const holder = make("div", { class: "chart" });
  const reading = make("output", { class: "reading" });
  const most = Math.max(...places.map((_, i) => series.reduce((sum, one) => sum + (one.shares[i] ?? 0), 0)));
  const end = most > 0.5 ? 1 : most || 1;
  const tell = (i) => {
    const told = series.map((one) => `${one.name} ${percent(one.shares[i])}`).join(" · ");
    reading.textContent = i === null ? "" : `${placeName} ${places[i]}: ${told}`;
  };
  drawnToWidth(holder, (width) => {
    const size = (width - left - right) / places.length;
    const y = (share) => top + (1 - share / end) * height;
    const svg = shape("svg", {
      viewBox: `0 0 ${width} ${top + height + bottom}`, tabindex: 0, role: "img",
      "aria-label": `${title}. Arrow keys read the bars.`,
    });
    for (const share of [0, end / 2, end]) {
      svg.append(
        shape("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
        shape("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(1000 * share) / 10}%`),
      );
    }
    places.forEach((_, i) => {
      let below = 0;
      for (const one of series) {
        const share = one.shares[i] ?? 0;
        const place = { x: left + (i + 0.08) * size, width: 0.84 * size };
        svg.append(shape("rect", { ...place, y: y(below + share), height: y(below) - y(below + share), class: one.look }));
        below += share;
      }
    });
    for (const i of ticks(0, places.length - 1, 6)) {
      svg.append(shape("text", { x: left + (i + 0.5) * size, y: top + height + 15, "text-anchor": "middle" }, places[i]));
    }
    svg.append(shape("text", { x: (left + width) / 2, y: top + height + 34, "text-anchor": "middle" }, placeName));
    let current = null;
    const show = (i) => tell((current = Math.max(0, Math.min(places.length - 1, i))));
    explorable(svg, {
      point: (px) => show(Math.floor((px - left) / size)),
      move: (dx) => show(current === null ? 0 : current + dx),
      leave: () => tell((current = null)),
    });
    holder.replaceChildren(svg);
  });
  const keys = series.map((one) => make("span", { class: "swatch" }, make("i", { class: one.look }), one.name));
  return make("figure", {}, make("figcaption", {}, title, " ", ...(series.length > 1 ? keys : [])), holder, reading);
}

const samplesText = (number) => (number === 1 ? "one sample" : `${number} samples`);

// The rows of a table by column that agree with `wanted`.
function rowsOf(table, wanted) {
  if (!table) return [];
  const names = Object.keys(table);
  return table[names[0]]
    .map((_, i) => Object.fromEntries(names.map((name) => [name, table[name][i]])))
    .filter((row) => Object.entries(wanted).every(([name, value]) => row[name] === value));
}

function samplesCharts(dataset, run, tables) {
  const kinds = rowsOf(tables.samples, { dataset, method: run.method, seed: run.seed });
  const ages = rowsOf(tables.samples_by_age, { dataset, method: run.method });
  if (!kinds.length) return [];
  const looks = { right: "right", chimeras: "chimeras", other: "strange" };
  const series = Object.keys(looks).map((name) => ({ name, look: looks[name], shares: kinds.map((row) => row[name]) }));
  const charts = [bars("Samples of the previous model:", kinds.map((row) => row.task), series, "before task")];
  if (ages.length) {
    const share = { name: "samples", look: "right", shares: ages.map((row) => row.share) };
    const title = "Share of the samples that asks a task, by its age then, all seeds";
    charts.push(bars(title, ages.map((row) => row.age), [share], "age"));
  }
  return [make("div", { class: "pair even" }, ...charts)];
}
