// The page of a bench.

function benchPage(main) {
  main.append(section("Methods", "methods", comparison(), duelTable(), effort()));
  if (DATA.groups.some((group) => group.validity && group.or_pytorch))
    main.append(section("Speed and validity", "tradeoff", tradeoff()));
  main.append(section("Matrix", "matrix", ...matrix()));
  main.append(section("fast_p", "fast", fastCurves()));
  if (DATA.groups.some((group) => group.progress.length)) main.append(section("Progress", "progress", progress()));
  main.append(section("Families", "families", familyBars()));
  main.append(section("Tasks", "tasks", taskTable()));
  const apart = DATA.runs.filter((run) => run.speedup && run.verified !== true);
  if (apart.length && !DATA.counts_unverified)
    main.append(
      section(
        "Not verified",
        "unverified",
        h("p", { class: "note" }, "Winners that do not count above, with the reason."),
        unverified(apart),
      ),
    );
  DATA.tables.forEach((table, place) =>
    main.append(
      section(
        table.title,
        `table-${place}`,
        plainTable(table.title, table.columns, table.rows),
        h("p", { class: "note" }, table.note),
      ),
    ),
  );
  main.append(section("Runs", "runs", runTable()));
  main.append(section("The bench", "facts", facts(DATA.facts)));
}

const named = (group) =>
  h(
    "span",
    { class: "named" },
    h("span", { class: `key ${mark(DATA.groups.indexOf(group))}`, "aria-hidden": "true" }),
    group.name,
  );
const methodColumn = { name: "Method", key: (group) => group.name, cell: named, text: true };

// A column of estimates, each with its interval below it.
function estimated(name, get, say, more = {}) {
  const cell = (value) =>
    value
      ? [
          say(value.value),
          value.low !== null ? h("span", { class: "bounds" }, `${say(value.low)} – ${say(value.high)}`) : "",
        ]
      : "–";
  return {
    name,
    key: (group) => (get(group) ? get(group).value : null),
    cell: (group) => cell(get(group)),
    numeric: true,
    ...more,
  };
}

function comparison() {
  const compiled = DATA.groups.some((group) => group.compile);
  return sortable({
    caption:
      "Geometric means of speedups over tasks, with 95 % intervals. All tasks: PyTorch where no kernel is faster",
    rows: DATA.groups,
    sort: { by: "All tasks", down: true },
    columns: [
      methodColumn,
      estimated("All tasks", (group) => group.or_pytorch, ratio),
      estimated("Where it won", (group) => group.eager, ratio),
      estimated("Median", (group) => group.median, ratio, { wide: true }),
      compiled && estimated("Over torch.compile", (group) => group.compile, ratio, { wide: true }),
      estimated("Over its start", (group) => group.start, ratio, { wide: true }),
      estimated("Of roofline", (group) => group.share, percent, { wide: true }),
      {
        name: "Winners",
        key: (group) => group.winners,
        cell: (group) => `${group.winners} of ${group.done}`,
        numeric: true,
      },
    ].filter(Boolean),
  }).element;
}

function effort() {
  const spent = DATA.groups.some((group) => group.tokens);
  const plain = (name, get, say, more = {}) => ({
    name,
    key: get,
    cell: (group) => (get(group) === null ? "–" : say(get(group))),
    numeric: true,
    ...more,
  });
  const tokens = (value) => count(Math.round(value));
  const tokensOf = ({ tokens: all, prompt_tokens: asked }) =>
    all === null ? "–" : asked === null ? tokens(all) : `${tokens(asked)} + ${tokens(all - asked)}`;
  return [
    h("h3", {}, "Validity and cost"),
    sortable({
      caption: "Shares of all proposals; tokens (prompt + reply) and cost for one run on one task",
      rows: DATA.groups,
      columns: [
        methodColumn,
        estimated("Valid", (group) => group.validity, percent),
        estimated("Compile", (group) => group.compile_rate, percent, { wide: true }),
        spent && { ...plain("Tokens", (group) => group.tokens, tokens, { wide: true }), cell: tokensOf },
        spent && plain("Cost", (group) => group.usd, usd),
        plain("On the device", (group) => group.device_s, span),
        plain("In all", (group) => group.wall_s, span, { wide: true }),
        { name: "Failed", key: (group) => group.failed, numeric: true, wide: true },
        { name: "Not verified", key: (group) => group.unverified, numeric: true, wide: true },
      ].filter(Boolean),
    }).element,
  ];
}

function duelTable() {
  if (!DATA.duels.length) return "";
  const bar = (duel) => {
    const all = duel.wins + duel.ties + duel.losses || 1;
    const part = (n, kind) => {
      const piece = h("span", { class: kind });
      piece.style.width = `${(100 * n) / all}%`;
      return piece;
    };
    return h(
      "span",
      { class: "duel", "aria-hidden": "true" },
      part(duel.wins, "win"),
      part(duel.ties, "tie"),
      part(duel.losses, "loss"),
    );
  };
  const name = (place) => DATA.groups[place].name;
  return [
    h("h3", {}, "Against each other"),
    sortable({
      caption: "The number of tasks on which one is faster than the other; a tie if the intervals show no difference",
      rows: DATA.duels,
      columns: [
        { name: "Method", key: (duel) => name(duel.one), text: true },
        { name: "Against", key: (duel) => name(duel.other), text: true },
        { name: "Wins", key: (duel) => duel.wins, numeric: true },
        { name: "Ties", key: (duel) => duel.ties, numeric: true },
        { name: "Losses", key: (duel) => duel.losses, numeric: true },
        { name: "Neither won", key: (duel) => duel.neither, numeric: true, wide: true },
        { name: "Wins to losses", key: (duel) => duel.wins - duel.losses, cell: bar, wide: true },
        {
          name: "Ratio",
          key: (duel) => (duel.ratio ? duel.ratio.value : null),
          cell: (duel) => estimate(duel.ratio),
          numeric: true,
        },
      ],
    }).element,
  ];
}

