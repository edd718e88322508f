// @ts-check
/** Scales and their ticks: numbers in, numbers out. */

/** Round numbers within a range, at most so many; `whole` for no others than integers. */
export function ticks(low, high, most, whole = false) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / most));
  const step = [1, 2, 2.5, 5, 10, 20, 50, 100]
    .map((digit) => digit * power)
    .find((wide) => span / wide <= most && !(whole && wide % 1));
  if (step === undefined) return [low];
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Powers of ten within a range, every so many of them that there are few; at least two numbers. */
export function decades(low, high, most) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.max(1, Math.ceil((last - first + 1) / most));
  const found = [];
  for (let power = first; power <= last; power += every) found.push(10 ** power);
  return found.length >= 2 ? found : [low, high];
}

/**
 * A function from values of a range to places of another.
 *
 * @param {[number, number]} values
 * @param {[number, number]} places
 * @param {boolean} [log]
 * @returns {(value: number) => number}
 */
export function scale([low, high], [from, to], log = false) {
  const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const wide = b - a || 1;
  return (value) => from + (((log ? Math.log(value) : value) - a) / wide) * (to - from);
}

/**
 * The range that values fill, a little widened, from 0 where that is near.
 *
 * @param {number[]} values
 * @param {{ log?: boolean, zero?: boolean }} [how]
 * @returns {[number, number]}
 */
export function range(values, { log = false, zero = false } = {}) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return low < high ? [low / 1.15, high * 1.15] : [low / 2, high * 2];
  if (zero) return [0, high > 0 ? 1.08 * high : 1];
  const room = high > low ? 0.06 * (high - low) : Math.abs(high) / 10 || 1;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

/** Places moved apart, from the least on, so that neighbours keep a distance and none goes beyond an end. */
export function spread(places, gap, end) {
  const order = places.map((_, i) => i).sort((a, b) => places[a] - places[b]);
  const moved = [...places];
  order.forEach((at, i) => {
    if (i) moved[at] = Math.max(moved[at], moved[order[i - 1]] + gap);
  });
  for (let i = order.length - 1; i >= 0; i--) {
    moved[order[i]] = Math.min(moved[order[i]], i === order.length - 1 ? end : moved[order[i + 1]] - gap);
  }
  return moved;
}

/**
 * The unit to write times of up to so many seconds in, and its seconds.
 *
 * @param {number} seconds
 * @returns {[string, number]}
 */
export function timeUnit(seconds) {
  if (seconds < 180) return ["seconds", 1];
  return seconds < 3 * 3600 ? ["minutes", 60] : ["hours", 3600];
}
