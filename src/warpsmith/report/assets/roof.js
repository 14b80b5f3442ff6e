// The roofline: the distance of each measured candidate to the hardware limit.

function roofline() {
  const roof = DATA.roofline;
  const top = (intensity) =>
    Math.min(intensity * roof.bandwidth_bytes_s, ...roof.heights.slice(-1).map(([, height]) => height));
  const own = roof.points.filter((point) => point.trial);
  const best = own.find((point) => point.trial === DATA.best);
  const reached = best ? best.y / top(best.x) : null;
  const absent = roof.undrawn
    ? ` ${plural(roof.undrawn, "trial")} without a measurement ${roof.undrawn === 1 ? "is" : "are"} not drawn.`
    : "";
  const standing = reached ? `The best kernel is at ${percent(reached)} of the roof. ` : "";
  const spread =
    "Candidates are spread sideways in the order of their trials; their distance to the roof is as measured.";
  const summary = `${roof.title}: ${number(roof.intensity)} FLOP per byte. ${standing}${spread}${absent}`;
  const draw = (width, height) => {
    const { svg, x, y, box } = frame({
      width,
      height,
      margin: { left: 76, right: 16, top: 26, bottom: 38 },
      x: { make: logarithmic, domain: roof.x },
      y: { make: logarithmic, domain: roof.y },
      xLabel: "FLOP per byte (counted; candidates side by side by trial)",
      yLabel: "FLOP per second",
      xTick: tick,
      yTick: (value) => prefixed(value, "").replace(/\.0+(?= )/, ""),
      label: `Roofline. ${summary}`,
    });
    drawRoof(svg, roof, x, y, box);
    const at = new Map(roof.points.map((point) => [point.trial, [x(point.x), y(point.y)]]));
    const main = ancestry(DATA.best);
    const pairs = own.flatMap((point) =>
      point.parents
        .filter((each) => at.has(each))
        .map((each) => ({ from: each, to: point.trial, a: at.get(each), b: at.get(point.trial) })),
    );
    const drawn = edges(svg, pairs, main);
    const eager = at.get(0);
    const label = labeller(box, eager ? [eager] : []);
    if (eager) {
      svg.append(
        s("rect", {
          class: "point eager",
          x: eager[0] - 5,
          y: eager[1] - 5,
          width: 10,
          height: 10,
          transform: `rotate(45 ${eager[0]} ${eager[1]})`,
        }),
      );
    }
    const points = own
      .sort((one, other) => one.trial - other.trial)
      .map((point) =>
        trialPoint(byNumber.get(point.trial), ...at.get(point.trial), {
          best: point.trial === DATA.best,
          size: main.has(point.trial) ? 4 : 2.8,
        }),
      );
    addPoints(svg, points, kin(drawn));
    if (best) label(svg, ...at.get(DATA.best), `best, trial ${DATA.best}`, { class: "label strong" });
    if (eager) label(svg, ...eager, "PyTorch eager");
    return svg;
  };
  const table = () =>
    plainTable(
      "Under the roof",
      ["Trial", "FLOP/s", "Of the roof"],
      own.map((point) => [
        trialLink(point.trial),
        prefixed((point.y * top(roof.intensity)) / top(point.x), "FLOP/s"),
        percent(point.y / top(point.x)),
      ]),
    );
  return chart({ title: "Roofline", summary, draw, table, height: (width) => (width < 600 ? 320 : 440) });
}

function drawRoof(svg, roof, x, y, box) {
  const rate = roof.bandwidth_bytes_s;
  const low = Math.max(roof.x[0], roof.y[0] / rate); // not below the axis
  const high = roof.x[1];
  const flat = roof.heights[roof.heights.length - 1];
  const ridge = flat ? Math.min(high, flat[1] / rate) : high;
  const slope = `M${x(low)},${y(low * rate)}L${x(ridge)},${y(ridge * rate)}`;
  svg.append(s("path", { class: roof.slope_known ? "roof" : "roof lower", d: slope }));
  if (flat && ridge < high) svg.append(s("path", { class: "roof", d: `M${x(ridge)},${y(flat[1])}H${box.right}` }));
  for (const [name, height] of roof.heights) {
    const from = x(Math.min(high, height / rate));
    if (height !== flat[1]) svg.append(s("path", { class: "roof lower", d: `M${from},${y(height)}H${box.right}` }));
    svg.append(
      s(
        "text",
        { class: "label rooftext", x: box.right, y: y(height) - 7, "text-anchor": "end" },
        `${name}, ${prefixed(height, "FLOP/s")}`,
      ),
    );
  }
  const angle = (Math.atan2(y(ridge * rate) - y(low * rate), x(ridge) - x(low)) * 180) / Math.PI;
  const words = roof.slope_known ? `memory, ${prefixed(rate, "B/s")}` : `memory, at least ${prefixed(rate, "B/s")}`;
  const from = [x(low) + 10, y(low * rate)];
  svg.append(
    s(
      "text",
      {
        class: "label rooftext",
        x: from[0],
        y: from[1],
        transform: `rotate(${angle} ${from[0]} ${from[1]}) translate(8 -8)`,
      },
      words,
    ),
  );
}
