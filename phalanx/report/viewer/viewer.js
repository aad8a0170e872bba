// The page: unpack the episodes, keep the time, show what belongs to it.

const $ = (id) => document.getElementById(id);
const make = (name, text = "", cls = "") => Object.assign(document.createElement(name), { textContent: text, className: cls });
const COLOURS = ["page", "panel", "ink", "soft", "line", "ally", "enemy", "good", "shield", "accent", "mark", "low",
  "ramp", "high", "edge", "cliff", "void", "fog", "body", "grey"];
const REDUCED = matchMedia("(prefers-reduced-motion: reduce)");
const DARK = matchMedia("(prefers-color-scheme: dark)");
const BREAK = 0.9; // seconds between the end of an episode and the next

// Unpacking: see phalanx/report/page.py.

async function unpack(text) {
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old for this page: use one of 2023 or later");
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const plain = new Uint8Array(await new Response(stream).arrayBuffer());
  const head = new DataView(plain.buffer).getUint32(0, true);
  const told = JSON.parse(new TextDecoder().decode(plain.subarray(4, 4 + head)));
  return revive(told, plain.subarray(4 + head));
}

function revive(value, block) {
  if (Array.isArray(value)) return value.map((each) => revive(each, block));
  if (!value || typeof value !== "object") return value;
  if ("at" in value) return decode(value, block);
  for (const name of Object.keys(value)) value[name] = revive(value[name], block);
  return value;
}

function decode({ at, shape, base, unit }, block) {
  const count = shape.reduce((a, b) => a * b, 1), row = count / Math.max(shape[0], 1);
  const data = new Float32Array(count), sums = new Int32Array(row);
  const last = base ? base.length : 1;
  for (let i = 0; i < count; i++) {
    const k = i % row;
    const sum = (sums[k] + (block[at + i] | (block[at + count + i] << 8))) & 0xffff;
    sums[k] = sum;
    data[i] = base ? (base[i % last] + sum) * unit[i % last] : (sum << 16) >> 16;
  }
  return new Track(data, shape);
}

// State

const view = { told: null, episode: 0, time: 0, playing: false, speed: 1, show: 0, agent: -1, sight: true, stages: [], shown: null, rest: 0 };
const showing = () => view.told.shows[view.show];
const episodeOf = (show) => show.episodes[view.episode];
const longest = () => Math.max(...view.told.shows.map((show) => episodeOf(show).length));
const number = (x, digits = 2) => (Math.abs(x) < 0.5 * 10 ** -digits ? 0 : x).toFixed(digits).replace("-", "−");

function sumOf(episode, until) {
  // The mean over agents of their rewards' sums, as `phalanx eval` counts.
  const reward = episode.reward;
  let sum = 0;
  for (let i = 0; i < Math.min(until, episode.length) * reward.size; i++) sum += reward.data[i];
  return sum / reward.size;
}

// What the chosen agent weighs at a step: each action with its part from 0 to 1.
function wishesAt(show, agent, t) {
  const episode = episodeOf(show);
  if (agent < 0 || show.continuous || t >= episode.length) return [];
  const taken = at(episode.action, t)[agent], width = episode.avail.shape[1], names = show.actions[agent];
  const avail = at(episode.avail, t).subarray(agent * width, (agent + 1) * width);
  const values = episode.preferences && at(episode.preferences, t).subarray(agent * width, (agent + 1) * width);
  const open = names.map((_, i) => i).filter((i) => avail[i]);
  const [low, high] = [Math.min(...open.map((i) => values && values[i])), Math.max(...open.map((i) => values && values[i]))];
  return names.map((name, action) => {
    const part = !values ? Number(action === taken)
      : show.prefers === "probability" ? values[action] : high > low ? (values[action] - low) / (high - low) : 1;
    return { name, action, part: avail[action] ? part : 0, value: values && values[action], open: Boolean(avail[action]), taken: action === taken };
  });
}

// The stage

function colours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  view.colours = colours();
  for (const stage of view.stages) { stage.ground = null; drawLegend(stage); }
  dirty();
}

