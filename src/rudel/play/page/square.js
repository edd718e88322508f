// @ts-check
// What is drawn, cut out and put on a smaller square, as `ink_on_a_square` in rudel/data/pictures.py does it: the sums are
// those of Pillow's resize, in whole numbers.

import { rounded } from "./outline.js";

const INK = 48;
const PRECISION = 22;

// A Uint8Array of size x size, white on black, as one of side x side with a margin around what is drawn.
export function inkOnASquare(pixels, size, side, margin) {
  if (size === side) return pixels;
  const { left, top, right, bottom } = bounds(pixels, size);
  const [width, height] = [right - left, bottom - top];
  const whole = Math.max(1, rounded(Math.max(width, height) / (1 - 2 * margin)));
  const [atX, atY] = [Math.floor((whole - width) / 2), Math.floor((whole - height) / 2)];
  const square = new Uint8Array(whole * whole);
  for (let y = 0; y < height; y++) {
    const from = (top + y) * size + left;
    square.set(pixels.subarray(from, from + width), (atY + y) * whole + atX);
  }
  if (whole === side) return square;
  const weights = weigh(whole, side, whole > 2 * side ? box : triangle);
  return transposed(narrowed(transposed(narrowed(square, whole, weights), whole, side), whole, weights), side, side);
}

function bounds(pixels, size) {
  let [left, top, right, bottom] = [size, size, 0, 0];
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      if (pixels[y * size + x] <= INK) continue;
      left = Math.min(left, x);
      right = Math.max(right, x + 1);
      top = Math.min(top, y);
      bottom = y + 1;
    }
  }
  return right > 0 ? { left, top, right, bottom } : { left: 0, top: 0, right: size, bottom: size };
}

const box = { support: 0.5, at: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) };
const triangle = { support: 1, at: (x) => Math.max(0, 1 - Math.abs(x)) };

// For each of `count` pixels, where those begin that it is made of, and their weights.
function weigh(size, count, filter) {
  const scale = size / count;
  const stretch = Math.max(scale, 1);
  return Array.from({ length: count }, (_, i) => {
    const center = (i + 0.5) * scale;
    const first = Math.max(Math.trunc(center - filter.support * stretch + 0.5), 0);
    const end = Math.min(Math.trunc(center + filter.support * stretch + 0.5), size);
    const shares = [];
    for (let x = first; x < end; x++) shares.push(filter.at((x - center + 0.5) / stretch));
    const sum = shares.reduce((a, b) => a + b, 0);
    return { first, shares: shares.map((share) => Math.trunc(0.5 + (share / sum) * 2 ** PRECISION)) };
  });
}

// Every row of so many pixels, made as narrow as the weights tell.
function narrowed(pixels, size, weights) {
  const rows = pixels.length / size;
  const result = new Uint8Array(rows * weights.length);
  for (let y = 0; y < rows; y++) {
    weights.forEach(({ first, shares }, i) => {
      let sum = 2 ** (PRECISION - 1);
      for (let k = 0; k < shares.length; k++) sum += pixels[y * size + first + k] * shares[k];
      result[y * weights.length + i] = Math.min(Math.max(sum >> PRECISION, 0), 255);
    });
  }
  return result;
}

// Rows of so many pixels as columns.
function transposed(pixels, rows, columns) {
  const result = new Uint8Array(pixels.length);
  for (let y = 0; y < rows; y++) for (let x = 0; x < columns; x++) result[x * rows + y] = pixels[y * columns + x];
  return result;
}
