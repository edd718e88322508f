// Keeps the page and its model in the browser, so that it guesses without a network. An exported page has its files here.

const VERSION = "VERSION";
const FILES = ["FILES"];
const OURS = `rudel ${self.registration.scope} `;

self.addEventListener("install", (event) => {
  const kept = async () => {
    const cache = await caches.open(OURS + VERSION);
    await cache.addAll(FILES.map((file) => new Request(file, { cache: "reload" })));
    await self.skipWaiting();
  };
  event.waitUntil(kept());
});

self.addEventListener("activate", (event) => {
  const cleared = async () => {
    const old = (await caches.keys()).filter((name) => name.startsWith(OURS) && name !== OURS + VERSION);
    await Promise.all(old.map((name) => caches.delete(name)));
    await self.clients.claim();
  };
  event.waitUntil(cleared());
});

self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET") return;
  const answer = async () => {
    const cache = await caches.open(OURS + VERSION);
    return (await cache.match(event.request, { ignoreSearch: true })) ?? fetch(event.request);
  };
  event.respondWith(answer());
});
