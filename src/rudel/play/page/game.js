// @ts-check
// Montagsmaler: a word, twenty seconds, and the machine guesses aloud.

import { aloud, hush, say } from "./aloud.js";
import { element } from "./elements.js";
import { named, spelt } from "./names.js";
import { drawStrokes } from "./pad.js";
import { number, word } from "./words.js";

const SECONDS = 20;
const ROUNDS = 6;
const ENOUGH = 0.35;
const WORTH_SAYING = 0.2;
const PAUSE = 1400;

/**
 * A round that is over.
 *
 * @typedef {"right" | "over" | "skipped"} How
 * @typedef {{ word: string, how: How, right: boolean, seconds: number, points: number,
 *   guess: string | null | undefined, strokes: number[][][] }} Result
 */

export class Game {
  /** @type {string | null} */
  word = null;
  /** @type {import("./pad.js").Pad} */
  #pad;
  /** @type {string[]} */
  #classes;
  #onFree;
  /** @type {string[]} */
  #words = [];
  /** @type {Result[]} */
  #results = [];
  #began = 0;
  #frame = 0;
  /** @type {{ name: string, share: number } | null} */
  #best = null;
  /** @type {{ name: string | null, at: number }} */
  #said = { name: null, at: 0 };
  #warned = 0;
  /** @type {(() => void) | null} */
  #shown = null;