function build() {
  $("stage").replaceChildren();
  view.stages = view.told.shows.map((show, i) => {
    const figure = make("figure"), canvas = make("canvas"), caption = make("figcaption"), legend = make("div", "", "legend");
    const name = make("span", view.told.shows.length > 1 ? show.label : "", "name"), now = make("span", "", "now");
    caption.append(name, now);
    figure.append(canvas, caption, legend);
    $("stage").append(figure);
    const stage = { show, figure, canvas, now, legend, ground: null };
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const agent = stage.scene.pick(stage.pen, event.clientX - box.left, event.clientY - box.top, stageTime(stage));
      choose(i, agent === view.agent && i === view.show ? -1 : agent);
    });
    new ResizeObserver(() => { stage.ground = null; dirty(); }).observe(figure);
    return stage;
  });
}

const stageTime = (stage) => Math.min(REDUCED.matches ? Math.floor(view.time) : view.time, episodeOf(stage.show).length);

function paint(stage) {
  const { canvas, scene } = stage, dense = Math.min(devicePixelRatio || 1, 3);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width || !height) return;
  const context = canvas.getContext("2d");
  if (!stage.ground) {
    Object.assign(canvas, { width: Math.round(width * dense), height: Math.round(height * dense) });
    stage.ground = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
    const below = stage.ground.getContext("2d");
    below.setTransform(dense, 0, 0, dense, 0, 0);
    below.fillStyle = view.colours.void;
    below.fillRect(0, 0, width, height);
    scene.ground(new Pen(below, width, height, scene.box, view.colours));
  }
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.drawImage(stage.ground, 0, 0);
  context.setTransform(dense, 0, 0, dense, 0, 0);
  stage.pen = new Pen(context, width, height, scene.box, view.colours);
  const time = stageTime(stage), mine = view.told.shows[view.show] === stage.show;
  const agent = mine ? view.agent : -1;
  scene.draw(stage.pen, time, { agent, sight: view.sight, wishes: wishesAt(stage.show, agent, Math.floor(time)) });
}

function drawLegend(stage) {
  stage.legend.replaceChildren(...stage.scene.legend().map(([words, draw]) => {
    const item = make("span", words), canvas = Object.assign(make("canvas"), { width: 48, height: 48 });
    const context = canvas.getContext("2d");
    context.setTransform(3, 0, 0, 3, 0, 0);
    draw(Object.assign(Object.create(Pen.prototype), { context, colours: view.colours }));
    item.prepend(canvas);
    return item;
  }));
}

// Panels

function openEpisode(episode) {
  view.episode = episode;
  view.time = 0;
  view.rest = 0;
  for (const stage of view.stages) {
    stage.scene = new SCENES[episodeOf(stage.show).frame.kind](stage.show, episodeOf(stage.show));
    stage.ground = null;
    drawLegend(stage);
  }
  // Teams beside each other are seen through the same window.
  const boxes = view.stages.map((stage) => stage.scene.box), all = (name, pick) => pick(...boxes.map((box) => box[name]));
  const box = { west: all("west", Math.min), east: all("east", Math.max), south: all("south", Math.min), north: all("north", Math.max) };
  const shape = Math.max(0.9, Math.min(1.7, (box.east - box.west) / (box.north - box.south)));
  for (const stage of view.stages) {
    stage.scene.box = box;
    stage.figure.style.setProperty("--shape", shape);
  }
  $("scrub").max = longest();
  [...$("episodes").children].forEach((button, i) => button.setAttribute("aria-current", i === episode));
  listEvents();
  view.shown = null;
  dirty();
}

function listEpisodes() {
  const first = view.told.shows[0].episodes;
  $("episodes").replaceChildren(...first.map((_, i) => {
    const button = make("button", `${i + 1} `);
    for (const show of view.told.shows) {
      const { won, length } = show.episodes[i];
      const sum = number(sumOf(show.episodes[i], length), 1);
      button.append(make("b", won === null ? "" : won ? "✓ " : "✗ ", won ? "won" : "lost"), `${sum} `);
    }
    button.title = `episode ${i + 1}: return of ${view.told.shows.map((show) => show.label).join(", ")} (key ${i + 1})`;
    button.onclick = () => { openEpisode(i); };
    return button;
  }));
}

