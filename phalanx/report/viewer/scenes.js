"use strict";
// Drawing. A scene knows one episode of one team; `draw` shows it at a time between two steps.
// Fields of frames are read with `at`: what changes from step to step is a Track, the rest stands as it is.

class Track {
  // A decoded array (T, ...), flat; `row(t)` is what it holds at step t.
  constructor(data, shape) {
    this.data = data;
    this.steps = shape[0];
    this.shape = shape.slice(1);
    this.size = this.shape.reduce((a, b) => a * b, 1);
  }
  row(t) {
    const i = Math.max(0, Math.min(t, this.steps - 1));
    return this.data.subarray(i * this.size, (i + 1) * this.size);
  }
}

function at(field, t) {
  if (field instanceof Track) return field.row(t);
  if (field && field.each) return field.each[Math.min(t, field.each.length - 1)];
  return Array.isArray(field) && Array.isArray(field[0]) ? field.flat() : field;
}

const mix = (a, b, part) => a + (b - a) * part;
const TURN = 2 * Math.PI;
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

// The plane of a scene on a canvas: y up, centred, as large as fits.
class Pen {
  constructor(context, width, height, box, colours) {
    Object.assign(this, { context, width, height, colours });
    const margin = Math.min(width, height) * 0.03 + 6;
    this.scale = Math.min((width - 2 * margin) / (box.east - box.west), (height - 2 * margin) / (box.north - box.south));
    this.left = (width - this.scale * (box.west + box.east)) / 2;
    this.top = (height + this.scale * (box.south + box.north)) / 2;
  }
  x(x) { return this.left + this.scale * x; }
  y(y) { return this.top - this.scale * y; }
  disc(x, y, radius, fill, alpha = 1) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.fillStyle = fill;
    c.beginPath();
    c.arc(x, y, radius, 0, TURN);
    c.fill();
    c.globalAlpha = 1;
  }
  arc(x, y, radius, part, colour, width, alpha = 1) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.beginPath();
    c.arc(x, y, radius, -TURN / 4, -TURN / 4 + TURN * part);
    c.stroke();
    c.globalAlpha = 1;
  }
  line(points, colour, width, alpha = 1, dash = []) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.strokeStyle = colour;
    c.lineWidth = width;
    c.lineCap = "round";
    c.lineJoin = "round";
    c.setLineDash(dash);
    c.beginPath();
    points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
  }
  words(text, x, y, size, colour, alpha = 1, weight = 600) {
    const c = this.context;
    c.globalAlpha = alpha;
    c.fillStyle = colour;
    c.font = `${weight} ${size}px system-ui, -apple-system, "Segoe UI", Roboto, Arial, sans-serif`;
    c.textAlign = "center";
    c.textBaseline = "middle";
    c.fillText(text, x, y + size * 0.04);
    c.globalAlpha = 1;
  }
  arrow(x, y, angle, from, to, colour, width, alpha) {
    const [dx, dy] = [Math.cos(angle), -Math.sin(angle)];
    const tip = [x + dx * to, y + dy * to];
    const head = Math.max(4, width * 2.2);
    this.line([[x + dx * from, y + dy * from], tip], colour, width, alpha);
    const wing = (turn) => [tip[0] - head * Math.cos(angle + turn), tip[1] + head * Math.sin(angle + turn)];
    this.line([wing(0.6), tip, wing(-0.6)], colour, width, alpha);
  }
}

// Units

const polygon = (points) => (c) => {
  points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
  c.closePath();
};
const star = (spikes, inner) => polygon(
  Array.from({ length: 2 * spikes }, (_, i) => {
    const r = i % 2 ? inner : 1.16;
    return [r * Math.cos((i * TURN) / (2 * spikes)), r * Math.sin((i * TURN) / (2 * spikes))];
  }));
