// @ts-check
/** One run: its progress, curves, speed and hosts. */

import { Chart } from "./chart.js";
import { html, table } from "./dom.js";
import { Hosts } from "./hosts.js";
import { Progress } from "./progress.js";
import { timeUnit } from "./scales.js";
import { capital, duration, epochNumber, metric, rate, tick } from "./words.js";

const MOST_ROWS = 60;

export class RunView {
  constructor(number) {
    this.progress = new Progress("h1", number);
    this.plots = html("div", { class: "plots" });
    this.numbers = html("div");
    this.details = html("details", {}, html("summary", {}, "The numbers"), this.numbers);
    this.learning = html(
      "section",
      { hidden: true },
      html("h2", {}, "Training curves"),
      this.plots,
      html(
        "p",
        { class: "note" },
        "A training value is the mean over an epoch, while the model still changes; a validation " +
          "value is taken at the end of the epoch.",
      ),
      this.details,
    );
    this.speed = new Chart("Steps a second");
    this.throughput = html(
      "section",
      { hidden: true },
      html("h2", {}, "Speed"),
      html("div", { class: "plots" }, this.speed.element),
    );
    this.hosts = new Hosts();
    this.element = html("div", {}, this.progress.element, this.learning, this.throughput, this.hosts.element);
    this.charts = new Map();
    this.details.addEventListener("toggle", () => this.#numbers());
  }

  update(run) {
    this.run = run;
    this.progress.update(run);
    this.learning.hidden = !run.curves.length;
    for (const [key, chart] of this.charts) {
      if (run.curves.some((curve) => curve.key === key)) continue;
      chart.element.remove();
      this.charts.delete(key);
    }
    for (const curve of run.curves) {
      if (!this.charts.has(curve.key)) {
        this.charts.set(curve.key, new Chart(capital(curve.name)));
        this.plots.append(this.charts.get(curve.key).element);
      }
      this.charts.get(curve.key).update(described(curve));
    }
    this.#numbers();
    this.#speed();
    this.hosts.update(run.hosts);
  }

  tick(now) {
    return this.progress.tick(now);
  }

  #speed() {
    const { speed } = this.run;
    this.throughput.hidden = !speed.length;
    if (!speed.length) return;
    const [unit, length] = timeUnit(speed.at(-1)[1]);
    const points = speed.flatMap(([first, last, steps]) => [
      [first / length, steps],
      [last / length, steps],
    ]);
    this.speed.update({
      series: [{ name: "", kind: "validation", points }],
      zero: true,
      bare: true,
      x: `${unit} of training`,
      said: `Lately ${rate(speed.at(-1)[2])}; evaluation and checkpoints are left out.`,
      label: `Steps a second over time, lately ${rate(speed.at(-1)[2])}.`,
      written: rate,
      tick: rate,
      placed: (moment) => `After ${duration(moment * length)}`,
    });
  }

  #numbers() {
    if (!this.details.open || !this.run) return;
    const columns = this.run.curves.flatMap((curve) => curve.lines.map((line) => [curve, line, new Map(line.points)]));
    const epochs = [...new Set(columns.flatMap(([, line]) => line.points.map(([x]) => x)))].sort((a, b) => a - b);
    const every = Math.ceil(epochs.length / MOST_ROWS);
    const rows = epochs
      .filter((_, i) => i % every === 0 || i === epochs.length - 1)
      .map((epoch) => [
        epochNumber(epoch),
        ...columns.map(([curve, , points]) => metric(points.get(epoch), curve.share)),
      ]);
    const header = [
      "epoch",
      ...columns.map(([curve, line]) => `${line.name === "validation" ? "validation " : ""}${curve.name}`),
    ];
    this.numbers.replaceChildren(table("Metrics after each epoch", header, rows, []));
  }
}

/** A curve as a chart shows it. */
function described(curve) {
  const written = (y) => metric(y, curve.share);
  const ends = curve.lines.map((line) => `${line.name} ${written(line.points.at(-1)[1])}`.trim()).join(", ");
  const best = curve.best
    ? ` Best in validation: ${written(curve.best.value)}, epoch ${epochNumber(curve.best.epoch)}.`
    : "";
  const kinds = { training: "train", validation: "validation" };
  return {
    series: curve.lines.map((line) => ({ ...line, kind: kinds[line.name] ?? "plain" })),
    log: curve.log,
    note: curve.log ? "logarithmic scale" : "",
    x: "epoch",
    whole: true,
    said: `Latest: ${ends}.${best}`,
    label: `Line plot of the ${curve.name}. Latest: ${ends}.`,
    written,
    placed: (epoch) => `Epoch ${epochNumber(epoch)}`,
    tick: (y) => tick(y, curve.share),
  };
}
