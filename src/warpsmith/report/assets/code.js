// Code with line numbers and colours, and the difference between two texts.

const WORDS = [
  "alignas auto bool break case char class const constexpr continue def default do double else enum",
  "extern false float for from if import in inline int int32_t int64_t lambda long namespace not",
  "return short signed sizeof static static_cast reinterpret_cast struct switch template true True",
  "False None typedef typename uint32_t uint64_t unsigned using void volatile while with __device__",
  "__global__ __host__ __shared__ __restrict__ __launch_bounds__",
]
  .join(" ")
  .replaceAll(" ", "|");
const TOKEN = new RegExp(
  [
    "(?<comment>//.*|/\\*.*?(?:\\*/|$)|#(?![a-z]).*)",
    "(?<string>\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*')",
    "(?<directive>^\\s*#\\s*[a-z]+)",
    `(?<word>\\b(?:${WORDS})\\b)`,
    "(?<figure>\\b\\d[\\w.]*)",
  ].join("|"),
  "g",
);
const LONGEST = 500; // characters of a line that is still coloured: a longer one is no code that people read

function coloured(line) {
  if (line.length > LONGEST) return [line];
  const parts = [];
  let from = 0;
  for (const found of line.matchAll(TOKEN)) {
    if (found.index > from) parts.push(line.slice(from, found.index));
    const kind = Object.entries(found.groups).find(([, text]) => text !== undefined)[0];
    parts.push(h("span", { class: `t-${kind}` }, found[0]));
    from = found.index + found[0].length;
  }
  parts.push(line.slice(from));
  return parts;
}

function codeBlock(text, label) {
  const lines = text.replace(/\n$/, "").split("\n");
  return h(
    "pre",
    { class: "code", tabindex: "0", role: "region", "aria-label": label },
    h(
      "code",
      {},
      lines.map((line) => h("span", { class: "line" }, coloured(line), "\n")),
    ),
  );
}

function prose(text, label) {
  return h("pre", { class: "prose", tabindex: "0", role: "region", "aria-label": label }, text);
}

// The lines of two texts as [sign, line]: the longest common subsequence between the common beginning and end. Texts
// that are too long for it are shown as one that replaces the other.
const MOST_CELLS = 6e6;

function differing(before, after) {
  const one = before.split("\n");
  const other = after.split("\n");
  let head = 0;
  while (head < one.length && head < other.length && one[head] === other[head]) head++;
  let tail = 0;
  while (
    tail < one.length - head &&
    tail < other.length - head &&
    one[one.length - 1 - tail] === other[other.length - 1 - tail]
  )
    tail++;
  const left = one.slice(head, one.length - tail);
  const right = other.slice(head, other.length - tail);
  const same = (lines) => lines.map((line) => [" ", line]);
  return [...same(one.slice(0, head)), ...middle(left, right), ...same(one.slice(one.length - tail))];
}

function middle(left, right) {
  const wide = right.length + 1;
  if ((left.length + 1) * wide > MOST_CELLS)
    return [...left.map((line) => ["-", line]), ...right.map((line) => ["+", line])];
  const lengths = new Uint32Array((left.length + 1) * wide);
  for (let i = left.length - 1; i >= 0; i--) {
    for (let j = right.length - 1; j >= 0; j--) {
      lengths[i * wide + j] =
        left[i] === right[j]
          ? lengths[(i + 1) * wide + j + 1] + 1
          : Math.max(lengths[(i + 1) * wide + j], lengths[i * wide + j + 1]);
    }
  }
  const found = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      found.push([" ", left[i++]]);
      j++;
    } else if (j >= right.length || (i < left.length && lengths[(i + 1) * wide + j] >= lengths[i * wide + j + 1])) {
      found.push(["-", left[i++]]);
    } else {
      found.push(["+", right[j++]]);
    }
  }
  return found;
}

const AROUND = 4; // lines shown on either side of a change

const KINDS = { "+": "added", "-": "removed", " ": "" };
const SPOKEN = { "+": "added: ", "-": "removed: " };

// The difference of two texts, in one column, or side by side under two headings.
function diffBlock(before, after, label, headings) {
  const lines = differing(before, after);
  const near = new Set();
  lines.forEach(([sign], place) => {
    if (sign !== " ") for (let at = place - AROUND; at <= place + AROUND; at++) near.add(at);
  });
  const parts = []; // lines near a change, and numbers of lines that are left out
  lines.forEach(([sign, line], place) => {
    if (near.has(place)) parts.push({ sign, line });
    else if (parts.length && parts[parts.length - 1].skipped) parts[parts.length - 1].skipped++;
    else parts.push({ skipped: 1 });
  });
  const added = lines.filter(([sign]) => sign === "+").length;
  const removed = lines.filter(([sign]) => sign === "-").length;
  const words = added + removed ? `${plural(added, "line")} added, ${removed} removed.` : "The texts are the same.";
  return [
    h("p", { class: "note" }, words),
    h(
      "pre",
      { class: `code diff${headings ? " sides" : ""}`, tabindex: "0", role: "region", "aria-label": label },
      h("code", {}, headings ? sideBySide(parts, headings) : parts.map(oneColumn)),
    ),
  ];
}

const gap = (skipped) => h("span", { class: "line gap" }, `  ${plural(skipped, "line")} alike\n`);

function oneColumn({ sign, line, skipped }) {
  if (skipped) return gap(skipped);
  return h(
    "span",
    { class: `line ${KINDS[sign]}` },
    h("span", { class: "sign", "aria-hidden": "true" }, sign),
    SPOKEN[sign] && h("span", { class: "spoken" }, SPOKEN[sign]),
    coloured(line),
    "\n",
  );
}

// Removed lines stand beside the added ones that follow them.
function sideBySide(parts, headings) {
  const rows = [headings.map((text) => h("span", { class: "line heading" }, `${text}\n`))];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++)
      rows.push([removed[at], added[at]].map((part) => (part ? oneColumn(part) : h("span", { class: "line none" }))));
    removed = [];
    added = [];
  };
  for (const part of parts) {
    if (part.sign === "-") {
      if (added.length) flush();
      removed.push(part);
    } else if (part.sign === "+") added.push(part);
    else {
      flush();
      rows.push(part.skipped ? [gap(part.skipped), gap(part.skipped)] : [oneColumn(part), oneColumn(part)]);
    }
  }
  flush();
  return rows;
}
