// @ts-check
// Puts the page together.

import { say, turnVoice, voiceIsOn } from "./aloud.js";
import { headline, show, showNothing } from "./bars.js";
import { element } from "./elements.js";
import { Game } from "./game.js";
import { makeGuesser, Refusal } from "./guesser.js";
import { Pad } from "./pad.js";
import { speak, spoken, word } from "./words.js";

const LEAST_MS = 60;

const pad = new Pad(element("pad", HTMLCanvasElement));
/** @type {import("./guesser.js").Guesser | null} */
let guesser = null;
/** @type {Game | null} */
let game = null;
let playing = false;
/** @type {import("./guesser.js").Guess | null} */
let last = null;
/** @type {{ ended: boolean } | null} */
let wanted = null;
let guessedAt = -Infinity;

function choose(playNow) {
  playing = playNow;
  element("free").setAttribute("aria-pressed", String(!playing));
  element("play").setAttribute("aria-pressed", String(playing));
  document.body.classList.toggle("playing", playing);
  pad.clear();
  if (playing) game?.open();
  else game?.close();
}

function setLanguage(language) {
  speak(language);
  for (const id of ["en", "de"]) element(id).setAttribute("aria-pressed", String(id === spoken()));
  if (!guesser || !game) return;
  describe(guesser);
  if (last) show(last, { ended: false, right: game.word });
  else showNothing(guesser.about.classes, guesser.about.inputSide);
  game.reword();
}

function describe(guesser) {
  element("where").textContent = word(guesser.here ? "page" : "server");
  element("size").textContent = word("pixels", guesser.about.inputSide);
  element("attribution").textContent = guesser.about.attribution;
}

// Guesses soon: at once when a stroke has ended, and now and then while one is being drawn.
function drawn(ended) {
  const empty = pad.strokes.length === 0;
  element("undo", HTMLButtonElement).disabled = element("clear", HTMLButtonElement).disabled = empty || pad.locked;
  element("hint").classList.toggle("gone", !empty || playing);
  element("bars").setAttribute("aria-busy", "true");
  const waiting = wanted !== null;
  wanted = { ended: ended || (wanted?.ended ?? false) };
  if (!waiting) requestAnimationFrame(guessWhenTime);
}

// Guesses now, or a little later; what is shown is up to date when nothing more is wanted.
async function guessWhenTime(now) {
  await guessIfTime(now);
  if (wanted === null) element("bars").setAttribute("aria-busy", "false");
}

async function guessIfTime(now) {
  if (!guesser || !game || !wanted) {
    wanted = null;
    return;
  }
  if (!wanted.ended && now - guessedAt < LEAST_MS) {
    requestAnimationFrame(guessWhenTime);
    return;
  }
  const { ended } = wanted;
  const { strokes } = pad;
  wanted = null;
  guessedAt = now;
  if (pad.strokes.length === 0) {
    last = null;
    showNothing(guesser.about.classes, guesser.about.inputSide);
    return;
  }
  try {
    const guess = await guesser.guess(strokes);
    element("problem").hidden = true;
    if (guess === null) {
      wanted ??= { ended };
      wanted.ended ||= ended;
      setTimeout(() => requestAnimationFrame(guessWhenTime), LEAST_MS);
      return;
    }
    if (pad.strokes !== strokes || strokes.length === 0) return;
    last = guess;
    show(guess, { ended: ended && !playing, right: game.word });
    describe(guesser);
    if (playing) game.hear(guess);
  } catch (error) {
    complain(error instanceof Refusal ? error.message : word("gone"));
  }
}

function complain(sentence) {
  element("problem").textContent = sentence;
  element("problem").hidden = false;
}

element("undo").addEventListener("click", () => {
  pad.undo();
  say(word("undone"));
});
element("clear").addEventListener("click", () => {
  pad.clear();
  say(word("cleared"));
});
element("free").addEventListener("click", () => choose(false));
element("play").addEventListener("click", () => choose(true));
element("en").addEventListener("click", () => setLanguage("en"));
element("de").addEventListener("click", () => setLanguage("de"));
element("voice").setAttribute("aria-pressed", String(voiceIsOn()));
element("voice").addEventListener("click", () => {
  turnVoice(!voiceIsOn());
  element("voice").setAttribute("aria-pressed", String(voiceIsOn()));
});
pad.addEventListener("drawn", (event) => drawn(event instanceof CustomEvent && event.detail.ended));

setLanguage((navigator.language || "en").slice(0, 2).toLowerCase());
headline(word("loading"), "", false);
try {
  guesser = await makeGuesser();
  game = new Game(pad, guesser.about.classes, () => choose(false));
  setLanguage(spoken());
  if (playing) game.open();
  if (pad.strokes.length > 0) drawn(true);
  if (guesser.about.offline && "serviceWorker" in navigator)
    navigator.serviceWorker.register("worker.js").catch(() => {});
  document.body.dataset.ready = "true";
} catch {
  complain(word("failed"));
}
