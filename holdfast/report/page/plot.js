// What every drawing needs. All text goes in as text nodes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

const make = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

const shape = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const known = (value) => value !== null && value !== undefined;

// One decimal of a percentage, a tie to the even one, as the page's tables have it.
function tenth(share) {
  const value = 100 * share;
  if (Math.abs((4 * value) % 2) !== 1) return value.toFixed(1);
  const below = Math.floor(10 * value);
  return ((below % 2 ? below + 1 : below) / 10).toFixed(1);
}

const percent = (share) => (known(share) ? `${tenth(share)}%` : "–");
const points = (share) => `${share < 0 ? "−" : "+"}${tenth(Math.abs(share))}`;
const spread = (mean, sd) => (known(sd) ? `${tenth(mean)} ± ${tenth(sd)}%` : percent(mean));

// Round numbers from `first` to `last`, both of them included, about `wanted` of them; all if few.
function ticks(first, last, wanted) {
  if (last - first <= 2.5 * wanted) return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  const rough = Math.max(1, (last - first) / wanted);
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * magnitude).find((n) => n >= rough && n % 1 === 0);
  const marks = [first];
  for (let value = Math.ceil((first + 1) / step) * step; value < last; value += step) {
    if (value - first > 0.7 * step && last - value > 0.7 * step) marks.push(value);
  }
  if (last > first) marks.push(last);
  return marks;
}

// Draw now and whenever the width changes; a hidden element is drawn as wide as it might become.
function drawnToWidth(holder, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.round(holder.clientWidth) || width || 640;
    if (now === width) return;
    width = now;
    draw(width);
  };
  new ResizeObserver(redraw).observe(holder);
  redraw();
  return () => draw(width);
}

// A table too wide for its place is scrolled with the keyboard too; others are no stop on the way.
function scrollable(holder) {
  new ResizeObserver(() => {
    if (holder.scrollWidth > holder.clientWidth) holder.setAttribute("tabindex", 0);
    else holder.removeAttribute("tabindex");
  }).observe(holder);
  return holder;
}

// Pointer and keyboard over a drawing: `move(dx, dy)` for arrow keys, `point(x, y)` in its own units.
function explorable(svg, { point, move, leave }) {
  const read = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(
      svg.getScreenCTM().inverse(),
    );
    point(place.x, place.y);
  };
  svg.addEventListener("pointermove", read);
  svg.addEventListener("pointerdown", read);
  // A finger leaves when it is lifted; what it pointed at should stay readable.
  svg.addEventListener("pointerleave", (event) => event.pointerType === "touch" || leave());
  svg.addEventListener("blur", leave);
  svg.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const steps = {
      ArrowLeft: [-far, 0],
      ArrowRight: [far, 0],
      ArrowUp: [0, -far],
      ArrowDown: [0, far],
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    move(...step);
  });
}
