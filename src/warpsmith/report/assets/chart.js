// Parts of every chart: scales, a frame with axes, points that keys reach, a tip, and a text alternative.

function linear([low, high], [start, end]) {
  const scale = (value) => start + ((value - low) / (high - low || 1)) * (end - start);
  scale.ticks = (wanted) => {
    const raw = (high - low) / Math.max(1, wanted);
    const unit = 10 ** Math.floor(Math.log10(raw || 1));
    const step = [1, 2, 5, 10].map((each) => each * unit).find((each) => each >= raw) || unit;
    const found = [];
    for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step)
      found.push(Number(value.toPrecision(12)));
    return found;
  };
  return scale;
}

function logarithmic([low, high], range) {
  const inner = linear([Math.log(low), Math.log(high)], range);
  const scale = (value) => inner(Math.log(value));
  scale.ticks = (wanted) => {
    for (const parts of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]]) {
      const found = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        found.push(...parts.map((part) => Number((part * 10 ** power).toPrecision(6))));
      }
      const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
      if (inside.length >= Math.min(wanted, 5)) return inside;
    }
    return linear([low, high], range).ticks(wanted);
  };
  return scale;
}

// A range with a margin and its scale, which is logarithmic if values differ much.
function ranged(values, { logFrom = 3, room = 1.08 } = {}) {
  const low = Math.min(...values);
  const high = Math.max(...values);
  if (low > 0 && high / low >= logFrom) {
    const by = Math.max(room, (high / low) ** 0.06);
    return { make: logarithmic, domain: [low / by, high * by] };
  }
  const gap = (high - low) * 0.08 || high * 0.1 || 1;
  return { make: linear, domain: [Math.max(0, low - gap), high + gap] };
}

function frame({ width, height, margin, x, y, xLabel, yLabel, xTick = String, yTick = String, label }) {
  const box = { left: margin.left, right: width - margin.right, top: margin.top, bottom: height - margin.bottom };
  const across = x.make(x.domain, [box.left, box.right]);
  const up = y.make(y.domain, [box.bottom, box.top]);
  const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
  let last = -Infinity;
  for (const value of across.ticks(Math.max(2, Math.floor(width / 110)))) {
    if (x.whole && value !== Math.round(value)) continue;
    const at = across(value);
    svg.append(s("line", { class: "tick", x1: at, x2: at, y1: box.bottom, y2: box.bottom + 4 }));
    if (at - last < 44) continue;
    last = at;
    svg.append(s("text", { class: "axis", x: at, y: box.bottom + 18, "text-anchor": "middle" }, xTick(value)));
  }
  for (const value of up.ticks(Math.max(2, Math.floor(height / 70)))) {
    const at = up(value);
    svg.append(s("line", { class: "grid", x1: box.left, x2: box.right, y1: at, y2: at }));
    svg.append(s("text", { class: "axis", x: box.left - 8, y: at + 4, "text-anchor": "end" }, yTick(value)));
  }
  svg.append(s("line", { class: "base", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  svg.append(s("text", { class: "axis name", x: box.right, y: height - 4, "text-anchor": "end" }, xLabel));
  svg.append(s("text", { class: "axis name", x: 0, y: 12 }, yLabel));
  return { svg, x: across, y: up, box };
}

// A chart that is drawn again for every width, with a sentence before it and its numbers as a table after it.
function chart({ title, summary, draw, table, height = 300, legend }) {
  const plot = h("div", { class: "plot" });
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(plot.clientWidth);
    if (!width || width === drawn) return;
    drawn = width;
    plot.replaceChildren(draw(width, typeof height === "function" ? height(width) : height));
  };
  plot.draw = redraw;
  new ResizeObserver(redraw).observe(plot);
  const rows = h("details", { class: "data" }, h("summary", {}, `${title}: as a table`));
  rows.addEventListener("toggle", () => rows.open && rows.childElementCount === 1 && rows.append(table()), {
    once: false,
  });
  return h("figure", {}, h("figcaption", {}, summary), legend, plot, table && rows);
}

function legend(entries) {
  const line = (kind) =>
    s("svg", { width: 26, height: 8, "aria-hidden": "true" }, s("path", { class: `series ${kind}`, d: "M1,4H25" }));
  return h(
    "ul",
    { class: "legend" },
    entries.map(({ mark, label, note, lined }) =>
      h(
        "li",
        {},
        lined ? line(mark) : h("span", { class: `key ${mark}`, "aria-hidden": "true" }),
        h("span", {}, label),
        note && h("span", { class: "note" }, note),
      ),
    ),
  );
}

// --- the tip ---

const tip = h("div", { class: "tip", "aria-hidden": "true", hidden: true });

function showTip(at, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, place) => h("div", { class: place ? "" : "strong" }, line)));
  tip.hidden = false;
  const box = at.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const left = Math.min(
    Math.max(8, box.left + box.width / 2 - own.width / 2),
    document.documentElement.clientWidth - own.width - 8,
  );
  const above = box.top - own.height - 10;
  tip.style.left = `${left + window.scrollX}px`;
  tip.style.top = `${(above > 4 ? above : box.bottom + 10) + window.scrollY}px`;
}

