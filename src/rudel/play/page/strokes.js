// @ts-check
// Drawings as strokes, and the bitmaps that Quick, Draw! has of them, byte for byte: the box of 256 units centred by what
// is drawn, a round pen of 16 units, 24 units free on every side, all scaled by 28/304, white on black. Google rendered
// them with cairo; this computes, in whole numbers, what cairo approximates: coordinates in 1/256 of a pixel, a pen with
// twelve corners, 15 lines a pixel. No other renderer gives these bytes.
//
// A stroke is a list of points [x, y], y downwards.

import { paint } from "./coverage.js";
import { FIXED, makePen, outline, rounded } from "./outline.js";

export const BOX = 256;

const FREE = 16;

// A drawing in a box of 256 units as a Uint8Array of side x side, white on black.
export function bitmap(drawing, side = 28, lineWidth = 16) {
  const pixels = new Uint8Array(side * side);
  if (drawing.length === 0) return pixels;
  const scale = side / (BOX + 2 * FREE + lineWidth);
  const margin = FREE + lineWidth / 2;
  const pen = makePen((lineWidth / 2) * scale);
  const [farX, farY] = [0, 1].map((axis) => extreme(drawing, axis, Math.max));
  const middle = [(BOX - farX) / 2, (BOX - farY) / 2];
  for (const stroke of drawing) {
    const points = stroke.map((point) =>
      point.map((value, axis) => rounded((scale * (value + middle[axis]) + scale * margin) * FIXED)),
    );
    paint(pixels, outline(points, pen), side);
  }
  return pixels;
}

// What somebody drew, in any units, as the data set has it: in the corner of its box, of its size, in few points.
export function simplified(drawing, tolerance = 2) {
  if (drawing.length === 0) return [];
  const least = [0, 1].map((axis) => extreme(drawing, axis, Math.min));
  const size = Math.max(...[0, 1].map((axis) => extreme(drawing, axis, Math.max) - least[axis]));
  const scale = size > 0 ? (BOX - 1) / size : 1;
  return drawing.map((stroke) => {
    const placed = stroke.map(([x, y]) => [(x - least[0]) * scale, (y - least[1]) * scale]);
    return withoutNeedless(placed, tolerance).map(([x, y]) => [Math.floor(x + 0.5), Math.floor(y + 0.5)]);
  });
}

function extreme(drawing, axis, pick) {
  let found = drawing[0][0][axis];
  for (const stroke of drawing) for (const point of stroke) found = pick(found, point[axis]);
  return found;
}

// Ramer, Douglas and Peucker.
function withoutNeedless(points, tolerance) {
  const kept = new Uint8Array(points.length);
  kept[0] = kept[points.length - 1] = 1;
  const spans = [[0, points.length - 1]];
  while (spans.length > 0) {
    const [first, last] = /** @type {number[]} */ (spans.pop());
    let farthest = 0;
    let most = tolerance;
    for (let i = first + 1; i < last; i++) {
      const away = distance(points[i], points[first], points[last]);
      if (away > most) [farthest, most] = [i, away];
    }
    if (farthest) {
      kept[farthest] = 1;
      spans.push([first, farthest], [farthest, last]);
    }
  }
  return points.filter((_, i) => kept[i]);
}

// From a point to the line between two others.
function distance(point, start, end) {
  const [dx, dy] = [end[0] - start[0], end[1] - start[1]];
  let [x, y] = [point[0] - start[0], point[1] - start[1]];
  const squared = dx * dx + dy * dy;
  const along = squared ? Math.min(Math.max((x * dx + y * dy) / squared, 0), 1) : 0;
  x -= along * dx;
  y -= along * dy;
  return Math.sqrt(x * x + y * y);
}
