import { acceptInOrder, oneAtATime } from "../../../src/talaria/web/static/js/pages/request_order.js";
import { trackNewest } from "../../../src/talaria/web/static/js/server.js";
import { assertEquals } from "./assert.js";

Deno.test("only the newest of several requests is current", () => {
  const startRequest = trackNewest();
  const first = startRequest();
  assertEquals(first(), true);
  const second = startRequest();
  assertEquals([first(), second(), second()], [false, true, true]);
});

Deno.test("a response is accepted unless that of a newer request was accepted", () => {
  const startRequest = acceptInOrder();
  const [first, second, third] = [startRequest(), startRequest(), startRequest()];
  assertEquals([second(), first(), third()], [true, false, true]);
});

Deno.test("calls during a run lead to one more run after it", async () => {
  /** @type {(() => void)[]} */
  const ends = [];
  let runs = 0;
  const run = oneAtATime(() => {
    runs++;
    return new Promise((/** @type {(nothing: void) => void} */ resolve) => ends.push(resolve));
  });
  const first = run();
  await Promise.all([run(), run()]);
  assertEquals(runs, 1);
  ends[0]?.();
  await Promise.resolve();
  await Promise.resolve();
  assertEquals(runs, 2);
  ends[1]?.();
  await first;
  assertEquals(runs, 2);
});
