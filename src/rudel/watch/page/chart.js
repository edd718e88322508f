// @ts-check
/** A line plot that fills its place, follows its size, and says the values under the pointer or the arrow keys. */

import { html, say, svg } from "./dom.js";
import { decades, range, scale, spread, ticks } from "./scales.js";

const HEIGHT = 230;
const MARGIN = { left: 56, right: 80, top: 10, bottom: 40 };
const GAP = 15;

/** @typedef {{ name: string, kind: string, points: [number, number][] }} Line a name, its class, and points */

/**
 * What a chart shows.
 *
 * @typedef {object} Shown
 * @property {Line[]} series
 * @property {boolean} [log] of the vertical scale
 * @property {boolean} [zero] whether the vertical scale begins at zero
 * @property {string} x the name of what runs to the right
 * @property {[number, number]} [across] the range of it, where that is not the one of the points
 * @property {boolean} [whole] whether it is labelled at whole numbers only
 * @property {boolean} [bare] if points are no measurements
 * @property {string} [note] beside the heading
 * @property {string} said what to say below while nobody points at it
 * @property {string} label for those who do not see it
 * @property {(y: number) => string} written
 * @property {(x: number) => string} placed
 * @property {(y: number) => string} tick
 */

/** @typedef {{ left: number, right: number, top: number, bottom: number }} Box */
/** @typedef {(value: number) => number} Scale */

export class Chart {
  /** @type {Shown | null} */
  #shown = null;
  /** @type {number | null} */
  #at = null;
  /** @type {number[]} */
  #places = [];
  /** @type {Scale} */
  x = (value) => value;
  /** @type {Scale} */
  y = (value) => value;
  /** @type {Box} */
  inner = { left: 0, right: 0, top: 0, bottom: 0 };
  marks = svg("g");

