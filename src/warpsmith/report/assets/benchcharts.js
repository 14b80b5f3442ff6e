// The charts of a bench. A method has the same colour and dash in every chart, with its name.

const mark = (place) => `g${place % 8}`;
const groupLegend = (note) =>
  legend(
    DATA.groups.map((group, place) => ({
      mark: mark(place),
      label: group.name,
      note: note ? note(group, place) : "",
      lined: Boolean(note),
    })),
  );

// The colour of a speedup: blue above PyTorch, orange below, pale near it. The number is always shown, too.
function shade(speedup) {
  if (!speedup) return "none";
  const step = Math.log2(speedup);
  if (Math.abs(step) < 0.04) return "even";
  const strength = Math.min(5, 1 + Math.floor(Math.abs(step) * 2));
  return `${step > 0 ? "up" : "down"}${strength}`;
}

function cellWords(cell) {
  if (cell.speedup) return ratio(cell.speedup.value);
  if (cell.unverified) return `(${ratio(cell.unverified)})`;
  return cell.done ? "–" : cell.failed ? "failed" : "…";
}

function cellTip(task, place) {
  const cell = task.cells[place];
  const { low, high } = cell.speedup || {};
  return [
    `${task.name}, ${DATA.groups[place].name}: ${cellWords(cell)}`,
    low ? `95 % interval ${ratio(low)} to ${ratio(high)}` : "",
    cell.compile ? `${ratio(cell.compile)} torch.compile` : "",
    cell.share ? `${percent(cell.share)} of roofline` : "",
    cell.note ? shorten(cell.note, 160) : "",
  ];
}

// --- the matrix: a row for each method, a square for each task, tasks of one family together ---

function matrix() {
  const order = DATA.tasks
    .map((task, place) => ({ task, place }))
    .sort((one, other) => one.task.family.localeCompare(other.task.family) || one.place - other.place);
  const faster = DATA.groups.map(
    (group, place) =>
      DATA.tasks.filter((task) => task.cells[place].speedup && task.cells[place].speedup.value > 1).length,
  );
  const words = (group, place) => `${group.name} is faster than PyTorch on ${faster[place]} of ${DATA.tasks.length}`;
  const summary = `Each square is a task: ${DATA.groups.map(words).join(", ")}.`;
  const draw = (width) => {
    const letters = width < 640;
    const left = letters
      ? 26
      : Math.min(240, 18 + Math.max(...DATA.groups.map((group) => shorten(group.name, 30).length)) * 7);
    // Numbers are shown if the tasks are few; many tasks are squares only.
    const wide = Math.max(15, Math.min(88, Math.floor((width - left) / order.length)));
    const size = Math.min(30, wide);
    const fits = Math.max(1, Math.floor((width - left) / wide));
    const bands = [];
    for (let from = 0; from < order.length; from += fits) bands.push(order.slice(from, from + fits));
    const under = 12 + 4.6 * Math.max(...order.map(({ task }) => shorten(task.name, 18).length));
    const tall = 26 + DATA.groups.length * size + under;
    const svg = s("svg", {
      width,
      height: bands.length * tall,
      viewBox: `0 0 ${width} ${bands.length * tall}`,
      role: "group",
      "aria-label": summary,
    });
    const squares = [];
    bands.forEach((band, row) => {
      const top = row * tall + 26;
      DATA.groups.forEach((group, place) => {
        const y = top + place * size;
        const label = letters ? String.fromCharCode(65 + place) : shorten(group.name, 30);
        svg.append(s("text", { class: "axis", x: left - 10, y: y + size / 2 + 4, "text-anchor": "end" }, label));
        band.forEach(({ task, place: number }, column) => {
          const cell = task.cells[place];
          const kind = cell.speedup ? shade(cell.speedup.value) : cell.unverified ? "unproved" : "none";
          const x = left + column * wide;
          const box = s("rect", {
            class: `heat ${kind}`,
            x: x + 1,
            y: y + 1,
            width: wide - 2,
            height: size - 2,
            rx: 2,
          });
          const strong = /[45]$/.test(kind) ? "in strong" : "in";
          const words = s("text", { class: strong, x: x + wide / 2, y: y + size / 2 + 4 }, cellWords(cell));
          const name = cellTip(task, place).filter(Boolean).join("; ");
          const about = { href: `#task-${number}`, class: "mark square", "aria-label": name };
          const square = s("a", about, box, wide >= 56 && words);
          square.tip = () => cellTip(task, place);
          squares.push(square);
        });
      });
      families(svg, band, left, wide, top);
      band.forEach(({ task }, column) => {
        const x = left + (column + 0.5) * wide;
        const y = top + DATA.groups.length * size + 10;
        const turned = { class: "axis task", x, y, "text-anchor": "end", transform: `rotate(-50 ${x} ${y})` };
        svg.append(s("text", turned, shorten(task.name, 18)));
      });
    });
    addPoints(svg, squares);
    return svg;
  };
  const keys = legend([
    { mark: "heat-up", label: "faster than PyTorch" },
    { mark: "heat-even", label: "as fast" },
    { mark: "heat-down", label: "slower" },
    { mark: "heat-none", label: "no kernel that counts" },
  ]);
  return [
    chart({ title: "Matrix", summary, draw, height: 0, legend: keys }),
    h(
      "ol",
      { class: "letters", type: "A" },
      DATA.groups.map((group) => h("li", {}, group.name)),
    ),
  ];
}

