// @ts-check
// How much of every pixel polygons cover, in the arithmetic of cairo's scan converter.
//
// Every pixel row has 15 lines. A line covers what the edges wind around at its middle, with edges rounded to 1/256 of a
// pixel. A row in which no edge begins, ends or crosses another is done at once, by the areas between edges.

import { FIXED } from "./outline.js";

const LINES = 15;

// Adds to `pixels`, a Uint8Array of side x side, what is drawn in white: edges as `outline` gives them.
export function paint(pixels, edges, side) {
  const waiting = sides(edges, side);
  const heights = new Int32Array(side + 1);
  const areas = new Int32Array(side + 1);
  let active = [];
  let next = 0;
  for (let row = 0; row < side; row++) {
    const begins = row * LINES;
    const ends = begins + LINES;
    const from = next;
    while (next < waiting.length && waiting[next].first < ends) next++;
    if (active.length === 0 && from === next) continue;
    heights.fill(0);
    areas.fill(0);
    const together = inOrder([...active, ...waiting.slice(from, next)], begins);
    if (wholeRow(together, begins, ends)) {
      coverRow(heights, areas, together, begins, ends);
      active = together.filter((edge) => edge.end > ends);
    } else {
      for (let line = begins; line < ends; line++) {
        active = active.filter((edge) => edge.end > line);
        for (let i = from; i < next; i++) if (waiting[i].first === line) active.push(waiting[i]);
        inOrder(active, line);
        coverLine(heights, areas, active);
      }
      active = inOrder(
        active.filter((edge) => edge.end > ends),
        ends,
      );
    }
    blend(pixels.subarray(row * side, row * side + side), heights, areas);
  }
}

// Edges by the row in which they begin, and as they came within one.
function sides(edges, side) {
  const found = [];
  for (const [x, y, dx, dy, winding] of edges) {
    const first = Math.max(lineOf(y), 0);
    const end = Math.min(lineOf(y + dy), side * LINES);
    if (first < end) found.push({ first, end, x, y, dx, dy, winding, parts: 2 * LINES * dy, at: 0 });
  }
  const row = (edge) => Math.floor(edge.first / LINES);
  return found.sort((a, b) => row(a) - row(b));
}

const lineOf = (y) => Math.floor((LINES * y + FIXED / 2) / FIXED);

// Where the middle of a line meets an edge, in parts.
const place = (edge, line) => edge.x * edge.parts + (FIXED * (2 * line + 1) - 2 * LINES * edge.y) * edge.dx;

// The same in 1/256 of a pixel.
const at = (edge, line) => Math.floor((2 * place(edge, line) + edge.parts) / (2 * edge.parts));

// Where the upper end of a line meets it, in parts; up to half a unit beside it.
function top(edge, line) {
  const twice = 2 * FIXED * Math.abs(edge.dx);
  const rest = twice % edge.parts;
  const half = Math.floor((twice - rest) / edge.parts / 2) * edge.parts + Math.floor(rest / 2);
  return place(edge, line) - (edge.dx > 0 ? half : -half);
}

// Sorts edges by where a line meets them, which it notes down; those that meet there stay as they were.
function inOrder(edges, line) {
  for (let i = 0; i < edges.length; i++) {
    const edge = edges[i];
    edge.at = at(edge, line);
    let j = i;
    for (; j > 0 && edges[j - 1].at > edge.at; j--) edges[j] = edges[j - 1];
    edges[j] = edge;
  }
  return edges;
}

// Whether no edge begins, ends or crosses another in a row.
function wholeRow(edges, begins, ends) {
  let before = -Infinity;
  for (const edge of edges) {
    if (edge.first > begins || edge.end < ends) return false;
    const now = at(edge, ends);
    if (now < before) return false;
    before = now;
  }
  return true;
}

function coverLine(heights, areas, active) {
  let around = 0;
  let start = 0;
  for (const edge of active) {
    if (around === 0) start = edge.at;
    around += edge.winding;
    if (around === 0) {
      add(heights, areas, start, 1);
      add(heights, areas, edge.at, -1);
    }
  }
}

function add(heights, areas, x, sign) {
  const [pixel, part] = pixelOf(heights, x);
  areas[pixel] += sign * 2 * part;
  heights[pixel] += sign;
}

function pixelOf(heights, x) {
  if (x < 0) return [0, 0];
  if (x >= (heights.length - 1) * FIXED) return [heights.length - 1, 0];
  return [x >> 8, x & 255];
}

function coverRow(heights, areas, active, begins, ends) {
  let around = 0;
  let inside = false;
  active.forEach((edge, i) => {
    around += edge.winding;
    if (!inside) {
      addArea(heights, areas, edge, begins, ends, 1);
      inside = true;
    } else if (around === 0 && (i + 1 === active.length || active[i + 1].at !== edge.at)) {
      addArea(heights, areas, edge, begins, ends, -1);
      inside = false;
    }
  });
}

// The edge of an area as high as the row, in whole lines for every pixel that it goes through.
function addArea(heights, areas, edge, begins, ends, sign) {
  const [one, other] = [top(edge, begins), top(edge, ends)];
  const [left, right] = [Math.min(one, other), Math.max(one, other)];
  const [first, enters] = pixelOf(heights, Math.floor(left / edge.parts));
  const [final, leaves] = pixelOf(heights, Math.floor(right / edge.parts));
  if (first === final) {
    areas[first] += sign * LINES * (enters + leaves);
    heights[first] += sign * LINES;
    return;
  }
  let done = 0;
  for (let pixel = first; pixel <= final; pixel++) {
    let reached = LINES;
    if (pixel < final) {
      reached = Math.floor((((pixel + 1) * FIXED * edge.parts - left) * LINES) / (right - left));
    }
    const beside = pixel === first ? FIXED + enters : pixel === final ? leaves : FIXED;
    areas[pixel] += sign * (reached - done) * beside;
    heights[pixel] += sign * (reached - done);
    done = reached;
  }
}

// White over what is there, as transparent as pixels are uncovered.
function blend(row, heights, areas) {
  let height = 0;
  for (let x = 0; x < row.length; x++) {
    height += heights[x];
    const ink = ((height * 2 * FIXED - areas[x]) * 17 + 256) >> 9;
    if (ink === 0) continue;
    const behind = row[x] * (255 - ink) + 127;
    row[x] = Math.min(ink + ((behind + (behind >> 8)) >> 8), 255);
  }
}
