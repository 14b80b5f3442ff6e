// The list of runs and benches, and runs laid over each other.

const chosen = new Set(); // runs that are laid over each other, by name
let axis = "trial";
let runTable = null;
const WORDS_OF_STATE = { running: "running", closed: "stopped", idle: "not running" };
const MOST_CHOSEN = 8; // as many as there are kinds of lines

function runsPage(main) {
  readChosen();
  main.append(listOfRuns(), over());
  if (DATA.benches.length) main.append(benches());
  drawHeadline();
}

function drawHeadline() {
  const running = DATA.runs.filter((run) => run.state === "running").length;
  const priced = DATA.runs.filter((run) => run.usd !== null);
  const spent = priced.reduce((sum, run) => sum + run.usd, 0);
  const tokens = DATA.runs.reduce((sum, run) => sum + run.tokens, 0);
  const best = DATA.runs.reduce((most, run) => (run.best && (!most || run.best > most.best) ? run : most), null);
  DATA.figures = [
    { value: String(DATA.runs.length), label: DATA.runs.length === 1 ? "run" : "runs", note: `${running} running` },
    { value: best ? ratio(best.best) : "–", label: "best speedup", note: best ? best.task : "no valid kernel yet" },
    { value: usd(spent), label: "spent", note: tokens ? `${count(tokens)} tokens` : "no model was used" },
  ];
  headline();
}

function sparkline(run) {
  const [width, height] = [120, 26];
  const svg = s("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  if (!run.curve.length) return svg;
  const values = [1, ...run.curve.map((point) => point.speedup)];
  const { make, domain } = ranged(values);
  const x = linear([0, Math.max(run.budget, run.trials, 1)], [1, width - 3]);
  const y = make(domain, [height - 3, 3]);
  const [first, ...rest] = run.curve;
  let path = `M${x(first.trial)},${y(first.speedup)}`;
  for (const point of rest) path += `H${x(point.trial)}V${y(point.speedup)}`;
  const end = x(Math.max(run.trials, first.trial));
  svg.append(
    s("line", { class: "reference", x1: 1, x2: width - 3, y1: y(1), y2: y(1) }),
    s("path", { class: "curve", d: `${path}H${end}` }),
    s("circle", { class: "point best", cx: end, cy: y(run.curve[run.curve.length - 1].speedup), r: 3 }),
  );
  return svg;
}

let named = true; // the name of every run contains its task

// Without the folder that all of them are in.
function shortName(run) {
  const [first, ...rest] = run.run.split("/");
  return rest.length && DATA.runs.every((each) => each.run.startsWith(`${first}/`)) ? rest.join("/") : run.run;
}

const date = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 16).replace("T", " ");

function listOfRuns() {
  const box = (run) =>
    h("input", {
      type: "checkbox",
      "aria-label": `Lay ${run.run} over others`,
      checked: chosen.has(run.run),
      disabled: !run.curve.length,
      onchange: (event) => {
        if (event.target.checked) chosen.add(run.run);
        else chosen.delete(run.run);
        keepChosen();
        redrawn(over());
      },
    });
  named = DATA.runs.every((run) => run.run.includes(run.task));
  runTable = sortable({
    caption: "Every run, the latest first",
    rows: DATA.runs,
    columns: [
      {
        name: "Run",
        key: (run) => run.run,
        cell: (run) => h("a", { href: run.address }, shortName(run)),
        text: true,
      },
      { name: "Lay over", key: (run) => Number(chosen.has(run.run)), cell: box },
      {
        name: "State",
        key: (run) => run.state,
        cell: (run) =>
          h("span", { class: `state ${KIND_OF_STATE[run.state]}`, title: run.words }, WORDS_OF_STATE[run.state]),
      },
      { name: "Best", key: (run) => run.best, cell: (run) => ratio(run.best), numeric: true },
      { name: "Best so far", key: (run) => run.best, cell: sparkline, wide: true },
      {
        name: "Trials",
        key: (run) => run.trials,
        cell: (run) => `${run.trials} of ${run.budget}`,
        numeric: true,
      },
      {
        name: "Valid",
        key: (run) => (run.settled ? run.valid / run.settled : null),
        cell: (run) => (run.settled ? percent(run.valid / run.settled) : "–"),
        numeric: true,
        wide: true,
      },
      {
        name: "Cost",
        key: (run) => run.usd,
        cell: (run) => (run.usd === null ? `${count(run.tokens)} tokens` : usd(run.usd)),
        numeric: true,
        wide: true,
      },
      !named && { name: "Task", key: (run) => run.task, wide: true },
      { name: "Method", key: (run) => run.method, wide: true },
      { name: "Begun (UTC)", key: (run) => run.began, cell: (run) => date(run.began), numeric: true, wide: true },
    ].filter(Boolean),
  });
  const empty = "There is no run in this folder yet; warpsmith optimize TASK starts one, and it appears here.";
  return section("Runs", "runs", DATA.runs.length ? runTable.element : h("p", { class: "note" }, empty));
}

// --- runs laid over each other ---

const AXES = {
  trial: { words: "trials", name: "trial", tick: String, end: (run) => run.trials, whole: true },
  seconds: { words: "time", name: "time of the run", tick: span, end: (run) => run.seconds },
  usd: { words: "cost", name: "US dollars", tick: usd, end: (run) => run.usd || 0 },
  tokens: { words: "tokens", name: "tokens", tick: count, end: (run) => run.tokens },
};

