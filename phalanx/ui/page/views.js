// The views: each makes an element, `update` after the runs or the choice changed, `refresh` at every question.

import { Chart, short } from "/chart.js";

const MAIN = ["eval/win_rate", "eval/return", "train/return"], GROUPS = ["main", "eval", "train", "learn", "other", "all"];
const CHARTS = 24, SILENT = 900; // charts at most; seconds after which a run that says "running" is called silent

export const make = (name, text = "", cls = "") => Object.assign(document.createElement(name), { textContent: text, className: cls });

const holds = (element, ...children) => (element.append(...children.filter((each) => each !== null && each !== undefined)), element);

export function age(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.max(0, Math.round(seconds))} s`;
}

// A word for how a run stands, and a few more.
export function stateOf(run, now) {
  if (run.error) return ["broken", ""];
  const quiet = now - run.written, part = run.budget ? `${Math.floor((100 * run.steps) / run.budget)} %` : "";
  if (run.unread > 0.001) return ["reading", `reading, ${Math.floor(100 * (1 - run.unread))} %`];
  if (run.status === "running" && quiet > SILENT) return ["silent", `silent for ${age(quiet)}, ${part}`];
  if (run.status === "running") return ["running", ["running", part].filter(Boolean).join(", ")];
  if (run.status.startsWith("failed")) return ["failed", run.status];
  return [run.status === "finished" ? "finished" : "interrupted", run.status];
}

// What charts and tables call a run: what sets it apart from the others.
export function label(run, among) {
  const name = run.algorithm ? `${run.algorithm} ${run.env}` : run.name;
  const twins = among.filter((each) => each.algorithm === run.algorithm && each.env === run.env);
  return run.algorithm && twins.length > 1 ? `${name} ${run.name.split("/").at(-1)}` : name;
}

function named(run, state, among) {
  const dot = make("i", "", "dot"), slot = state.chosen.get(run.id);
  if (slot !== undefined) dot.style.setProperty("--mark", `var(--line-${slot % 8})`);
  return holds(make("span", "", "named"), dot, make("span", label(run, among)));
}

function empty(...parts) {
  return holds(make("p", "", "empty"), ...parts);
}

function nothing(state) {
  if (state.runs.size) return empty("Choose runs in the list.");
  return empty(`There are no runs in ${state.roots.join(", ") || "results"} yet. They appear here when they begin: `, make("code", "phalanx train mappo switch/2"));
}

function table(head, rows, numeric = []) {
  const top = make("tr");
  head.forEach((cell, i) => top.append(holds(make("th", "", numeric[i] ? "number" : ""), cell)));
  const body = make("tbody");
  for (const row of rows) {
    const line = make("tr", "", row.cls ?? "");
    row.forEach((cell, i) => line.append(cell instanceof HTMLTableCellElement ? cell : holds(make("td", "", numeric[i] ? "number" : ""), cell)));
    body.append(line);
  }
  return holds(make("div", "", "scroll"), holds(make("table"), head.length ? holds(make("thead"), top) : null, body));
}

// Curves

function curves({ state, chosen, ask, remember }) {
  const element = make("section"), bar = make("div", "", "row"), groups = make("div", "", "group");
  const search = Object.assign(make("input"), { type: "search", placeholder: "filter metrics", value: state.search, autocomplete: "off", spellcheck: false });
  search.setAttribute("aria-label", "filter metrics");
  const legend = make("div", "", "legend"), notes = make("div"), grid = make("div", "", "charts"), rest = make("p", "", "quiet");
  element.append(holds(bar, groups, search), legend, notes, grid, rest);
  const charts = new Map(), kept = new Map(); // metric -> chart; run -> its cursor and points by metric
  let asking = "";

  const known = () => [...new Set(chosen().flatMap((run) => run.metrics))].sort();
  function wanted() {
    const of = { main: (name) => MAIN.includes(name), all: () => true, other: (name) => !/^(eval|train|learn)\//.test(name) };
    const names = known(), words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = words.length ? names.filter((name) => words.every((word) => name.toLowerCase().includes(word))) : names.filter(of[state.group] ?? ((name) => name.startsWith(`${state.group}/`)));
    if (state.group === "main" && !words.length) return fits.length ? MAIN.filter((name) => fits.includes(name)) : names.slice(0, 6);
    return fits;
  }

  function update() {
    groups.replaceChildren(...GROUPS.map((name) => {
      const button = make("button", name);
      button.setAttribute("aria-pressed", String(name === state.group && !state.search));
      button.addEventListener("click", () => { state.group = name; state.search = search.value = ""; remember(); update(); refresh(); });
      return button;
    }));
    const runs = chosen(), all = wanted(), names = all.slice(0, CHARTS);
    for (const [name] of charts) if (!names.includes(name)) charts.delete(name);
    for (const name of names) if (!charts.has(name)) charts.set(name, new Chart(name));
    const figures = names.map((name) => charts.get(name).figure);
    if (figures.length !== grid.children.length || figures.some((figure, i) => figure !== grid.children[i])) grid.replaceChildren(...figures);
    if (!runs.length) grid.replaceChildren(nothing(state));
    else if (!names.length) grid.replaceChildren(empty(known().length ? "No metric of these runs has such a name." : "No values yet."));
    rest.textContent = all.length > CHARTS ? `${all.length - CHARTS} more: filter them by name.` : "";
    legend.replaceChildren(...runs.map((run) => named(run, state, runs)));
    notes.replaceChildren(...runs.flatMap((run) => run.notes.map((note) => make("p", `${label(run, runs)}: ${note}`, "note"))));
    paint();
  }

  function paint() {
    const runs = chosen();
    for (const [name, chart] of charts)
      chart.show(runs.map((run) => ({ label: label(run, runs), slot: state.chosen.get(run.id), points: kept.get(run.id)?.points[name] ?? [] })));
  }

  async function refresh() {
    const names = [...charts.keys()], runs = chosen();
    if (!names.length || !runs.length) return;
    if (asking !== names.join("\n")) kept.clear(); // a cursor is of all metrics that were asked for
    asking = names.join("\n");
    const query = new URLSearchParams();
    for (const name of names) query.append("metric", name);
    for (const run of runs) query.append("run", `${run.id}:${kept.get(run.id)?.cursor ?? ""}`);
    const mine = asking, told = await ask(`/api/curves?${query}`);
    if (mine !== asking) return;
    let news = false;
    for (const [id, { cursor, whole, points }] of Object.entries(told)) {
      const before = kept.get(id);
      if (before?.cursor === cursor) continue;
      news = true;
      kept.set(id, { cursor, points: whole || !before ? points : merged(before.points, points) });
    }
    if (news) paint();
  }

  search.addEventListener("input", () => { state.search = search.value; remember(); update(); refresh(); });
  return { element, update, refresh };
}

// Points that are there, with those that are new or changed; a point is known by its env steps.
export function merged(before, news) {
  const found = {};
  for (const name of Object.keys(news)) {
    const points = new Map((before[name] ?? []).map((point) => [point[0], point]));
    for (const point of news[name]) points.set(point[0], point);
    found[name] = [...points.values()].sort((a, b) => a[0] - b[0]);
  }
  return found;
}

// Table

function overview({ state, ordered, show }) {
  const element = make("section");
  const value = (triple) => triple?.[0] ?? null;
  const columns = [
    ["run", (run) => run.name], ["status", (run) => stateOf(run, state.now)[1]], ["env steps", (run) => run.steps], ["seeds", (run) => run.seeds],
    ["last win rate", (run) => value(run.last["eval/win_rate"])], ["last return", (run) => value(run.last["eval/return"])],
    ["final win rate", (run) => run.final.win_rate ?? null], ["final return", (run) => run.final.return ?? null],
    ["time", (run) => run.seconds], ["started", (run) => run.started],
  ];
  const numeric = columns.map(([name]) => !["run", "status", "started"].includes(name));

  function cells(run) {
    const [kind, text] = stateOf(run, state.now);
    const name = make("td", "", "name"), open = make("button", run.algorithm ? `${run.algorithm} ${run.env}` : run.name);
    open.addEventListener("click", () => { state.run = run.id; show("run"); });
    holds(name, open, run.algorithm ? make("small", run.name) : null, run.error ? make("span", run.error, "wrong") : null);
    const spread = (triple) => (triple && triple[1] !== triple[2] ? make("small", `[${short(triple[1])}, ${short(triple[2])}]`) : null);
    const number = (triple) => holds(make("span"), short(value(triple)), spread(triple));
    const numbers = ["eval/win_rate", "eval/return"].map((metric) => number(run.last[metric]));
    const part = run.budget ? make("small", `of ${short(run.budget)}`) : null;
    return [name, make("span", text, `state ${kind}`), holds(make("span"), run.steps.toLocaleString("en"), part), String(run.seeds), ...numbers,
      short(run.final.win_rate), short(run.final.return), run.seconds === null ? "–" : age(run.seconds), run.started.slice(0, 16).replace("T", " ")];
  }

  function update() {
    if (!state.runs.size) return element.replaceChildren(nothing(state));
    const [by, way] = state.sort, key = columns.find(([name]) => name === by)[1];
    const rank = (x) => (x === null || x === undefined || x === "" ? null : x);
    const runs = ordered().sort((a, b) => {
      const [x, y] = [rank(key(a)), rank(key(b))];
      if (x === null || y === null) return Number(x === null) - Number(y === null);
      return way * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
    });
    const head = columns.map(([name]) => {
      const button = make("button", name + (name === by ? (way > 0 ? " ↑" : " ↓") : ""));
      button.addEventListener("click", () => { state.sort = [name, name === by ? -way : -1]; update(); });
      return button;
    });
    element.replaceChildren(...state.notes.map((note) => make("p", note, "note")), table(head, runs.map(cells), numeric));
  }
  return { element, update };
}

// Options

function options({ state, chosen, ask }) {
  const element = make("section"), bar = make("div", "", "row"), body = make("div");
  const all = Object.assign(make("input"), { type: "checkbox", checked: state.all });
  element.append(holds(bar, holds(make("label", "", "named"), all, "show options that are the same, too")), body);
  let last = "";
  async function refresh() {
    const runs = chosen();
    if (!runs.length) return (last = ""), body.replaceChildren(nothing(state));
    const query = new URLSearchParams(runs.map((run) => ["run", run.id]));
    if (state.all) query.set("all", "yes");
    const told = await ask(`/api/options?${query}`), text = JSON.stringify(told);
    if (text === last) return;
    last = text;
    const columns = told.ids.map((id) => state.runs.get(id)).filter(Boolean);
    const value = (each) => (each === null ? "–" : typeof each === "object" ? JSON.stringify(each) : String(each));
    const rows = told.options.map((row) => Object.assign([make("code", row.option), ...row.values.map((each) => make("span", value(each)))], { cls: row.differs ? "" : "same" }));
    if (rows.length) body.replaceChildren(table(["option", ...columns.map((run) => named(run, state, columns))], rows));
    else body.replaceChildren(empty(columns.length < 2 ? "Choose two or more runs to see in which options they differ." : "These runs have the same options."));
  }
  all.addEventListener("change", () => { state.all = all.checked; refresh(); });
  return { element, refresh };
}

// Comparison

const alone = (frame) => Object.assign(make("a", "open alone"), { href: frame.src, target: "_blank", rel: "noopener" });

function compare({ state, chosen }) {
  const element = make("section"), bar = make("div", "", "row"), body = make("div"), link = make("span"), go = make("button", "compare", "go");
  const metric = make("select"), steps = Object.assign(make("input"), { type: "text", inputMode: "numeric", size: 12, placeholder: "at the end", value: state.steps });
  metric.setAttribute("aria-label", "metric");
  steps.setAttribute("aria-label", "env steps");
  element.append(holds(bar, go, make("span", "by", "quiet"), metric, make("span", "at env steps", "quiet"), steps, link), body);
  body.append(empty("The chosen runs are compared as by ", make("code", "phalanx compare"), ": scores with intervals, a verdict, curves, options. Runs that still go on are compared at a number of env steps that all have reached."));
  function update() {
    const names = [...new Set(chosen().flatMap((run) => run.metrics))].filter((name) => /^(eval|train)\//.test(name)).sort();
    const items = ["", ...names].map((name) => Object.assign(make("option", name || "win rate, or return"), { value: name }));
    if (metric.length !== items.length) metric.replaceChildren(...items);
    metric.value = names.includes(state.metric) ? state.metric : "";
    go.disabled = chosen().length < 2;
    go.title = go.disabled ? "choose two or more runs" : "";
  }
  function run() {
    Object.assign(state, { metric: metric.value, steps: steps.value.trim() });
    const query = new URLSearchParams([...chosen().map((each) => ["run", each.id]), ["metric", state.metric], ["steps", state.steps]]);
    const frame = Object.assign(make("iframe", "", "frame"), { src: `/report?${query}`, title: "comparison" });
    const wait = make("p", "comparing …", "quiet");
    frame.setAttribute("sandbox", "");
    frame.addEventListener("load", () => wait.remove());
    link.replaceChildren(alone(frame));
    body.replaceChildren(wait, frame);
  }
  go.addEventListener("click", run);
  return { element, update };
}

// Replays

function player(run, file) {
  const query = new URLSearchParams({ run: run.id, file });
  const frame = Object.assign(make("iframe", "", "frame"), { src: `/replay?${query}`, title: "replay" });
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  return frame;
}

function replays({ state, chosen, ordered }) {
  const element = make("section"), bar = make("div", "", "row"), body = make("div");
  const select = make("select"), link = make("span");
  select.setAttribute("aria-label", "replay");
  element.append(holds(bar, select, link), body);
  let last = "", shown = "";
  function update() {
    const runs = ordered(), found = runs.flatMap((run) => run.replays.map((file) => ({ run, file, key: `${run.id} ${file}` })));
    if (JSON.stringify(found.map((each) => each.key)) === last) return;
    last = JSON.stringify(found.map((each) => each.key));
    bar.hidden = !found.length;
    if (!found.length) {
      const run = chosen()[0] ?? runs[0];
      return body.replaceChildren(empty("There are no replays in these folders. This writes one: ", make("code", `phalanx watch ${run ? run.path : "RUN"}`)));
    }
    select.replaceChildren(...found.map(({ run, file, key }) => Object.assign(make("option", `${label(run, runs)}: ${file}`), { value: key })));
    const pick = () => {
      const one = found.find((each) => each.key === select.value) ?? found[0];
      state.replay = select.value = one.key;
      if (shown === one.key) return;
      shown = one.key;
      const frame = player(one.run, one.file);
      link.replaceChildren(alone(frame));
      body.replaceChildren(frame);
    };
    select.onchange = pick;
    select.value = found.some((each) => each.key === state.replay) ? state.replay : found[0].key;
    pick();
  }
  return { element, update };
}

// One run

function facts(told) {
  const rows = Object.entries(told).map(([name, value]) => [make("span", name.replaceAll("_", " ")),
    name === "command" ? holds(make("td", "", "wide"), make("code", String(value))) : make("span", typeof value === "object" && value !== null ? Object.entries(value).map(([k, v]) => `${k} ${typeof v === "object" ? JSON.stringify(v) : v}`).join(", ") : String(value))]);
  return table([], rows);
}

function bySeed(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const cell = (value) => (typeof value === "number" ? (Number.isInteger(value) ? value.toLocaleString("en") : short(value)) : value === null || value === undefined ? "–" : String(value));
  return table(names, rows.map((row) => names.map((name) => cell(row[name]))), names.map(() => true));
}

function one({ state, ask, show, ordered }) {
  const element = make("section");
  let last = "";
  async function refresh() {
    const run = state.runs.get(state.run) ?? (state.run ? null : ordered()[0]);
    if (!run) return element.replaceChildren(state.runs.size ? empty("Choose a run in the list.") : nothing(state));
    const told = await ask(`/api/run?${new URLSearchParams({ run: run.id })}`), text = JSON.stringify({ ...told, written: 0 });
    if (text === last) return;
    last = text;
    const [kind, words] = stateOf(told, state.now), parts = [];
    const open = make("button", "curves of this run alone", "quiet");
    open.addEventListener("click", () => { state.chosen.clear(); state.chosen.set(run.id, 0); show("curves"); });
    parts.push(holds(make("div", "", "row"), make("h2", told.algorithm ? `${told.algorithm} on ${told.env}` : told.name), make("span", words, `state ${kind}`), open));
    parts.push(make("code", told.path));
    if (told.error) parts.push(make("p", told.error, "note bad"));
    parts.push(...told.notes.map((note) => make("p", note, "note")));
    if (told.replays.length) parts.push(make("h3", "replays"), ...told.replays.map((file) => {
      const button = make("button", file);
      button.addEventListener("click", () => { state.replay = `${run.id} ${file}`; show("replays"); });
      return button;
    }));
    if (told.final_seeds.length) parts.push(make("h3", "final evaluation of the last parameters"), bySeed(told.final_seeds));
    if (told.latest.length) parts.push(make("h3", "last rows of metrics"), bySeed(told.latest));
    if (Object.keys(told.facts).length) parts.push(make("h3", "command and versions"), facts(told.facts));
    for (const [name, values] of Object.entries(told.config)) if (Object.keys(values).length) {
      const rows = Object.entries(values).map(([key, value]) => [make("code", key), make("span", typeof value === "object" ? JSON.stringify(value) : String(value)), make("span", String(told.origins[name]?.[key] ?? ""), "quiet")]);
      parts.push(make("h3", `options of the ${{ run: "run", algorithm: "algorithm", env: "environment" }[name]}`), table(["option", "value", "from"], rows));
    }
    element.replaceChildren(...parts);
  }
  return { element, refresh };
}

export const views = { curves, table: overview, options, compare, replays, run: one };
