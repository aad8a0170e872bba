// A chart of some runs: the mean over seeds as a line, their range as a band. Drawn as SVG, text as text.

const SVG = "http://www.w3.org/2000/svg";
const PAD = { left: 46, right: 12, top: 10, bottom: 22 }, HEIGHT = 220;
const DASHES = ["", "6 3", "2 2.5", "8 3 2 3"]; // lines differ also for who sees no colours, from the ninth on

export const short = (x) => {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  if (size >= 1e15) return x.toExponential(1);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit) return `${Number((x / unit).toPrecision(3))}${letter}`;
  if (size && size < 1e-3) return x.toExponential(1);
  return String(Number(x.toPrecision(3))).replace("-", "−");
};

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? 10 * power;
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high && found.length < 50; i++) found.push(i * step);
  return found;
}

function draw(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function ranges(lines, metric) {
  let [left, right, low, high] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const { points } of lines) for (const [step, mean, least, most] of points) {
    left = Math.min(left, step); right = Math.max(right, step);
    if (mean !== null) { low = Math.min(low, least); high = Math.max(high, most); }
  }
  if (metric.endsWith("/win_rate") && low >= 0 && high <= 1) [low, high] = [0, 1];
  if (!(high > low)) [low, high] = low === Infinity ? [0, 1] : [low - Math.max(Math.abs(low) * 0.1, 0.5), high + Math.max(Math.abs(high) * 0.1, 0.5)];
  else if (!metric.endsWith("/win_rate")) [low, high] = [low - (high - low) * 0.05, high + (high - low) * 0.05];
  if (!(right > left)) [left, right] = left === Infinity ? [0, 1] : [Math.min(0, left), Math.max(right, left + 1)];
  return { left, right, low, high };
}

// Pieces without the points that have no mean.
function pieces(points) {
  const found = [[]];
  for (const point of points) point[1] === null ? found.push([]) : found.at(-1).push(point);
  return found.filter((piece) => piece.length);
}

export class Chart {
  constructor(metric) {
    this.metric = metric;
    this.lines = [];
    this.figure = document.createElement("figure");
    const caption = document.createElement("figcaption"), name = document.createElement("span");
    name.textContent = metric;
    this.about = document.createElement("small");
    caption.append(name, this.about);
    this.svg = draw("svg", { role: "img", "aria-label": metric });
    this.tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
    this.figure.append(caption, this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    new ResizeObserver(() => this.paint()).observe(this.svg);
  }

  // lines: label, slot (of its colour), points [step, mean, least, most]
  show(lines) {
    this.lines = lines.filter((line) => line.points.length);
    this.paint();
  }

  paint() {
    const width = this.svg.clientWidth;
    if (!width) return;
    const at = (this.range = ranges(this.lines, this.metric));
    this.x = (step) => PAD.left + ((step - at.left) / (at.right - at.left)) * (width - PAD.left - PAD.right);
    this.y = (value) => HEIGHT - PAD.bottom - ((value - at.low) / (at.high - at.low)) * (HEIGHT - PAD.top - PAD.bottom);
    const parts = [];
    for (const value of ticks(at.low, at.high, 5)) {
      parts.push(draw("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: this.y(value), y2: this.y(value) }));
      parts.push(draw("text", { x: PAD.left - 6, y: this.y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (const step of ticks(at.left, at.right, width / 90)) {
      const end = this.x(step) > width - 24;
      parts.push(draw("text", { x: end ? width - 2 : this.x(step), y: HEIGHT - 5, "text-anchor": end ? "end" : "middle" }, short(step)));
    }
    for (const line of this.lines) parts.push(...this.lineParts(line));
    this.cross = draw("line", { class: "cross", y1: PAD.top, y2: HEIGHT - PAD.bottom, visibility: "hidden" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts, this.cross);
    this.svg.dataset.points = String(this.lines.reduce((sum, line) => sum + line.points.length, 0));
    this.about.textContent = this.lines.length ? "" : "no values yet";
  }

  *lineParts({ points, slot }) {
    const path = (list, value) => list.map((point) => `${this.x(point[0]).toFixed(1)},${this.y(point[value]).toFixed(1)}`).join("L");
    const style = (element) => (element.style.setProperty("--mark", `var(--line-${slot % 8})`), element);
    for (const piece of pieces(points)) {
      if (piece.length === 1) yield style(draw("circle", { class: "end", cx: this.x(piece[0][0]), cy: this.y(piece[0][1]), r: 3 }));
      else {
        yield style(draw("path", { class: "band", d: `M${path(piece, 3)}L${path([...piece].reverse(), 2)}Z` }));
        yield style(draw("path", { class: "mean", d: `M${path(piece, 1)}`, "stroke-dasharray": DASHES[Math.floor(slot / 8) % 4] }));
      }
    }
    const last = points.findLast((point) => point[1] !== null);
    if (last) yield style(draw("circle", { class: "end", cx: this.x(last[0]), cy: this.y(last[1]), r: 2.6 }));
  }

  point(event) {
    if (!this.lines.length) return;
    const box = this.svg.getBoundingClientRect(), away = event.clientX - box.left;
    const near = (points) => points.reduce((best, point) => (Math.abs(this.x(point[0]) - away) < Math.abs(this.x(best[0]) - away) ? point : best));
    const step = near(this.lines.map((line) => near(line.points)))[0];
    const there = this.lines.filter(({ points }) => points[0][0] <= step && step <= points.at(-1)[0]);
    const found = there.map((line) => [line, near(line.points)]);
    this.cross.setAttribute("x1", this.x(step)); this.cross.setAttribute("x2", this.x(step));
    this.cross.setAttribute("visibility", "visible");
    const rank = ([, [, mean]]) => mean ?? -Infinity;
    const rows = [...found].sort((a, b) => rank(b) - rank(a)).slice(0, 12).map(([line, [, mean, least, most]]) => {
      const row = document.createElement("div"), dot = Object.assign(document.createElement("i"), { className: "dot" });
      dot.style.setProperty("--mark", `var(--line-${line.slot % 8})`);
      const label = Object.assign(document.createElement("span"), { className: "label", textContent: line.label });
      const value = Object.assign(document.createElement("b"), { textContent: short(mean) });
      const range = Object.assign(document.createElement("span"), { textContent: least === most ? "" : `[${short(least)}, ${short(most)}]` });
      row.append(dot, label, value, range);
      return row;
    });
    const head = Object.assign(document.createElement("div"), { textContent: `${step.toLocaleString("en")} env steps` });
    this.tip.replaceChildren(head, ...rows);
    this.tip.hidden = false;
    this.tip.classList.toggle("above", box.bottom + this.tip.offsetHeight + 12 > innerHeight);
  }

  leave() {
    this.tip.hidden = true;
    this.cross?.setAttribute("visibility", "hidden");
  }
}