  constructor(pad, classes, onFree) {
    this.#pad = pad;
    this.#classes = classes;
    this.#onFree = onFree;
    element("pass").addEventListener("click", () => this.#end("skipped"));
  }

  // Shows how it goes.
  open() {
    this.#stop();
    this.#words = [];
    this.#show(() => this.#welcome());
  }

  close() {
    this.#stop();
    this.#shown = null;
    element("card").hidden = true;
    element("task").hidden = true;
    this.#pad.lock(false);
    hush();
  }

  // Says what is shown in the language that is now spoken.
  reword() {
    if (this.word !== null) this.#label();
    else this.#shown?.();
  }

  // Takes in a guess, of a drawing that is there or is being drawn.
  hear({ ranking }) {
    if (this.word === null) return;
    const [best] = ranking;
    this.#best = best;
    if (best.name === this.word && best.share >= ENOUGH) {
      this.#end("right");
      return;
    }
    const now = performance.now();
    if (best.share >= WORTH_SAYING && best.name !== this.#said.name && now - this.#said.at > PAUSE) {
      this.#said = { name: best.name, at: now };
      aloud(`${spelt(best.name)}?`);
    }
  }

  #welcome() {
    const rounds = Math.min(ROUNDS, this.#classes.length);
    const start = button("go", word("start"), () => {
      this.#words = shuffled(this.#classes).slice(0, rounds);
      this.#results = [];
      this.#show(() => this.#announce(null));
    });
    this.#fill(heading("Montagsmaler"), paragraph("", word("rules", SECONDS, rounds)), start);
  }

  #announce(result) {
    const next = this.#words[this.#results.length];
    const go = button("go", word("go"), () => this.#begin(next));
    this.#fill(
      result && verdict(result),
      paragraph("kicker", word("round", this.#results.length + 1, this.#words.length)),
      heading(word("draw"), spelt(next)),
      go,
    );
    if (!result) aloud(spelt(next));
  }

  #begin(next) {
    this.#shown = null;
    this.word = next;
    this.#best = null;
    this.#said = { name: null, at: 0 };
    this.#warned = SECONDS;
    element("card").hidden = true;
    element("task").hidden = false;
    this.#label();
    this.#pad.lock(false);
    this.#pad.clear();
    element("pad").focus({ preventScroll: true });
    this.#began = performance.now();
    this.#tick();
  }

  #label() {
    element("round").textContent = word("round", this.#results.length + 1, this.#words.length);
    element("word").textContent = spelt(this.word);
  }

  #tick() {
    const left = SECONDS - (performance.now() - this.#began) / 1000;
    if (left <= 0) {
      this.#end("over");
      return;
    }
    element("seconds").textContent = String(Math.ceil(left));
    element("ring", SVGElement).style.strokeDashoffset = String(100 * (1 - left / SECONDS));
    element("clock").classList.toggle("late", left <= 5);
    for (const mark of [10, 5]) {
      if (left <= mark && this.#warned > mark) {
        this.#warned = mark;
        say(word("secondsLeft", mark));
      }
    }
    this.#frame = requestAnimationFrame(() => this.#tick());
  }

  #end(/** @type {How} */ how) {
    if (this.word === null) return;
    const right = how === "right";
    const seconds = (performance.now() - this.#began) / 1000;
    const result = {
      word: this.word,
      how,
      right,
      seconds,
      points: right ? 10 + Math.ceil(SECONDS - seconds) : 0,
      guess: this.#pad.strokes.length > 0 ? this.#best?.name : null,
      strokes: this.#pad.strokes.map((stroke) => [...stroke]),
    };
    this.#stop();
    this.#results.push(result);
    this.#pad.lock(true);
    element("task").hidden = true;
    if (right) {
      element("frame").classList.add("right");
      setTimeout(() => element("frame").classList.remove("right"), 900);
    }
    const last = this.#results.length === this.#words.length;
    this.#show(() => (last ? this.#finish() : this.#announce(result)));
    aloud(
      `${right ? `${spelt(result.word)}!` : word(how)} ${last ? "" : `${word("draw")}: ${spelt(this.#words[this.#results.length])}`}`,
    );
  }

  #finish() {
    const right = this.#results.filter((result) => result.right).length;
    const points = this.#results.reduce((sum, result) => sum + result.points, 0);
    const list = document.createElement("ol");
    list.className = "results";
    list.append(...this.#results.map(small));
    const actions = document.createElement("div");
    actions.className = "actions";
    actions.append(
      button("go", word("again"), () => this.open()),
      button("plain", word("freely"), this.#onFree),
    );
    const praise = word("ends")[Math.floor((3 * right) / this.#results.length)];
    this.#fill(heading(praise), paragraph("score", word("score", right, this.#results.length, points)), list, actions);
  }

  #stop() {
    cancelAnimationFrame(this.#frame);
    this.word = null;
  }

  // Shows a card, again whenever the language changes.
  #show(fill) {
    this.#shown = fill;
    this.#pad.lock(true);
    element("hint").classList.add("gone");
    fill();
    const go = element("card-inside").querySelector(".go");
    if (go instanceof HTMLElement) go.focus({ preventScroll: true });
  }

  #fill(...parts) {
    const inside = element("card-inside");
    inside.replaceChildren(...parts.filter(Boolean));
    for (const title of inside.querySelectorAll("h2")) title.id = "card-title";
    element("card").hidden = false;
    element("card").scrollTop = 0;
  }
}

function verdict({ how, right, seconds, points, guess }) {
  if (right) return paragraph("verdict right", `${word("right", number(seconds, 1))} · ${word("points", points)}`);
  return paragraph("verdict", `${word(how)}. ${guess ? word("instead", named(guess)) : ""}`);
}

function small({ word: drawn, right, seconds, guess, strokes }) {
  const item = document.createElement("li");
  item.className = right ? "right" : "";
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 208;
  canvas.setAttribute("aria-hidden", "true");
  const name = document.createElement("strong");
  name.textContent = named(drawn);
  const how = document.createElement("small");
  how.textContent = right ? `✓ ${number(seconds, 1)} s` : guess ? word("instead", named(guess)) : word("blank");
  item.append(canvas, name, how);
  drawStrokes(
    /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")),
    strokes,
    208,
    getComputedStyle(document.body).color,
  );
  return item;
}

function heading(text, drawn = null) {
  const made = document.createElement("h2");
  made.textContent = drawn === null ? text : `${text}: `;
  if (drawn !== null) {
    const span = document.createElement("span");
    span.className = "draw";
    span.textContent = drawn;
    made.append(span);
  }
  return made;
}

function paragraph(kind, text) {
  const made = document.createElement("p");
  made.className = kind;
  made.textContent = text;
  return made;
}

function button(kind, text, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.className = kind;
  made.textContent = text;
  made.addEventListener("click", act);
  return made;
}

function shuffled(list) {
  const mixed = [...list];
  for (let i = mixed.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [mixed[i], mixed[j]] = [mixed[j], mixed[i]];
  }
  return mixed;
}