const circle = (c) => c.arc(0, 0, 1, 0, TURN);
// Outlines of radius about 1 that look to the right.
const OUTLINES = {
  marine: circle,
  marauder: (c) => c.roundRect(-0.95, -0.95, 1.9, 1.9, 0.42),
  medivac: polygon([[1.1, 0.38], [0.4, 0.42], [0.4, 1.05], [-0.4, 1.05], [-0.4, 0.42], [-1.1, 0.38],
    [-1.1, -0.38], [-0.4, -0.42], [-0.4, -1.05], [0.4, -1.05], [0.4, -0.42], [1.1, -0.38]]),
  stalker: polygon([[1.15, 0], [0, 0.92], [-1.05, 0], [0, -0.92]]),
  zealot: polygon([[1.15, 0], [0.35, 0.95], [-0.95, 0.72], [-0.6, 0], [-0.95, -0.72], [0.35, -0.95]]),
  colossus: polygon(Array.from({ length: 6 }, (_, i) => [1.05 * Math.cos((i * TURN) / 6), 1.05 * Math.sin((i * TURN) / 6)])),
  zergling: polygon([[1.25, 0], [-0.85, 0.95], [-0.4, 0], [-0.85, -0.95]]),
  hydralisk: (c) => { c.moveTo(1.2, 0); c.bezierCurveTo(0.6, 0.2, 0.5, 0.95, -0.25, 0.95); c.arc(-0.25, 0, 0.95, TURN / 4, -TURN / 4); c.bezierCurveTo(0.5, -0.95, 0.6, -0.2, 1.2, 0); },
  baneling: star(9, 0.84),
  spine_crawler: star(5, 0.6),
};

function glyph(pen, type, x, y, radius, angle, colour, alpha) {
  const c = pen.context;
  c.save();
  c.globalAlpha = alpha;
  c.translate(x, y);
  c.rotate(-angle);
  c.scale(radius, radius);
  if (type === "marine" || type === "marauder") { // a barrel
    c.fillStyle = colour;
    c.fillRect(0.5, -0.2, 1.0, 0.4);
  }
  if (type === "colossus" || type === "stalker") { // legs
    c.strokeStyle = colour;
    c.lineWidth = 0.14;
    c.beginPath();
    for (const [a, b] of [[0.7, 0.75], [0.7, -0.75], [-0.8, 0.7], [-0.8, -0.7]]) { c.moveTo(0, 0); c.lineTo(a * 1.25, b * 1.25); }
    c.stroke();
  }
  c.beginPath();
  (OUTLINES[type] || circle)(c);
  c.fillStyle = colour;
  c.fill();
  c.lineWidth = Math.min(0.16, 1.5 / radius);
  c.strokeStyle = pen.colours.body;
  c.stroke();
  c.restore();
}

// What a chosen agent would like to do, drawn around it: an arrow for each move, a line to each target.

const WAYS = {
  north: TURN / 4, up: TURN / 4, south: -TURN / 4, down: -TURN / 4, east: 0, right: 0, west: TURN / 2, left: TURN / 2,
};

function drawWishes(pen, wishes, x, y, radius, targets) {
  const reach = Math.max(18, radius * 1.6);
  for (const { name, part, taken } of wishes) {
    const colour = taken ? pen.colours.accent : pen.colours.ink;
    const alpha = taken ? 0.95 : 0.25 + 0.5 * part;
    const way = WAYS[name.split(",")[0].split(" ").pop()];
    if (way !== undefined && part > 0.015) {
      pen.arrow(x, y, way, radius + 6, radius + 8 + reach * part, colour, taken ? 2.6 : 1.8, alpha);
    }
    const target = targets && targets(name);
    if (target && part > 0.015) pen.line([[x, y], target], colour, 1 + 2.5 * part, alpha * 0.7, [2, 6]);
  }
}

// Battles

