// The page: ask for what is new, keep what is chosen, show a view of it. All text of runs is set as text.

import { views, make, label, stateOf } from "/views.js";

const $ = (id) => document.getElementById(id);
const PAUSE = 2000, HURRY = 150, LINES = 8; // ms between two questions; while a file is being read; runs chosen at first

export const state = {
  runs: new Map(), version: 0, now: 0, notes: [], roots: [], view: "curves", chosen: new Map(), // id -> slot of its colour
  group: "main", search: "", run: null, steps: "", metric: "", sort: ["started", -1], all: false, replay: null,
};
let asked = false, current = null;

// The address keeps what is chosen, so that a reload and a bookmark show the same.
function remember() {
  const kept = new URLSearchParams({ view: state.view, group: state.group });
  if (state.search) kept.set("search", state.search);
  if (state.run) kept.set("run", state.run);
  for (const id of state.chosen.keys()) kept.append("chosen", id);
  history.replaceState(null, "", `#${kept}`);
}

function recall() {
  const kept = new URLSearchParams(location.hash.slice(1));
  state.view = Object.hasOwn(views, kept.get("view")) ? kept.get("view") : "curves";
  state.group = kept.get("group") ?? "main";
  state.search = kept.get("search") ?? "";
  state.run = kept.get("run");
  for (const id of kept.getAll("chosen")) choose(id, true);
  asked = state.chosen.size > 0;
}

function choose(id, on) {
  if (!on) return state.chosen.delete(id);
  const taken = new Set(state.chosen.values());
  let slot = 0;
  while (taken.has(slot)) slot++;
  state.chosen.set(id, slot);
}

export const chosen = () => [...state.chosen.keys()].map((id) => state.runs.get(id)).filter(Boolean);

export const ordered = () => [...state.runs.values()].sort((a, b) =>
  Number(Boolean(a.error)) - Number(Boolean(b.error)) || Number(b.status === "running") - Number(a.status === "running")
  || (b.started || "").localeCompare(a.started || "") || a.name.localeCompare(b.name));

export async function ask(path) {
  const answer = await fetch(path);
  const told = await answer.json();
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

async function poll() {
  let wait = PAUSE;
  try {
    if (!document.hidden) {
      const told = await ask(`/api/runs?since=${state.version}`);
      take(told);
      await current?.refresh?.();
      if ([...state.runs.values()].some((run) => run.unread > 0.001)) wait = HURRY;
      say("");
      document.documentElement.dataset.ready = "yes";
    }
  } catch (error) {
    say(error instanceof TypeError ? "phalanx ui has stopped: start it again to continue" : error.message);
  }
  setTimeout(poll, wait);
}

function take(told) {
  Object.assign(state, { now: told.now, notes: told.notes, roots: told.roots });
  const news = told.changed.length > 0 || told.ids.length !== state.runs.size || told.version < state.version;
  state.version = told.version;
  for (const run of told.changed) state.runs.set(run.id, run);
  const ids = new Set(told.ids);
  for (const id of [...state.runs.keys()]) if (!ids.has(id)) { state.runs.delete(id); state.chosen.delete(id); }
  if (!asked && state.runs.size) {
    for (const run of ordered().filter((each) => !each.error && each.metrics.length).slice(0, LINES)) choose(run.id, true);
    asked = state.chosen.size > 0;
  }
  if (news || state.runs.size === 0) { list(); current?.update?.(); }
  pulse();
}

function pulse() {
  const live = [...state.runs.values()].filter((run) => stateOf(run, state.now)[0] === "running").length;
  $("pulse").textContent = live ? `${live} running` : "";
  $("pulse").classList.toggle("live", live > 0);
}

function say(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

// The list of runs

const entries = new Map();

function entry(run) {
  if (!entries.has(run.id)) {
    const item = make("li"), tick = make("label"), box = Object.assign(make("input"), { type: "checkbox" });
    box.addEventListener("change", () => { choose(run.id, box.checked); asked = true; changed(); });
    const button = make("button", "", "entry"), bar = make("span", "", "bar");
    button.addEventListener("click", () => { state.run = run.id; show("run"); });
    bar.append(make("i"));
    button.append(make("b"), make("small"), make("small", "", "wrong"), bar);
    tick.append(box);
    item.append(tick, button);
    entries.set(run.id, item);
  }
  const item = entries.get(run.id), [box, button] = [item.querySelector("input"), item.querySelector("button")];
  const [kind, text] = stateOf(run, state.now), slot = state.chosen.get(run.id);
  box.checked = slot !== undefined;
  box.setAttribute("aria-label", `show ${run.name}`);
  box.style.setProperty("--mark", `var(--line-${(slot ?? 0) % 8})`);
  const [title, about, wrong, bar] = button.children;
  title.textContent = run.algorithm ? `${run.algorithm} · ${run.env}` : run.name;
  about.textContent = [run.name.split("/").at(-1), text].filter(Boolean).join(" · ");
  button.title = run.path;
  button.setAttribute("aria-current", String(state.view === "run" && state.run === run.id));
  wrong.textContent = run.error;
  item.className = kind;
  bar.firstChild.style.setProperty("--part", `${Math.min(100, run.budget ? (100 * run.steps) / run.budget : 0)}%`);
  bar.hidden = !run.budget || kind === "finished";
  return item;
}

function list() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (run) => words.every((word) => `${run.name} ${run.algorithm} ${run.env} ${run.status}`.toLowerCase().includes(word));
  const shown = ordered().filter(fits);
  $("runs").replaceChildren(...shown.map(entry));
  $("count").textContent = `${state.chosen.size} of ${state.runs.size} chosen`;
  return shown;
}

function changed() {
  remember();
  list();
  current?.update?.();
  current?.refresh?.();
}

export function show(name) {
  state.view = name;
  for (const tab of document.querySelectorAll("[data-view]")) tab.setAttribute("aria-selected", String(tab.dataset.view === name));
  current = views[name]({ state, chosen, ordered, ask, show, remember, label });
  $("view").replaceChildren(current.element);
  window.scrollTo(0, 0);
  changed();
}

$("filter").addEventListener("input", list);
$("all").addEventListener("click", () => { for (const run of list()) if (!run.error && !state.chosen.has(run.id)) choose(run.id, true); asked = true; changed(); });
$("none").addEventListener("click", () => { for (const run of list()) choose(run.id, false); asked = true; changed(); });
for (const tab of document.querySelectorAll("[data-view]")) tab.addEventListener("click", () => show(tab.dataset.view));
if (matchMedia("(max-width: 820px)").matches) $("chooser").open = false;
recall();
show(state.view);
poll();
