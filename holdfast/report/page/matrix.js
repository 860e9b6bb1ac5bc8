// A recall matrix: its counts out of the page's data, and its heat map.

// Nine stops of cividis, which colour-blind readers see as others do. Source: Nunez et al., 2018.
const CIVIDIS = [
  [0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
  [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56],
];

function colour(share) {
  const place = share * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(place), CIVIDIS.length - 2);
  return CIVIDIS[low].map((from, i) => Math.round(from + (place - low) * (CIVIDIS[low + 1][i] - from)));
}

// Row i holds on-task 1 .. i + 1, rows from 0; all ones marks what nobody observed.
function counts(base64, width) {
  const text = atob(base64);
  const values = [];
  for (let start = 0; start < text.length; start += width) {
    let value = 0;
    for (let byte = width - 1; byte >= 0; byte--) value = value * 256 + text.charCodeAt(start + byte);
    values.push(value === 256 ** width - 1 ? null : value);
  }
  return values;
}

function recallMatrix(run) {
  if (run.decoded) return run.decoded;
  const { tasks, width } = run.matrix;
  const correct = counts(run.matrix.correct, width);
  const { items } = run.matrix;
  const each = typeof items === "string" ? counts(items, width) : null;
  const at = (after, on) => {
    const place = (after * (after + 1)) / 2 + on - 1;
    return known(correct[place]) ? { correct: correct[place], items: each ? each[place] : items } : null;
  };
  run.decoded = { tasks, at };
  return run.decoded;
}

function picture(matrix) {
  const canvas = make("canvas", { width: matrix.tasks, height: matrix.tasks });
  const context = canvas.getContext("2d");
  const image = context.createImageData(matrix.tasks, matrix.tasks);
  for (let after = 1; after <= matrix.tasks; after++) {
    for (let on = 1; on <= after; on++) {
      const recall = matrix.at(after, on);
      if (!recall) continue;
      const rgb = colour(recall.correct / recall.items);
      image.data.set([...rgb, 255], 4 * ((after - 1) * matrix.tasks + on - 1));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

function recallText(matrix, after, on) {
  const recall = matrix.at(after, on);
  const where = `after task ${after}, on task ${on}`;
  if (!recall) return `${where}: not observed`;
  const share = percent(recall.correct / recall.items);
  return `${where}: ${recall.correct} of ${recall.items} (${share})`;
}

// A heat map with its reading line. `caption`: nodes; `rest`: what the line says when nobody points.
function heatmap(run, name, caption, { small = false } = {}) {
  const matrix = recallMatrix(run);
  const [left, top, side] = small ? [26, 4, 210] : [46, 6, 300];
  const bottom = small ? 26 : 44;
  const size = side / matrix.tasks;
  const svg = shape("svg", {
    viewBox: `0 0 ${left + side + 6} ${top + side + bottom}`,
    class: "heatmap",
    tabindex: 0,
    role: "img",
    "aria-label": `Recall matrix of ${name}, ${matrix.tasks} tasks. Arrow keys read its cells.`,
  });
  svg.append(
    shape("path", { class: "ground", d: triangle(left, top, side, matrix.tasks) }),
    shape("image", {
      x: left, y: top, width: side, height: side, href: picture(matrix), preserveAspectRatio: "none",
    }),
    ...axes(matrix.tasks, left, top, side, small),
  );
  const cursor = shape("rect", { class: "cursor", width: size, height: size, visibility: "hidden" });
  svg.append(cursor);
  const reading = make("output", { class: "reading" });
  const rest = small ? "" : "Point at a cell, or use the arrow keys.";
  reading.textContent = rest;
  let cell = [matrix.tasks, 1];
  const show = (after, on) => {
    cell = [Math.max(1, Math.min(matrix.tasks, after)), 1];
    cell[1] = Math.max(1, Math.min(cell[0], on));
    cursor.setAttribute("x", left + (cell[1] - 1) * size);
    cursor.setAttribute("y", top + (cell[0] - 1) * size);
    cursor.setAttribute("visibility", "visible");
    reading.textContent = recallText(matrix, ...cell);
  };
  const leave = () => {
    cursor.setAttribute("visibility", "hidden");
    reading.textContent = rest;
  };
  let shown = false;
  explorable(svg, {
    point: (x, y) => {
      const [after, on] = [Math.ceil((y - top) / size), Math.ceil((x - left) / size)];
      const inside = after >= 1 && after <= matrix.tasks && on >= 1 && on <= after;
      return inside ? show(after, on) : leave();
    },
    move: (dx, dy) => (shown ? show(cell[0] + dy, cell[1] + dx) : show(...cell), (shown = true)),
    leave,
  });
  return make("figure", { class: "matrix" }, make("figcaption", {}, ...caption), svg, reading);
}

// The outline of what can be observed: its stairs, not a diagonal line.
function triangle(left, top, side, tasks) {
  const step = side / tasks;
  let path = `M${left} ${top}`;
  for (let task = 1; task <= tasks; task++) path += `H${left + task * step}V${top + task * step}`;
  return `${path}H${left}Z`;
}

function axes(tasks, left, top, side, small) {
  const parts = [];
  const centre = (task) => ((task - 0.5) * side) / tasks;
  for (const task of ticks(1, tasks, small ? 2 : 5)) {
    const x = left + centre(task);
    const y = top + centre(task);
    parts.push(
      shape("text", { x, y: top + side + 14, "text-anchor": "middle" }, task),
      shape("text", { x: left - 5, y: y + 4, "text-anchor": "end" }, task),
    );
  }
  if (small) return parts;
  const middle = top + side / 2;
  parts.push(
    shape("text", { x: left + side / 2, y: top + side + 34, "text-anchor": "middle" }, "on task"),
    shape(
      "text",
      { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` },
      "after task",
    ),
  );
  return parts;
}

function colourKey() {
  const bar = make("span", { class: "ramp", "aria-hidden": "true" });
  const stops = CIVIDIS.map((rgb) => `rgb(${rgb.join(" ")})`);
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  return make("p", { class: "key" }, "0%", bar, "100% recalled; rows are after task, columns on task");
}
