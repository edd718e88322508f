// @ts-check
/** The page: shows what the server sends, and goes on counting between two events. */

import { Comparison } from "./compare.js";
import { brief } from "./progress.js";
import { RunView } from "./run.js";

const RETRY = 2000;
const main = /** @type {HTMLElement} */ (document.querySelector("main"));
const lost = /** @type {HTMLElement} */ (document.querySelector(".lost"));
/** @type {RunView | Comparison | null} */
let view = null;
/** @type {any[] | null} */
let seen = null;
let ahead = 0; // seconds that this computer's clock is ahead of the server's

function show(state) {
  ahead = Date.now() / 1000 - state.now;
  if (!view) {
    view = state.runs.length === 1 ? new RunView(0) : new Comparison(state.runs.length);
    main.replaceChildren(view.element);
  }
  seen = state.runs;
  view.update(state.runs.length === 1 ? state.runs[0] : state.runs);
  document.documentElement.dataset.state = state.runs[0].state;
  tick();
}

function tick() {
  if (!seen || !view) return;
  const share = view.tick(Date.now() / 1000 - ahead);
  const title = brief(seen.length === 1 ? seen[0] : { title: `${seen.length} runs`, state: "" }, share);
  if (document.title !== title) document.title = title;
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("open", () => (lost.hidden = true));
  source.addEventListener("message", (event) => show(JSON.parse(event.data)));
  const again = () => {
    source.close();
    lost.hidden = false;
    setTimeout(listen, RETRY);
  };
  source.addEventListener("error", again);
  source.addEventListener("end", again);
}

setInterval(tick, 1000);
listen();
