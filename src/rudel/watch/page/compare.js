// @ts-check
/** Several runs side by side: how each stands, a plot for each metric with a line a run, and all of each below. */

import { Chart } from "./chart.js";
import { html, say } from "./dom.js";
import { Progress } from "./progress.js";
import { RunView } from "./run.js";
import { capital, epochNumber, metric, tick } from "./words.js";

const COLOURS = 6;

export class Comparison {
  constructor(count) {
    const numbers = Array.from({ length: count }, (_, i) => i);
    this.cards = numbers.map((i) => new Progress("h2", i));
    this.views = numbers.map((i) => new RunView(i));
    this.names = numbers.map(() => html("summary"));
    this.plots = html("div", { class: "plots" });
    this.charts = new Map();
    this.learning = html("section", { hidden: true }, html("h2", {}, "Training curves"), this.plots);
    this.element = html(
      "div",
      { class: "several" },
      html("h1", {}, `${count} runs`),
      html(
        "div",
        { class: "cards" },
        ...this.cards.map((card, i) => html("article", { class: `card run-${i % COLOURS}` }, card.element)),
      ),
      this.learning,
      html(
        "section",
        {},
        html("h2", {}, "One by one"),
        ...this.views.map((view, i) => html("details", {}, this.names[i], view.element)),
      ),
    );
  }

  update(runs) {
    for (const [i, run] of runs.entries()) {
      say(this.names[i], run.run);
      this.cards[i].update(run);
      this.views[i].update(run);
    }
    const keys = [...new Set(runs.flatMap((run) => run.curves.map((curve) => curve.key)))];
    this.learning.hidden = !keys.length;
    for (const [key, chart] of this.charts) {
      if (keys.includes(key)) continue;
      chart.element.remove();
      this.charts.delete(key);
    }
    for (const key of keys) this.#chart(key, runs);
  }

  tick(now) {
    for (const view of this.views) view.tick(now);
    const shares = this.cards.map((card) => card.tick(now)).filter((share) => share !== null);
    return shares.length ? Math.min(...shares) : null;
  }

  /** Validation where there is any, else training. */
  #chart(key, runs) {
    const found = runs
      .map((run, i) => [run, i, run.curves.find((curve) => curve.key === key)])
      .filter(([, , curve]) => curve);
    const [, , first] = found[0];
    const series = found.map(([run, i, curve]) => ({
      name: run.name,
      kind: `run-${i % COLOURS}`,
      points: curve.lines.at(-1).points,
    }));
    const parts = new Set(found.map(([, , curve]) => curve.lines.at(-1).name));
    if (!this.charts.has(key)) {
      this.charts.set(key, new Chart(capital(first.name)));
      this.plots.append(this.charts.get(key).element);
    }
    const written = (y) => metric(y, first.share);
    const latest = series.map((line) => `${line.name} ${written(line.points.at(-1)[1])}`).join(", ");
    this.charts.get(key).update({
      series,
      log: found.every(([, , curve]) => curve.log),
      x: "epoch",
      whole: true,
      said: `Latest: ${latest}.`,
      note: parts.size === 1 ? [...parts][0] : "",
      label: `Line plot of the ${first.name}, a line a run. Latest: ${latest}.`,
      written,
      placed: (epoch) => `Epoch ${epochNumber(epoch)}`,
      tick: (y) => tick(y, first.share),
    });
  }
}
