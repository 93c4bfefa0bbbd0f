import { limitMembers, makeScale, MOST_MEMBERS, sumGroups } from "../../../src/talaria/web/static/js/pages/chart.js";
import {
  formatCost,
  formatDuration,
  formatMoment,
  formatNumber,
} from "../../../src/talaria/web/static/js/pages/format.js";
import { assertEquals } from "./assert.js";

Deno.test("a scale ends at a round number that is not below the largest value", () => {
  for (const [most, end] of [[0, 1], [1, 1], [3.9, 4], [4.2, 6], [97, 100], [1_000_000, 1_000_000], [0.013, 0.015]]) {
    const { step, lines } = makeScale(most ?? 0);
    assertEquals(Number((step * lines).toPrecision(6)), end);
  }
});

Deno.test("weeks are counted from the end", () => {
  assertEquals(sumGroups([1, 1, 1, 1, 1, 1, 1, 1, 1], 7), [2, 7]);
  assertEquals(sumGroups([], 7), []);
});

Deno.test("small members are shown as one", () => {
  const members = Array.from({ length: 12 }, (_, index) => ({ name: `m${index}`, values: [index, 1], total: "" }));
  const shown = limitMembers(members, String);
  assertEquals(shown.length, MOST_MEMBERS + 1);
  assertEquals(shown[0]?.name, "m11");
  assertEquals(shown.at(-1), { name: "Others", values: [10, 5], total: "15" });
});

Deno.test("a cost that is not known is never zero", () => {
  assertEquals(formatCost(0, 3), "Unknown");
  assertEquals(formatCost(1_500_000, 3), "$1.50 + unknown");
  assertEquals(formatCost(1_500_000, 0), "$1.50");
  assertEquals([15_000, 20_000, 5_000, 1_200, 3, 1_234_567].map((one) => formatCost(one, 0)), [
    "$0.015",
    "$0.02",
    "$0.005",
    "$0.0012",
    "$0.000003",
    "$1.23",
  ]);
});

Deno.test("numbers, durations and times are short", () => {
  assertEquals([999, 9_999, 12_345, 1_234_567].map(formatNumber), ["999", "9,999", "12.3k", "1.2M"]);
  assertEquals([0.25, 4.26, 75, 4_000, 200_000].map(formatDuration), [
    "250 ms",
    "4.3 s",
    "1 min 15 s",
    "1 h 7 min",
    "2 days",
  ]);
  const now = new Date("2026-03-01T12:00:00Z");
  const formatted = [-30, -90 * 60, 26 * 3600].map((seconds) =>
    formatMoment(new Date(now.getTime() + seconds * 1000), now)
  );
  assertEquals(formatted, ["just now", "2 h ago", "in 26 h"]);
});
