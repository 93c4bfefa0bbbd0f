/**
 * Keys that work wherever no text is typed.
 * @module
 */
import { drawerOpen, navigate, overlay } from "./state.js";

const SEQUENCE_MILLISECONDS = 1500;
/** When the first key of a sequence was pressed. */
let begunAt = -Infinity;

/** @param {KeyboardEvent} event */
export function pressKey(event) {
  const isSecond = event.timeStamp - begunAt < SEQUENCE_MILLISECONDS;
  begunAt = event.key === "g" && !isSecond ? event.timeStamp : -Infinity;
  if (isSecond && event.key === "c") navigate("/");
  else if (isSecond && event.key === "m") navigate("/home");
  else if (event.key === "?") overlay.value = { kind: "help" };
  else if (event.key === "/") focusSearch(event);
  else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
}

/** @param {KeyboardEvent} event */
function focusSearch(event) {
  event.preventDefault();
  drawerOpen.value = true;
  document.getElementById("search")?.focus();
}

/** Move to the next or previous row of the list; Enter opens it. @param {number} step */
function move(step) {
  const rows = [...document.querySelectorAll(".list .row-link, .list .hit, .list .page-link")];
  const at = rows.findIndex((row) => row === document.activeElement);
  const current = at >= 0 ? at + step : Math.max(rows.findIndex((row) => row.matches("[aria-current]")), 0);
  const row = rows[Math.min(Math.max(current, 0), rows.length - 1)];
  if (row instanceof HTMLElement) row.focus();
}
