// @ts-check
// The outline of a line drawn with a round pen, as cairo has it: polygons whose union is what the pen covers.
//
// The pen is a polygon too, with so many corners that it is nowhere more than a tenth of a pixel from the circle. Along
// the line go two chains of points, half the pen's width to either side; where the line turns, the outer one goes around
// the pen and the inner one along the line itself; a round cap joins them at either end. They overlap and cross: a point
// is covered where they wind around it.
//
// Points are pairs of 1/256 of a pixel. An edge is [x, y, dx, dy, winding], from its upper end downwards.

/** @typedef {[number, number]} Point */

export const FIXED = 256;

const TOLERANCE = 0.1;

// A polygon around a circle of a radius in pixels.
export function makePen(radius) {
  let count = radius <= TOLERANCE ? 4 : Math.max(4, Math.ceil((2 * Math.PI) / Math.acos(1 - TOLERANCE / radius)));
  count += count % 2;
  /** @type {Point[]} */
  const corners = Array.from({ length: count }, (_, i) => {
    const angle = (2 * Math.PI * i) / count;
    return [rounded(radius * Math.cos(angle) * FIXED), rounded(radius * Math.sin(angle) * FIXED)];
  });
  const sides = corners.map((corner, i) => way(corners[(i + count - 1) % count], corner));
  return { radius, corners, sides };
}

// To the nearest whole number, halves to the even one, as Python rounds.
export function rounded(value) {
  const below = Math.floor(value);
  const part = value - below;
  if (part < 0.5) return below;
  return part > 0.5 || below % 2 !== 0 ? below + 1 : below;
}

// The edges of what a pen covers that is led along points.
export function outline(points, pen) {
  const line = /** @type {Point[]} */ (joined(points));
  if (line.length === 1) return dot(line[0], pen);
  const ways = line.slice(1).map((point, i) => way(line[i], point));
  /** @type {Point[]} */
  const rightmost = [];
  /** @type {Point[]} */
  const leftmost = [];
  ways.forEach((now, i) => {
    const [left, right] = beside(line[i], now, pen);
    if (i > 0 && turn(ways[i - 1], now) < 0) {
      rightmost.push(...moved(around(pen, ways[i - 1], now), line[i]), right);
      leftmost.push(line[i], left);
    } else if (i > 0) {
      leftmost.push(...moved(aroundLeft(pen, ways[i - 1], now), line[i]), left);
      rightmost.push(line[i], right);
    } else {
      rightmost.push(right);
      leftmost.push(left);
    }
    rightmost.push([right[0] + now[0], right[1] + now[1]]);
    leftmost.push([left[0] + now[0], left[1] + now[1]]);
  });
  const start = ways[0];
  const end = /** @type {Point} */ (ways.at(-1));
  const tip = /** @type {Point} */ (line.at(-1));
  leftmost.push(...moved(aroundLeft(pen, end, back(end)), tip), /** @type {Point} */ (rightmost.at(-1)));
  const cap = [rightmost[0], ...moved(aroundLeft(pen, back(start), start), line[0]), leftmost[0]];
  return [...edges(leftmost, -1), ...edges(cap, -1), ...edges(rightmost, 1)];
}

function dot(point, pen) {
  const right = /** @type {Point} */ ([FIXED, 0]);
  const left = /** @type {Point} */ ([-FIXED, 0]);
  const [below, above] = beside(point, right, pen);
  const ring = [...moved(aroundLeft(pen, left, right), point), below];
  ring.push(...moved(aroundLeft(pen, right, left), point), above);
  return edges([...ring, ring[0]], -1);
}

// The corners on the outer side of a turn to the right.
function around({ corners, sides }, before, after) {
  const count = sides.length;
  let start = last(0, count, (i) => turn(sides[i], before) < 0);
  if (turn(sides[start], before) < 0) start = (start + 1) % count;
  let stop = start;
  if (turn(after, sides[(start + 1) % count]) >= 0) {
    stop = last(start, start + count, (i) => turn(sides[i % count], after) <= 0) % count;
  }
  const fan = [];
  for (let i = start; i !== stop; i = (i + 1) % count) fan.push(corners[i]);
  return fan;
}

// The corners on the outer side of a turn to the left, or of one that leads back.
function aroundLeft({ corners, sides }, before, after) {
  const count = sides.length;
  const next = (i) => sides[(i + 1) % count];
  let start = last(0, count, (i) => turn(before, next(i)) < 0);
  if (turn(before, next(start)) < 0) start = (start + 1) % count;
  let stop = start;
  if (turn(sides[start], after) <= 0) stop = last(start, start + count, (i) => turn(after, next(i)) <= 0) % count;
  const fan = [];
  for (let i = start; i !== stop; i = (i + count - 1) % count) fan.push(corners[i]);
  return fan;
}

// The line without points that are on it anyway.
function joined(points) {
  const line = [points[0]];
  for (const point of points.slice(1)) {
    const [x, y] = line.at(-1);
    if (point[0] === x && point[1] === y) continue;
    if (line.length > 1) {
      const before = way(line.at(-2), line.at(-1));
      const now = way(line.at(-1), point);
      if (before[0] * now[1] === before[1] * now[0] && before[0] * now[0] + before[1] * now[1] > 0) line.pop();
    }
    line.push(point);
  }
  return line;
}

/** @returns {[Point, Point]} */
function beside([x, y], [dx, dy], pen) {
  const length = Math.sqrt(dx * dx + dy * dy);
  const aside = rounded((-dy / length) * pen.radius * FIXED);
  const down = rounded((dx / length) * pen.radius * FIXED);
  return [
    [x + aside, y + down],
    [x - aside, y - down],
  ];
}

// The last number from `low` to `high` for which something holds that holds up to there, found by halving.
function last(low, high, holds) {
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (holds(middle)) low = middle;
    else high = middle;
  }
  return low;
}

// -1, 0 or 1: how a compares with b, as angles up to half a turn apart.
function turn(a, b) {
  const cross = a[1] * b[0] - b[1] * a[0];
  if (cross) return Math.sign(cross);
  if (a[0] * b[0] < 0 || a[1] * b[1] < 0) return a[0] > 0 || (a[0] === 0 && a[1] > 0) ? -1 : 1;
  return 0;
}

function edges(chain, winding) {
  const found = [];
  for (let i = 1; i < chain.length; i++) {
    const [a, b] = [chain[i - 1], chain[i]];
    if (a[1] < b[1]) found.push([a[0], a[1], b[0] - a[0], b[1] - a[1], winding]);
    else if (a[1] > b[1]) found.push([b[0], b[1], a[0] - b[0], a[1] - b[1], -winding]);
  }
  return found;
}

/** @type {(a: Point, b: Point) => Point} */
const way = (a, b) => [b[0] - a[0], b[1] - a[1]];
/** @type {(way: Point) => Point} */
const back = ([dx, dy]) => [-dx, -dy];
/** @type {(points: Point[], by: Point) => Point[]} */
const moved = (points, [x, y]) => points.map((point) => [point[0] + x, point[1] + y]);
