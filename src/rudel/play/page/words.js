// @ts-check
// What the page says, in English and German.

const WORDS = {
  en: {
    title: "Draw, and the computer guesses",
    skip: "Skip to the drawing area",
    mode: "Mode",
    free: "Draw",
    voice: "Say guesses aloud",
    language: "Language",
    drawing: "Drawing",
    pad: "Drawing area",
    hint: "Draw something here",
    undo: "Undo",
    clear: "Clear",
    help: "Keyboard",
    keys: "Arrow keys move the pen, with Shift by less. Space puts it down and lifts it. Backspace undoes a stroke, Delete clears.",
    guesses: "Guesses",
    seen: "What the model sees",
    time: "Time per guess",
    where: "Guessed by",
    sees: "The model sees",
    pixels: (side) => `${side} × ${side} pixels`,
    page: "this page, on your device",
    server: "Rudel on this computer",
    private: "What you draw stays with you.",
    waiting: "I am watching",
    nothing: "Go ahead",
    perhaps: "Could it be",
    likely: "I think it is",
    sure: "I know, it is",
    loading: "One moment",
    penDown: "Pen down",
    penUp: "Pen up",
    cleared: "Cleared",
    undone: "Stroke undone",
    pass: "Skip",
    left: "Seconds left",
    round: (number, of) => `Word ${number} of ${of}`,
    draw: "Draw",
    rules: (seconds, rounds) =>
      `${rounds} words, ${seconds} seconds each. You draw, I guess aloud. The faster I get it, the more points.`,
    start: "Start",
    go: "Go",
    right: (seconds) => `Yes! Recognised in ${seconds} s`,
    over: "Time is up",
    skipped: "Skipped",
    instead: (guess) => `I saw: ${guess}`,
    blank: "nothing drawn",
    points: (points) => `${points} points`,
    score: (right, of, points) => `${right} of ${of} recognised · ${points} points`,
    again: "Play again",
    freely: "Draw freely",
    ends: ["Not my best day", "We are getting there", "Well drawn!", "A master at work!"],
    secondsLeft: (seconds) => `${seconds} seconds left`,
    failed: "The model could not be loaded. Reload the page to try again.",
    gone: "Rudel no longer answers. Is `rudel play` still running?",
  },
  de: {
    title: "Zeichne, und der Computer rät",
    skip: "Zur Zeichenfläche springen",
    mode: "Modus",
    free: "Zeichnen",
    voice: "Laut raten",
    language: "Sprache",
    drawing: "Zeichnung",
    pad: "Zeichenfläche",
    hint: "Zeichne hier etwas",
    undo: "Zurück",
    clear: "Löschen",
    help: "Tastatur",
    keys: "Pfeiltasten bewegen den Stift, mit Umschalt um weniger. Leertaste setzt ihn auf und hebt ihn ab. Rücktaste nimmt einen Strich zurück, Entf löscht alles.",
    guesses: "Vermutungen",
    seen: "Was das Modell sieht",
    time: "Zeit pro Vermutung",
    where: "Es rät",
    sees: "Das Modell sieht",
    pixels: (side) => `${side} × ${side} Pixel`,
    page: "diese Seite, auf deinem Gerät",
    server: "Rudel auf diesem Computer",
    private: "Was du zeichnest, bleibt bei dir.",
    waiting: "Ich schaue zu",
    nothing: "Leg los",
    perhaps: "Vielleicht",
    likely: "Ich glaube, das ist",
    sure: "Ich weiß es:",
    loading: "Einen Moment",
    penDown: "Stift aufgesetzt",
    penUp: "Stift abgehoben",
    cleared: "Gelöscht",
    undone: "Strich zurückgenommen",
    pass: "Weiter",
    left: "Sekunden übrig",
    round: (number, of) => `Wort ${number} von ${of}`,
    draw: "Zeichne",
    rules: (seconds, rounds) =>
      `${rounds} Wörter, je ${seconds} Sekunden. Du zeichnest, ich rate laut. Je schneller ich es habe, desto mehr Punkte.`,
    start: "Los geht’s",
    go: "Los",
    right: (seconds) => `Ja! Erkannt nach ${seconds} s`,
    over: "Die Zeit ist um",
    skipped: "Übersprungen",
    instead: (guess) => `Ich sah: ${guess}`,
    blank: "nichts gezeichnet",
    points: (points) => `${points} Punkte`,
    score: (right, of, points) => `${right} von ${of} erkannt · ${points} Punkte`,
    again: "Noch einmal",
    freely: "Frei zeichnen",
    ends: ["Nicht mein bester Tag", "Das wird schon", "Gut gezeichnet!", "Meisterhaft!"],
    secondsLeft: (seconds) => `noch ${seconds} Sekunden`,
    failed: "Das Modell ließ sich nicht laden. Lade die Seite neu, um es noch einmal zu versuchen.",
    gone: "Rudel antwortet nicht mehr. Läuft „rudel play“ noch?",
  },
};

let language = "en";

// The language that is spoken now.
export const spoken = () => language;

// Chooses a language and says everything in the page in it.
export function speak(chosen) {
  language = chosen in WORDS ? chosen : "en";
  document.documentElement.lang = language;
  for (const element of labelled("say")) element.textContent = word(element.dataset.say);
  for (const element of labelled("label")) element.setAttribute("aria-label", word(element.dataset.label));
}

/**
 * @param {string} kind
 * @returns {NodeListOf<HTMLElement>}
 */
function labelled(kind) {
  return document.querySelectorAll(`[data-${kind}]`);
}

// A word or sentence; some take numbers or names.
export function word(key, ...given) {
  const found = WORDS[language][key];
  return typeof found === "function" ? found(...given) : found;
}

export function percent(share) {
  const format = new Intl.NumberFormat(language, { style: "percent" });
  return share > 0 && share < 0.005 ? `< ${format.format(0.01)}` : format.format(share);
}

export const number = (value, digits) =>
  new Intl.NumberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