const shadeOf = (cell) => (cell.speedup ? shade(cell.speedup.value) : "none");
const isFirst = (task, place) => task.best === place && DATA.groups.length > 1;

function taskTable() {
  const rows = DATA.tasks.map((task, place) => ({ ...task, place }));
  const compiled = rows.some((task) => task.compile_ms);
  const best = (task) => (task.best < 0 ? null : task.cells[task.best]);
  const table = sortable({
    caption: "Every task; speedups over PyTorch eager, in brackets where the best kernel does not count",
    rows,
    rowAttributes: (task) => ({ id: `task-${task.place}`, tabindex: "-1" }),
    columns: [
      { name: "Task", key: (task) => task.name, text: true },
      { name: "Family", key: (task) => task.family, wide: true },
      { name: "Bound by", key: (task) => task.zone, wide: true },
      {
        name: "PyTorch",
        key: (task) => task.eager_ms,
        cell: (task) => duration(task.eager_ms),
        numeric: true,
        wide: true,
      },
      compiled && {
        name: "compile",
        key: (task) => task.compile_ms,
        cell: (task) => duration(task.compile_ms),
        numeric: true,
        wide: true,
      },
      {
        name: "Hardware limit",
        key: (task) => task.floor_ms,
        cell: (task) => duration(task.floor_ms),
        numeric: true,
        wide: true,
      },
      ...DATA.groups.map((group, place) => ({
        name: group.name,
        numeric: true,
        narrow: true,
        key: (task) => (task.cells[place].speedup ? task.cells[place].speedup.value : null),
        cell: (task) =>
          h(
            "span",
            {
              class: `cell heat-${shadeOf(task.cells[place])}${isFirst(task, place) ? " first" : ""}`,
              title: cellTip(task, place).filter(Boolean).join("\n"),
            },
            cellWords(task.cells[place]),
          ),
      })),
      {
        name: "Of roofline",
        key: (task) => (best(task) ? best(task).share : null),
        cell: (task) => percent(best(task) && best(task).share),
        numeric: true,
      },
    ].filter(Boolean),
  });
  const names = [...new Set(rows.map((task) => task.family))];
  const search = h("input", { type: "search", placeholder: "task …", oninput: () => apply() });
  const family = h(
    "select",
    { onchange: () => apply() },
    h("option", { value: "" }, "all families"),
    names.map((each) => h("option", { value: each }, each)),
  );
  const status = h("p", { class: "note", role: "status" }, plural(rows.length, "task"));
  function apply() {
    const wanted = search.value.trim().toLowerCase();
    const shown = table.filter(
      (task) => (!family.value || task.family === family.value) && task.name.toLowerCase().includes(wanted),
    );
    status.textContent = `${shown} of ${plural(rows.length, "task")}`;
  }
  return [
    h("div", { class: "controls" }, h("label", {}, "Find ", search), h("label", {}, "Family ", family), status),
    table.element,
  ];
}

function unverified(rows) {
  return sortable({
    caption: "Winners that are not verified",
    rows,
    sort: { by: "Speedup", down: true },
    columns: [
      { name: "Task", key: (run) => run.task, text: true },
      { name: "Method", key: (run) => DATA.groups[run.group].name },
      { name: "Speedup", key: (run) => run.speedup, cell: (run) => ratio(run.speedup), numeric: true },
      {
        name: "Verified",
        key: (run) => String(run.verified),
        cell: (run) => (run.verified === false ? "refused" : "not looked at"),
      },
      { name: "Why not", key: (run) => run.why_not, text: true },
    ],
  }).element;
}

// The table of all runs is long, so it is drawn when it is opened.
function runTable() {
  const details = h("details", { class: "data" }, h("summary", {}, `${plural(DATA.runs.length, "run")}: as a table`));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    details.append(
      sortable({
        caption: "Every run of the matrix",
        rows: DATA.runs,
        columns: [
          {
            name: "Task",
            key: (run) => run.task,
            cell: (run) => (run.report ? h("a", { href: run.report }, run.task) : run.task),
            text: true,
          },
          { name: "Method", key: (run) => DATA.groups[run.group].name },
          { name: "Seed", key: (run) => run.seed, numeric: true, ascending: true },
          { name: "State", key: (run) => run.status },
          { name: "Speedup", key: (run) => run.speedup, cell: (run) => ratio(run.speedup), numeric: true },
          {
            name: "Verified",
            key: (run) => (run.speedup ? String(run.verified) : ""),
            cell: (run) =>
              run.speedup ? { true: "✓ yes", false: "✗ no", null: "not looked at" }[String(run.verified)] : "–",
          },
          { name: "Candidate", key: (run) => run.candidate },
          { name: "Trials", key: (run) => run.trials, numeric: true },
          { name: "Valid", key: (run) => run.valid, numeric: true },
          { name: "Tokens", key: (run) => run.tokens, cell: (run) => count(run.tokens), numeric: true },
          { name: "Cost", key: (run) => run.usd, cell: (run) => usd(run.usd), numeric: true },
          { name: "Device", key: (run) => run.device_s, cell: (run) => span(run.device_s), numeric: true },
          {
            name: "Strategy, or why it ended",
            key: (run) => run.strategy || run.reason,
            cell: (run) => shorten(run.strategy || run.reason, 120),
            text: true,
          },
        ],
      }).element,
    );
  });
  return details;
}
