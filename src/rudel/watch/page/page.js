// @ts-check
/** The page: shows what the server sends, and goes on counting between two events. */

import { Comparison } from "./compare.js";
import { brief } from "./progress.js";
import { RunView } from "./run.js";

const RETRY = 2000;
const HIDDEN = 10_000;
const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const lost = /** @type {HTMLElement} */ (document.querySelector(".lost"));
/** @type {RunView | Comparison | null} */
let view = null;
/** @type {any[] | null} */
let seen = null;
/** @type {EventSource | null} */
let source = null;
let next = 0;
let ahead = 0; // seconds that this computer's clock is ahead of the server's

function show(state) {
  ahead = Date.now() / 1000 - state.now;
  if (!view || seen?.length !== state.runs.length) {
    view = state.runs.length === 1 ? new RunView(0) : new Comparison(state.runs.length);
    main.replaceChildren(view.element);
  }
  seen = state.runs;
  view.update(state.runs.length === 1 ? state.runs[0] : state.runs);
  tick();
}

function tick() {
  if (!seen || !view) return;
  const share = view.tick(Date.now() / 1000 - ahead);
  const title = brief(seen.length === 1 ? seen[0] : { title: `${seen.length} runs`, state: "" }, share);
  if (document.title !== title) document.title = title;
}

/** Is sent what changes while the page is seen; else asks now and then: browsers open six connections to a server. */
function follow() {
  source?.close();
  clearTimeout(next);
  if (document.hidden) ask();
  else listen();
}

function listen() {
  source = new EventSource("events");
  source.addEventListener("open", () => (lost.hidden = true));
  source.addEventListener("message", (event) => show(JSON.parse(event.data)));
  const again = () => {
    source?.close();
    lost.hidden = false;
    next = setTimeout(follow, RETRY);
  };
  source.addEventListener("error", again);
  source.addEventListener("end", again);
}

async function ask() {
  const state = await fetch("runs", { cache: "no-store" })
    .then((answer) => answer.json())
    .catch(() => null);
  if (!document.hidden) return;
  lost.hidden = state !== null;
  if (state) show(state);
  clearTimeout(next);
  next = setTimeout(follow, HIDDEN);
}

document.addEventListener("visibilitychange", follow);
setInterval(tick, 1000);
follow();