class Battle {
  constructor(show, episode) {
    Object.assign(this, { show, episode, frame: episode.frame });
    const f = this.frame;
    this.units = f.types.length;
    this.allies = f.allies;
    this.rate = 4;
    this.box = this.bounds();
    this.kinds = [...new Set(f.types)];
  }
  // All that units ever stand on, and a little around it.
  bounds() {
    const box = { west: Infinity, east: -Infinity, south: Infinity, north: -Infinity };
    for (let t = 0; t <= this.episode.length; t++) {
      const [x, y] = [at(this.frame.x, t), at(this.frame.y, t)];
      for (let i = 0; i < this.units; i++) {
        box.west = Math.min(box.west, x[i]); box.east = Math.max(box.east, x[i]);
        box.south = Math.min(box.south, y[i]); box.north = Math.max(box.north, y[i]);
      }
    }
    const size = this.frame.size, margin = 2.2;
    const fit = (low, high, least) => {
      const more = Math.max(margin, (least - (high - low)) / 2);
      return [Math.max(-1, low - more), Math.min(size + 1, high + more)];
    };
    [box.west, box.east] = fit(box.west, box.east, 13);
    [box.south, box.north] = fit(box.south, box.north, 9);
    return box;
  }
  side(unit) { return unit < this.allies ? "ally" : "enemy"; }
  label(unit) { return unit < this.allies ? unit : unit - this.allies; }

