// The page of a run: its sections, each drawn again when what it shows has changed.

const found = () => Boolean(DATA.best && DATA.steps.length);

// id, title; the fields it shows; when it is there; how it is made; how it is brought up to date where that differs.
const PARTS = [
  { id: "now", title: "Now", needs: ["live", "limits"], when: () => DATA.live, make: () => now(), refresh: () => refreshNow() },
  { id: "curve", title: "Best so far", needs: ["trials", "steps", "best"], when: found, make: () => bestCurve() },
  { id: "roofline", title: "Roofline", needs: ["roofline", "best"], when: () => DATA.roofline, make: () => roofline() },
  {
    id: "lineage",
    title: "Lineage and strategies",
    needs: ["trials", "best", "effects"],
    when: found,
    make: () => [lineageGraph(), h("h3", {}, "Steps to the best kernel"), descent(), effects()],
  },
  {
    id: "validity",
    title: "Validity over time",
    needs: ["trials", "operators"],
    when: () => DATA.trials.length,
    make: () => [validity(), tally("By operator", DATA.operators)],
  },
  {
    id: "cost",
    title: "Cost",
    needs: ["totals", "models", "limits"],
    when: () => DATA.totals.length,
    make: () => [limits(), spending(), tally("By model", DATA.models)],
  },
  {
    id: "candidates",
    title: "Candidates",
    needs: ["trials", "best"],
    when: () => true,
    make: () => candidates(),
    refresh: () => listed(),
  },
  {
    id: "words",
    title: "Other replies",
    needs: ["other_replies"],
    when: () => DATA.other_replies.length,
    make: () => otherReplies(),
  },
  {
    id: "facts",
    title: "The run",
    needs: ["facts", "notes"],
    when: () => true,
    make: () => [
      facts(DATA.facts),
      DATA.notes.length
        ? h(
            "ul",
            { class: "plain" },
            DATA.notes.map((note) => h("li", {}, note)),
          )
        : "",
    ],
  },
];

const partOf = (part) => section(part.title, part.id, part.make());

function runPage(main) {
  for (const part of PARTS) if (part.when()) main.append(waits(part) ? section(part.title, part.id) : partOf(part));
  beginSheet();
}

// What is used of each limit.
function limits() {
  const said = { "": count, s: span, usd };
  return h(
    "ul",
    { class: "limits" },
    DATA.limits.map(({ name, used, limit, unit }) => {
      const share = limit ? Math.min(1, used / limit) : 1;
      const filled = h("span", { class: "bar" });
      filled.style.width = `${100 * share}%`;
      return h(
        "li",
        {},
        h("span", { class: "limit" }, name),
        h("span", { class: "meter", "aria-hidden": "true" }, filled),
        h("span", { class: "amount" }, `${said[unit](used)} of ${said[unit](limit)}`),
      );
    }),
  );
}

function effects() {
  if (!DATA.effects.length) return "";
  const most = Math.max(...DATA.effects.map((each) => Math.abs(Math.log(each.factor))), 0.01);
  const bar = (each) => {
    const share = (50 * Math.log(each.factor)) / most;
    const filled = h("span", { class: share < 0 ? "effect loss" : "effect" });
    filled.style.width = `${Math.abs(share)}%`;
    filled.style.left = `${share < 0 ? 50 + share : 50}%`;
    return h("span", { class: "effects", "aria-hidden": "true" }, filled);
  };
  const table = sortable({
    caption: "The measured effect of each strategy where it was added or removed",
    rows: DATA.effects,
    sort: { by: "Effect", down: true },
    columns: [
      { name: "Strategy", key: (each) => each.strategy, text: true },
      { name: "Effect", key: (each) => each.factor, cell: (each) => ratio(each.factor), numeric: true },
      { name: "Slower, faster", key: (each) => each.factor, cell: bar, wide: true },
      { name: "Comparisons", key: (each) => each.count, numeric: true },
    ],
  });
  return [h("h3", {}, "Strategies"), table.element];
}

function tally(caption, rows) {
  const priced = rows.some((each) => each.tokens);
  return sortable({
    caption,
    rows,
    columns: [
      {
        name: caption.replace("By ", "").replace(/^./, (letter) => letter.toUpperCase()),
        key: (each) => each.name,
        text: true,
      },
      { name: "Trials", key: (each) => each.replies, numeric: true },
      {
        name: "Valid",
        key: (each) => each.valid / each.replies,
        cell: (each) => `${each.valid} (${percent(each.valid / each.replies)})`,
        numeric: true,
      },
      { name: "Best", key: (each) => each.best, cell: (each) => ratio(each.best), numeric: true },
      priced && {
        name: "Tokens",
        key: (each) => each.tokens,
        cell: (each) => count(each.tokens),
        numeric: true,
        wide: true,
      },
      priced && { name: "Cost", key: (each) => each.usd, cell: (each) => usd(each.usd), numeric: true },
    ].filter(Boolean),
  }).element;
}

