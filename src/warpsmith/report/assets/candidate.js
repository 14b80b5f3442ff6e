// One candidate in full: verdict, measurements, code, difference to a parent, prompt and reply. Opened by #trial-N.

const sheet = h("dialog", { class: "sheet", "aria-labelledby": "sheet-title" });
let opener = null;

function beginSheet() {
  document.body.append(sheet);
  sheet.addEventListener("close", () => {
    if (/^#trial-/.test(location.hash)) history.pushState(null, "", "#main");
    hideTip();
    if (opener && opener.isConnected) opener.focus();
    opener = null;
  });
  sheet.addEventListener("click", (event) => event.target === sheet && sheet.close());
  window.addEventListener("hashchange", follow);
  follow();
}

function follow() {
  const trial = byNumber.get(Number((/^#trial-(\d+)$/.exec(location.hash) || [])[1]));
  if (!trial) return void (sheet.open && sheet.close());
  if (!sheet.open) opener = document.activeElement;
  showTrial(trial);
}

let shownTrial = null;

// The trial that is open has changed: show it as it is now, at the same place.
function renewSheet(trial) {
  if (trial !== shownTrial) showTrial(trial, sheet.scrollTop);
}

function showTrial(trial, scroll = 0) {
  const renewed = sheet.open && shownTrial?.number === trial.number; // what is shown stays until all is there
  shownTrial = trial;
  const head = sheetHead(trial);
  const body = h("div", { class: "body" });
  const show = () => {
    sheet.replaceChildren(head, body);
    if (!sheet.open) sheet.showModal();
    head.querySelector("h2").focus({ preventScroll: true });
  };
  if (!renewed) show();
  fillBody(body, trial)
    .catch(() => body.append(h("p", { class: "remark" }, unreadable())))
    .then(() => {
      if (shownTrial !== trial || !sheet.open) return;
      if (renewed) show();
      sheet.scrollTop = scroll;
    });
  sheet.scrollTop = scroll;
}

const unreadable = () =>
  DATA.live
    ? "The server does not answer; start it again and open this trial again."
    : "This browser cannot unpack the texts of a report (no DecompressionStream); open the file in a newer one.";

async function fillBody(body, { number, repairs, parents }) {
  const numbers = [...new Set([number, repairs, ...parents])].filter((each) => byNumber.has(each));
  const full = await inFull(numbers);
  const trial = full.get(number);
  body.append(...verdict(trial).flat().filter(Boolean));
  const compared = numbers.map((each) => full.get(each));
  const text = await texts(textNumbers(trial, compared));
  body.append(...words(trial, text), parts(trial, text, full));
}

function sheetHead(trial) {
  const numbers = DATA.trials.map((each) => each.number);
  const place = numbers.indexOf(trial.number);
  const go = (to, name, text) =>
    h(
      "button",
      {
        type: "button",
        disabled: to === undefined,
        "aria-label": name,
        onclick: () => location.replace(`#trial-${to}`),
      },
      text,
    );
  const close = h(
    "button",
    { type: "button", class: "close", "aria-label": "Close", onclick: () => sheet.close() },
    "✕",
  );
  return h(
    "header",
    {},
    h(
      "h2",
      { id: "sheet-title", tabindex: "-1" },
      `Trial ${trial.number}`,
      trial.number === DATA.best ? h("span", { class: "crown" }, "best") : "",
    ),
    pill(trial.status),
    h(
      "div",
      { class: "turn" },
      go(numbers[place - 1], "Previous trial", "←"),
      go(numbers[place + 1], "Next trial", "→"),
      close,
    ),
  );
}

// The texts that the sheet of a trial shows: its own, and the files of those that it is compared with.
function textNumbers(trial, compared) {
  return [
    ...[trial.reason, trial.thought, trial.profile, trial.reply],
    ...compared.flatMap((each) => each.files.map((file) => file.text)),
    ...trial.prompt.map((message) => message.text),
  ];
}

function costWords({ prompt_tokens: asked, completion_tokens: answered, cached_tokens: cached, usd: price, seconds }) {
  const kept = cached ? ` (${count(cached)} from a cache)` : "";
  return `${count(asked)}${kept} + ${count(answered)} tokens, ${usd(price)}${seconds ? `, ${span(seconds)}` : ""}`;
}

function verdict(trial) {
  const links = (trials) => trials.map((each, place) => [place ? ", " : "", trialLink(each)]);
  const children = DATA.trials.filter((each) => each.parents.includes(trial.number)).map((each) => each.number);
  const listed =
    children.length > 12 ? [links(children.slice(0, 12)), ` and ${children.length - 12} more`] : links(children);
  const pairs = [
    trial.speedup && {
      name: "Speedup over PyTorch eager",
      value: trial.low ? `${ratio(trial.speedup)} (${ratio(trial.low)} to ${ratio(trial.high)})` : ratio(trial.speedup),
    },
    trial.share !== null && { name: "Of roofline", value: percent(trial.share) },
    trial.effect && { name: "Against its best parent", value: ratio(trial.effect) },
    trial.measured > 1 && { name: "Measured", value: `${trial.measured} times` },
    { name: "Operator", value: trial.operator },
    trial.parents.length && { name: "Parents", value: links(trial.parents) },
    children.length && { name: "Children", value: listed },
    trial.repairs && { name: "Repairs", value: trialLink(trial.repairs) },
    trial.twin && { name: "Repeats", value: trialLink(trial.twin) },
    { name: "Written by", value: `${trial.model}, ${span(trial.at_s)} after the beginning` },
    trial.id && { name: "Candidate", value: h("code", {}, trial.id) },
    trial.spent &&
      trial.spent.prompt_tokens + trial.spent.completion_tokens > 0 && {
        name: "Cost",
        value: costWords(trial.spent),
      },
    trial.defines.length && {
      name: "Compiled with",
      value: trial.defines.map(([name, value]) => `${name}=${value}`).join(", "),
    },
  ].filter(Boolean);
  return [
    trial.name && h("p", { class: "lead" }, trial.name),
    facts(pairs),
    measurements(trial),
    trial.resources.length
      ? h(
          "ul",
          { class: "plain" },
          trial.resources.map((line) => h("li", {}, line)),
        )
      : "",
    trial.notes.length
      ? h(
          "ul",
          { class: "plain note" },
          trial.notes.map((line) => h("li", {}, line)),
        )
      : "",
  ];
}

function measurements(trial) {
  if (!trial.workloads.length) return "";
  const rows = trial.workloads.map((each) => [
    each.axes || each.name,
    duration(each.latency_ms),
    ...baselineCells(each, trial),
    duration(each.floor_ms),
    percent(each.share),
    each.error_limit ? percent(each.error / each.error_limit) : "–",
    String(each.checks),
  ]);
  const names = trial.workloads[0].baselines.map(([name]) => name);
  return plainTable(
    `Trial ${trial.number}, by workload`,
    [
      "Workload",
      "Latency",
      ...names.flatMap((name) => [name, `over ${name}`]),
      "Hardware limit",
      "Of roofline",
      "Of the error limit",
      "Checks",
    ],
    rows,
  );
}

function baselineCells(workload, trial) {
  return trial.workloads[0].baselines.flatMap(([name]) => {
    const found = workload.baselines.find((each) => each[0] === name);
    return found ? [duration(found[1]), ratio(found[2])] : ["–", "–"];
  });
}

function words(trial, text) {
  const block = (title, content) => (content ? [h("h3", {}, title), h("p", { class: "words" }, content)] : []);
  return [
    ...block("Verdict", text(trial.reason)),
    ...block("Strategy", trial.strategy),
    ...block("Thought", text(trial.thought)),
    ...block("Profile", text(trial.profile)),
  ];
}

// --- code, difference, prompt, reply: one at a time ---

function parts(trial, text, full) {
  const bases = [
    ...new Set([trial.repairs, ...(mainParent(trial) ? [mainParent(trial).number] : []), ...trial.parents]),
  ].filter((each) => full.get(each)?.files.length);
  const tabs = [
    trial.files.length && ["Code", () => code(trial, text)],
    trial.files.length && bases.length && ["Diff", () => difference(trial, bases, text, full)],
    (trial.prompt.length || trial.shown.length) && ["Prompt", () => prompt(trial, text)],
    trial.reply && ["Reply", () => [prose(text(trial.reply), `Reply of trial ${trial.number}, word for word`)]],
  ].filter(Boolean);
  return tabbed(tabs, `Trial ${trial.number}`);
}

let chosenTab = "Code"; // stays from one candidate to the next

function tabbed(tabs, label) {
  if (!tabs.length) return h("p", { class: "note" }, "The log has nothing else about this candidate.");
  const panel = h("div", { role: "tabpanel", id: "sheet-panel" });
  const buttons = tabs.map(([name], place) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${place}`,
        "aria-controls": "sheet-panel",
        onclick: () => choose(place),
        onkeydown: (event) => {
          const to = {
            ArrowRight: (place + 1) % tabs.length,
            ArrowLeft: (place + tabs.length - 1) % tabs.length,
            Home: 0,
            End: tabs.length - 1,
          }[event.key];
          if (to === undefined) return;
          event.preventDefault();
          choose(to);
          buttons[to].focus();
        },
      },
      name,
    ),
  );
  function choose(place) {
    chosenTab = tabs[place][0];
    buttons.forEach((button, at) => {
      button.setAttribute("aria-selected", String(at === place));
      button.setAttribute("tabindex", at === place ? "0" : "-1");
    });
    panel.setAttribute("aria-labelledby", `tab-${place}`);
    panel.replaceChildren(...tabs[place][1]());
  }
  choose(
    Math.max(
      0,
      tabs.findIndex(([name]) => name === chosenTab),
    ),
  );
  return h("div", { class: "tabs" }, h("div", { role: "tablist", "aria-label": label }, buttons), panel);
}

function code(trial, text) {
  return trial.files.flatMap((file) => [
    h(
      "div",
      { class: "filename" },
      h("code", {}, file.name),
      copier(() => text(file.text)),
    ),
    codeBlock(text(file.text), `Code of trial ${trial.number}, ${file.name}`),
  ]);
}

function copier(text) {
  if (!navigator.clipboard) return "";
  const button = h(
    "button",
    {
      type: "button",
      onclick: () =>
        navigator.clipboard.writeText(text()).then(
          () => (button.textContent = "Copied"),
          () => (button.textContent = "Not allowed"),
        ),
    },
    "Copy",
  );
  return button;
}

let beside = null; // the chosen form of differences; null: side by side where there is room

function difference(trial, bases, text, full) {
  const shown = h("div", {});
  let current = bases[0];
  const wide = () => (beside === null ? sheet.clientWidth >= 820 : beside);
  const choose = (base) => {
    current = base;
    const before = full.get(Number(base));
    const blocks = trial.files.flatMap((file, place) => {
      const old = before.files.find((each) => each.name === file.name) || before.files[place];
      return diffBlock(
        old ? text(old.text) : "",
        text(file.text),
        `Difference of trial ${trial.number} to trial ${base}, ${file.name}`,
        wide() && [`trial ${base}`, `trial ${trial.number}`],
      );
    });
    shown.replaceChildren(...blocks);
  };
  choose(bases[0]);
  const kind = (base) => (base === trial.repairs ? "the one it repairs" : "parent");
  const pick = h(
    "label",
    { class: "pick" },
    "Against ",
    h(
      "select",
      { onchange: (event) => choose(event.target.value) },
      bases.map((base) => h("option", { value: base }, `trial ${base}, ${kind(base)}`)),
    ),
  );
  const form = h("input", {
    type: "checkbox",
    checked: wide(),
    onchange: () => {
      beside = form.checked;
      choose(current);
    },
  });
  return [h("div", { class: "controls" }, pick, h("label", { class: "pick" }, form, " Side by side")), shown];
}

function prompt(trial, text) {
  const given = trial.shown.length ? [h("h3", {}, "Brief"), facts(trial.shown)] : [];
  return [
    ...given,
    ...trial.prompt.flatMap((message) => [
      h("h3", {}, `To the model, as ${message.role}`),
      prose(text(message.text), `Prompt of trial ${trial.number}, ${message.role}`),
    ]),
  ];
}
