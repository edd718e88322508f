// @ts-check
/** Elements by name, attributes and children. Strings become text, never markup. */

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; attributes that are null, undefined or false are left out. */
export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** An SVG element. */
export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Sets a text only where it changes, so that nothing is read out twice. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A table in a frame that scrolls sideways; the first cell of a row heads it. Columns in `left` hold words. */
export function table(caption, header, rows, left = [0]) {
  const kind = (i) => (left.includes(i) ? null : "n");
  const cells = (row) => row.map((cell, i) => html(i ? "td" : "th", { scope: i ? null : "row", class: kind(i) }, cell));
  return html(
    "div",
    { class: "wide", role: "region", "aria-label": caption, tabindex: 0 },
    html(
      "table",
      {},
      html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...header.map((name, i) => html("th", { scope: "col", class: kind(i) }, name)))),
      html("tbody", {}, ...rows.map((row) => html("tr", {}, ...cells(row)))),
    ),
  );
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}
