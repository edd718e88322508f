// @ts-check
// Says things: to screen readers, and aloud.

import { element } from "./elements.js";
import { spoken } from "./words.js";

const KEY = "rudel voice";

/** @type {number | undefined} */
let timer;

// Tells screen readers something, once nothing newer has come for a moment.
export function say(text, wait = 0) {
  clearTimeout(timer);
  timer = setTimeout(() => {
    element("said").textContent = text;
  }, wait);
}

let on = remembered();

export const voiceIsOn = () => on;

export function turnVoice(wanted) {
  on = wanted;
  if (!on) hush();
  try {
    localStorage.setItem(KEY, on ? "on" : "off");
  } catch {
    // Some browsers keep nothing; then it is on the next time.
  }
}

// Says something aloud, unless the voice is off; what is being said before is broken off.
export function aloud(text) {
  if (!on || !("speechSynthesis" in window)) return;
  speechSynthesis.cancel();
  const utterance = new SpeechSynthesisUtterance(text);
  utterance.lang = spoken() === "de" ? "de-DE" : "en-GB";
  speechSynthesis.speak(utterance);
}

export function hush() {
  if ("speechSynthesis" in window) speechSynthesis.cancel();
}

function remembered() {
  try {
    return localStorage.getItem(KEY) !== "off";
  } catch {
    return true;
  }
}
