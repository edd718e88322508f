// @ts-check
/** What several hosts do: a timeline, a table, their traffic, and what happened. */

import { Chart } from "./chart.js";
import { html, say, svg, table } from "./dom.js";
import { scale, ticks, timeUnit } from "./scales.js";
import { count, duration, percent, plural, rate, size } from "./words.js";

const LEVELS = 9;
const ROW = 20;
const SPACE = 10;
const MEANING = { training: "computing", waiting: "waiting", lost: "lost", joining: "joining", standby: "on standby" };
const NAMES = {
  training: "training",
  waiting: "waiting",
  late: "late",
  lost: "lost",
  joining: "joining",
  standby: "on standby",
};

/** The section; `update` shows a run's `hosts`, or hides it. */
export class Hosts {
  constructor() {
    this.summary = html("p");
    this.keys = html("p", { class: "keys" });
    this.lines = html("div", { class: "timeline" });
    this.now = html("div");
    this.traffic = new Chart("Over the network");
    this.changes = html("div");
    this.element = html(
      "section",
      { hidden: true },
      html("h2", {}, "Hosts"),
      this.summary,
      html("h3", {}, "Timeline"),
      this.keys,
      this.lines,
      this.now,
      html("div", { class: "plots" }, this.traffic.element),
      this.changes,
    );
    new ResizeObserver(() => this.#timeline()).observe(this.lines);
  }

  update(hosts) {
    this.element.hidden = !hosts;
    if (!hosts || JSON.stringify(hosts) === this.text) return;
    this.text = JSON.stringify(hosts);
    this.hosts = hosts;
    say(
      this.summary,
      `${plural(hosts.count, "host")} took ${plural(hosts.steps, "step")} in ` +
        `${hosts.arrivals ? plural(hosts.arrivals, "arrival") : plural(hosts.rounds, "round")}: ` +
        `computing ${percent(hosts.computing, 0)} of their time, waiting ${percent(1 - hosts.computing, 0)}, for each other ` +
        "and for the network.",
    );
    this.#keys();
    this.#timeline();
    this.#table();
    this.#traffic();
    this.#happenings();
  }

  #keys() {
    const states = new Set([
      "training",
      "waiting",
      ...this.hosts.rows.flatMap((row) => row.absences.map(([state]) => state)),
    ]);
    this.keys.replaceChildren(
      ...[...states].map((state) =>
        html("span", {}, html("span", { class: `key state-${state}`, "aria-hidden": "true" }), MEANING[state]),
      ),
    );
  }

  #timeline() {
    const width = this.lines.clientWidth;
    if (!this.hosts || !width) return;
    const { rows, seconds, resumed } = this.hosts;
    const letters = Math.min(24, Math.max(...rows.map((row) => row.name.length)), Math.floor(width / 24));
    const left = letters * 7.6 + 12;
    const [unit, length] = timeUnit(seconds);
    const x = scale([0, Math.max(seconds, 1e-9)], [left, width - 48]);
    const foot = rows.length * (ROW + SPACE);
    const moments = ticks(0, seconds / length, Math.max(2, Math.min(8, Math.floor((width - left) / 70))));
    const label = rows.map((row) => `${row.name} computing ${percent(row.computing, 0)}`).join("; ");
    this.lines.replaceChildren(
      svg(
        "svg",
        { width, height: foot + 34, role: "img", "aria-label": `What each host did: ${label}.` },
        ...moments.map((moment) => svg("path", { d: `M${x(moment * length)} 0V${foot}`, class: "grid" })),
        ...moments.map((moment) =>
          svg("text", { x: x(moment * length), y: foot + 14, "text-anchor": "middle", class: "muted" }, String(moment)),
        ),
        svg(
          "text",
          { x: (left + width - 48) / 2, y: foot + 31, "text-anchor": "middle", class: "muted" },
          `${unit} of training`,
        ),
        ...rows.flatMap((row, i) => this.#row(row, i * (ROW + SPACE), x, letters, width)),
        ...resumed.map((moment) =>
          svg("path", { d: `M${x(moment)} 0V${foot}`, class: "resumed" }, svg("title", {}, "resumed here")),
        ),
      ),
    );
  }