function families(svg, band, left, size, top) {
  for (let from = 0; from < band.length;) {
    const family = band[from].task.family;
    let to = from;
    while (to < band.length && band[to].task.family === family) to++;
    const x = left + from * size;
    const wide = (to - from) * size;
    svg.append(s("line", { class: "base", x1: x + 1, x2: x + wide - 1, y1: top - 5, y2: top - 5 }));
    const words = shorten(family, Math.max(1, Math.floor(wide / 6.4)));
    if (words.length > 2 || words === family) svg.append(s("text", { class: "axis", x: x + 1, y: top - 10 }, words));
    from = to;
  }
}

// --- fast_p ---

function fastCurves() {
  const at = (group, p) => (group.fast.filter(([from]) => from <= p).pop() || [0, 0])[1];
  const most = Math.max(2, ...DATA.groups.flatMap((group) => group.fast.map(([p]) => p)));
  const words = DATA.groups.map((group) => `${group.name} ${percent(at(group, 1))}`).join(", ");
  const meaning = "The share of tasks on which the best kernel is more than p times as fast as PyTorch eager.";
  const summary = `${meaning} At p = 1: ${words}.`;
  const draw = (width, height) => {
    const least = 0.25;
    const { svg, x, y, box } = frame({
      width,
      height,
      margin: { left: 46, right: 16, top: 26, bottom: 38 },
      x: { make: logarithmic, domain: [least, most * 1.1] },
      y: { make: linear, domain: [0, 1] },
      xLabel: "p, times as fast as PyTorch",
      yLabel: "share of tasks",
      xTick: (value) => `${tick(value)}×`,
      yTick: (value) => `${Math.round(100 * value)} %`,
      label: summary,
    });
    svg.append(s("line", { class: "reference", x1: x(1), x2: x(1), y1: box.top, y2: box.bottom }));
    svg.append(s("text", { class: "label quiet", x: x(1) + 6, y: box.top + 10 }, "as fast as PyTorch"));
    DATA.groups.forEach((group, place) => {
      if (!group.fast.length) return;
      let path = `M${box.left},${y(at(group, least))}`;
      for (const [p, share] of group.fast) if (p > least) path += `H${x(p)}V${y(share)}`;
      svg.append(s("path", { class: `series ${mark(place)}`, d: path }));
    });
    return svg;
  };
  const stops = [0, 0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5, 10];
  const table = () =>
    plainTable(
      "fast_p",
      ["p", ...DATA.groups.map((group) => group.name)],
      stops.map((p) => [`${p}×`, ...DATA.groups.map((group) => percent(at(group, p)))]),
    );
  return chart({
    title: "fast_p",
    summary,
    draw,
    table,
    height: (width) => (width < 600 ? 260 : 320),
    legend: groupLegend((group) => `${percent(at(group, 1))} at p = 1`),
  });
}

