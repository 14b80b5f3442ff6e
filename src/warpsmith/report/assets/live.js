// A page that follows its server: patches of the document over server-sent events, and the sections that they change.

const LEAST_MS = 250; // between two drawings
const touched = new Set(); // fields that changed since the last drawing
let drawing = 0;
let again = false; // something was planned since the last drawing began
let ahead = 0; // seconds by which the clock of the server is ahead of this one

const KIND_OF_STATE = { running: "on", closed: "off", idle: "lost" };

function stateMark(state, words) {
  return h("span", { class: `state ${KIND_OF_STATE[state]}` }, words);
}

// --- long texts, and trials in full ---

const fetched = new Map([[0, ""]]); // by number

async function sent(kind, numbers) {
  const { run, instance } = DATA.live;
  const answer = await fetch(`/dashboard/${kind}/${run}?instance=${instance}&n=${numbers.join(",")}`);
  if (answer.status === 409) location.reload(); // the server numbers texts anew
  if (!answer.ok) throw new Error(`the server did not send the ${kind}`);
  return answer.json();
}

texts = async (numbers) => {
  const missing = [...new Set(numbers)].filter((each) => !fetched.has(each));
  if (missing.length)
    for (const [id, text] of Object.entries(await sent("texts", missing))) fetched.set(Number(id), text);
  return (id) => fetched.get(id);
};

inFull = async (numbers) => new Map((await sent("trials", numbers)).map((trial) => [trial.number, trial]));

// --- what is under way ---

function now() {
  return [nowState(), nowDoing(), controls()];
}

let shownState = "";

function refreshNow() {
  redrawn(nowDoing());
  if (DATA.live.state === shownState) return;
  redrawn(nowState());
  redrawn(controls());
}

function nowState() {
  shownState = DATA.live.state;
  return h("p", { class: "now", id: "now-state", role: "status" }, stateMark(shownState, DATA.live.words));
}

function nowDoing() {
  const { state, briefs, trials } = DATA.live;
  const block = (title, empty, items) =>
    h("div", {}, h("h3", {}, title), items.length ? h("ul", { class: "plain" }, items) : h("p", { class: "note" }, empty));
  return h(
    "div",
    { id: "now-doing" },
    limits(),
    state === "running" &&
      h(
        "div",
        { class: "columns" },
        block("Proposer", "No brief is open.", briefs.map(openBrief)),
        block("Evaluator", "Nothing is waiting to be judged.", trials.map(openTrial)),
      ),
  );
}

const age = (since) => h("span", { class: "note age", "data-since": since }, ageWords(since));
function ageWords(since) {
  const seconds = Math.max(0, Math.round(Date.now() / 1000 + ahead - since));
  return seconds < 100 ? `${seconds} s` : span(seconds);
}

function openBrief(brief) {
  const shown = brief.shown.map(({ name, value }) => `${name}: ${value}`).join("; ");
  const details = h("details", {}, h("summary", {}, `Brief ${brief.brief}, ${brief.operator} `, age(brief.since)));
  details.addEventListener("toggle", async () => {
    if (!details.open || details.childElementCount > 1) return;
    const text = await texts(brief.prompt.map((message) => message.text));
    details.append(
      shown ? h("p", { class: "note" }, shown) : "",
      ...brief.prompt.map((message) => prose(text(message.text), `Prompt of brief ${brief.brief}, ${message.role}`)),
    );
  });
  return h("li", {}, details);
}

function openTrial({ trial, since, again }) {
  return h("li", {}, trialLink(trial, `Trial ${trial}`), again ? ", second measurement " : " ", age(since));
}

function renewAges() {
  for (const each of document.querySelectorAll(".age")) each.textContent = ageWords(Number(each.dataset.since));
}

// --- stop and resume ---

const KEPT_TOKEN = "warpsmith-token";
let said = ""; // what the server answered last

function keptToken() {
  const given = /^#token=([\w.~-]+)$/.exec(location.hash);
  try {
    if (given) sessionStorage.setItem(KEPT_TOKEN, given[1]);
    if (given) history.replaceState(null, "", location.pathname);
    return sessionStorage.getItem(KEPT_TOKEN) || "";
  } catch {
    return given ? given[1] : ""; // storage is refused: the token is asked for again on the next page
  }
}

