// @ts-check
// Puts the page together: a microphone or motion sensor, the model, and what it says.

import { element } from "./elements.js";
import { Rows } from "./movements.js";
import { Listener, Mover } from "./recogniser.js";

const COLOURS = ["#1f5fb8", "#c2500c", "#1f7a55", "#7db4f7", "#f29a5c", "#63cba4"];
const LARGEST = [4, 4, 4, 500, 500, 500];
const canvas = element("seen", HTMLCanvasElement);
const start = element("start", HTMLButtonElement);
const drawing = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));

function complain(sentence) {
  element("problem").textContent = sentence;
  element("problem").hidden = false;
}

async function fetched(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${address}: ${answer.status}`);
  return answer;
}

function list(classes) {
  const rows = classes.map((name) => {
    const row = document.createElement("li");
    const bar = document.createElement("progress");
    bar.max = 255;
    bar.value = 0;
    bar.ariaLabel = name;
    row.append(name, bar);
    return row;
  });
  element("scores").replaceChildren(...rows);
}

/** @param {import("./recogniser.js").Answer | null} answer */
function show(answer, classes) {
  if (!answer) return;
  document.querySelectorAll("progress").forEach((bar, i) => {
    bar.value = answer.scores[i];
  });
  if (answer.found < 0) return;
  element("found").textContent = classes[answer.found];
  const entry = document.createElement("li");
  entry.textContent = classes[answer.found];
  element("log").prepend(entry);
}

// Moves the picture by a column to the left.
function scroll() {
  drawing.drawImage(canvas, -1, 0);
  drawing.clearRect(canvas.width - 1, 0, 1, canvas.height);
}

function paint(frame) {
  scroll();
  frame.forEach((value, band) => {
    drawing.fillStyle = `hsl(${250 - value - 128} 80% ${Math.round((value + 128) / 3.2)}%)`;
    drawing.fillRect(canvas.width - 1, frame.length - 1 - band, 1, 1);
  });
}

function plot(row) {
  scroll();
  row.forEach((value, i) => {
    drawing.fillStyle = COLOURS[i];
    drawing.fillRect(canvas.width - 1, Math.round((canvas.height / 2) * (1 - value / LARGEST[i])), 1, 2);
  });
}

async function listen(about, listener) {
  const exact = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  const stream = await navigator.mediaDevices.getUserMedia({ audio: exact });
  const context = new AudioContext();
  try {
    await context.audioWorklet.addModule("microphone.js");
    const processorOptions = { rate: about.rate, hop: about.hop };
    const node = new AudioWorkletNode(context, "microphone", { processorOptions });
    node.port.onmessage = ({ data }) => {
      show(listener.push(data), about.classes);
      paint(listener.spectrum());
    };
    context.createMediaStreamSource(stream).connect(node).connect(context.destination);
    await context.resume();
  } catch (error) {
    for (const track of stream.getTracks()) track.stop();
    await context.close();
    throw error;
  }
}

async function feel(about, mover) {
  const asking = /** @type {{ requestPermission?: () => Promise<string> }} */ (
    /** @type {unknown} */ (DeviceMotionEvent)
  );
  if (asking.requestPermission && (await asking.requestPermission()) !== "granted")
    throw new DOMException("not granted", "NotAllowedError");
  const rows = new Rows(about.rowRate);
  addEventListener("devicemotion", (event) => {
    for (const row of rows.push(event)) {
      plot(row);
      show(mover.push(row), about.classes);
    }
  });
}

function why(error, sensor) {
  if (!isSecureContext) return `Browsers give a page the ${sensor} only by https, or from localhost.`;
  return error.name === "NotAllowedError"
    ? `The ${sensor} cannot be used: allow this page to use it, and press the button again.`
    : `The ${sensor} could not be started (${error.message}): reload the page, and press the button again.`;
}

async function prepare() {
  const about = await (await fetched("model.json")).json();
  const module = await import(`./${about.module}`);
  const model = await module.load();
  const features = about.module.replace(/\.js$/, "_features");
  list(about.classes);
  element("attribution").textContent = about.attribution;
  if (about.kind === "sound") {
    canvas.height = about.spectrum;
    const bytes = await (await fetched(`${features}.wasm`)).arrayBuffer();
    const { instance } = await WebAssembly.instantiate(bytes);
    const listener = new Listener(about, model, instance.exports);
    return { about, begin: () => listen(about, listener) };
  }
  const mover = new Mover(about, model, await (await fetched(`${features}.json`)).json(), module.inputs[0]);
  return { about, begin: () => feel(about, mover) };
}

try {
  const { about, begin } = await prepare();
  const sensor = about.kind === "sound" ? "microphone" : "motion sensor";
  start.textContent = `Start the ${sensor}`;
  start.disabled = false;
  start.addEventListener("click", async () => {
    start.disabled = true;
    element("problem").hidden = true;
    try {
      await begin();
      document.body.dataset.running = "true";
    } catch (error) {
      start.disabled = false;
      complain(why(error, sensor));
    }
  });
  if (about.offline && "serviceWorker" in navigator) navigator.serviceWorker.register("worker.js").catch(() => {});
  document.body.dataset.ready = "true";
} catch {
  complain("The model could not be loaded: reload the page.");
}
