// Tables that can be sorted by any column, with keys or a mouse.

// columns: {name, key(row), cell(row), numeric, wide, text, narrow}; key is what it sorts by. Wide ones are left out on
// a phone, text may break, narrow ones break their heading.
function sortable({ caption, columns, rows, sort = null, rowAttributes = () => ({}) }) {
  const body = h("tbody", {});
  const made = new Map();
  const rowOf = (row) => {
    if (!made.has(row)) {
      made.set(
        row,
        h(
          "tr",
          rowAttributes(row),
          columns.map((column, place) => {
            const content = column.cell ? column.cell(row) : column.key(row);
            return h(place ? "td" : "th", { class: classes(column), scope: place ? null : "row" }, content);
          }),
        ),
      );
    }
    return made.get(row);
  };
  const classes = (column) =>
    [
      column.numeric ? "numeric" : "",
      column.wide ? "wide" : "",
      column.text ? "text" : "",
      column.narrow ? "narrow" : "",
    ]
      .filter(Boolean)
      .join(" ") || null;
  const heads = columns.map((column) =>
    h(
      "th",
      { scope: "col", class: classes(column), "aria-sort": "none" },
      h("button", { type: "button", onclick: () => order(column) }, column.name),
    ),
  );
  let kept = () => true;
  let current = {
    column: sort ? columns.find((each) => each.name === sort.by) : null,
    down: Boolean(sort && sort.down),
  };

  function order(column) {
    // Numbers are sorted largest first.
    const down = current.column === column ? !current.down : Boolean(column.numeric && !column.ascending);
    current = { column, down };
    draw();
  }

  function draw() {
    const { column, down } = current;
    const shown = rows.filter(kept);
    if (column) shown.sort((one, other) => compared(column.key(one), column.key(other), down));
    heads.forEach((head, place) =>
      head.setAttribute("aria-sort", columns[place] !== column ? "none" : down ? "descending" : "ascending"),
    );
    place(shown.map(rowOf));
    return shown.length;
  }

  // Rows that stay where they are are not taken out: the focus and the selection of a reader stay in them.
  function place(wanted) {
    const kept = new Set(wanted);
    for (const row of [...body.children]) if (!kept.has(row)) row.remove();
    wanted.forEach((row, at) => body.children[at] !== row && body.insertBefore(row, body.children[at] || null));
  }

  const table = h("table", {}, h("caption", {}, h("span", {}, caption)), h("thead", {}, h("tr", {}, heads)), body);
  const element = h("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" }, table);
  draw();
  return {
    element,
    filter: (rule) => {
      kept = rule;
      return draw();
    },
    shown: () => rows.filter(kept),
    // Other rows, in the same order and under the same filter; a row that is a new object is drawn anew.
    update: (now) => {
      rows = now;
      const held = new Set(rows);
      for (const row of made.keys()) if (!held.has(row)) made.delete(row);
      return draw();
    },
    redraw: (row) => made.delete(row),
  };
}

// Unknown values are last in both directions.
function compared(one, other, down) {
  const missing = (value) => value === null || value === undefined || value === "";
  if (missing(one) || missing(other)) return Number(missing(one)) - Number(missing(other));
  const by =
    typeof one === "number" && typeof other === "number"
      ? one - other
      : String(one).localeCompare(String(other), "en", { numeric: true });
  return down ? -by : by;
}

// A plain table: names of columns, and rows of texts or nodes.
function plainTable(caption, names, rows, numericFrom = 1) {
  return h(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    h(
      "table",
      {},
      h("caption", {}, h("span", {}, caption)),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          names.map((name, place) => h("th", { scope: "col", class: place >= numericFrom ? "numeric" : null }, name)),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            row.map((cell, place) =>
              h(
                place ? "td" : "th",
                { scope: place ? null : "row", class: place >= numericFrom ? "numeric" : null },
                cell,
              ),
            ),
          ),
        ),
      ),
    ),
  );
}