// --- speed against validity against tokens ---

function tradeoff() {
  const shown = DATA.groups.filter((group) => group.validity && group.or_pytorch);
  const most = Math.max(...shown.map((group) => group.tokens || 0));
  const cost = (group) => (most ? `, ${count(Math.round(group.tokens || 0))} tokens` : "");
  const said = (group) => `${ratio(group.or_pytorch.value)}, ${percent(group.validity.value)} valid${cost(group)}`;
  const meaning =
    "Up: faster over all tasks. Right: more of the proposals are valid. " +
    (most ? "The area of a circle: tokens of a run on one task." : "");
  const summary = `${meaning} ${shown.map((group) => `${group.name} ${said(group)}`).join("; ")}.`;
  const draw = (width, height) => {
    const { svg, x, y } = frame({
      width,
      height,
      margin: { left: 46, right: 24, top: 26, bottom: 38 },
      x: { make: linear, domain: [0, 1] },
      y: ranged([1, ...shown.map((group) => group.or_pytorch.value)]),
      xLabel: "valid, share of the proposals",
      yLabel: "speedup over PyTorch eager",
      xTick: (value) => `${Math.round(100 * value)} %`,
      yTick: (value) => `${tick(value)}×`,
      label: summary,
    });
    shown.forEach((group) => {
      const radius = most ? 4 + 14 * Math.sqrt((group.tokens || 0) / most) : 6;
      const [cx, cy] = [x(group.validity.value), y(group.or_pytorch.value)];
      svg.append(s("circle", { class: `series ${mark(DATA.groups.indexOf(group))}`, cx, cy, r: radius }));
    });
    return svg;
  };
  const table = () =>
    plainTable(
      "Speed, validity and tokens",
      ["Method", "Speedup", "Valid", "Tokens"],
      shown.map((group) => [
        group.name,
        estimate(group.or_pytorch),
        percent(group.validity.value),
        group.tokens ? count(Math.round(group.tokens)) : "–",
      ]),
    );
  return chart({
    title: "Speed and validity",
    summary,
    draw,
    table,
    height: (width) => (width < 600 ? 260 : 320),
    legend: groupLegend((group) => (shown.includes(group) ? said(group) : "")),
  });
}

// --- progress ---

function progress() {
  const trials = Math.max(...DATA.groups.map((group) => group.progress.length));
  const last = (group) => group.progress[group.progress.length - 1];
  const begun = DATA.groups.filter((group) => group.progress.length);
  const words = begun.map((group) => `${group.name} ${ratio(last(group))}`).join(", ");
  const meaning =
    "The best speedup so far, geometric mean over runs; 1× for a run without a kernel faster than PyTorch.";
  const summary = `${meaning} In the end: ${words}.`;
  const draw = (width, height) => {
    const values = DATA.groups.flatMap((group) => group.progress);
    const { svg, x, y } = frame({
      width,
      height,
      margin: { left: 46, right: 16, top: 26, bottom: 38 },
      x: { make: linear, whole: true, domain: [0, trials + 0.5] },
      y: ranged([1, ...values]),
      xLabel: "trials spent",
      yLabel: "speedup over PyTorch eager",
      yTick: (value) => `${tick(value)}×`,
      label: summary,
    });
    DATA.groups.forEach((group, place) => {
      if (!group.progress.length) return;
      const path = group.progress.map((value, trial) => `H${x(trial + 1)}V${y(value)}`).join("");
      svg.append(s("path", { class: `series ${mark(place)}`, d: `M${x(0)},${y(1)}${path}` }));
    });
    return svg;
  };
  const table = () =>
    plainTable(
      "Best so far",
      ["Trials", ...DATA.groups.map((group) => group.name)],
      every(trials, 20).map((trial) => [
        String(trial),
        ...DATA.groups.map((group) => ratio(group.progress[trial - 1])),
      ]),
    );
  return chart({
    title: "Progress",
    summary,
    draw,
    table,
    height: (width) => (width < 600 ? 240 : 280),
    legend: groupLegend((group) => (group.progress.length ? ratio(last(group)) : "")),
  });
}