  // The ground, which does not change: drawn once for a size and a theme.
  ground(pen) {
    const c = pen.context, f = this.frame, size = f.size, colours = pen.colours;
    const [walkable, level] = [at(f.walkable, 0), at(f.level, 0)];
    const cell = (x, y) => (x < 0 || y < 0 || x >= size || y >= size ? -1 : x * size + y);
    const kind = (x, y) => {
      const i = cell(x, y);
      if (i < 0 || level[i] <= 0) return 0;
      return walkable[i] ? 1 + level[i] : 1;
    };
    const paint = { 0: null, 1: colours.cliff, 2: colours.low, 2.5: colours.ramp, 3: colours.high };
    for (let x = 0; x < size; x++) for (let y = 0; y < size; y++) {
      const fill = paint[kind(x, y)];
      if (!fill) continue;
      c.fillStyle = fill;
      c.fillRect(pen.x(x) - 0.4, pen.y(y + 1) - 0.4, pen.scale + 0.8, pen.scale + 0.8);
    }
    for (let x = 0; x <= size; x += 2) for (let y = 0; y <= size; y += 2) {
      if (kind(x, y) > 1) pen.disc(pen.x(x), pen.y(y), 1, colours.edge, 0.35);
    }
    for (let x = -1; x < size; x++) for (let y = -1; y < size; y++) {
      const here = kind(x, y);
      for (const [other, ends] of [
        [kind(x + 1, y), [[x + 1, y], [x + 1, y + 1]]], [kind(x, y + 1), [[x, y + 1], [x + 1, y + 1]]],
      ]) {
        if (here === other) continue;
        const strong = here <= 1 || other <= 1;
        pen.line(ends.map(([a, b]) => [pen.x(a), pen.y(b)]), colours.edge, strong ? 1.6 : 0.9, strong ? 0.9 : 0.4);
      }
    }
  }
  now(time) {
    const t = Math.floor(time), part = time - t, f = this.frame;
    const pair = (name) => [at(f[name], t), at(f[name], t + 1)];
    const [x, y, health, shield] = ["x", "y", "health", "shield"].map(pair);
    const between = ([a, b], i) => mix(a[i], b[i], part);
    return Array.from({ length: this.units }, (_, i) => {
      const [lived, lives] = [health[0][i] > 0, health[1][i] > 0];
      return {
        x: between(x, i), y: between(y, i),
        health: between(health, i) / Math.max(f.max_health[i] ?? at(f.max_health, t)[i], 1e-9),
        shield: between(shield, i) / Math.max(at(f.max_shield, t)[i], 1e-9),
        shielded: at(f.max_shield, t)[i] > 0,
        alive: lived, fades: lived && !lives ? part : 0,
        dx: x[1][i] - x[0][i], dy: y[1][i] - y[0][i],
      };
    });
  }
  // Towards the target, or where the unit walks, or where the enemy is.
  angle(units, unit, time) {
    const target = at(this.frame.target, Math.ceil(time))[unit], u = units[unit];
    if (target >= 0) return Math.atan2(units[target].y - u.y, units[target].x - u.x);
    if (Math.hypot(u.dx, u.dy) > 0.05) return Math.atan2(u.dy, u.dx);
    return this.facing[unit] ?? (unit < this.allies ? 0 : TURN / 2);
  }
  draw(pen, time, { agent, sight, wishes }) {
    const colours = pen.colours, t = Math.floor(time), part = time - t, units = this.now(time);
    const px = units.map((u) => pen.x(u.x)), py = units.map((u) => pen.y(u.y));
    const radius = Array.from(at(this.frame.radius, t), (r) => Math.max(r * pen.scale, 3.2));
    const chosen = agent >= 0 && units[agent].alive ? agent : -1;
    const sees = chosen >= 0 && sight ? at(this.frame.sees, t) : null;
    this.facing = this.facing || {};
    if (sees) this.drawSight(pen, chosen, t, px[chosen], py[chosen]);
    units.forEach((u, i) => {
      if (u.alive) return;
      const [r, colour] = [radius[i] * 0.55, colours[this.side(i)]];
      for (const s of [-1, 1]) pen.line([[px[i] - r, py[i] - s * r], [px[i] + r, py[i] + s * r]], colour, 1.5, 0.3);
    });
    this.drawShots(pen, t, part, px, py, units);
    const order = units.map((_, i) => i).filter((i) => units[i].alive).sort((a, b) => radius[a] - radius[b]);
    for (const i of order) {
      const u = units[i], colour = colours[this.side(i)], r = radius[i];
      const clear = !sees || i === chosen || sees[chosen * this.units + i];
      const alpha = (clear ? 1 : 0.32) * (1 - u.fades);
      const angle = (this.facing[i] = this.angle(units, i, time));
      glyph(pen, this.frame.types[i], px[i], py[i], r, angle, colour, alpha);
      if (r >= 7) pen.words(String(this.label(i)), px[i], py[i], Math.min(r * 1.05, 20), colours.body, alpha);
      const thick = Math.max(1.8, Math.min(4, r * 0.2)), ring = r * 1.16 + thick;
      pen.arc(px[i], py[i], ring, 1, colours.ink, thick, 0.13 * alpha);
      pen.arc(px[i], py[i], ring, Math.max(0, Math.min(1, u.health)), colours.good, thick, alpha);
      if (u.shielded) pen.arc(px[i], py[i], ring + thick * 1.25, Math.max(0, Math.min(1, u.shield)), colours.shield, thick, alpha);
      if (u.fades) pen.arc(px[i], py[i], r * (1 + 1.6 * u.fades), 1, colour, 2.5, 0.8 * (1 - u.fades));
    }
    if (agent >= 0) {
      pen.arc(px[agent], py[agent], radius[agent] * 1.16 + 11, 1, colours.accent, 2.2, units[agent].alive ? 1 : 0.4);
    }
    if (chosen >= 0) {
      const heals = this.frame.types[chosen] === "medivac";
      drawWishes(pen, wishes, px[chosen], py[chosen], radius[chosen] * 1.16 + 6, (name) => {
        const number = /(?:enemy |agent_|target )(\d+)$/.exec(name);
        if (!number) return null;
        const unit = Number(number[1]) + (heals ? 0 : this.allies);
        return units[unit] && units[unit].alive ? [px[unit], py[unit]] : null;
      });
    }
  }
  drawSight(pen, agent, t, x, y) {
    const c = pen.context, colours = pen.colours, f = this.frame;
    const [sight, shoot] = [at(f.sight, t)[agent] * pen.scale, at(f.shoot, t)[agent] * pen.scale];
    const facing = f.facing && (at(f.facing, t)[agent] * TURN) / 360;
    const area = (radius) => {
      if (!f.facing) return c.arc(x, y, radius, 0, TURN);
      c.moveTo(x, y);
      c.arc(x, y, radius, -facing - TURN / 24, -facing + TURN / 24);
      c.closePath();
    };
    c.save();
    c.fillStyle = colours.fog;
    c.beginPath();
    c.rect(0, 0, pen.width, pen.height);
    area(sight);
    c.fill("evenodd");
    c.strokeStyle = colours.accent;
    c.lineWidth = 1.4;
    c.globalAlpha = 0.75;
    c.beginPath();
    area(sight);
    c.stroke();
    c.setLineDash([3, 5]);
    c.beginPath();
    area(shoot);
    c.stroke();
    c.restore();
  }
  drawShots(pen, t, part, px, py, units) {
    const shots = (step, alpha, reach) => {
      const [fired, target] = [at(this.frame.fired, step), at(this.frame.target, step)];
      for (let i = 0; i < this.units; i++) {
        const j = target[i];
        if (!fired[i] || j < 0 || !units[i].alive) continue;
        const heals = i < this.allies === j < this.allies;
        const colour = pen.colours[heals ? "good" : this.side(i)];
        const end = [mix(px[i], px[j], reach), mix(py[i], py[j], reach)];
        pen.line([[px[i], py[i]], end], colour, Math.max(1.6, pen.scale / 16), alpha);
        if (reach >= 1) pen.disc(...end, Math.max(2.5, pen.scale / 9), colour, alpha * 0.8);
      }
    };
    if (t > 0) shots(t, 0.75 * (1 - part), 1);
    if (part > 0) shots(t + 1, 0.75 * Math.min(1, part * 2), Math.min(1, part * 1.6));
  }
  pick(pen, x, y, time) {
    const units = this.now(time);
    let [best, nearest] = [-1, 26];
    for (let i = 0; i < this.allies; i++) {
      const distance = Math.hypot(pen.x(units[i].x) - x, pen.y(units[i].y) - y) - this.frame.radius[i] * pen.scale;
      if (distance < nearest) [best, nearest] = [i, distance];
    }
    return best;
  }
  caption(t) {
    const health = at(this.frame.health, t);
    const left = [0, 0];
    for (let i = 0; i < this.units; i++) left[i < this.allies ? 0 : 1] += health[i] > 0;
    return `${left[0]} of ${this.allies} allies, ${left[1]} of ${this.units - this.allies} enemies`;
  }
  // What stands for each unit type, on which side: [words, function that draws it].
  legend() {
    return this.kinds.flatMap((kind) => ["ally", "enemy"].filter((side) =>
      this.frame.types.some((each, i) => each === kind && this.side(i) === side)).map((side) => [
      `${side === "ally" ? "" : "enemy "}${kind.replace("_", " ")}`, (pen) => glyph(pen, kind, 8, 8, 5.4, 0, pen.colours[side], 1)]));
  }
  life(agent, t) { return at(this.frame.health, t)[agent] / at(this.frame.max_health, t)[agent]; }
}

