// @ts-check
// Names of classes as people say them.

import { spoken } from "./words.js";

const GERMAN = {
  airplane: "Flugzeug",
  "alarm clock": "Wecker",
  apple: "Apfel",
  asparagus: "Spargel",
  banana: "Banane",
  bicycle: "Fahrrad",
  bird: "Vogel",
  blackberry: "Brombeere",
  blueberry: "Blaubeere",
  book: "Buch",
  broccoli: "Brokkoli",
  carrot: "Karotte",
  cat: "Katze",
  diamond: "Diamant",
  dog: "Hund",
  eye: "Auge",
  fish: "Fisch",
  flower: "Blume",
  grapes: "Trauben",
  house: "Haus",
  peanut: "Erdnuss",
  pear: "Birne",
  pineapple: "Ananas",
  rainbow: "Regenbogen",
  strawberry: "Erdbeere",
  watermelon: "Wassermelone",
};

const DIGITS = {
  en: ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
  de: ["Null", "Eins", "Zwei", "Drei", "Vier", "Fünf", "Sechs", "Sieben", "Acht", "Neun"],
};

// What stands in a list: digits as digits.
export function named(name) {
  return spoken() === "de" && Object.hasOwn(GERMAN, name) ? GERMAN[name] : name;
}

// What is to be drawn, and what is said aloud: digits as words.
export function spelt(name) {
  return /^[0-9]$/.test(name) ? DIGITS[spoken()][Number(name)] : named(name);
}
