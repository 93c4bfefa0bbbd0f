import { EventParser } from "../../../src/talaria/web/static/js/server.js";
import { assertEquals } from "./assert.js";

const TEXT = ': still here\n\nid: 1\ndata: {"a":1}\n\ndata: {"b":\ndata: 2}\r\n\r\n: comment\n\ndata: last\n\n';

Deno.test("events are the same wherever the bytes are split", () => {
  const expected = ['{"a":1}', '{"b":\n2}', "last"];
  for (let size = 1; size < TEXT.length; size++) {
    const parser = new EventParser();
    /** @type {string[]} */
    const found = [];
    for (let at = 0; at < TEXT.length; at += size) found.push(...parser.push(TEXT.slice(at, at + size)));
    assertEquals(found, expected, `pieces of ${size}`);
  }
});

Deno.test("an unfinished event is buffered", () => {
  const parser = new EventParser();
  assertEquals(parser.push("data: half"), []);
  assertEquals(parser.push(" and half\n\n"), ["half and half"]);
});
