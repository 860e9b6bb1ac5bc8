// What makes the page's parts work: sorting, datasets, theme, downloads; then every drawing.

// A column sorts by its cells' data-value, or by their text; what is missing stays last.
function sortable(table) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    const button = header.querySelector("button");
    button?.addEventListener("click", () => {
      const now = header.getAttribute("aria-sort");
      const first = header.dataset.first ?? "descending";
      const other = first === "descending" ? "ascending" : "descending";
      const next = now === first ? other : first;
      for (const one of headers) one.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", next);
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => compare(a.cells[column], b.cells[column], next === "ascending" ? 1 : -1));
      table.tBodies[0].append(...rows);
    });
  });
}

function compare(a, b, direction) {
  const [x, y] = [a, b].map((cell) => cell.dataset.value ?? cell.textContent.trim());
  if (x === "" || y === "") return (x === "") - (y === "");
  const numbers = [Number(x), Number(y)];
  if (numbers.every(Number.isFinite)) return direction * (numbers[0] - numbers[1]);
  return direction * x.localeCompare(y, "en");
}

function csv(table) {
  const names = Object.keys(table);
  const length = names.length ? table[names[0]].length : 0;
  const lines = [names.map(field).join(",")];
  for (let row = 0; row < length; row++) lines.push(names.map((name) => field(table[name][row])).join(","));
  return `${lines.join("\n")}\n`;
}

function field(value) {
  const text = known(value) ? String(value) : "";
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// Every observed count of every run, as one long table.
function matricesCsv(views) {
  const lines = ["dataset,method,seed,after_task,on_task,correct,items"];
  for (const view of views) {
    for (const run of view.runs) {
      const matrix = recallMatrix(run);
      const start = [view.name, run.method, run.seed].map(field).join(",");
      for (let after = 0; after <= matrix.tasks; after++) {
        for (let on = 1; on <= after + 1; on++) {
          const recall = matrix.at(after, on);
          if (recall) lines.push(`${start},${after},${on},${recall.correct},${recall.items}`);
        }
      }
    }
  }
  return `${lines.join("\n")}\n`;
}

function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = make("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function themeSwitch(button) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const paint = () => {
    button.textContent = isDark() ? "Light page" : "Dark page";
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    paint();
  });
  dark.addEventListener("change", paint);
  paint();
}

function datasetSwitch(nav) {
  const buttons = [...nav.querySelectorAll("button")];
  const articles = [...document.querySelectorAll("article.dataset")];
  const show = (place) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === place));
    articles.forEach((article, i) => article.classList.toggle("away", i !== place));
  };
  buttons.forEach((button, place) => button.addEventListener("click", () => show(place)));
  nav.hidden = false;
  show(0);
}

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  document.querySelectorAll(".scroll").forEach(scrollable);
  document.querySelectorAll("table.sortable").forEach(sortable);
  themeSwitch(document.getElementById("theme"));
  const nav = document.getElementById("datasets");
  if (nav) datasetSwitch(nav);
  const draw = {
    explorer: (place, view) => explorer(place, view, data.tables.differences),
    gallery,
    survival: survivalSection,
    items: (place, view) => itemsSection(place, view, data.tables),
    search: (place, view) => searchChart(place, view.search),
  };
  document.querySelectorAll("article.dataset").forEach((article, i) => {
    for (const place of article.querySelectorAll("[data-draw]")) draw[place.dataset.draw](place, data.views[i]);
  });
  for (const button of document.querySelectorAll("button[data-table]")) {
    const name = button.dataset.table;
    button.addEventListener("click", () =>
      download(`${name}.csv`, name === "matrices" ? matricesCsv(data.views) : csv(data.tables[name])),
    );
  }
}

start();
