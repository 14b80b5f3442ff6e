// The charts of a run.

const valids = () => DATA.trials.filter((trial) => trial.speedup);
const lastTrial = () => Math.max(1, ...DATA.trials.map((trial) => trial.number));

// --- best so far ---

function bestCurve() {
  const steps = DATA.steps;
  const first = steps[0];
  const last = steps[steps.length - 1];
  const at = (step) => `${ratio(step.speedup)} at trial ${step.trial}`;
  const roof = DATA.roofline_speedup && DATA.roofline_speedup < 4 * last.speedup ? DATA.roofline_speedup : null;
  const summary =
    steps.length > 1
      ? `The best kernel rose from ${at(first)} to ${at(last)}, in ${plural(steps.length, "step")}.`
      : `Only one kernel was the best: trial ${first.trial}, at ${ratio(first.speedup)}.`;
  const draw = (width, height) => {
    const values = [1, ...valids().map((trial) => trial.speedup), ...(roof ? [roof] : [])];
    const y = ranged(values);
    const {
      svg,
      x,
      y: up,
      box,
    } = frame({
      width,
      height,
      margin: { left: 46, right: 16, top: 26, bottom: 38 },
      x: { make: linear, whole: true, domain: [0, lastTrial() + 0.5] },
      y,
      xLabel: "trial",
      yLabel: "speedup over PyTorch eager",
      yTick: (value) => `${tick(value)}×`,
      label: `Best speedup by trial. ${summary}`,
    });
    let path = `M${x(first.trial)},${up(first.speedup)}`;
    for (const step of steps.slice(1)) path += `H${x(step.trial)}V${up(step.speedup)}`;
    svg.append(s("path", { class: "curve", d: `${path}H${box.right}` }));
    const points = [];
    const risen = new Set(steps.map((step) => step.trial));
    for (const trial of DATA.trials) {
      const at = trial.speedup ? up(trial.speedup) : box.bottom - 7;
      points.push(
        trialPoint(trial, x(trial.number), at, {
          best: trial.number === DATA.best,
          size: risen.has(trial.number) ? 4 : 2.8,
        }),
      );
    }
    addPoints(svg, points);
    const marks = DATA.trials.map((trial) => [x(trial.number), trial.speedup ? up(trial.speedup) : box.bottom - 7]);
    reference(svg, box, up(1), "PyTorch eager", marks);
    if (roof) reference(svg, box, up(roof), "roofline", marks, "light");
    const label = labeller(box);
    label(svg, x(last.trial), up(last.speedup), `${ratio(last.speedup)}, trial ${last.trial}`, {
      class: "label strong",
    });
    return svg;
  };
  const table = () =>
    plainTable(
      "Each new best",
      ["Trial", "Speedup", "Gain"],
      steps.map((step, place) => [
        trialLink(step.trial),
        ratio(step.speedup),
        place ? ratio(step.speedup / steps[place - 1].speedup) : "–",
      ]),
    );
  return chart({
    title: "Best so far",
    summary,
    draw,
    table,
    height: (width) => (width < 600 ? 260 : 320),
    legend: marksLegend(),
  });
}

// A line across a chart with its name: above or below it, at the left or at the right, where no mark is hidden.
function reference(svg, box, y, text, marks, kind = "") {
  svg.append(
    s("line", { class: `reference ${kind}`, "pointer-events": "none", x1: box.left, x2: box.right, y1: y, y2: y }),
  );
  const wide = text.length * 6.6;
  const places = [box.left + 6, box.right - 6 - wide].flatMap((left) => [
    { x: left, y: y - 6 },
    { x: left, y: y + 14 },
  ]);
  const inside = (place) => place.y - 11 > box.top - 8 && place.y < box.bottom;
  const free = (place) =>
    !marks.some(([mx, my]) => mx > place.x - 5 && mx < place.x + wide + 5 && my > place.y - 16 && my < place.y + 7);
  const fitting = places.filter(inside);
  const { x, y: down } = fitting.find(free) || fitting[0] || places[0];
  svg.append(s("text", { class: `label quiet ${kind}`, x, y: down }, text));
}

function marksLegend() {
  const present = GROUPS.filter((group) => DATA.trials.some((trial) => groupOf(trial.status) === group));
  return legend(
    present.map((group) => ({
      mark: group.mark,
      label: `${group.sign} ${group.label}`,
      note: String(DATA.trials.filter((trial) => groupOf(trial.status) === group).length),
    })),
  );
}

// --- validity ---

