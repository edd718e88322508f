// @ts-check
// Asks the model: in this page, if it is there as WebAssembly, else the server that the page comes from.
//
// model.json says: `classes`; `side` and `lineWidth` of the bitmap; `inputSide` and `margin` of the square that is cut
// out of it, or a margin of null; whether outputs are `logits`; and `module`, the address of the model's JavaScript.

import { inkOnASquare } from "./square.js";
import { bitmap, simplified } from "./strokes.js";

export async function makeGuesser() {
  const answer = await fetch("model.json");
  if (!answer.ok) throw new Error(`model.json: ${answer.status}`);
  const guesser = new Guesser(await answer.json());
  try {
    await guesser.use(guesser.about.module);
  } catch (error) {
    if (guesser.about.offline) throw error; // there is no server that guesses
  }
  return guesser;
}

/**
 * Pixels as the model sees them, classes with their shares, best first, and how long it took.
 *
 * @typedef {{ seen: Uint8Array, side: number, ranking: { name: string, share: number }[], milliseconds: number }} Guess
 */

/** The server's reason not to guess, as a sentence. */
export class Refusal extends Error {}

/** Asks the model that `model.json` describes. */
export class Guesser {
  /** @type {{ run(pixels: Uint8Array): Float32Array | number[] } | null} */
  #model = null;
  /** @type {Promise<number[]> | null} */
  #busy = null;
  #cannot = false; // run the model here

  constructor(about) {
    this.about = about;
  }

  // Whether the page guesses by itself.
  get here() {
    return this.#model !== null;
  }

  async use(address) {
    if (!address || this.#model || this.#cannot) return;
    try {
      const module = await import(`./${address}`);
      this.#model = await module.load();
    } catch (error) {
      this.#cannot = true;
      throw error;
    }
  }

  /**
   * Guesses what strokes are; null while an answer is being waited for.
   *
   * @param {number[][][]} drawing
   * @returns {Promise<Guess | null>}
   */
  async guess(drawing) {
    if (this.#busy) return null;
    const began = performance.now();
    const { side, lineWidth, inputSide, margin } = this.about;
    const pixels = bitmap(simplified(drawing), side, lineWidth);
    const seen = margin === null ? pixels : inkOnASquare(pixels, side, inputSide, margin);
    let shares;
    if (this.#model) {
      shares = this.#shares(this.#model.run(seen));
    } else {
      this.#busy = this.#ask(pixels);
      try {
        shares = await this.#busy;
      } finally {
        this.#busy = null;
      }
    }
    const ranking = this.about.classes.map((name, i) => ({ name, share: shares[i] }));
    ranking.sort((a, b) => b.share - a.share);
    return { seen, side: margin === null ? side : inputSide, ranking, milliseconds: performance.now() - began };
  }

  #shares(outputs) {
    if (!this.about.logits) return outputs;
    const most = Math.max(...outputs);
    const powers = Array.from(outputs, (value) => Math.exp(value - most));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  }

  async #ask(pixels) {
    const answer = await fetch("guess", { method: "POST", body: pixels });
    const found = await answer.json();
    if (!answer.ok) throw new Refusal(found.error);
    if (found.module) this.use(found.module).catch(() => {});
    return found.probabilities;
  }
}