function listAgents() {
  const several = view.told.shows.length > 1;
  $("agents").className = showing().agents.length > 10 ? "many" : "";
  $("agents").replaceChildren(...view.told.shows.flatMap((show, s) => {
    const buttons = show.agents.map((name, i) => {
      const button = make("button", name);
      Object.assign(button.dataset, { agent: i, show: s });
      button.title = show.types[i];
      button.onclick = () => choose(s, i === view.agent && s === view.show ? -1 : i);
      return button;
    });
    return several ? [make("span", show.label), ...buttons] : buttons;
  }));
}

function listEvents() {
  $("events").replaceChildren(...view.told.shows.flatMap((show, s) => episodeOf(show).events.map((event) => ({ event, s })))
    .sort((a, b) => a.event[0] - b.event[0]).map(({ event: [step, kind, text], s }) => {
      const item = make("li"), button = make("button", "", kind), words = make("div", text);
      if (view.told.shows.length > 1) words.prepend(make("span", `${view.told.shows[s].label}: `));
      button.append(make("span", String(step)), make("i"), words);
      button.onclick = () => go(step);
      button.dataset.step = step;
      item.append(button);
      return item;
    }));
}

function showStep(t) {
  const shows = view.told.shows, last = longest();
  $("step").replaceChildren(`step ${t}`, make("small", ` / ${last}`));
  $("scrub").value = t;
  $("scrub").setAttribute("aria-valuetext", `step ${t} of ${last}`);
  $("score").replaceChildren(...shows.flatMap((show) => {
    const episode = episodeOf(show), until = Math.min(t, episode.length);
    const step = sumOf(episode, until) - sumOf(episode, until - 1);
    const parts = [make("span", `${shows.length > 1 ? `${show.label}: ` : ""}`, "long"), "return ", make("b", number(sumOf(episode, until)))];
    if (until > 0 && shows.length === 1) parts.push(make("span", ` (${step >= 0 ? "+" : "−"}${number(Math.abs(step))})`, "long"));
    return [...parts, "  "];
  }));
  for (const stage of view.stages) {
    const episode = episodeOf(stage.show), at_end = t >= episode.length;
    const outcome = at_end ? (episode.won === null ? "over" : episode.won ? "won" : "not won") : "";
    stage.now.textContent = [stage.scene.caption(Math.min(t, episode.length)), outcome].filter(Boolean).join(" · ");
  }
  let current = null;
  for (const button of $("events").querySelectorAll("button")) {
    const step = Number(button.dataset.step);
    button.classList.toggle("now", step === t);
    button.classList.toggle("later", step > t);
    if (step <= t) current = button;
  }
  const log = $("log");
  if (current && log.scrollHeight > log.clientHeight) log.scrollTop = current.offsetTop - log.offsetTop - log.clientHeight * 0.6;
  showAgent(t);
  drawCurve(t);
}

function showAgent(t) {
  const show = showing(), episode = episodeOf(show), agent = view.agent, when = Math.min(t, episode.length);
  const alive = at(episode.alive, when);
  for (const button of $("agents").querySelectorAll("button")) {
    const [i, s] = [Number(button.dataset.agent), Number(button.dataset.show)], its = episodeOf(view.told.shows[s]);
    button.setAttribute("aria-pressed", i === agent && s === view.show);
    button.classList.toggle("dead", !at(its.alive, Math.min(t, its.length))[i]);
  }
  const chosen = agent >= 0;
  for (const id of ["actions", "sees"]) { $(id).hidden = !chosen; $(id).previousElementSibling.hidden = !chosen; }
  if (!chosen) {
    $("chosen").replaceChildren(make("span", "Choose an agent, here or in the scene, to see its observation and its action probabilities or values."));
    return;
  }
  const acts = when < episode.length, action = acts ? doing(show, episode, agent, when) : "the episode is over";
  $("chosen").replaceChildren(make("b", alive[agent] ? action : "acts no more"), make("span", `${show.agents[agent]}, ${show.types[agent]}`));
  const what = show.continuous ? "action" : show.prefers ? `actions by ${show.prefers}` : "actions";
  $("actions-title").textContent = what;
  $("actions").replaceChildren(...(acts && alive[agent] ? actionBars(show, episode, agent, when) : []));
  $("sees").replaceChildren(...(alive[agent] ? observation(show, episode, agent, when) : [make("p", "nothing", "rest")]));
}

