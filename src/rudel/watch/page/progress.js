// @ts-check
/** The top of a run: what it is, how it stands, how far it is, how well it does. */

import { html, say } from "./dom.js";
import { ago, capital, count, duration, metric, percent, rate, roughly, size, value } from "./words.js";

const STATES = {
  waiting: "Waiting",
  starting: "Starting",
  running: "Running",
  quiet: "Quiet",
  stopped: "Stopped",
  failed: "Failed",
  finished: "Finished",
};

export class Progress {
  constructor(level, number) {
    this.title = html(level, { class: "title" });
    this.place = html("p", { class: "when" });
    this.badge = html("strong", { class: "badge" });
    this.message = html("span", { role: "status" });
    this.heard = html("span", { class: "heard" });
    this.report = html("a", { href: `runs/${number}/report`, hidden: true }, "Open the report");
    this.bar = html("progress", { max: 1, value: 0, "aria-label": "Steps done" });
    this.done = html("p", { class: "done" });
    this.best = html("strong");
    this.what = html("span");
    this.result = html("p", { class: "result", hidden: true }, this.best, this.what);
    this.numbers = html("dl", { class: "numbers" });
    this.element = html(
      "header",
      {},
      html("p", { class: "kicker" }, "Live training"),
      this.title,
      this.place,
      html("p", { class: "state" }, this.badge, this.message, this.heard, this.report),
      this.bar,
      this.done,
      html("div", { class: "headline" }, this.result, this.numbers),
    );
  }

  update(run) {
    this.run = run;
    this.element.dataset.state = run.state;
    say(this.title, run.title);
    say(this.place, [run.run, run.strategy && `strategy ${run.strategy}`].filter(Boolean).join(" · "));
    say(this.badge, STATES[run.state]);
    say(this.message, run.message);
    this.report.hidden = !(run.report && run.state === "finished");
    const result = run.result;
    this.result.hidden = !result;
    if (result) {
      const curve = run.curves.find((found) => found.key === result.key.replace(/^val_/, ""));
      say(this.best, metric(result.value, curve?.share));
      say(this.what, `${result.validation ? "validation" : "training"} ${result.name}`);
    }
    this.#numbers();
  }

  /** Brings up to date what changes by itself as time goes by; `now` in seconds since 1970. */
  tick(now) {
    const run = this.run;
    const silent = Math.max(0, now - run.news_at);
    const live = ["starting", "running", "quiet"].includes(run.state);
    say(this.heard, run.news_at && run.state !== "finished" ? `Last news ${ago(silent)}.` : "");
    const share = run.total ? Math.min(1, run.step / run.total) : null;
    this.bar.hidden = this.done.hidden = share === null;
    if (share === null) return null;
    this.bar.value = share;
    const left = live && run.pace ? Math.max(0, (run.total - run.step) / run.pace - silent) : null;
    const epochs = run.epochs
      ? `epoch ${count(Math.min(Math.floor(run.epoch) + 1, Math.ceil(run.epochs)))} of ${count(Math.ceil(run.epochs))}`
      : null;
    say(
      this.done,
      [
        percent(share, 0),
        `${count(run.step)} of ${count(run.total)} steps`,
        epochs,
        left === null || left < 1 ? null : `about ${roughly(left)} left`,
      ]
        .filter(Boolean)
        .join(" · "),
    );
    return share;
  }

  #numbers() {
    const { run } = this;
    const speed = run.state === "finished" ? (run.seconds ? run.step / run.seconds : null) : run.speed.at(-1)?.[2];
    const shown = [
      ["training", run.seconds === null ? null : duration(run.seconds)],
      ["steps/s", speed === null || speed === undefined ? null : rate(speed)],
      ["examples/s", speed && run.batch_size ? rate(speed * run.batch_size) : null],
      [
        "learning rate",
        run.learning_rate === null || run.learning_rate === undefined ? null : value(run.learning_rate, 3),
      ],
      ["hosts", run.hosts && count(run.hosts.count)],
      ["rounds", run.hosts && !run.hosts.arrivals ? count(run.hosts.rounds) : null],
      ["arrivals", run.hosts?.arrivals ? count(run.hosts.arrivals) : null],
      ["over the network", run.hosts && size(run.hosts.sent.at(-1) + run.hosts.received.at(-1))],
      ["parameters", run.parameters ? count(run.parameters) : null],
    ];
    const known = shown.filter(([, value]) => value !== null && value !== undefined && value !== "–");
    this.numbers.replaceChildren(
      ...known.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))),
    );
  }
}

/** A line of the state for the window's title. */
export function brief(run, share) {
  return `${share !== null && run.state !== "finished" ? `${percent(share, 0)} · ` : ""}${capital(run.title)} – Rudel`;
}
