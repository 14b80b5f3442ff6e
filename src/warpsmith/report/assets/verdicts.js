// The outcome of a candidate: words, groups, marks. No information is in the colour alone.

const GROUPS = [
  { name: "valid", mark: "valid", sign: "✓", label: "valid", statuses: ["ok"] },
  { name: "repeat", mark: "repeat", sign: "=", label: "repeats an earlier one", statuses: ["duplicate"] },
  {
    name: "wrong",
    mark: "wrong",
    sign: "≠",
    label: "wrong result",
    statuses: ["wrong", "unwritten", "below_floor"],
  },
  {
    name: "crash",
    mark: "crash",
    sign: "!",
    label: "crashed, hung or touched other memory",
    statuses: ["launch_failed", "crashed", "timed_out", "out_of_memory", "out_of_bounds", "input_modified"],
  },
  { name: "build", mark: "build", sign: "✗", label: "did not compile", statuses: ["build_error"] },
  { name: "unread", mark: "unread", sign: "?", label: "no kernel in the reply", statuses: ["unreadable"] },
  { name: "cheat", mark: "cheat", sign: "⊘", label: "rejected as cheating", statuses: ["rejected"] },
  {
    name: "open",
    mark: "open",
    sign: "…",
    label: "not judged",
    statuses: ["pending", "not_judged", "judged", "written"],
  },
];

const groupOf = (status) => GROUPS.find((group) => group.statuses.includes(status)) || GROUPS[GROUPS.length - 1];

const STATUS_WORDS = { ok: "valid", duplicate: "repeat", unreadable: "unreadable", not_judged: "not judged" };
const statusWord = (status) => STATUS_WORDS[status] || status.replaceAll("_", " ");

function pill(status) {
  const group = groupOf(status);
  return h(
    "span",
    { class: `pill ${group.mark}` },
    h("span", { "aria-hidden": "true" }, group.sign + " "),
    statusWord(status),
  );
}

const trialLink = (trial, text) => h("a", { href: `#trial-${trial}` }, text || `trial ${trial}`);

// The strategies that a plan names; null for prose.
function planNames(strategy) {
  const parts = strategy.split("+").map((part) => part.trim());
  return strategy && parts.every((part) => /^[a-z][a-z0-9-]*(\([^()]*\))?$/.test(part)) ? parts : null;
}

// The difference of a candidate to its parent: "+vector-loads −unroll", or its strategy.
function change(trial, parent) {
  const own = planNames(trial.strategy);
  const before = parent && planNames(parent.strategy);
  if (!own) return trial.strategy || trial.name || trial.operator;
  if (!before) return own.join(" + ");
  const added = own.filter((part) => !before.includes(part)).map((part) => `+${part}`);
  const removed = before.filter((part) => !own.includes(part)).map((part) => `−${part}`);
  return [...added, ...removed].join(" ") || "same strategies";
}

const byNumber = new Map((DATA.trials || []).map((trial) => [trial.number, trial]));

// The parent to which a candidate is compared: the fastest one, as for its effect.
function mainParent(trial) {
  const parents = trial.parents.map((each) => byNumber.get(each)).filter(Boolean);
  return parents.sort((one, other) => (other.speedup || 0) - (one.speedup || 0))[0] || null;
}

// A candidate and its ancestors, as a set of trial numbers.
function ancestry(trial) {
  const found = new Set();
  const waiting = [trial];
  while (waiting.length) {
    const current = waiting.pop();
    if (found.has(current) || !byNumber.has(current)) continue;
    found.add(current);
    waiting.push(...byNumber.get(current).parents);
  }
  return found;
}

const trialTip = (trial) => [
  `Trial ${trial.number}: ${trial.speedup ? ratio(trial.speedup) : statusWord(trial.status)}`,
  shorten(trial.strategy || trial.name, 90),
  trial.parents.length ? `from ${trial.parents.map((each) => `trial ${each}`).join(" and ")}` : "",
];

function trialName(trial) {
  const verdict = trial.speedup ? `${ratio(trial.speedup)} PyTorch eager` : statusWord(trial.status);
  return `Trial ${trial.number}, ${verdict}${trial.strategy ? `, ${shorten(trial.strategy, 80)}` : ""}`;
}

const emptyPoint = (shape, kind) =>
  s("a", { class: "mark" }, s("circle", { class: "target", r: 9 }), s(shape, { class: kind }));
const emptyPoints = new Map(); // by class of the shape: copies are made faster than elements

function trialPoint(trial, x, y, { best = false, size = 3.4 } = {}) {
  const { mark } = groupOf(trial.status);
  const valid = trial.status === "ok";
  const kind = valid ? `point ${best ? "best" : mark}` : `cross ${mark}`;
  if (!emptyPoints.has(kind)) emptyPoints.set(kind, emptyPoint(valid ? "circle" : "path", kind));
  const point = emptyPoints.get(kind).cloneNode(true);
  const [target, shape] = point.children;
  point.setAttribute("href", `#trial-${trial.number}`);
  point.setAttribute("aria-label", trialName(trial));
  for (const circle of valid ? [target, shape] : [target]) {
    circle.setAttribute("cx", x);
    circle.setAttribute("cy", y);
  }
  if (valid) shape.setAttribute("r", best ? size + 2.4 : size);
  else shape.setAttribute("d", `M${x - 2.6},${y - 2.6}l5.2,5.2m0,-5.2l-5.2,5.2`);
  point.trial = trial.number;
  point.tip = () => trialTip(trial);
  return point;
}