function controls() {
  const { state } = DATA.live;
  const [name, path] = state === "running" ? ["Stop the run", "stop"] : ["Resume the run", "resume"];
  const answer = h("span", { role: "status", class: "note" }, said);
  const token = h("input", { type: "password", autocomplete: "off", size: "16" });
  const button = h("button", { type: "submit" }, name);
  async function act(event) {
    event.preventDefault();
    button.disabled = true;
    answer.textContent = "…";
    try {
      sessionStorage.setItem(KEPT_TOKEN, token.value);
    } catch {
      // As above.
    }
    try {
      const headers = { Authorization: `Bearer ${token.value}` };
      const reply = await fetch(`/dashboard/${path}/${DATA.live.run}`, { method: "POST", headers });
      said = (await reply.json()).detail;
    } catch {
      said = "The server does not answer.";
    }
    button.disabled = false;
    answer.textContent = said;
  }
  const form = h("form", { class: "controls", onsubmit: act }, h("label", {}, "Token ", token), button, answer);
  const opened = () => (token.value ||= keptToken()); // a browser may take long to read what it keeps
  return h("details", { class: "act", id: "now-act", ontoggle: opened }, h("summary", {}, name), form);
}

// --- patches ---

function merge(patch) {
  const { trials, live, ...rest } = patch;
  if (DATA.live.instance !== live.instance) fetched.clear(); // texts have other numbers now
  fetched.set(0, "");
  const lasting = (each) => JSON.stringify({ ...each, seq: 0, at: 0 });
  if (lasting(DATA.live) !== lasting(live)) touched.add("live");
  DATA.live = live;
  for (const [name, value] of Object.entries(rest)) {
    DATA[name] = value;
    touched.add(name);
  }
  for (const trial of trials) {
    const at = DATA.trials.findIndex((each) => each.number === trial.number);
    if (at < 0) DATA.trials.push(trial);
    else DATA.trials[at] = trial;
    byNumber.set(trial.number, trial);
    touched.add("trials");
  }
}

// Draw what changed: soon, but not more often than the machine can.
function plan(draw) {
  again = true;
  if (drawing) return;
  drawing = setTimeout(() => {
    again = false;
    const began = performance.now();
    draw();
    const took = performance.now() - began;
    drawing = setTimeout(() => {
      drawing = 0;
      if (again) plan(draw);
    }, Math.max(LEAST_MS, took));
  }, 0);
}

const late = new Set(); // parts of the page that show less than is known, because nobody looks at them
const unmade = new Set(); // those of them that are only a heading yet
const AWAY = 300; // pixels
const FIRST = ["now", "curve"]; // what a page begins with; the rest is drawn when there is nothing else to do
const REST_MS = 200; // from the first picture until the rest begins

waits = (part) => {
  if (FIRST.includes(part.id) || location.hash) return false; // an address that names a place needs all above it
  late.add(part);
  unmade.add(part);
  return true;
};

function isAway(element) {
  const { top, bottom } = element.getBoundingClientRect();
  return bottom < -AWAY || top > window.innerHeight + AWAY;
}

function renewed(part) {
  late.delete(part);
  if (!part.refresh || unmade.delete(part)) return redrawn(partOf(part));
  part.refresh();
  return document.getElementById(part.id);
}

// What is out of sight is drawn when there is nothing else to do, one part at a time, or when it comes into sight.
function drawLate() {
  const part = [...late].find((each) => !(pointed && document.getElementById(each.id)?.contains(pointed)));
  if (part && part.when() && document.getElementById(part.id)) renewed(part);
  else if (part) late.delete(part);
  document.documentElement.dataset.late = late.size;
  if (late.size) setTimeout(() => requestIdleCallback(drawLate, { timeout: 1000 }), part ? 50 : 500);
}

