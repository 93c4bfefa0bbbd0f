/**
 * Registration of the service worker, and push notifications. Loaded when the page is idle.
 * @module
 */
import { get, request } from "./server.js";
import { navigate } from "./state.js";

/** @import { PushView } from "./wire.d.ts" */

/** Whether this browser supports service workers here: over HTTPS, or on localhost. */
export const canInstall = "serviceWorker" in navigator && isSecureContext;
/** Whether this browser supports push notifications. */
export const canPush = canInstall && "PushManager" in globalThis;

/** Register the service worker and open the pages that it requests. */
export async function install() {
  if (!canInstall) return null;
  navigator.serviceWorker.onmessage = ({ data }) => {
    if (data?.kind === "open") navigate(data.path);
  };
  return await navigator.serviceWorker.register(workerAddress(), { scope: "/" });
}

/** Address of the worker, as a trusted type where the browser requires that. @returns {any} */
function workerAddress() {
  const types = /** @type {any} */ (globalThis).trustedTypes;
  if (!types) return "/sw.js";
  policy ??= types.createPolicy("service-worker", { createScriptURL: () => "/sw.js" });
  return policy.createScriptURL("");
}
/** @type {any} */
let policy = null;

/** @typedef {{ shows_content: boolean, quiet_from: string, quiet_to: string }} PushOptions */

/**
 * Subscribe this browser, or change its options. Asks the user for permission.
 * @param {PushOptions} options
 * @returns {Promise<PushView>}
 */
export async function subscribe(options) {
  const permission = await Notification.requestPermission();
  if (permission !== "granted") throw new Error("Notifications are blocked for this page in the browser's settings.");
  /** @type {PushView} */
  const known = await get("/web/push");
  await install();
  const registration = await navigator.serviceWorker.ready;
  const subscription = await registration.pushManager.getSubscription() ??
    await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: known.key });
  const { endpoint, keys } = subscription.toJSON();
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return await request("PUT", "/web/push", { endpoint, p256dh: keys?.p256dh, auth: keys?.auth, zone, ...options });
}

/** Unsubscribe this browser. @returns {Promise<PushView>} */
export async function unsubscribe() {
  const registration = await navigator.serviceWorker.getRegistration();
  const subscription = await registration?.pushManager.getSubscription();
  await subscription?.unsubscribe();
  return await request("DELETE", "/web/push");
}