function doing(show, episode, agent, t) {
  return show.continuous ? "acts" : show.actions[agent][at(episode.action, t)[agent]];
}

function bar(name, from, part, text, cls) {
  const row = make("div", "", `bar ${cls}`), inner = make("i");
  inner.style.setProperty("--from", `${100 * from}%`);
  inner.style.setProperty("--part", `${100 * part}%`);
  row.append(make("span", name), inner, make("span", text));
  row.firstChild.title = name;
  return row;
}

function actionBars(show, episode, agent, t) {
  if (show.continuous) {
    const [low, high] = show.continuous, width = episode.action.shape[1];
    const zero = Math.max(0, Math.min(1, (0 - low) / (high - low)));
    return show.actions[agent].map((name, i) => {
      const value = at(episode.action, t)[agent * width + i];
      const where = Math.max(0, Math.min(1, (value - low) / (high - low)));
      return bar(name, Math.min(zero, where), Math.abs(where - zero), number(value), "taken");
    });
  }
  const wishes = wishesAt(show, agent, t), open = wishes.filter((wish) => wish.open || wish.taken); // scripts may order what masks forbid
  const text = ({ value }) => (value === null || value === undefined ? "" : show.prefers === "probability" ? `${number(100 * value, 1)} %` : number(value, 2));
  const rows = open.map((wish) => bar(wish.name, 0, wish.part, text(wish), wish.taken ? "taken" : ""));
  const closed = wishes.length - open.length;
  if (closed) {
    const names = wishes.filter((wish) => !open.includes(wish)).map((wish) => wish.name).join(", ");
    const rest = make("p", closed > 8 ? `${closed} actions are not available` : `not available: ${names}`, "rest");
    rest.title = names;
    rows.push(rest);
  }
  return rows;
}

// An observation as a table: entries that are called "enemy 0: health" or "landmark 1 x" share a row.
function observation(show, episode, agent, t) {
  const names = show.features[agent], width = episode.obs.shape[1];
  const values = at(episode.obs, t).subarray(agent * width, (agent + 1) * width);
  const tables = new Map();
  names.forEach((name, i) => {
    const [, row, column] = /^(.+?): ?(.+)$/.exec(name) || /^(.+) (x|y)$/.exec(name) || /^(can move|own|walkable|height|is) (.+)$/.exec(name) || [0, name, "value"];
    const stem = row.replace(/[ _]?\d+$/, "");
    if (!tables.has(stem)) tables.set(stem, { columns: [], rows: new Map() });
    const table = tables.get(stem);
    if (!table.columns.includes(column)) table.columns.push(column);
    if (!table.rows.has(row)) table.rows.set(row, {});
    table.rows.get(row)[column] = values[i];
  });
  const merged = new Map(); // tables with the same columns become one
  for (const table of tables.values()) {
    const columns = table.columns.length > 8 ? null : table.columns.join("|");
    const key = columns ?? `long ${merged.size}`;
    if (!merged.has(key)) merged.set(key, { columns: table.columns, rows: new Map(), long: !columns });
    for (const [row, cells] of table.rows) merged.get(key).rows.set(row, cells);
  }
  return [...merged.values()].map(drawTable);
}

function drawTable({ columns, rows, long }) {
  const box = make("div", "", "scroll"), table = make("table"), head = make("tr");
  const cell = (value) => {
    const entry = make("td", value === undefined ? "" : number(value));
    entry.classList.toggle("zero", !value);
    return entry;
  };
  const nothing = [];
  if (long) { // too wide: one line an entry
    for (const [row, cells] of rows) for (const column of columns) {
      if (!cells[column]) { nothing.push(`${row} ${column}`); continue; }
      const line = make("tr");
      line.append(make("td", `${row} ${column}`), cell(cells[column]));
      table.append(line);
    }
  } else {
    head.append(make("th"), ...columns.map((column) => make("th", column === "value" ? "" : column)));
    table.append(head);
    for (const [row, cells] of rows) {
      if (columns.length > 2 && columns.every((column) => !cells[column])) { nothing.push(row); continue; }
      const line = make("tr");
      line.append(make("td", row), ...columns.map((column) => cell(cells[column])));
      table.append(line);
    }
  }
  if (table.rows.length > (long ? 0 : 1)) box.append(table);
  if (nothing.length) box.append(make("p", nothing.length > 6 ? `${nothing.length} more are all zero` : `all zero: ${nothing.join(", ")}`, "rest"));
  return box;
}