function drawChanges() {
  const fields = new Set(touched);
  touched.clear();
  if (fields.has("figures") || fields.has("remarks")) headline();
  let before = document.getElementById("headline");
  let moved = false;
  for (const part of PARTS) {
    const old = document.getElementById(part.id);
    if (!part.when()) {
      old?.remove();
      moved ||= Boolean(old);
      continue;
    }
    if (!old) {
      const made = partOf(part);
      (before.nextElementSibling?.matches("nav") ? before.nextElementSibling : before).after(made);
      moved = true;
      before = made;
      continue;
    }
    before = old;
    if (part.needs.some((each) => fields.has(each))) late.add(part);
    if (!late.has(part) || isAway(old)) continue;
    if (pointed && old.contains(pointed)) continue; // a reader looks at a point: later
    before = renewed(part);
  }
  if (moved) contents(main);
  const open = /^#trial-(\d+)$/.exec(location.hash);
  if (sheet.open && open && fields.has("trials")) renewSheet(byNumber.get(Number(open[1])));
  document.documentElement.dataset.seq = DATA.live.seq;
  document.documentElement.dataset.late = late.size;
  if (late.size) requestIdleCallback(drawLate, { timeout: 1000 });
}

// Put a section in the place of the one with its name. What is open stays open, and the focus stays where it was.
function redrawn(made) {
  const old = document.getElementById(made.id);
  const words = (details) => details.querySelector("summary").firstChild?.textContent;
  const all = (element) => [...(element.matches("details") ? [element] : []), ...element.querySelectorAll("details")];
  const opened = new Set(all(old).filter((each) => each.open).map(words));
  const focus = old.contains(document.activeElement) ? document.activeElement : null;
  const focusables = "a[href], button, input, select, summary, [tabindex]";
  const sign = (each) => `${each.tagName} ${each.type} ${each.getAttribute("aria-label") || each.firstChild?.textContent}`;
  made.style.minHeight = `${old.offsetHeight}px`;
  old.replaceWith(made);
  for (const plot of made.querySelectorAll(".plot")) plot.draw();
  made.style.minHeight = "";
  for (const details of all(made)) if (opened.has(words(details))) details.open = true;
  if (!focus) return made;
  const href = focus.getAttribute("href");
  const same = href && [...made.querySelectorAll("a[href]")].find((each) => each.getAttribute("href") === href);
  const next = same || [...made.querySelectorAll(focusables)].find((each) => sign(each) === sign(focus));
  if (next) {
    if (next.matches(".mark")) {
      made.querySelectorAll('.mark[tabindex="0"]').forEach((each) => each.setAttribute("tabindex", "-1"));
      next.setAttribute("tabindex", "0");
    }
    next.focus({ preventScroll: true });
  }
  return made;
}

// --- the connection ---

function beginLive() {
  if (location.hash.startsWith("#token=")) keptToken();
  const lost = h("p", { class: "lost", role: "alert", hidden: true }, "The server does not answer; trying again.");
  document.body.append(lost);
  const runs = DATA.kind === "runs";
  ahead = runs ? 0 : DATA.live.at - Date.now() / 1000;
  const address = runs
    ? "/dashboard/events"
    : `/dashboard/events/${DATA.live.run}?after=${DATA.live.instance}:${DATA.live.seq}`;
  const draw = runs ? drawRuns : drawChanges;
  const source = new EventSource(address);
  source.addEventListener("open", () => {
    lost.hidden = true;
    document.documentElement.dataset.connected = "yes";
  });
  source.addEventListener("error", () => {
    lost.hidden = false;
    document.documentElement.dataset.connected = "no";
  });
  source.addEventListener("patch", (event) => {
    merge(JSON.parse(event.data));
    if (touched.size) plan(draw);
    else document.documentElement.dataset.seq = DATA.live.seq; // the page shows it already
  });
  source.addEventListener("rows", (event) => {
    mergeRows(JSON.parse(event.data));
    touched.add("rows");
    plan(draw);
  });
  source.addEventListener("fault", (event) => {
    source.close();
    lost.textContent = JSON.parse(event.data);
    lost.hidden = false;
  });
  document.documentElement.dataset.late = late.size;
  if (runs) return;
  const rest = () => late.size && setTimeout(() => requestIdleCallback(drawLate, { timeout: 1000 }), REST_MS);
  requestAnimationFrame(() => requestAnimationFrame(rest)); // after the first picture
  setInterval(renewAges, 1000);
  window.addEventListener("scroll", () => late.size && plan(draw), { passive: true });
}