  constructor(heading) {
    this.note = html("small");
    this.readout = html("figcaption");
    this.drawing = svg("svg", { role: "img", tabindex: 0, height: HEIGHT, class: "chart" });
    this.element = html("figure", {}, html("h3", {}, heading, " ", this.note), this.drawing, this.readout);
    new ResizeObserver(() => this.#draw()).observe(this.element);
    this.drawing.addEventListener("pointermove", (event) => this.#point(this.#nearest(event)));
    this.drawing.addEventListener("pointerleave", () => this.#point(null));
    this.drawing.addEventListener("blur", () => this.#point(null));
    this.drawing.addEventListener("focus", () => this.readout.setAttribute("aria-live", "polite"));
    this.drawing.addEventListener("blur", () => this.readout.removeAttribute("aria-live"));
    this.drawing.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Shows something else. */
  update(/** @type {Shown} */ shown) {
    this.#shown = shown;
    say(this.note, shown.note ?? "");
    this.#draw();
  }

  #draw() {
    const width = this.element.clientWidth;
    const shown = this.#shown;
    if (!shown || !width) return;
    const { series, log, zero, label } = shown;
    const right = series.some((line) => line.name) ? MARGIN.right : 20;
    const inner = { left: MARGIN.left, right: width - right, top: MARGIN.top, bottom: HEIGHT - MARGIN.bottom };
    const all = series.flatMap((line) => line.points);
    this.#places = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b);
    const [first, last] = [this.#places[0] ?? 0, this.#places.at(-1) ?? 1];
    /** @type {[number, number]} */
    const across = shown.across ?? (last > first ? [first, last] : [first - 1, first]);
    const up = range(
      all.map(([, y]) => y),
      { log, zero },
    );
    this.x = scale(across, [inner.left, inner.right]);
    this.y = scale(up, [inner.bottom, inner.top], log);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.setAttribute("width", String(width));
    this.drawing.setAttribute("aria-label", label);
    this.marks = svg("g");
    this.inner = inner;
    this.drawing.replaceChildren(
      ...this.#grid(shown, inner, up, across),
      ...series.map((line) => svg("path", { d: this.#path(line), class: `line ${line.kind}` })),
      ...series.flatMap((line) => this.#dots(shown, line)),
      ...this.#names(series, inner),
      this.marks,
    );
    this.#point(this.#at);
  }

  #grid(shown, inner, up, across) {
    const rows = (shown.log ? decades(...up, 5) : ticks(...up, 5)).filter((value) => value >= up[0] && value <= up[1]);
    const columns = ticks(
      ...across,
      Math.max(2, Math.min(8, Math.floor((inner.right - inner.left) / 55))),
      shown.whole,
    );
    return [
      ...rows.map((value) => svg("path", { d: `M${inner.left} ${this.y(value)}H${inner.right}`, class: "grid" })),
      ...rows.map((value) =>
        svg("text", { x: inner.left - 8, y: this.y(value) + 4, "text-anchor": "end" }, shown.tick(value)),
      ),
      ...columns.map((value) =>
        svg("text", { x: this.x(value), y: inner.bottom + 17, "text-anchor": "middle" }, String(value)),
      ),
      svg("text", { x: (inner.left + inner.right) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, shown.x),
    ];
  }

  #path({ points }) {
    return points.map(([x, y], i) => `${i ? "L" : "M"}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`).join("");
  }

  /** Points where there are so few that a line alone would not show them. */
  #dots(shown, { points, kind }) {
    if (points.length > 12 || shown.bare) return [];
    return points.map(([x, y]) => svg("circle", { cx: this.x(x), cy: this.y(y), r: 2.5, class: `dot ${kind}` }));
  }

  #names(series, inner) {
    const named = series.filter((line) => line.name && line.points.length);
    const places = spread(
      named.map((line) => this.y(line.points.at(-1)[1])),
      GAP,
      inner.bottom,
    );
    const names = shortened(named.map((line) => line.name));
    return named.map((line, i) =>
      svg("text", { x: inner.right + 9, y: places[i] + 4, class: `name ${line.kind}` }, names[i]),
    );
  }

  #nearest(event) {
    const box = this.drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * this.drawing.viewBox.baseVal.width;
    /** @type {number | null} */
    let best = null;
    this.#places.forEach((x, i) => {
      if (best === null || Math.abs(this.x(x) - at) < Math.abs(this.x(this.#places[best]) - at)) best = i;
    });
    return best;
  }

  #key(event) {
    const last = this.#places.length - 1;
    const moved = { ArrowLeft: (this.#at ?? last + 1) - 1, ArrowRight: (this.#at ?? -1) + 1, Home: 0, End: last }[
      event.key
    ];
    if (moved === undefined || last < 0) return;
    event.preventDefault();
    this.#point(Math.max(0, Math.min(last, moved)));
  }

  #point(at) {
    this.#at = at === null || !this.#places.length ? null : Math.min(at, this.#places.length - 1);
    const shown = this.#shown;
    if (!shown) return;
    if (this.#at === null) {
      this.marks.replaceChildren();
      say(this.readout, shown.said);
      return;
    }
    const x = this.#places[this.#at];
    const there = shown.series.flatMap((line) =>
      line.points
        .filter((point) => point[0] === x)
        .slice(0, 1)
        .map(([, y]) => ({ line, y })),
    );
    this.marks.replaceChildren(
      svg("path", { d: `M${this.x(x)} ${this.inner.top}V${this.inner.bottom}`, class: "pointer" }),
      ...there.map(({ line, y }) => svg("circle", { cx: this.x(x), cy: this.y(y), r: 4, class: `dot ${line.kind}` })),
    );
    const values = there.map(({ line, y }) => `${line.name ? `${line.name} ` : ""}${shown.written(y)}`);
    say(this.readout, `${shown.placed(x)}: ${values.join(", ")}.`);
  }
}

/** Names with eleven letters at most: the ends of long ones, or from where they differ if ends do not tell them apart. */
export function shortened(names) {
  const cut = (short) => names.map((name) => (name.length > 10 ? short(name) : name));
  const ends = cut((name) => `…${name.slice(-9)}`);
  if (new Set(ends).size === names.length) return ends;
  return cut((name) => {
    const differs = names.filter((other) => other !== name).map((other) => alike(name, other));
    const last = Math.max(...differs);
    const from = Math.min(...differs.filter((place) => place > last - 9), name.length - 9);
    return `${from ? "…" : ""}${name.slice(from, from + 9)}…`;
  });
}

/** How many letters two names have in common at their beginnings. */
function alike(name, other) {
  let count = 0;
  while (count < name.length && name[count] === other[count]) count++;
  return count;
}