// The return so far over the whole episode, and when somebody died.
function drawCurve(t) {
  const canvas = $("curve"), dense = Math.min(devicePixelRatio || 1, 3);
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  Object.assign(canvas, { width: width * dense, height: height * dense });
  const c = canvas.getContext("2d"), last = longest();
  c.setTransform(dense, 0, 0, dense, 0, 0);
  const x = (step) => 7.5 + ((width - 15) * step) / last;
  const curves = view.told.shows.map((show) => {
    const episode = episodeOf(show), sums = [0];
    for (let i = 0; i < episode.length; i++) {
      let step = 0;
      for (const each of at(episode.reward, i)) step += each;
      sums.push(sums[i] + step / episode.reward.size);
    }
    return sums;
  });
  const [low, high] = [Math.min(0, ...curves.flat()), Math.max(...curves.flat(), 1e-9)];
  const y = (value) => height - 3 - ((height - 8) * (value - low)) / (high - low || 1);
  curves.forEach((sums, i) => {
    c.strokeStyle = i ? view.colours.enemy : view.colours.accent;
    c.lineWidth = 1.6;
    c.lineJoin = "round";
    c.beginPath();
    sums.forEach((sum, step) => (step ? c.lineTo(x(step), y(sum)) : c.moveTo(x(step), y(sum))));
    c.globalAlpha = 0.9;
    c.stroke();
    c.lineTo(x(sums.length - 1), y(low));
    c.lineTo(x(0), y(low));
    c.globalAlpha = 0.09;
    c.fillStyle = c.strokeStyle;
    c.fill();
    c.globalAlpha = 1;
  });
  const marks = { death: "enemy", loss: "ally", home: "good", touch: "mark" };
  for (const [step, kind] of episodeOf(showing()).events) {
    if (!marks[kind]) continue;
    c.fillStyle = view.colours[marks[kind]];
    c.fillRect(x(step) - 1, 0, 2, 6);
  }
  c.fillStyle = view.colours.ink;
  c.globalAlpha = 0.35;
  c.fillRect(x(Math.min(t, last)) - 0.5, 0, 1, height);
}

// Time

let queued = false, before = 0;
function dirty() {
  if (queued) return;
  queued = true;
  requestAnimationFrame(tick);
}

function tick(stamp) {
  queued = false;
  if (!view.told) return;
  if (view.playing) advance(Math.min(0.1, (stamp - before) / 1000));
  before = stamp;
  const t = Math.floor(view.time + 1e-6);
  if (view.shown !== `${view.episode} ${t}`) {
    view.shown = `${view.episode} ${t}`;
    showStep(t);
  }
  view.stages.forEach(paint);
  document.documentElement.dataset.ready = "yes"; // something can be seen
  if (view.playing) dirty();
}

function advance(seconds) {
  const last = longest();
  if (view.time < last) {
    view.time = Math.min(last, view.time + seconds * view.speed * view.stages[0].scene.rate);
    return;
  }
  view.rest += seconds;
  if (view.rest < BREAK) return;
  if (view.episode + 1 < view.told.shows[0].episodes.length) openEpisode(view.episode + 1);
  else play(false);
}

function play(on) {
  if (on && view.time >= longest()) openEpisode(view.episode + 1 < view.told.shows[0].episodes.length ? view.episode + 1 : 0);
  view.playing = on;
  before = performance.now();
  document.body.classList.toggle("playing", on);
  $("play").setAttribute("aria-label", on ? "pause" : "play");
  dirty();
}

