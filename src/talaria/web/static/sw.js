/**
 * Service worker: serves files of the app from the cache and pages from the network with the app as fallback, and shows
 * notifications. The server replaces the names in braces.
 */
const BASE = "{{assets}}";
const FILES = "{{files}}".split(" ");
const CACHE = `talaria ${BASE}`;

addEventListener("install", (event) => {
  // Data requests bypass the worker: it would delay each of them, and break them when its process dies.
  event.addRoutes?.({ condition: { urlPattern: { pathname: "/web/*" } }, source: "network" });
  event.waitUntil(
    caches.open(CACHE).then((cache) => cache.addAll(["/", ...FILES.map((path) => `${BASE}/${path}`)])).then(() =>
      self.skipWaiting()
    ),
  );
});

addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys().then((names) => Promise.all(names.filter((one) => one !== CACHE).map((one) => caches.delete(one))))
      .then(() => self.clients.claim()),
  );
});

addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (url.pathname.startsWith("/assets/")) {
    event.respondWith(caches.match(request).then((found) => found ?? fetch(request)));
  } else if (request.mode === "navigate") {
    event.respondWith(fetch(request).catch(() => caches.match("/").then((shell) => shell ?? Response.error())));
  }
});

addEventListener("push", (event) => {
  let news = { title: "Talaria", body: "", path: "/", tag: "" };
  try {
    news = { ...news, ...event.data.json() };
  } catch {
    // A message without content still shows a notification.
  }
  const { title, body, path, tag } = news;
  event.waitUntil(
    self.registration.showNotification(title, {
      body,
      tag,
      data: { path },
      icon: `${BASE}/icons/icon-192.png`,
      badge: `${BASE}/icons/icon-192.png`,
    }),
  );
});

addEventListener("notificationclick", (event) => {
  event.notification.close();
  const path = event.notification.data?.path ?? "/";
  event.waitUntil(
    self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(async (windows) => {
      const open = windows.find((one) => new URL(one.url).pathname === path) ?? windows[0];
      if (!open) return self.clients.openWindow(path);
      await open.focus();
      open.postMessage({ kind: "open", path });
    }),
  );
});