function every(total, most) {
  const step = Math.max(1, Math.ceil(total / most));
  const found = [];
  for (let trial = total; trial >= 1; trial -= step) found.unshift(trial);
  return found;
}

// --- families ---

function familyBars() {
  const most = Math.max(
    1.2,
    ...DATA.families.flatMap((family) => family.means.filter(Boolean).map((mean) => mean.high || mean.value)),
  );
  const summary =
    "Geometric mean over all tasks of a family, PyTorch kept where no kernel is faster; whiskers are 95 % intervals.";
  const draw = (width) => {
    const narrow = width < 640;
    const left = narrow ? 0 : 190;
    const row = 15;
    const gap = narrow ? 34 : 18;
    const tall = DATA.families.length * (DATA.groups.length * row + gap) + 34;
    const x = (most / 1 >= 3 ? logarithmic : linear)([1, most * 1.02], [left, width - 64]);
    const svg = s("svg", {
      width,
      height: tall,
      viewBox: `0 0 ${width} ${tall}`,
      role: "img",
      "aria-label": `Speedup by family. ${summary}`,
    });
    for (const value of x.ticks(Math.floor(width / 120))) {
      svg.append(
        s("line", { class: "grid", x1: x(value), x2: x(value), y1: 4, y2: tall - 22 }),
        s(
          "text",
          { class: "axis", x: x(value), y: tall - 6, "text-anchor": value === 1 ? "start" : "middle" },
          `${tick(value)}×`,
        ),
      );
    }
    let y = 8;
    for (const family of DATA.families) {
      if (narrow) y += 18;
      svg.append(
        s(
          "text",
          {
            class: "family",
            x: narrow ? 0 : left - 14,
            y: narrow ? y - 5 : y + (row * DATA.groups.length) / 2 + 4,
            "text-anchor": narrow ? "start" : "end",
          },
          `${shorten(family.name, 20)} (${family.tasks})`,
        ),
      );
      family.means.forEach((mean, place) => {
        const middle = y + row * (place + 0.5);
        if (!mean) return void svg.append(s("text", { class: "axis", x: x(1) + 6, y: middle + 4 }, "–"));
        svg.append(
          s("rect", {
            class: `solid ${mark(place)}`,
            x: x(1),
            y: middle - 5,
            width: Math.max(1.5, x(mean.value) - x(1)),
            height: 10,
            rx: 1.5,
          }),
        );
        if (mean.low)
          svg.append(
            s("path", { class: "whisker", d: `M${x(Math.max(1, mean.low))},${middle}H${x(mean.high)}m0,-3v6` }),
          );
        svg.append(
          s(
            "text",
            { class: "axis", x: x(Math.max(mean.value, mean.high || 0)) + 6, y: middle + 4 },
            ratio(mean.value),
          ),
        );
      });
      y += row * DATA.groups.length + (narrow ? gap - 18 : gap);
    }
    return svg;
  };
  const table = () =>
    plainTable(
      "By family",
      ["Family", "Tasks", ...DATA.groups.map((group) => group.name)],
      DATA.families.map((family) => [family.name, String(family.tasks), ...family.means.map(estimate)]),
    );
  return chart({ title: "Families", summary, draw, table, height: 0, legend: groupLegend() });
}

const estimate = (mean) =>
  mean ? `${ratio(mean.value)}${mean.low ? ` [${ratio(mean.low)}, ${ratio(mean.high)}]` : ""}` : "–";