// Grids

class Grid {
  constructor(show, episode) {
    Object.assign(this, { show, episode, frame: episode.frame });
    this.rows = this.frame.open.length;
    this.columns = this.frame.open[0].length;
    this.rate = 3;
    this.box = { west: 0, east: this.columns, south: -this.rows, north: 0 };
  }
  colour(agent) { return PALETTE[agent % PALETTE.length]; }
  ground(pen) {
    const c = pen.context;
    for (let row = 0; row < this.rows; row++) for (let column = 0; column < this.columns; column++) {
      c.fillStyle = this.frame.open[row][column] ? pen.colours.high : pen.colours.cliff;
      c.beginPath();
      c.roundRect(pen.x(column) + 1.5, pen.y(-row) + 1.5, pen.scale - 3, pen.scale - 3, pen.scale * 0.06);
      c.fill();
    }
    const targets = at(this.frame.target, 0);
    for (let agent = 0; 2 * agent < targets.length; agent++) {
      const inset = pen.scale * 0.1;
      c.beginPath();
      c.roundRect(pen.x(targets[2 * agent + 1]) + inset, pen.y(-targets[2 * agent]) + inset, pen.scale - 2 * inset, pen.scale - 2 * inset, pen.scale * 0.1);
      c.globalAlpha = 0.2;
      c.fillStyle = this.colour(agent);
      c.fill();
      c.globalAlpha = 1;
      c.lineWidth = Math.max(2, pen.scale / 28);
      c.strokeStyle = this.colour(agent);
      c.stroke();
    }
  }
  place(pen, agent, time) {
    const t = Math.floor(time), [from, to] = [at(this.frame.position, t), at(this.frame.position, t + 1)];
    const glide = Math.min(1, (time - t) * 1.4);
    const middle = (axis) => mix(from[2 * agent + axis], to[2 * agent + axis], glide) + 0.5;
    return [pen.x(middle(1)), pen.y(-middle(0))];
  }
  draw(pen, time, { agent, wishes }) {
    const colours = pen.colours, home = at(this.frame.home, Math.floor(time)), radius = pen.scale * 0.3;
    for (let i = 0; i < home.length; i++) {
      const [x, y] = this.place(pen, i, time);
      pen.disc(x, y, radius, home[i] ? colours.panel : this.colour(i));
      pen.arc(x, y, radius, 1, home[i] ? this.colour(i) : colours.body, Math.max(1.5, pen.scale / 34));
      pen.words(String(i), x, y, radius, home[i] ? this.colour(i) : "#ffffff");
      if (i === agent) {
        pen.arc(x, y, radius + 6, 1, colours.accent, 2.4);
        if (!home[i]) drawWishes(pen, wishes, x, y, radius + 3);
      }
    }
  }
  pick(pen, x, y, time) {
    const count = at(this.frame.home, 0).length;
    for (let i = 0; i < count; i++) {
      const [px, py] = this.place(pen, i, time);
      if (Math.hypot(px - x, py - y) < pen.scale / 2) return i;
    }
    return -1;
  }
  caption(t) {
    const home = Array.from(at(this.frame.home, t));
    return `${home.filter(Boolean).length} of ${home.length} home`;
  }
  legend() {
    return [["home", (pen) => { pen.context.strokeStyle = PALETTE[0]; pen.context.lineWidth = 2; pen.context.strokeRect(3, 3, 10, 10); }]];
  }
}

