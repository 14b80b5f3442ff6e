// The lineage of each candidate: lines between parents and children, and the ancestors of the best kernel.

let arrows = 0; // heads have names, which must differ on a page

function edges(svg, pairs, main) {
  const drawn = [];
  const head = `arrow-${arrows++}`;
  svg.append(
    s(
      "defs",
      {},
      s(
        "marker",
        { id: head, viewBox: "0 0 8 8", refX: 12, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" },
        s("path", { class: "head", d: "M0,0.6L8,4L0,7.4Z" }),
      ),
    ),
  );
  for (const { from, to, a, b } of pairs) {
    const wide = b[0] - a[0];
    const path =
      wide > 30 ? `C${a[0] + wide / 2},${a[1]} ${b[0] - wide / 2},${b[1]} ${b[0]},${b[1]}` : `L${b[0]},${b[1]}`;
    const kind = main.has(from) && main.has(to) ? "edge main" : byNumber.get(to).speedup ? "edge" : "edge lost";
    const line = s("path", {
      class: kind,
      "marker-end": kind === "edge main" ? `url(#${head})` : null,
      d: `M${a[0]},${a[1]}${path}`,
    });
    drawn.push({ from, to, line });
  }
  drawn.sort(
    (one, other) => Number(one.line.classList.contains("main")) - Number(other.line.classList.contains("main")),
  );
  svg.append(...drawn.map((each) => each.line));
  return drawn;
}

// While a candidate has the focus or the pointer, its ancestors are highlighted.
const kin = (drawn) => (point) => {
  const family = point ? ancestry(point.trial) : new Set();
  for (const each of drawn) each.line.classList.toggle("kin", family.has(each.from) && family.has(each.to));
};

function lineageGraph() {
  const main = ancestry(DATA.best);
  const linked = DATA.trials.filter((trial) => trial.parents.length).length;
  const summary =
    `${linked} of ${plural(DATA.trials.length, "trial")} build on earlier ones. ` +
    `The best has ${plural(main.size - 1, "ancestor")}; its line of descent is drawn bold, ` +
    "each step with the strategies it changed.";
  const draw = (width, height) => {
    const found = valids();
    const y = ranged(found.length ? found.map((trial) => trial.speedup) : [1]);
    const lane = found.length < DATA.trials.length ? 26 : 0;
    const {
      svg,
      x,
      y: up,
      box,
    } = frame({
      width,
      height,
      margin: { left: 46, right: 16, top: 26, bottom: 38 + lane },
      x: { make: linear, whole: true, domain: [0, lastTrial() + 0.5] },
      y,
      xLabel: "trial",
      yLabel: "speedup over PyTorch eager",
      yTick: (value) => `${tick(value)}×`,
      label: `Descent of every candidate. ${summary}`,
    });
    const place = (trial) => [x(trial.number), trial.speedup ? up(trial.speedup) : box.bottom + lane + 8];
    const pairs = DATA.trials.flatMap((trial) =>
      trial.parents
        .filter((each) => byNumber.has(each))
        .map((each) => ({ from: each, to: trial.number, a: place(byNumber.get(each)), b: place(trial) })),
    );
    // The lane of failed candidates is below the axis, where labels would cover those of the axis.
    if (lane) svg.append(s("text", { class: "axis", x: 0, y: box.bottom + lane + 12 }, "failed"));
    const drawn = edges(svg, pairs, main);
    const points = DATA.trials.map((trial) => {
      const point = trialPoint(trial, ...place(trial), {
        best: trial.number === DATA.best,
        size: main.has(trial.number) ? 4.4 : 2.8,
      });
      if (main.has(trial.number)) point.classList.add("main");
      return point;
    });
    addPoints(svg, points, kin(drawn));
    const label = labeller(box);
    for (const number of [...main].sort((a, b) => b - a)) {
      const trial = byNumber.get(number);
      if (trial.speedup) label(svg, ...place(trial), briefly(trial, width < 600 ? 20 : 30));
    }
    return svg;
  };
  return chart({ title: "Lineage", summary, draw, height: (width) => (width < 600 ? 320 : 420) });
}

// A change in a few words: the first strategy, and the number of further ones.
function briefly(trial, most) {
  const words = change(trial, mainParent(trial));
  const parts = planNames(trial.strategy) ? words.split(/ (?=[+−])| \+ /) : [words];
  const first = shorten(parts[0].replace(/\(.*\)/, ""), most);
  return parts.length > 1 ? `${first}, ${parts.length - 1} more` : first;
}

// The steps to the best kernel: at every step the fastest parent.
function descent() {
  const path = [];
  const seen = new Set();
  for (let trial = byNumber.get(DATA.best); trial && !seen.has(trial.number); trial = mainParent(trial)) {
    seen.add(trial.number);
    path.unshift(trial);
  }
  const most = Math.max(...path.map((trial) => trial.speedup || 0));
  return h(
    "ol",
    { class: "descent" },
    path.map((trial, place) => {
      const before = path[place - 1];
      const gain =
        before && before.speedup && trial.speedup ? `${ratio(trial.speedup / before.speedup)} its parent` : "";
      const bar = h("span", { class: "bar", "aria-hidden": "true" });
      bar.style.width = `${(100 * (trial.speedup || 0)) / most}%`;
      const others = trial.parents.filter((each) => !before || each !== before.number);
      return h(
        "li",
        {},
        h(
          "span",
          { class: "step" },
          trialLink(trial.number, `Trial ${trial.number}`),
          " ",
          h("span", { class: "note" }, trial.operator),
        ),
        h(
          "span",
          { class: "what" },
          shorten(change(trial, before), 160),
          before && others.length
            ? h("span", { class: "note" }, ` with ${others.map((each) => `trial ${each}`).join(", ")}`)
            : "",
        ),
        h("span", { class: "measure" }, bar),
        h("span", { class: "amount" }, ratio(trial.speedup)),
        h("span", { class: "note gain" }, gain),
      );
    }),
  );
}
