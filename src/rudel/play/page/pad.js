// @ts-check
// The drawing area: strokes by mouse, pen, finger and keyboard. Points are shares of its side, from its upper left corner.

import { say } from "./aloud.js";
import { word } from "./words.js";

const WIDTH = 1 / 44;
const STEP = 1 / 32;

export class Pad extends EventTarget {
  strokes = [];
  locked = false;
  #canvas;
  #pointer = null;
  #pen = { x: 0.5, y: 0.5, down: false, shown: false };

  constructor(canvas) {
    super();
    this.#canvas = canvas;
    canvas.addEventListener("pointerdown", (event) => this.#begin(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const kind of ["pointerup", "pointercancel", "lostpointercapture"])
      canvas.addEventListener(kind, (event) => this.#end(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("blur", () => this.#showPen(false));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear() {
    this.#leave();
    this.strokes = [];
    this.#changed(true);
  }

  undo() {
    this.#leave();
    this.strokes.pop();
    this.#changed(true);
  }

  // Takes no more strokes until it is unlocked; what is being drawn ends.
  lock(locked) {
    this.#leave();
    this.locked = locked;
    this.#changed(true);
  }

  draw() {
    const side = Math.round(this.#canvas.clientWidth * devicePixelRatio);
    if (side === 0) return;
    if (this.#canvas.width !== side) this.#canvas.width = this.#canvas.height = side;
    const context = this.#canvas.getContext("2d");
    context.clearRect(0, 0, side, side);
    drawStrokes(context, this.strokes, side, getComputedStyle(this.#canvas).color);
    if (this.#pen.shown) drawPen(context, this.#pen, side, getComputedStyle(this.#canvas).getPropertyValue("--blue"));
  }

  #begin(event) {
    if (this.locked || this.#pointer !== null || !event.isPrimary || event.button !== 0) return;
    this.#leave();
    this.#showPen(false);
    this.#pointer = event.pointerId;
    this.#canvas.setPointerCapture(event.pointerId);
    this.strokes.push([this.#place(event)]);
    this.#changed(false);
  }

  #move(event) {
    if (event.pointerId !== this.#pointer) return;
    const parts = event.getCoalescedEvents?.() ?? [];
    for (const part of parts.length > 0 ? parts : [event]) this.#add(this.#place(part));
    this.#changed(false);
  }

  #end(event) {
    if (event.pointerId !== this.#pointer) return;
    this.#pointer = null;
    this.#changed(true);
  }

  #key(event) {
    const by = event.shiftKey ? STEP / 4 : STEP;
    const ways = { ArrowLeft: [-by, 0], ArrowRight: [by, 0], ArrowUp: [0, -by], ArrowDown: [0, by] };
    if (event.key === "z" && (event.ctrlKey || event.metaKey)) this.#undoByKey();
    else if (event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key in ways) this.#walk(...ways[event.key]);
    else if (event.key === " ") this.#putDownOrLift();
    else if (event.key === "Backspace") this.#undoByKey();
    else if (event.key === "Delete") this.#clearByKey();
    else return;
    event.preventDefault();
  }

  #walk(dx, dy) {
    const pen = this.#pen;
    pen.x = Math.min(Math.max(pen.x + dx, 0.03), 0.97);
    pen.y = Math.min(Math.max(pen.y + dy, 0.03), 0.97);
    pen.shown = true;
    if (pen.down) {
      this.#add([pen.x, pen.y]);
      this.#changed(false);
    } else this.draw();
  }

  #putDownOrLift() {
    if (this.locked) return;
    const pen = this.#pen;
    pen.down = !pen.down;
    pen.shown = true;
    if (pen.down) this.strokes.push([[pen.x, pen.y]]);
    say(word(pen.down ? "penDown" : "penUp"));
    this.#changed(!pen.down);
  }

  #undoByKey() {
    if (this.strokes.length === 0 || this.locked) return;
    this.undo();
    say(word("undone"));
  }

  #clearByKey() {
    if (this.strokes.length === 0 || this.locked) return;
    this.clear();
    say(word("cleared"));
  }

  #showPen(shown) {
    if (!shown && this.#pen.down) {
      this.#pen.down = false;
      this.#changed(true);
    }
    this.#pen.shown = shown;
    this.draw();
  }

  // Ends what is being drawn, without a word.
  #leave() {
    this.#pointer = null;
    this.#pen.down = false;
  }

  #place(event) {
    const bounds = this.#canvas.getBoundingClientRect();
    return [(event.clientX - bounds.left) / bounds.width, (event.clientY - bounds.top) / bounds.height];
  }

  #add(point) {
    const stroke = this.strokes.at(-1);
    const [x, y] = stroke.at(-1);
    if (point[0] !== x || point[1] !== y) stroke.push(point);
  }

  #changed(ended) {
    this.draw();
    this.dispatchEvent(new CustomEvent("drawn", { detail: { ended } }));
  }
}

// Strokes on a square, smoothed for the eye.
export function drawStrokes(context, strokes, side, colour) {
  context.lineWidth = WIDTH * side;
  context.lineCap = context.lineJoin = "round";
  context.strokeStyle = colour;
  for (const stroke of strokes) {
    const points = stroke.map(([x, y]) => [x * side, y * side]);
    context.beginPath();
    context.moveTo(...points[0]);
    for (let i = 1; i < points.length - 1; i++) {
      const middle = [(points[i][0] + points[i + 1][0]) / 2, (points[i][1] + points[i + 1][1]) / 2];
      context.quadraticCurveTo(...points[i], ...middle);
    }
    context.lineTo(...points.at(-1));
    context.stroke();
  }
}

function drawPen(context, pen, side, colour) {
  const [x, y, radius] = [pen.x * side, pen.y * side, (WIDTH * side) / 2];
  context.lineWidth = side / 180;
  context.strokeStyle = context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  if (pen.down) context.fill();
  for (const [dx, dy] of [
    [1, 0],
    [-1, 0],
    [0, 1],
    [0, -1],
  ]) {
    context.moveTo(x + dx * radius * 1.5, y + dy * radius * 1.5);
    context.lineTo(x + dx * radius * 2.6, y + dy * radius * 2.6);
  }
  context.stroke();
}