let listed = () => {}; // brings the table of candidates up to date

function candidates() {
  const priced = DATA.trials.some((trial) => trial.tokens > 0);
  const table = sortable({
    caption: "Every trial",
    rows: DATA.trials,
    rowAttributes: (trial) => ({ class: trial.number === DATA.best ? "chosen" : null }),
    columns: [
      {
        name: "Trial",
        key: (trial) => trial.number,
        cell: (trial) =>
          h("a", { href: `#trial-${trial.number}`, "aria-label": `Open trial ${trial.number}` }, trial.number),
        numeric: true,
        ascending: true,
      },
      { name: "Verdict", key: (trial) => trial.status, cell: (trial) => pill(trial.status) },
      { name: "Speedup", key: (trial) => trial.speedup, cell: (trial) => ratio(trial.speedup), numeric: true },
      {
        name: "Of roofline",
        key: (trial) => trial.share,
        cell: (trial) => percent(trial.share),
        numeric: true,
        wide: true,
      },
      {
        name: "Latency",
        key: (trial) => trial.latency_ms,
        cell: (trial) => duration(trial.latency_ms),
        numeric: true,
        ascending: true,
        wide: true,
      },
      { name: "Operator", key: (trial) => trial.operator, wide: true },
      {
        name: "Parents",
        key: (trial) => trial.parents.length,
        cell: (trial) => trial.parents.map((each, place) => [place ? ", " : "", trialLink(each, String(each))]),
        numeric: true,
        wide: true,
      },
      priced && { name: "Tokens", key: (trial) => trial.tokens, cell: (trial) => count(trial.tokens), numeric: true, wide: true },
      {
        name: "Strategy",
        key: (trial) => trial.strategy,
        cell: (trial) => breakable(shorten(trial.strategy || trial.name, 120)),
        text: true,
      },
    ].filter(Boolean),
  });
  const status = h("p", { class: "note", role: "status" }, plural(DATA.trials.length, "trial"));
  const search = h("input", { type: "search", placeholder: "strategy, operator, id …", oninput: () => apply() });
  const verdicts = h("select", { onchange: () => apply() });
  function offer() {
    const present = GROUPS.filter((group) => DATA.trials.some((trial) => groupOf(trial.status) === group));
    const before = verdicts.value;
    verdicts.replaceChildren(
      h("option", { value: "" }, "all verdicts"),
      ...present.map((group) => h("option", { value: group.name }, group.label)),
    );
    verdicts.value = present.some((group) => group.name === before) ? before : "";
  }
  function apply() {
    const wanted = search.value.trim().toLowerCase();
    const shown = table.filter(
      (trial) =>
        (!verdicts.value || groupOf(trial.status).name === verdicts.value) &&
        (!wanted ||
          `${trial.number} ${trial.id} ${trial.name} ${trial.operator} ${trial.strategy} ${trial.model}`
            .toLowerCase()
            .includes(wanted)),
    );
    const all = plural(DATA.trials.length, "trial");
    status.textContent = wanted || verdicts.value ? `${shown} of ${all}` : all;
  }
  let best = DATA.best;
  listed = () => {
    if (DATA.trials.some((trial) => trial.tokens > 0) !== priced) return redrawn(section("Candidates", "candidates", candidates())); // another column
    for (const each of best === DATA.best ? [] : [best, DATA.best]) table.redraw(byNumber.get(each));
    best = DATA.best;
    table.update(DATA.trials);
    offer();
    apply();
  };
  offer();
  const controls = h(
    "div",
    { class: "controls" },
    h("label", {}, "Find ", search),
    h("label", {}, "Verdict ", verdicts),
    status,
  );
  const hint = "Open a trial for its code, the difference to its parent, its verdict, the prompt and the reply.";
  return [h("p", { class: "note" }, hint), controls, table.element];
}

// Replies without a kernel, each opened in its place.
function otherReplies() {
  const list = h(
    "ul",
    { class: "plain" },
    DATA.other_replies.map((each) => {
      const details = h("details", {}, h("summary", {}, `Brief ${each.brief}, ${each.operator}: ${each.outcome}`));
      details.addEventListener("toggle", async () => {
        if (!details.open || details.childElementCount > 1) return;
        const text = await texts([each.reply, ...each.prompt.map((message) => message.text)]);
        details.append(
          h("h3", {}, "Reply"),
          prose(text(each.reply), `Reply to brief ${each.brief}`),
          ...each.prompt.flatMap((message) => [
            h("h3", {}, `To the model, as ${message.role}`),
            prose(text(message.text), `Prompt of brief ${each.brief}`),
          ]),
        );
      });
      return h("li", {}, details);
    }),
  );
  return [
    h("p", { class: "note" }, "Strategies, alignments and notes: what the proposer wrote that is no kernel."),
    h("details", { class: "data" }, h("summary", {}, plural(DATA.other_replies.length, "reply", "replies")), list),
  ];
}
