// @ts-check
// Keeps the page and its model in the browser, so that it guesses without a network. An exported page has its files here.

const VERSION = "VERSION";
const FILES = ["FILES"];

/**
 * What this script runs in, of which TypeScript's types of pages know nothing.
 *
 * @typedef {object} Scope
 * @property {{ scope: string }} registration
 * @property {{ claim(): Promise<void> }} clients
 * @property {() => Promise<void>} skipWaiting
 * @property {(name: string, listener: (event: {
 *   request: Request,
 *   waitUntil(done: Promise<void>): void,
 *   respondWith(answer: Promise<Response>): void,
 * }) => void) => void} addEventListener
 */

const worker = /** @type {Scope} */ (/** @type {unknown} */ (self));
const OURS = `rudel ${worker.registration.scope} `;

worker.addEventListener("install", (event) => {
  const kept = async () => {
    const cache = await caches.open(OURS + VERSION);
    await cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })));
    await worker.skipWaiting();
  };
  event.waitUntil(kept());
});

worker.addEventListener("activate", (event) => {
  const cleared = async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(OURS) && name !== OURS + VERSION);
    await Promise.all(old.map((name) => caches.delete(name)));
    await worker.clients.claim();
  };
  event.waitUntil(cleared());
});

worker.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const answer = async () => {
    const cache = await caches.open(OURS + VERSION);
    return (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  };
  event.respondWith(answer());
});
