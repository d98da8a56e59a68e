// The service worker: the page's own files for times without the console, and its notifications.
// Nothing of what people or sensors sent is kept here.
const CACHE = "denwatch-page-2";
const FILES = [
  "/", "/manifest.json", "/icon.svg", "/icon-192.png", "/icon-512.png", "/icon-maskable.png", "/console.css", "/strings.js", "/vue.js", "/shared.js", "/alarm.js", "/page.js",
  "/bar.js", "/composer.js", "/subscriptions.js", "/feed.js", "/find.js", "/nodes.js", "/sources.js", "/plan.js",
];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  event.waitUntil(clients.claim());
});

// The console's own answer if it answers; the kept one if it does not.
async function answer(request, path) {
  const cache = await caches.open(CACHE);
  try {
    const found = await fetch(request);
    if (found.ok && !found.redirected) await cache.put(path, found.clone());
    return found;
  } catch (error) {
    const kept = await cache.match(path);
    if (kept) return kept;
    throw error;
  }
}

addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.method !== "GET" || url.origin !== location.origin) return;
  if (FILES.includes(url.pathname)) event.respondWith(answer(event.request, url.pathname));
});

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(
    clients.matchAll({ type: "window" }).then((open) => (open.length ? open[0].focus() : clients.openWindow("/"))),
  );
});
