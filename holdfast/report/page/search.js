// The search: every candidate's score at each horizon that it was sent to.

function searchChart(place, standings) {
  const holder = make("div", { class: "chart" });
  const reading = make("output", { class: "reading" });
  const rest = "Point at a candidate, or use the arrow keys.";
  reading.textContent = rest;
  drawnToWidth(holder, (width) => {
    holder.replaceChildren(
      searchSvg(standings, width, (one) => {
        reading.textContent = one ? standingText(one) : rest;
      }),
    );
  });
  place.prepend(holder, reading);
}

const standingText = (one) =>
  `${one.candidate}, horizon ${one.horizon}: rank ${one.rank}, ${percent(one.score)}, ${one.fate}`;

function searchSvg(standings, width, onStanding) {
  const height = 300;
  const [left, right, top, bottom] = [46, 24, 12, 42];
  const horizons = [...new Set(standings.map((one) => one.horizon))].sort((a, b) => a - b);
  const highest = Math.ceil(5 * Math.max(...standings.map((one) => one.score ?? 0), 0.01)) / 5;
  const gap = (width - left - right) / horizons.length;
  const y = (share) => top + (1 - share / highest) * (height - top - bottom);
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    tabindex: 0,
    role: "img",
    "aria-label": "Search: candidates by horizon and score. Arrow keys go through them.",
  });
  for (const part of [0, 0.5, 1]) {
    const share = part * highest;
    svg.append(
      shape("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      shape("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${(100 * share).toFixed(0)}%`),
    );
  }
  horizons.forEach((horizon, place) => {
    const x = left + (place + 0.5) * gap;
    const size = standings.filter((one) => one.horizon === horizon).length;
    svg.append(
      shape("text", { x, y: height - 24, "text-anchor": "middle" }, `${horizon} tasks`),
      shape("text", { x, y: height - 7, "text-anchor": "middle" }, `${size} candidates`),
    );
  });
  const dots = standings
    .filter((one) => known(one.score))
    .map((one) => {
      // Ranks spread a column, so that equal scores stay apart.
      const shift = (((one.rank * 7) % 11) / 11 - 0.45) * Math.min(60, gap * 0.5);
      const x = left + (horizons.indexOf(one.horizon) + 0.5) * gap + shift;
      return { one, x, y: y(one.score) };
    });
  const last = new Map();
  for (const dot of dots) {
    const before = last.get(dot.one.candidate);
    if (before) svg.append(shape("path", { class: "step", d: `M${before.x} ${before.y}L${dot.x} ${dot.y}` }));
    last.set(dot.one.candidate, dot);
  }
  for (const dot of dots) {
    svg.append(shape("circle", { class: `dot ${goesOn(dot.one)}`, cx: dot.x, cy: dot.y, r: 4 }));
  }
  const cursor = shape("circle", { class: "cursor", r: 7, visibility: "hidden" });
  svg.append(cursor);
  let current = null;
  const show = (place) => {
    current = Math.max(0, Math.min(dots.length - 1, place));
    cursor.setAttribute("cx", dots[current].x);
    cursor.setAttribute("cy", dots[current].y);
    cursor.setAttribute("visibility", "visible");
    onStanding(dots[current].one);
  };
  const nearest = (px, py) => {
    const distance = (dot) => (dot.x - px) ** 2 + (dot.y - py) ** 2;
    return dots.reduce((best, dot, i) => (distance(dot) < distance(dots[best]) ? i : best), 0);
  };
  if (dots.length) {
    explorable(svg, {
      point: (px, py) => show(nearest(px, py)),
      move: (dx, dy) => show(current === null ? 0 : current + dx + dy),
      leave: () => {
        cursor.setAttribute("visibility", "hidden");
        onStanding(null);
      },
    });
  }
  return svg;
}

const goesOn = (one) => (one.fate === "promoted" || one.fate === "finished" ? "going" : "out");