// Worlds of particles

// Red, green and blue as Okabe and Ito have them, by hue; greys stay grey.
function safe([red, green, blue], grey) {
  const [high, low] = [Math.max(red, green, blue), Math.min(red, green, blue)];
  if (high - low < 0.12) return high > 0.6 ? "#b5bac2" : grey;
  const hue = (high === red ? ((green - blue) / (high - low) + 6) % 6
    : high === green ? (blue - red) / (high - low) + 2 : (red - green) / (high - low) + 4) * 60;
  const bounds = [[20, 1], [70, 4], [165, 2], [200, 5], [265, 0], [335, 3], [361, 1]];
  return PALETTE[bounds.find(([limit]) => hue < limit)[1]];
}

class Particles {
  constructor(show, episode) {
    Object.assign(this, { show, episode, frame: episode.frame });
    this.rate = 5;
    this.bodies = this.frame.names.length;
    // Bodies whose agents learn, by the name that both have.
    this.body = show.agents.map((name) => this.frame.names.indexOf(name));
    let far = 1;
    for (let t = 0; t <= episode.length; t++) for (const x of [...at(this.frame.position, t), ...this.lines(t)]) far = Math.max(far, Math.abs(x));
    far += Math.max(...this.frame.radius.slice(0, this.frame.agents)) + 0.05;
    this.far = far;
    this.box = { west: -far, east: far, south: -far, north: far };
  }
  ground(pen) {
    const c = pen.context, { west, east, south, north } = this.box;
    c.fillStyle = pen.colours.high;
    c.beginPath();
    c.roundRect(pen.x(west), pen.y(north), pen.scale * (east - west), pen.scale * (north - south), 10);
    c.fill();
    const steps = this.far > 6 ? Math.ceil(this.far / 6) : this.far > 2.5 ? 1 : 0.5;
    for (let g = -Math.floor(this.far / steps) * steps; g <= this.far; g += steps) {
      const alpha = Math.abs(g) < 1e-9 ? 0.45 : 0.16;
      pen.line([[pen.x(g), pen.y(south)], [pen.x(g), pen.y(north)]], pen.colours.edge, 1, alpha);
      pen.line([[pen.x(west), pen.y(g)], [pen.x(east), pen.y(g)]], pen.colours.edge, 1, alpha);
    }
  }
  place(pen, i, time) {
    const t = Math.floor(time), [from, to] = [at(this.frame.position, t), at(this.frame.position, t + 1)];
    return [pen.x(mix(from[2 * i], to[2 * i], time - t)), pen.y(mix(from[2 * i + 1], to[2 * i + 1], time - t))];
  }
  // Straight lines, x and y of both ends one after another; most worlds have none.
  lines(time) {
    if (!this.frame.lines) return [];
    const t = Math.floor(time), [from, to] = [at(this.frame.lines, t), at(this.frame.lines, t + 1)];
    return Array.from(from, (x, i) => mix(x, to[i], time - t));
  }
  drawLines(pen, time) {
    const ends = this.lines(time), width = Math.max(2, pen.scale * 0.03);
    for (let i = 0; i < ends.length; i += 4) {
      const [x, y, u, v] = ends.slice(i, i + 4);
      pen.line([[pen.x(x), pen.y(y)], [pen.x(u), pen.y(v)]], pen.colours.soft, width);
    }
  }
  radius(pen, i) { return Math.max(3.5, this.frame.radius[i] * pen.scale * (this.frame.rescale ? 1 : this.far)); }
  fill(pen, i, t) { return safe(Array.from(at(this.frame.color, t)).slice(3 * i, 3 * i + 3), pen.colours.grey); }
  draw(pen, time, { agent, wishes }) {
    const colours = pen.colours, agents = this.frame.agents, t = Math.floor(time);
    this.drawLines(pen, time);
    for (let i = agents; i < this.bodies; i++) {
      const [x, y] = this.place(pen, i, time), r = this.radius(pen, i), fill = this.fill(pen, i, t);
      pen.disc(x, y, r, fill, 0.85);
      pen.arc(x, y, r + 4, 1, fill, 1.6, 0.7);
    }
    for (let i = 0; i < agents; i++) {
      const trail = [];
      for (let s = Math.max(0, t - 8); s <= t; s++) trail.push(this.place(pen, i, s));
      trail.push(this.place(pen, i, time));
      pen.line(trail, this.fill(pen, i, t), 2.2, 0.35);
    }
    for (let i = 0; i < agents; i++) {
      const [x, y] = this.place(pen, i, time), r = this.radius(pen, i), fill = this.fill(pen, i, t);
      pen.disc(x, y, r, fill, 0.82);
      pen.arc(x, y, r, 1, colours.body, 1.5);
      const number = this.body.indexOf(i);
      if (r >= 7 && number >= 0) pen.words(String(number), x, y, Math.min(r * 0.95, 22), "#ffffff");
      if (agent >= 0 && this.body[agent] === i) {
        pen.arc(x, y, r + 6, 1, colours.accent, 2.4);
        drawWishes(pen, wishes, x, y, r + 3);
      }
    }
  }
  pick(pen, x, y, time) {
    let [best, nearest] = [-1, 24];
    this.body.forEach((body, agent) => {
      const [px, py] = this.place(pen, body, time);
      const distance = Math.hypot(px - x, py - y) - this.radius(pen, body);
      if (distance < nearest) [best, nearest] = [agent, distance];
    });
    return best;
  }
  caption(t) { return at(this.frame.said, t).join(", "); }
  legend() {
    return [
      ...[...new Set(this.show.types)].map((type) => [type, (pen) => {
        pen.disc(8, 8, 6, this.fill(pen, this.body[this.show.types.indexOf(type)], 0));
      }]),
      ...(this.bodies > this.frame.agents ? [["landmark", (pen) => {
        const fill = this.fill(pen, this.bodies - 1, 0);
        pen.disc(8, 8, 3.4, fill, 0.85);
        pen.arc(8, 8, 6.4, 1, fill, 1.4, 0.7);
      }]] : []),
    ];
  }
}

