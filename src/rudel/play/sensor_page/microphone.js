// @ts-check
// Runs beside the page, in the thread of sound: takes what the microphone gives, and sends it on hop by hop.

import { Resampler } from "./resampler.js";

/**
 * What this script runs in, of which TypeScript's types of pages know nothing.
 *
 * @typedef {object} Scope
 * @property {number} sampleRate
 * @property {new () => { port: MessagePort }} AudioWorkletProcessor
 * @property {(name: string, kind: unknown) => void} registerProcessor
 */

const scope = /** @type {Scope} */ (/** @type {unknown} */ (globalThis));

class Microphone extends scope.AudioWorkletProcessor {
  /** @type {number[]} */
  #waiting = [];

  /** @param {{ processorOptions: { rate: number, hop: number } }} options */
  constructor({ processorOptions: { rate, hop } }) {
    super();
    this.hop = hop;
    this.resampler = new Resampler(scope.sampleRate, rate);
  }

  /** @param {Float32Array[][]} inputs */
  process([[sound]]) {
    if (sound) this.#waiting.push(...this.resampler.push(sound));
    while (this.#waiting.length >= this.hop) this.port.postMessage(Int16Array.from(this.#waiting.splice(0, this.hop)));
    return true;
  }
}

scope.registerProcessor("microphone", Microphone);