function go(time) {
  view.time = Math.max(0, Math.min(longest(), time));
  view.rest = 0;
  dirty();
}

function step(by) {
  play(false);
  go(by < 0 ? Math.ceil(view.time - 1e-6) - 1 : Math.floor(view.time + 1e-6) + 1);
}

function choose(show, agent) {
  Object.assign(view, { show, agent, shown: null });
  dirty();
}

function setSpeed(by) {
  const select = $("speed");
  select.selectedIndex = Math.max(0, Math.min(select.options.length - 1, select.selectedIndex + by));
  view.speed = Number(select.value);
}

function toggleSight() {
  view.sight = !view.sight;
  $("fog").setAttribute("aria-pressed", view.sight);
  dirty();
}

function save() {
  const all = view.stages.map((stage) => stage.canvas), gap = 16;
  const canvas = make("canvas");
  canvas.width = all.reduce((sum, each) => sum + each.width + gap, -gap);
  canvas.height = Math.max(...all.map((each) => each.height));
  all.reduce((left, each) => { canvas.getContext("2d").drawImage(each, left, 0); return left + each.width + gap; }, 0);
  const name = `${view.told.title}-${view.episode + 1}-${Math.floor(view.time)}.png`.replace(/[^\w.-]+/g, "-");
  canvas.toBlob((blob) => Object.assign(make("a"), { href: URL.createObjectURL(blob), download: name }).click());
}

const KEYS = {
  " ": () => play(!view.playing), ArrowLeft: () => step(-1), ArrowRight: () => step(1), Home: () => go(0),
  End: () => go(longest()), "[": () => setSpeed(-1), "]": () => setSpeed(1), v: toggleSight, s: save,
  t: () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  a: () => choose(view.show, view.agent + 1 < showing().agents.length ? view.agent + 1 : -1),
  Escape: () => choose(view.show, -1),
};

function wire() {
  $("play").onclick = () => play(!view.playing);
  $("back").onclick = () => step(-1);
  $("forth").onclick = () => step(1);
  $("first").onclick = () => { play(false); go(0); };
  $("scrub").oninput = () => { play(false); go(Number($("scrub").value)); };
  $("speed").onchange = () => setSpeed(0);
  $("fog").onclick = toggleSight;
  $("save").onclick = save;
  $("theme").onclick = KEYS.t;
  for (const tab of document.querySelectorAll(".tabs button")) tab.onclick = () => {
    for (const each of document.querySelectorAll(".tabs button")) each.setAttribute("aria-selected", each === tab);
    for (const panel of document.querySelectorAll(".panel")) panel.classList.toggle("away", panel.dataset.tab !== tab.dataset.tab);
  };
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    const plain = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const episode = Number(plain) - 1;
    if (view.told.shows[0].episodes[episode]) openEpisode(episode);
    else if (KEYS[plain]) KEYS[plain]();
    else return;
    event.preventDefault();
  });
  DARK.addEventListener("change", () => setTheme(DARK.matches ? "dark" : "light"));
  addEventListener("resize", () => { view.shown = null; dirty(); });
}

async function begin() {
  try {
    document.documentElement.dataset.theme = DARK.matches ? "dark" : "light";
    view.colours = colours();
    view.told = await unpack($("data").textContent.trim());
    const shows = view.told.shows;
    $("title").replaceChildren(shows.map((show) => show.label).join(" and "), make("small", shows[0].env));
    const has = shows.some((show) => show.episodes.some((episode) => "sees" in episode.frame));
    $("fog").hidden = !has;
    build();
    listEpisodes();
    listAgents();
    // A link can point at a moment: #episode=2&step=30&agent=1
    const told = new URLSearchParams(location.hash.slice(1));
    const episodes = shows[0].episodes.length;
    openEpisode(Math.max(0, Math.min(episodes - 1, Number(told.get("episode") || 1) - 1)));
    go(Number(told.get("step") || 0));
    choose(0, told.has("agent") ? Number(told.get("agent")) : -1);
    wire();
    $("log").classList.add("away"); // on small screens panels take turns
  } catch (error) {
    $("trouble").hidden = false;
    $("trouble").textContent = error.message;
    throw error;
  }
}

begin();