// Whatever has nothing to draw: its agents in a ring, and what each does.

class Plain {
  constructor(show, episode) {
    Object.assign(this, { show, episode });
    this.rate = 3;
    this.box = { west: -1.5, east: 1.5, south: -1.5, north: 1.5 };
  }
  ground() {}
  place(pen, i) {
    const count = this.show.agents.length, angle = TURN / 4 - (i * TURN) / count;
    const far = count > 1 ? 1 : 0;
    return [pen.x(far * Math.cos(angle)), pen.y(far * Math.sin(angle))];
  }
  draw(pen, time, { agent }) {
    const t = Math.min(Math.floor(time), this.episode.length - 1), alive = at(this.episode.alive, t);
    this.show.agents.forEach((name, i) => {
      const [x, y] = this.place(pen, i), r = Math.min(30, pen.scale * 0.3);
      pen.disc(x, y, r, PALETTE[i % PALETTE.length], alive[i] ? 1 : 0.3);
      pen.words(String(i), x, y, r, "#ffffff");
      const action = this.show.continuous ? "" : this.show.actions[i][at(this.episode.action, t)[i]];
      pen.words(action || "", x, y + r + 20, 13, pen.colours.soft, 1, 400);
      if (i === agent) pen.arc(x, y, r + 6, 1, pen.colours.accent, 2.4);
    });
  }
  pick(pen, x, y) {
    return this.show.agents.findIndex((_, i) => Math.hypot(...this.place(pen, i).map((p, k) => p - [x, y][k])) < 36);
  }
  caption() { return ""; }
  legend() { return []; }
}

// What the environment rendered itself.

class Pictures {
  constructor(show, episode) {
    Object.assign(this, { show, episode, images: new Map() });
    this.rate = 12;
    this.box = { west: 0, east: episode.frame.width, south: 0, north: episode.frame.height };
  }
  ground() {}
  image(i) {
    if (!this.images.has(i)) {
      const image = new Image();
      image.onload = dirty;
      image.src = this.episode.frame.pictures[i];
      this.images.set(i, image);
    }
    return this.images.get(i);
  }
  draw(pen, time) {
    const { pictures, shown, width, height } = this.episode.frame, now = Number(at(shown, Math.floor(time)));
    for (let i = now + 1; i < Math.min(now + 8, pictures.length); i++) this.image(i); // ready when its time comes
    let image = this.image(now);
    if (!image.complete && this.last) image = this.last;
    if (!image.complete) return;
    this.last = image;
    pen.context.drawImage(image, pen.x(0), pen.y(height), pen.scale * width, pen.scale * height);
  }
  pick() { return -1; }
  caption() { return this.episode.frame.note; }
  legend() { return []; }
}

const SCENES = { battle: Battle, grid: Grid, particles: Particles, pictures: Pictures, plain: Plain };