function validity() {
  // Candidates made by tuning are no proposals.
  const proposed = DATA.trials.filter((trial) => !trial.free);
  const total = proposed.length;
  const size = Math.max(1, Math.ceil(total / 25));
  const parts = [];
  for (let from = 0; from < total; from += size) {
    const slice = proposed.slice(from, from + size);
    parts.push({
      from: slice[0].number,
      to: slice[slice.length - 1].number,
      size: slice.length,
      counts: new Map(GROUPS.map((group) => [group, slice.filter((trial) => groupOf(trial.status) === group).length])),
    });
  }
  const valid = (part) => part.counts.get(GROUPS[0]);
  const half = Math.ceil(parts.length / 2);
  const share = (some) =>
    some.reduce((sum, part) => sum + valid(part), 0) /
    Math.max(
      1,
      some.reduce((sum, part) => sum + part.size, 0),
    );
  const whole =
    total > 3
      ? `${percent(share(parts.slice(0, half)))} of the first half of the trials are valid, ` +
        `${percent(share(parts.slice(half)))} of the second.`
      : `${percent(share(parts))} of the trials are valid.`;
  const draw = (width, height) => {
    const { svg, y, box } = frame({
      width,
      height,
      margin: { left: 46, right: 16, top: 26, bottom: 38 },
      x: { make: linear, whole: true, domain: [0.5, lastTrial() + 0.5] },
      y: { make: linear, domain: [0, 1] },
      xLabel: "trial",
      yLabel: size > 1 ? `share of each ${size} trials` : "each trial",
      yTick: (value) => `${Math.round(100 * value)} %`,
      label: `The outcome of the trials, over time. ${whole}`,
    });
    const wide = (box.right - box.left) / parts.length;
    parts.forEach((part, place) => {
      let from = 0;
      for (const [group, n] of part.counts) {
        if (!n) continue;
        const top = y((from + n) / part.size);
        svg.append(
          s(
            "rect",
            {
              class: `area ${group.mark}`,
              x: box.left + place * wide + 0.5,
              width: Math.max(1, wide - 1),
              y: top,
              height: y(from / part.size) - top,
            },
            s("title", {}, `Trials ${part.from} to ${part.to}: ${n} ${group.label}`),
          ),
        );
        from += n;
      }
    });
    return svg;
  };
  const present = GROUPS.filter((group) => parts.some((part) => part.counts.get(group)));
  const table = () =>
    plainTable(
      "Verdicts over time",
      ["Trials", ...present.map((group) => group.label)],
      parts.map((part) => [
        part.from === part.to ? String(part.from) : `${part.from}–${part.to}`,
        ...present.map((group) => String(part.counts.get(group))),
      ]),
    );
  return chart({ title: "Validity", summary: whole, draw, table, height: 220, legend: marksLegend() });
}

// --- cost ---

function spending() {
  const last = DATA.totals[DATA.totals.length - 1];
  const kinds = [
    last.usd > 0 && { key: "usd", label: "US dollars", tick: usd, what: `${usd(last.usd)} for models` },
    last.tokens > 0 && { key: "tokens", label: "tokens", tick: count, what: `${count(last.tokens)} tokens` },
    { key: "device_s", label: "seconds on the device", tick: span, what: `${span(last.device_s)} on the device` },
  ]
    .filter(Boolean)
    .slice(0, 2);
  const summary = `In all ${kinds.map((kind) => kind.what).join(" and ")}, in ${span(last.seconds)}.`;
  const draw = (width, height) => {
    const svgs = kinds.map((kind) => {
      const own = width < 640 ? width : Math.floor((width - 24 * (kinds.length - 1)) / kinds.length);
      const most = last[kind.key] || 1;
      const { svg, x, y, box } = frame({
        width: own,
        height,
        margin: { left: 54, right: 16, top: 26, bottom: 38 },
        x: { make: linear, whole: true, domain: [0, lastTrial() + 0.5] },
        y: { make: linear, domain: [0, most * 1.08] },
        xLabel: "trial",
        yLabel: `${kind.label}, summed up`,
        yTick: kind.tick,
        label: `${kind.label} by trial, summed up`,
      });
      const line = DATA.totals.map((each) => `${x(each.trial)},${y(each[kind.key])}`).join("L");
      svg.append(
        s("path", { class: "wash", d: `M${x(0)},${box.bottom}L${line}V${box.bottom}Z` }),
        s("path", { class: "curve", d: `M${x(0)},${y(0)}L${line}` }),
      );
      return svg;
    });
    return h("div", { class: "beside" }, svgs);
  };
  const table = () =>
    plainTable(
      "Time, tokens and cost by trial",
      ["Trials", "Time", "On the device", "Tokens", "Cost"],
      sampled(DATA.totals, 25).map((each) => [
        String(each.trial),
        span(each.seconds),
        span(each.device_s),
        count(each.tokens),
        usd(each.usd),
      ]),
    );
  return chart({ title: "Cost", summary, draw, table, height: 220 });
}

function sampled(list, most) {
  const step = Math.max(1, Math.ceil(list.length / most));
  return list.filter((_, place) => (list.length - 1 - place) % step === 0);
}
