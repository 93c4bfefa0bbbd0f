import { countAnswers, oneAtATime } from "../../../src/talaria/web/static/js/pages/answers.js";
import { countQuestions } from "../../../src/talaria/web/static/js/server.js";
import { assertEquals } from "./assert.js";

Deno.test("only the newest question may be answered where questions replace each other", () => {
  const ask = countQuestions();
  const first = ask();
  assertEquals(first(), true);
  const second = ask();
  assertEquals([first(), second(), second()], [false, true, true]);
});

Deno.test("an answer is accepted unless a newer one was accepted", () => {
  const ask = countAnswers();
  const [first, second, third] = [ask(), ask(), ask()];
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