const hideTip = () => (tip.hidden = true);
let pointed = null; // the element under the pointer that shows the tip

// Adds points to a chart. All of them are one stop of the Tab key; arrow keys, Home and End move between them, Enter
// follows the link. `point.tip` gives the lines of its tip; `noticed` hears of the point that is looked at, or null.
// The chart listens, not each point: a run has hundreds.
function addPoints(svg, points, noticed = () => {}) {
  const pointOf = (event) => event.target.closest(".mark");
  const enter = (event) => {
    const point = pointOf(event);
    if (!point) return;
    if (event.type === "mouseover") pointed = point;
    showTip(point, point.tip());
    noticed(point);
  };
  const leave = (event) => {
    if (!pointOf(event)) return;
    if (event.type === "mouseout") pointed = null;
    hideTip();
    noticed(null);
  };
  for (const kind of ["mouseover", "focusin"]) svg.addEventListener(kind, enter);
  for (const kind of ["mouseout", "focusout"]) svg.addEventListener(kind, leave);
  svg.addEventListener("keydown", (event) => {
    const place = points.indexOf(pointOf(event));
    const to = {
      ArrowRight: place + 1,
      ArrowDown: place + 1,
      ArrowLeft: place - 1,
      ArrowUp: place - 1,
      Home: 0,
      End: points.length - 1,
    }[event.key];
    if (place < 0 || to === undefined || !points[to]) return;
    event.preventDefault();
    points[place].setAttribute("tabindex", "-1");
    points[to].setAttribute("tabindex", "0");
    points[to].focus();
  });
  points.forEach((point, place) => point.setAttribute("tabindex", place ? "-1" : "0"));
  svg.append(...points);
}

// Labels beside points that cover no other label and no important mark: at the first free place, or not at all.
function labeller(box, marks = []) {
  const taken = marks.map(([x, y]) => ({ left: x - 7, right: x + 7, top: y - 7, bottom: y + 7 }));
  return (svg, x, y, text, attributes = {}) => {
    const wide = text.length * 6.6;
    for (const [dx, dy, anchor] of [
      [8, -8, "start"],
      [-8, -8, "end"],
      [8, 18, "start"],
      [-8, 18, "end"],
      [8, -26, "start"],
      [-8, -26, "end"],
      [8, 34, "start"],
      [-8, 34, "end"],
    ]) {
      const left = anchor === "start" ? x + dx : x + dx - wide;
      const spot = { left, right: left + wide, top: y + dy - 12, bottom: y + dy + 3 };
      if (spot.left < box.left || spot.right > box.right + 4 || spot.top < box.top - 12 || spot.bottom > box.bottom)
        continue;
      if (
        taken.some(
          (each) =>
            spot.left < each.right && each.left < spot.right && spot.top < each.bottom && each.top < spot.bottom,
        )
      )
        continue;
      taken.push(spot);
      svg.append(s("text", { class: "label", x: x + dx, y: y + dy, "text-anchor": anchor, ...attributes }, text));
      return true;
    }
    return false;
  };
}
