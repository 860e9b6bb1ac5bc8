// Survival curves R(a): mean recall of a task, a tasks after it was learned.

// Okabe and Ito's palette, and strokes that tell a second round of it apart.
const PALETTE = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const STROKES = ["", "6 3", "2 3"];

const lookOf = (place) => ({
  colour: PALETTE[place % PALETTE.length],
  dash: STROKES[Math.floor(place / PALETTE.length) % STROKES.length],
});

// curves: method -> {mean, low, high, half_life}; looks(): Map of the methods that stand out.
function survivalChart(curves, looks) {
  const holder = make("div", { class: "chart" });
  const reading = make("output", { class: "reading" });
  const oldest = Math.max(...Object.values(curves).map((curve) => curve.mean.length - 1), 1);
  let age = null;
  const tell = () => {
    const chosen = [...looks().keys()].filter((method) => curves[method]);
    reading.textContent =
      age === null
        ? "Point at the chart, or use the arrow keys, to read the curves that stand out."
        : `age ${age}: ${chosen.map((name) => `${name} ${curveText(curves[name], age)}`).join(" · ")}`;
  };
  const redraw = drawnToWidth(holder, (width) => {
    const hadFocus = holder.contains(document.activeElement);
    holder.replaceChildren(survivalSvg(curves, looks(), width, oldest, () => age, (value) => {
      age = value;
      tell();
    }));
    if (hadFocus) holder.firstChild.focus();
  });
  tell();
  return { element: make("div", {}, holder, reading), redraw: () => (redraw(), tell()) };
}

function curveText(curve, age) {
  const mean = curve.mean[age];
  if (!known(mean)) return "–";
  const band = ` (${tenth(curve.low[age])} to ${tenth(curve.high[age])}%)`;
  return percent(mean) + (known(curve.high[age]) ? band : "");
}

function survivalSvg(curves, looks, width, oldest, ageNow, onAge) {
  const height = Math.max(220, Math.min(380, width * 0.55));
  const [left, right, top, bottom] = [46, 10, 10, 42];
  const x = (age) => left + (age / oldest) * (width - left - right);
  const y = (share) => top + (1 - share) * (height - top - bottom);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    tabindex: 0,
    role: "img",
    "aria-label": "Survival curves: recall by age. Arrow keys move along the ages.",
  });
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(
      shape("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      shape("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share}%`),
    );
  }
  for (const age of ticks(0, oldest, width < 480 ? 4 : 8)) {
    svg.append(shape("text", { x: x(age), y: height - 24, "text-anchor": "middle" }, age));
  }
  svg.append(
    shape(
      "text",
      { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" },
      "age: tasks learned since",
    ),
  );
  for (const method of Object.keys(curves)) {
    if (!looks.has(method)) svg.append(line(curves[method].mean, x, y, { class: "other" }));
  }
  // The first that stands out is drawn last, on top.
  const order = [...looks.keys()].filter((method) => curves[method]).reverse();
  for (const method of order) svg.append(...curve(curves[method], looks.get(method), x, y, method));
  const hair = shape("line", { class: "hair", y1: top, y2: height - bottom, visibility: "hidden" });
  svg.append(hair);
  const show = (age) => {
    const value = Math.max(0, Math.min(oldest, Math.round(age)));
    hair.setAttribute("x1", x(value));
    hair.setAttribute("x2", x(value));
    hair.setAttribute("visibility", "visible");
    onAge(value);
  };
  explorable(svg, {
    point: (px) => show(((px - left) / (width - left - right)) * oldest),
    move: (dx) => show(ageNow() === null ? 0 : ageNow() + dx),
    leave: () => {
      hair.setAttribute("visibility", "hidden");
      onAge(null);
    },
  });
  return svg;
}

function curve(data, look, x, y, method) {
  const style = { stroke: look.colour, class: look.colour ? "chosen" : "chosen accent" };
  const parts = [];
  const banded = data.mean.map((_, age) => age).filter((age) => known(data.low[age]));
  if (banded.length > 1) {
    const upper = banded.map((age) => `${x(age)},${y(data.high[age])}`);
    const lower = banded.map((age) => `${x(age)},${y(data.low[age])}`).reverse();
    parts.push(
      shape("polygon", {
        class: look.colour ? "band" : "band accent",
        fill: look.colour,
        points: [...upper, ...lower].join(" "),
      }),
    );
  }
  parts.push(line(data.mean, x, y, { ...style, "stroke-dasharray": look.dash || null }));
  if (known(data.half_life)) {
    const age = data.half_life;
    const mark = { cx: x(age), cy: y(data.mean[age]), r: 4, ...style };
    const title = shape("title", {}, `${method}: half-life ${age} tasks`);
    parts.push(shape("circle", { ...mark, class: `${style.class} mark` }, title));
  }
  return parts;
}

// A path through the known values; an unknown one leaves a gap.
function line(values, x, y, attributes) {
  let path = "";
  let pen = "M";
  values.forEach((value, age) => {
    if (known(value)) path += `${pen}${x(age).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = known(value) ? "L" : "M";
  });
  return shape("path", { ...attributes, d: path, fill: "none" });
}

// The chart with a button for every curve.
function survivalSection(place, view) {
  const chosen = [...view.highlighted];
  const looks = () => new Map(chosen.map((method) => [method, lookOf(slots.indexOf(method))]));
  // A curve keeps its look while it is chosen, whatever else is switched.
  const slots = [...view.highlighted];
  const chart = survivalChart(view.curves, looks);
  const buttons = make("div", { class: "legend", role: "group", "aria-label": "Curves that stand out" });
  const paint = () => {
    for (const button of buttons.children) {
      const on = chosen.includes(button.dataset.method);
      button.setAttribute("aria-pressed", on);
      const swatch = button.querySelector("line");
      const look = on ? lookOf(slots.indexOf(button.dataset.method)) : { colour: "", dash: "" };
      swatch.style.stroke = look.colour;
      swatch.style.strokeDasharray = look.dash;
    }
  };
  for (const method of view.methods.filter((name) => view.curves[name])) {
    const swatch = shape("svg", { viewBox: "0 0 24 8", "aria-hidden": "true" },
      shape("line", { x1: 0, x2: 24, y1: 4, y2: 4 }));
    const button = make("button", { type: "button", "data-method": method }, swatch, method);
    button.addEventListener("click", () => {
      const place = chosen.indexOf(method);
      if (place >= 0) {
        chosen.splice(place, 1);
        slots[slots.indexOf(method)] = null;
      } else {
        chosen.push(method);
        const free = slots.indexOf(null);
        slots[free < 0 ? slots.length : free] = method;
      }
      paint();
      chart.redraw();
    });
    buttons.append(button);
  }
  paint();
  place.append(chart.element, ...(buttons.children.length > 1 ? [buttons] : []));
}
