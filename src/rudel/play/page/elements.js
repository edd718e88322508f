// @ts-check
// Elements of the page, which are there: its HTML has them.

/**
 * The element with this id.
 *
 * @template {HTMLElement | SVGElement} [T=HTMLElement]
 * @param {string} id
 * @param {new () => T} [kind] what it is, where it is not just any element of HTML
 * @returns {T}
 */
export function element(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof (kind ?? HTMLElement))) throw new Error(`the page has no #${id}`);
  return /** @type {T} */ (found);
}
