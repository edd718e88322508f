// @ts-check
// The guesses as ranked bars, and in a sentence.

import { say } from "./aloud.js";
import { element } from "./elements.js";
import { named } from "./names.js";
import { number, percent, word } from "./words.js";

const narrow = matchMedia("(max-width: 52rem)");
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** @type {Map<string, HTMLElement>} */
const rows = new Map();

/**
 * Shows a guess.
 *
 * @param {import("./guesser.js").Guess} guess
 * @param {{ ended: boolean, right?: string | null }} how with `ended`, screen readers hear of it; `right` is the class
 *   to be drawn, if there is one
 */
export function show(guess, { ended, right = null }) {
  const shown = guess.ranking.slice(0, narrow.matches ? 4 : 6);
  arrange(shown, right);
  element("bars").classList.remove("idle");
  const [best] = guess.ranking;
  const lead = best.share >= 0.8 ? "sure" : best.share >= 0.4 ? "likely" : "perhaps";
  headline(word(lead), named(best.name), best.share >= 0.8);
  picture(guess.seen, guess.side);
  element("time").textContent =
    guess.milliseconds < 0.1 ? `< ${number(0.1, 1)} ms` : `${number(guess.milliseconds, 1)} ms`;
  if (ended)
    say(
      shown
        .slice(0, 3)
        .map(({ name, share }) => `${named(name)} ${percent(share)}`)
        .join(", "),
      700,
    );
}

// Shows that there is nothing to guess yet: all classes alike.
export function showNothing(classes, side) {
  arrange(
    classes.slice(0, narrow.matches ? 4 : 6).map((name) => ({ name, share: 0 })),
    null,
  );
  headline(word("waiting"), word("nothing"), false);
  element("bars").classList.add("idle");
  picture(new Uint8Array(side * side), side);
  element("time").textContent = "–";
}

// Says something in the place of a guess.
export function headline(lead, text, sure) {
  element("lead").textContent = lead;
  const top = element("top");
  top.classList.toggle("sure", sure);
  const span = document.createElement("span");
  span.textContent = text;
  top.replaceChildren(span);
}

function arrange(shown, right) {
  const list = element("bars");
  const before = new Map([...rows].map(([name, row]) => [name, row.isConnected ? row.offsetTop : null]));
  list.replaceChildren(...shown.map(({ name, share }) => filled(name, share, name === right)));
  if (still.matches) return;
  for (const { name } of shown) {
    const row = /** @type {HTMLElement} */ (rows.get(name));
    const from = before.get(name);
    if (from !== undefined && from !== null && from !== row.offsetTop) {
      row.animate([{ transform: `translateY(${from - row.offsetTop}px)` }, { transform: "none" }], {
        duration: 220,
        easing: "ease-out",
      });
    }
  }
}

function filled(name, share, right) {
  const row = rows.get(name) ?? document.createElement("li");
  if (!rows.has(name)) {
    row.append(document.createElement("i"), document.createElement("span"), document.createElement("span"));
    rows.set(name, row);
  }
  const [bar, label, value] = /** @type {HTMLCollectionOf<HTMLElement>} */ (row.children);
  row.dataset.name = name;
  row.classList.toggle("right", right);
  bar.style.clipPath = `inset(0 ${100 - 100 * share}% 0 0 round 0.875rem)`;
  label.textContent = named(name);
  value.textContent = share === 0 ? "" : percent(share);
  return row;
}

function picture(pixels, side) {
  const canvas = element("seen", HTMLCanvasElement);
  canvas.width = canvas.height = side;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(side, side);
  for (const [i, value] of pixels.entries()) image.data.set([value, value, value, 255], 4 * i);
  context.putImageData(image, 0, 0);
}
