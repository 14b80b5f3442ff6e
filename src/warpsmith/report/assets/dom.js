// Elements, formatted numbers, and the page's data.
// Elements are made of text nodes only: no text of a report is parsed as HTML.

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// --- numbers ---

function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const before = Math.floor(Math.log10(Math.abs(Number(value.toPrecision(digits))))) + 1;
  return before >= digits ? String(Math.round(value)) : value.toFixed(Math.min(digits - before, 12));
}

function ratio(value) {
  if (value === null || value === undefined) return "–";
  return (value >= 0.9 && value < 1.1 ? value.toFixed(3) : number(value)) + "×";
}

// A round number of an axis, without trailing zeros.
const tick = (value) => String(Number(number(value, 2)));

const percent = (share) => (share === null || share === undefined ? "–" : `${number(100 * share)}\u00a0%`);

function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1) return `${number(1e3 * milliseconds)}\u00a0µs`;
  return milliseconds < 1e3 ? `${number(milliseconds)}\u00a0ms` : `${number(milliseconds / 1e3)} s`;
}

function span(seconds) {
  if (seconds < 100) return `${number(seconds, 2)} s`;
  return seconds < 6000 ? `${Math.round(seconds / 60)} min` : `${number(seconds / 3600, 2)} h`;
}

function prefixed(value, unit) {
  for (const [factor, sign] of [
    [1e15, "P"],
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ]) {
    if (value >= factor) return `${number(value / factor)} ${sign}${unit}`;
  }
  return unit ? `${number(value)} ${unit}` : number(value);
}

const count = (value) => (value < 10000 ? String(value) : prefixed(value, ""));
const usd = (value) =>
  value === null || value === undefined
    ? "–"
    : value === 0 || value >= 1
      ? `$${value.toFixed(2)}`
      : `$${number(value, 2)}`;
const plural = (n, one, many) => `${n} ${n === 1 ? one : many || one + "s"}`;
const shorten = (text, most) => (text.length <= most ? text : text.slice(0, most - 1).trimEnd() + "…");

// A text that may break before its parentheses.
const breakable = (text) => text.split(/(?=\()/).flatMap((part, place) => (place ? [h("wbr"), part] : [part]));

// --- data ---

const DATA = JSON.parse(document.getElementById("page-data").textContent);

let unpacking = null;

// Long texts by number: promises a function that gives those that are named. A file has all of them packed, see
// report/page.py; a live page asks its server for them.
let texts = () => unpacked();

// Trials in full, by number, promised: a file has them, a live page has rows and asks its server.
let inFull = async () => byNumber;

function unpacked() {
  unpacking ||= (async () => {
    const packed = atob(document.getElementById("page-texts").textContent);
    const bytes = new Uint8Array(packed.length);
    for (let place = 0; place < packed.length; place++) bytes[place] = packed.charCodeAt(place);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const { lines, texts: steps } = JSON.parse(await new Response(stream).text());
    const joined = new Map();
    return (id) => {
      if (!joined.has(id)) {
        let line = 0;
        joined.set(id, steps[id].map((step) => lines[(line += step)]).join("\n"));
      }
      return joined.get(id);
    };
  })();
  return unpacking;
}

// --- colours ---

function beginTheme() {
  const control = document.getElementById("theme");
  const choose = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  let kept = null;
  try {
    kept = localStorage.getItem("warpsmith-theme");
  } catch {
    // A browser may refuse storage to files: then the choice is lost when the page is closed.
  }
  for (const input of control.querySelectorAll("input")) {
    if (input.value === kept) {
      input.checked = true;
      choose(kept);
    }
    input.addEventListener("change", () => {
      choose(input.value);
      try {
        localStorage.setItem("warpsmith-theme", input.value);
      } catch {
        // As above.
      }
    });
  }
}

// --- sections ---

let waits = () => false; // whether a part of a page is drawn later; a live page says so

function section(title, id, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), ...children);
}

// The figures and sentences at the top, as the file has them before its script runs.
function headline() {
  const figures = DATA.figures.map(({ value, label, note, verdict }) =>
    h("div", {}, h("dt", {}, label), h("dd", { class: verdict }, value), h("dd", { class: "note" }, note)),
  );
  document.getElementById("headline").replaceChildren(
    h("dl", { class: "figures" }, figures),
    ...DATA.remarks.map((remark) => h("p", { class: "remark" }, remark)),
  );
}

// The links to sections, after the headline.
function contents(main) {
  main.querySelector(":scope > nav.contents")?.remove();
  const links = [...main.querySelectorAll(":scope > section[aria-labelledby]")].map((each) =>
    h("a", { href: `#${each.id}` }, each.querySelector("h2").textContent),
  );
  main.firstElementChild.after(h("nav", { class: "contents", "aria-label": "On this page" }, links));
}

function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.map(({ name, value }) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}
