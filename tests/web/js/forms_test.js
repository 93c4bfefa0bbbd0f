import { changesOf } from "../../../src/talaria/web/static/js/pages/setting_values.js";
import { assertEquals } from "./assert.js";

/** @import { SettingView } from "../../../src/talaria/web/static/js/wire.d.ts" */

/** @type {(more: Partial<SettingView>) => SettingView} */
const setting = (more) => ({
  key: "a.b",
  name: "b",
  entry: "",
  about: "",
  kind: "text",
  item: null,
  choices: [],
  minimum: null,
  maximum: null,
  optional: false,
  expected: "",
  value: "old",
  shown: "",
  default: "",
  secret: false,
  live: true,
  source: "default",
  location: "",
  variable: "",
  ...more,
});

Deno.test("only changed values are sent", () => {
  const fields = [setting({}), setting({ key: "a.n", kind: "whole", value: 3 })];
  assertEquals(changesOf(fields, {}), {});
  assertEquals(changesOf(fields, { "a.b": "old", "a.n": "3" }), {});
  assertEquals(changesOf(fields, { "a.b": "", "a.n": "4" }), { "a.b": "", "a.n": "4" });
  assertEquals(changesOf(fields, { "a.n": "" }), { "a.n": null });
});

Deno.test("a list is sent as items, without empty lines", () => {
  const fields = [setting({ kind: "list", value: ["one"] })];
  assertEquals(changesOf(fields, { "a.b": "one\n" }), {});
  assertEquals(changesOf(fields, { "a.b": " one \n\ntwo" }), { "a.b": ["one", "two"] });
});

Deno.test("only changed entries of a table are sent", () => {
  const fields = [setting({ kind: "table", value: { one: "1", two: "2" } })];
  assertEquals(changesOf(fields, { "a.b": "one = 1\nthree.x = 3" }), { "a.b.two": null, 'a.b."three.x"': "3" });
});

Deno.test("a secret that was not typed is not sent", () => {
  const table = setting({ kind: "table", secret: true, value: { Authorization: "" } });
  assertEquals(changesOf([table], { "a.b": "Authorization = ****\nX-More = new" }), { "a.b.X-More": "new" });
  assertEquals(changesOf([setting({ secret: true, value: null })], { "a.b": "" }), {});
});
