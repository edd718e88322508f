// @ts-check
// Keeps the page and its model in the browser, so that it guesses without a network. An exported page has its files here.
// What the server has comes first. Where its worker.js is gone, so is the page: this worker removes itself then.

const VERSION = "VERSION";
const FILES = ["FILES"];
/** Without a date to compare, as `python3 -m http.server` takes every older file for unchanged. */
const AGAIN = /** @type {const} */ ({ cache: "reload" });
const IF_CHANGED = /** @type {const} */ ({ cache: "no-cache" });
const GONE = [404, 410];
/** Milliseconds until a server that does not answer counts as one that cannot be reached. */
const PATIENCE = 3000;

/**
 * What this script runs in, of which TypeScript's types of pages know nothing.
 *
 * @typedef {object} FetchEvent
 * @property {Request} request
 * @property {string} clientId of the page that asks
 * @property {string} resultingClientId of the page that is to come of the answer
 * @property {(done: Promise<void>) => void} waitUntil
 * @property {(answer: Promise<Response>) => void} respondWith
 *
 * @typedef {object} Scope
 * @property {{ scope: string, unregister(): Promise<boolean> }} registration
 * @property {{ claim(): Promise<void> }} clients
 * @property {() => Promise<void>} skipWaiting
 * @property {(name: string, listener: (event: FetchEvent) => void) => void} addEventListener
 */

const worker = /** @type {Scope} */ (/** @type {unknown} */ (self));
const OURS = `rudel ${worker.registration.scope} `;
/**
 * Pages of which every file has to come from the same source, by their ids: those out of the cache, and those of another
 * version than the cache has. Other pages may take both.
 *
 * @type {Map<string, "cache" | "network">}
 */
const sources = new Map();

worker.addEventListener("install", (event) => {
  const kept = async () => {
    const cache = await caches.open(OURS + VERSION);
    await cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })));
    await worker.skipWaiting();
  };
  event.waitUntil(kept());
});

worker.addEventListener("activate", (event) => {
  event.waitUntil(clear(OURS + VERSION).then(() => worker.clients.claim()));
});

worker.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  event.respondWith(event.request.mode === "navigate" ? page(event) : file(event));
});

/**
 * A page as the server has it, or all of it as it is in the cache where the server cannot be reached.
 *
 * @param {FetchEvent} event
 */
async function page({ request, resultingClientId }) {
  try {
    const asked = Promise.all([fetch(request, AGAIN), fetch("worker.js", AGAIN)]);
    const [answer, script] = await Promise.race([asked, tooLong()]);
    const isOurs = script.ok && (await script.text()).includes(VERSION);
    if (!isOurs) sources.set(resultingClientId, "network");
    if (GONE.includes(script.status)) await leave();
    return answer;
  } catch {
    sources.set(resultingClientId, "cache");
    return kept(request);
  }
}

/** @returns {Promise<never>} */
function tooLong() {
  return new Promise((_, refuse) => setTimeout(refuse, PATIENCE));
}

/**
 * A file that a page asks for.
 *
 * @param {FetchEvent} event
 */
async function file({ request, clientId }) {
  const source = sources.get(clientId);
  if (source === "network") return fetch(request, AGAIN);
  return source === "cache" ? kept(request) : fetch(request, IF_CHANGED).catch(() => kept(request));
}

/** @param {Request} request */
async function kept(request) {
  const cache = await caches.open(OURS + VERSION);
  return (await cache.match(request, { ignoreSearch: true })) ?? fetch(request);
}

async function clear(spared) {
  const old = (await caches.keys()).filter((name) => name.startsWith(OURS) && name !== spared);
  await Promise.all(old.map((name) => caches.delete(name)));
}

async function leave() {
  await clear(null);
  await worker.registration.unregister();
}