function readChosen() {
  const found = /^#over=(.*)$/.exec(location.hash);
  if (found) for (const each of found[1].split(",")) chosen.add(decodeURIComponent(each));
}

function keepChosen() {
  const names = [...chosen].map(encodeURIComponent).join(",");
  history.replaceState(null, "", names ? `#over=${names}` : location.pathname);
}

function over() {
  const shown = DATA.runs.filter((run) => chosen.has(run.run) && run.curve.length).slice(0, MOST_CHOSEN);
  if (!shown.length)
    return section(
      "Laid over each other",
      "over",
      h("p", { class: "note" }, "Choose two or more runs in the table to compare how they went."),
    );
  const { name, tick: words, end, whole } = AXES[axis];
  const best = shown.reduce((most, run) => (run.best > most.best ? run : most));
  const summary = `The best of ${plural(shown.length, "run")} is ${shortName(best)} with ${ratio(best.best)}.`;
  const draw = (width, height) => {
    const most = Math.max(...shown.map(end), 1e-9);
    const {
      svg,
      x,
      y: up,
      box,
    } = frame({
      width,
      height,
      margin: { left: 46, right: 16, top: 26, bottom: 38 },
      x: { make: linear, whole, domain: [0, most * 1.02] },
      y: ranged([1, ...shown.flatMap((run) => run.curve.map((point) => point.speedup))]),
      xLabel: name,
      yLabel: "speedup over PyTorch eager",
      xTick: words,
      yTick: (value) => `${tick(value)}×`,
      label: `Best speedup of each run. ${summary}`,
    });
    svg.append(s("line", { class: "reference", x1: box.left, x2: box.right, y1: up(1), y2: up(1) }));
    svg.append(s("text", { class: "label quiet", x: box.left + 6, y: up(1) - 6 }, "PyTorch eager"));
    shown.forEach((run, place) => {
      const [first, ...rest] = run.curve;
      let path = `M${x(first[axis])},${up(first.speedup)}`;
      for (const point of rest) path += `H${x(point[axis])}V${up(point.speedup)}`;
      const last = run.curve[run.curve.length - 1];
      const line = s("path", { class: `series g${place}`, d: `${path}H${x(Math.max(end(run), last[axis]))}` });
      line.append(s("title", {}, `${shortName(run)}: ${ratio(run.best)}`));
      svg.append(line);
    });
    return svg;
  };
  const table = () =>
    plainTable(
      "The runs side by side",
      ["Run", "Best", "At trial", "Trials", "Time", "Cost"],
      shown.map((run) => [
        h("a", { href: run.address }, shortName(run)),
        ratio(run.best),
        String(run.curve[run.curve.length - 1].trial),
        String(run.trials),
        span(run.seconds),
        usd(run.usd),
      ]),
    );
  const present = Object.keys(AXES).filter((each) => shown.some((run) => AXES[each].end(run) > 0));
  const pick = h(
    "select",
    {
      onchange: (event) => {
        axis = event.target.value;
        redrawn(over());
      },
    },
    present.map((each) => h("option", { value: each, selected: each === axis }, AXES[each].words)),
  );
  const different = new Set(shown.map((run) => run.task)).size > 1;
  const figure = chart({
    title: "Runs",
    summary,
    draw,
    table,
    height: (width) => (width < 600 ? 260 : 340),
    legend: legend(shown.map((run, place) => ({ mark: `g${place}`, label: shortName(run), note: run.method, lined: true }))),
  });
  return section(
    "Laid over each other",
    "over",
    h("div", { class: "controls" }, h("label", {}, "Against ", pick)),
    different ? h("p", { class: "remark" }, "These runs have different tasks; their speedups are not comparable.") : "",
    figure,
  );
}

function benches() {
  return section(
    "Benches",
    "benches",
    sortable({
      caption: "Tables of runs",
      rows: DATA.benches,
      columns: [
        { name: "Bench", key: (each) => each.bench, cell: (each) => h("a", { href: each.address }, each.bench), text: true },
        { name: "State", key: (each) => each.words },
        { name: "Runs done", key: (each) => each.done, cell: (each) => `${each.done} of ${each.cells}`, numeric: true },
        { name: "Failed", key: (each) => each.failed, numeric: true },
        { name: "Best", key: (each) => each.best, cell: (each) => ratio(each.best), numeric: true },
      ],
    }).element,
  );
}

// --- updates ---

function mergeRows({ runs, benches: tables, gone, remarks }) {
  const known = new Map(DATA.runs.map((run) => [run.run, run]));
  for (const run of runs) known.set(run.run, run);
  for (const name of gone) known.delete(name);
  DATA.runs = [...known.values()].sort((one, other) => other.began - one.began || (one.run < other.run ? -1 : 1));
  DATA.benches = tables;
  DATA.remarks = remarks;
}

function drawRuns() {
  touched.clear();
  const empty = !document.querySelector("#runs table");
  const other = named !== DATA.runs.every((run) => run.run.includes(run.task));
  if (DATA.runs.length && (empty || other)) redrawn(listOfRuns());
  else if (!empty) runTable.update(DATA.runs);
  redrawn(over());
  const old = document.getElementById("benches");
  if (old && DATA.benches.length) redrawn(benches());
  else if (DATA.benches.length) document.getElementById("over").after(benches());
  if (Boolean(old) !== Boolean(DATA.benches.length)) contents(main);
  drawHeadline();
  document.documentElement.dataset.rows = DATA.runs.length;
}