  #row(row, top, x, letters, width) {
    const name = row.name.length > letters ? `…${row.name.slice(1 - letters)}` : row.name;
    const middle = top + ROW / 2 + 5;
    return [
      svg("text", { x: x(0) - 10, y: middle, "text-anchor": "end" }, name, svg("title", {}, row.name)),
      svg("path", { d: this.#bars(row.strip, top, x, () => LEVELS), class: "state-waiting" }),
      svg("path", { d: this.#bars(row.strip, top, x, Number), class: "state-training" }),
      ...row.absences.map(([state, first, last]) => {
        const wide = Math.max(x(last) - x(first), 1.5);
        return svg(
          "rect",
          { x: x(first), y: top, width: wide, height: ROW, class: `state-${state}` },
          svg("title", {}, `${row.name}: ${MEANING[state]} for ${duration(last - first)}`),
        );
      }),
      svg("text", { x: width, y: middle, "text-anchor": "end", class: "muted" }, percent(row.computing, 0)),
    ];
  }

  #bars(strip, top, x, level) {
    const wide = this.hosts.seconds / strip.length;
    const bars = [];
    for (let first = 0, i = 1; i <= strip.length; i++) {
      if (strip[i] === strip[first]) continue;
      if (strip[first] !== "-") {
        const high = (ROW * level(strip[first])) / LEVELS;
        if (high) bars.push(`M${x(first * wide).toFixed(1)} ${top + ROW}v${-high}H${x(i * wide).toFixed(1)}v${high}z`);
      }
      first = i;
    }
    return bars.join("");
  }

  #table() {
    const live = this.hosts.rows.some((row) => row.state);
    const header = [
      "host",
      ...(live ? ["state"] : []),
      "steps/s",
      "steps",
      "computing",
      "waiting",
      "CPU",
      "memory",
      "network",
      "times lost",
    ];
    const rows = this.hosts.rows.map((row) => [
      row.name,
      ...(live ? [row.state ? html("span", { class: `host-${row.state}` }, NAMES[row.state]) : "–"] : []),
      ["lost", "joining", "standby"].includes(row.state) ? "–" : rate(row.now ?? row.average),
      count(row.steps),
      percent(row.computing, 0),
      percent(row.computing === null ? null : 1 - row.computing, 0),
      percent(row.cpu, 0),
      size(row.memory),
      size(row.moved),
      count(row.lost),
    ]);
    const more = this.hosts.count - rows.length;
    this.now.replaceChildren(
      table("Host by host", header, rows, live ? [0, 1] : [0]),
      html("p", { class: "note" }, more > 0 ? `And ${plural(more, "more host")}, which are in the sums.` : ""),
    );
  }

  #traffic() {
    const { sent, received, seconds } = this.hosts;
    const [unit, length] = timeUnit(seconds);
    const line = (name, kind, values) => ({
      name,
      kind,
      points: [[0, 0], ...values.map((bytes, i) => [((i + 1) * seconds) / values.length / length, bytes])],
    });
    const sums = `${size(sent.at(-1))} to hosts, ${size(received.at(-1))} from them`;
    this.traffic.update({
      series: [line("to hosts", "train", sent), line("from hosts", "validation", received)],
      zero: true,
      x: `${unit} of training`,
      said: `So far: ${sums}.`,
      note: "added up",
      label: `Bytes over the network: ${sums}.`,
      written: size,
      tick: size,
      placed: (moment) => `After ${duration(moment * length)}`,
    });
  }

  #happenings() {
    const { changes, changed } = this.hosts;
    if (!changes.length) return this.changes.replaceChildren();
    const rows = changes.toReversed().map((change) => [duration(change.seconds), change.host, change.what]);
    const more = changed - rows.length;
    return this.changes.replaceChildren(
      table("Events, latest first", ["after", "host", "what"], rows, [0, 1, 2]),
      html("p", { class: "note" }, more > 0 ? `And ${count(more)} more, in rounds.jsonl.` : ""),
    );
  }
}
