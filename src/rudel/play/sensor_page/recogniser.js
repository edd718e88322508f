// @ts-check
// What the C of an exported Arduino library does with sound and rows, in the same integers.

/** @typedef {{ found: number, scores: Uint8Array }} Answer */
/** @typedef {{ invoke(input: Int8Array): Int8Array }} Model */

const scoresOf = (outputs) => Uint8Array.from(outputs, (value) => value + 128);
const bestOf = (scores) => scores.indexOf(Math.max(...scores));

/** Recognises words, hop by hop. */
export class Listener {
  #frames;
  /** @type {Uint8Array[]} */
  #runs = [];
  #hops = 0;
  #resting = 0;
  /** The word that is still in the scores, or -1. */
  #heard = -1;

  /**
   * @param {any} about what model.json says
   * @param {Model} model
   * @param {any} features what the module of the features exports
   */
  constructor(about, model, features) {
    this.about = about;
    this.model = model;
    this.features = features;
    this.#frames = Int8Array.from({ length: about.frames * about.bands }, (_, i) => about.silence[i % about.bands]);
    this.#runs = Array.from({ length: about.smoothed }, () => new Uint8Array(about.classes.length));
    features.reset();
  }

  /**
   * The frame of the next hop.
   *
   * @param {Int16Array} hop
   */
  frame(hop) {
    const { memory, hop: given, bands, push } = this.features;
    new Int16Array(memory.buffer, given.value, hop.length).set(hop);
    push();
    return new Int8Array(memory.buffer, bands.value, this.about.bands).slice();
  }

  /** The log-mel spectrogram of the last hop, of which its frame is made. */
  spectrum() {
    const { memory, spectrum } = this.features;
    return new Int8Array(memory.buffer, spectrum.value, this.about.spectrum).slice();
  }

  /**
   * @param {Int16Array} hop
   * @returns {Answer | null}
   */
  push(hop) {
    const { bands, every, threshold, resting, passedOver } = this.about;
    this.#frames.copyWithin(0, bands);
    this.#frames.set(this.frame(hop), this.#frames.length - bands);
    if (++this.#hops < every) return null;
    this.#hops = 0;
    this.#runs.shift();
    this.#runs.push(scoresOf(this.model.invoke(this.#frames)));
    const sums = this.#runs.reduce(
      (sum, run) => sum.map((value, i) => value + run[i]),
      new Uint32Array(this.#runs[0].length),
    );
    const scores = Uint8Array.from(sums, (sum) => Math.floor(sum / this.#runs.length));
    const best = bestOf(scores);
    const word = passedOver[best] || scores[best] < threshold ? -1 : best;
    if (this.#resting) {
      this.#resting--;
      if (word !== this.#heard) this.#heard = -1;
      return { found: -1, scores };
    }
    const found = word === this.#heard ? -1 : word;
    this.#heard = word;
    if (found >= 0) this.#resting = resting;
    return { found, scores };
  }
}

/** Recognises movements, row by row. */
export class Mover {
  #rows = 0;

  /**
   * @param {any} about what model.json says
   * @param {Model} model
   * @param {{ mean: number[], deviation: number[] }} columns
   * @param {{ scale: number, zeroPoint: number }} port of the model's input
   */
  constructor(about, model, columns, port) {
    this.about = about;
    this.model = model;
    this.columns = columns;
    this.port = port;
    this.input = new Int8Array(about.rows * columns.mean.length);
  }

  /**
   * The numbers of a phone's row, in the order in which the model takes them.
   *
   * @param {ArrayLike<number>} row
   */
  numbers(row) {
    const { mean, deviation } = this.columns;
    return Int8Array.from(mean, (middle, i) => {
      const value = Math.fround(row[this.about.places[i]]);
      const normalised = Math.fround(Math.fround(value - middle) / deviation[i]);
      const number = halfToEven(Math.fround(normalised / Math.fround(this.port.scale))) + this.port.zeroPoint;
      return Math.min(Math.max(number, -128), 127);
    });
  }

  /**
   * @param {number[]} row
   * @returns {Answer | null}
   */
  push(row) {
    const force = row.slice(0, 3).reduce((sum, value) => sum + Math.abs(value), 0);
    if (!this.#rows && force < this.about.startsAt) return null;
    this.input.set(this.numbers(row), this.#rows * row.length);
    if (++this.#rows < this.about.rows) return null;
    this.#rows = 0;
    const scores = scoresOf(this.model.invoke(this.input));
    return { found: bestOf(scores), scores };
  }
}

function halfToEven(value) {
  const down = Math.floor(value);
  if (value - down !== 0.5) return Math.round(value);
  return down % 2 === 0 ? down : down + 1;
}
