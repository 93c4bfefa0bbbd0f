/**
 * Fail unless two values are equal, by their JSON.
 * @param {unknown} found
 * @param {unknown} expected
 * @param {string} [about]
 */
export function assertEquals(found, expected, about = "") {
  const [one, other] = [JSON.stringify(found), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${about}\nfound    ${one}\nexpected ${other}`);
}
