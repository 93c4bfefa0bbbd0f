/**
 * Formatting of numbers, amounts, durations and times.
 * @module
 */

const MICRODOLLARS = 1_000_000;

/** Format a number briefly: 1,234 or 1.2M. @type {(value: number) => string} */
export function formatNumber(value) {
  for (const [size, unit] of /** @type {const} */ ([[1e9, "B"], [1e6, "M"], [1e4, "k"]])) {
    if (value >= size) {
      const scaled = value / (unit === "k" ? 1e3 : size);
      return `${scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)}${unit}`;
    }
  }
  return Math.round(value).toLocaleString("en");
}

/** Format an amount of money, with more digits for small amounts. @type {(microdollars: number) => string} */
export function formatMoney(microdollars) {
  const dollars = microdollars / MICRODOLLARS;
  if (dollars === 0) return "$0";
  const digits = Math.min(Math.max(1 - Math.floor(Math.log10(dollars)), 2), 6); // two significant digits for small amounts
  return `$${dollars.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits })}`;
}

/** Format a cost; calls without a known price are never counted as free.
 * @type {(microdollars: number, unpriced: number) => string} */
export function formatCost(microdollars, unpriced) {
  if (!unpriced) return formatMoney(microdollars);
  return microdollars ? `${formatMoney(microdollars)} + unknown` : "Unknown";
}

/** Format a duration in its largest units. @type {(seconds: number) => string} */
export function formatDuration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** Format a time near now relative to now, any other as a date. @type {(at: Date, now?: Date) => string} */
export function formatMoment(at, now = new Date()) {
  const minutes = Math.round((at.getTime() - now.getTime()) / 60_000);
  const distance = Math.abs(minutes);
  if (distance < 1) return "just now";
  const amount = distance < 60 ? `${distance} min` : distance < 48 * 60 ? `${Math.round(distance / 60)} h` : "";
  if (amount) return minutes < 0 ? `${amount} ago` : `in ${amount}`;
  const day = /** @type {const} */ ({ weekday: "short", day: "numeric", month: "short" });
  const clock = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const year = at.getFullYear() === now.getFullYear() ? "" : ` ${at.getFullYear()}`;
  return `${at.toLocaleDateString("en-GB", day)}${year}, ${clock}`;
}
