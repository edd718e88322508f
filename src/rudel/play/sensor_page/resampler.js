// @ts-check
// Sound at the rate of a microphone becomes sound at the rate of a model.

const ZEROS = 16;
const PASS = 0.92;

/** Resamples by a windowed sinc: floats from -1 to 1 become 16-bit samples, block by block. */
export class Resampler {
  /** @type {Map<number, Float64Array>} */
  #kernels = new Map();
  #next = 0;

  /**
   * @param {number} from samples a second of what comes
   * @param {number} to samples a second of what it becomes
   */
  constructor(from, to) {
    this.from = from;
    this.to = to;
    this.half = Math.ceil(ZEROS * Math.max(1, from / to));
    this.kept = new Float32Array(this.half);
    this.start = -this.half;
  }

  /**
   * @param {Float32Array} block
   * @returns {number[]}
   */
  push(block) {
    const joined = new Float32Array(this.kept.length + block.length);
    joined.set(this.kept);
    joined.set(block, this.kept.length);
    const made = [];
    let middle = this.#middle();
    for (; middle + this.half < joined.length; middle = this.#middle()) {
      const kernel = this.#kernel((this.#next * this.from) % this.to);
      let sum = 0;
      for (let i = 0; i < kernel.length; i++) sum += kernel[i] * joined[middle - this.half + 1 + i];
      made.push(Math.max(-32768, Math.min(32767, Math.round(sum * 32768))));
      this.#next++;
    }
    const unused = Math.min(Math.max(0, middle - this.half), joined.length);
    this.kept = joined.slice(unused);
    this.start += unused;
    return made;
  }

  // Where the next sample is, rounded down, in what is kept.
  #middle() {
    return Math.floor((this.#next * this.from) / this.to) - this.start;
  }

  #kernel(phase) {
    const known = this.#kernels.get(phase);
    if (known) return known;
    const width = PASS * Math.min(1, this.to / this.from);
    const kernel = Float64Array.from({ length: 2 * this.half }, (_, i) => {
      const distance = i - this.half + 1 - phase / this.to;
      const x = Math.PI * width * distance;
      const hann = 0.5 + 0.5 * Math.cos((Math.PI * distance) / this.half);
      return (x === 0 ? 1 : Math.sin(x) / x) * hann;
    });
    const sum = kernel.reduce((a, b) => a + b, 0);
    const scaled =
      this.from === this.to ? kernel.map((_, i) => Number(i === this.half - 1)) : kernel.map((v) => v / sum);
    this.#kernels.set(phase, scaled);
    return scaled;
  }
}
