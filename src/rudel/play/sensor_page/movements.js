// @ts-check
// The motion sensor of a phone gives rows as that of a board does: acceleration in g, rotation in degrees a second.

const G = 9.80665;

/** Makes rows at even times of events that come when they come. */
export class Rows {
  /** @type {{ time: number, row: number[] } | null} */
  #last = null;
  #next = 0;

  /** @param {number} rate rows a second */
  constructor(rate) {
    this.every = 1000 / rate;
  }

  /**
   * The rows up to the time of an event, straight lines between it and the one before.
   *
   * @param {DeviceMotionEvent} event
   * @returns {number[][]}
   */
  push(event) {
    const { accelerationIncludingGravity: a, rotationRate: r, timeStamp: time } = event;
    if (!a || a.x === null) return [];
    const row = [a.x / G, (a.y ?? 0) / G, (a.z ?? 0) / G, r?.beta ?? 0, r?.gamma ?? 0, r?.alpha ?? 0];
    const last = this.#last;
    this.#last = { time, row };
    if (!last || time - last.time > 1000) {
      this.#next = time + this.every;
      return [row];
    }
    const made = [];
    for (; this.#next <= time; this.#next += this.every) {
      const share = (this.#next - last.time) / (time - last.time || 1);
      made.push(row.map((value, i) => last.row[i] + share * (value - last.row[i])));
    }
    return made;
  }
}
