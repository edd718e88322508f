// @ts-check
/** Numbers as people read them; the same as in the report: both are held to tests/report/numbers.json. */

const THIN = "\u202f";

/** A share of 0 to 1 in per cent, never rounded up to the whole. */
export function percent(share, digits = 1) {
  if (!isNumber(share)) return "–";
  let written = fixed(100 * share, digits);
  if (share < 1 && Number((100 * share).toFixed(digits)) >= 100) written = `>${fixed(100 - 10 ** -digits, digits)}`;
  return `${written + THIN}%`;
}

/** A whole number with commas. */
export function count(number) {
  return isNumber(number) ? fixed(number, 0) : "–";
}

/** The number of an epoch, with its fraction where a value was taken within one. */
export function epochNumber(number) {
  return String(Number(number.toFixed(number >= 1 ? 2 : 3)));
}

/** A count with its noun. */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A value with four significant digits. */
export function value(number, digits = 4) {
  if (!isNumber(number)) return "–";
  const rounded = Number(number.toPrecision(digits));
  const size = Math.abs(rounded);
  if (size >= 1000 && size < 1e9) return count(number);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return minus(rounded.toExponential().replace("e+", "e"));
  return minus(String(rounded));
}

/** A metric's value: accuracies in per cent. */
export function metric(number, share) {
  return share && isNumber(number) && number >= 0 && number <= 1 ? percent(number) : value(number);
}

/** A value at an axis: with six digits, as neighbours may differ little. */
export function tick(number, share) {
  return share ? `${value(100 * number, 6) + THIN}%` : value(number, 6);
}

/** How many a second, with three digits. */
export function rate(perSecond) {
  return isNumber(perSecond) ? value(Number(perSecond.toPrecision(3)), 3) : "–";
}

/** A time in the units that fit it. */
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 59.95) return `${fixed(seconds, seconds < 9.995 ? 2 : 1) + THIN}s`;
  return whole(Math.round(seconds));
}

/** A time that nobody needs more exactly than to the second. */
export function roughly(seconds) {
  if (!isNumber(seconds)) return "–";
  return seconds < 60 ? `${Math.round(seconds) + THIN}s` : whole(Math.round(seconds));
}

/** How long ago something was. */
export function ago(seconds) {
  return seconds < 1.5 ? "just now" : `${roughly(seconds)} ago`;
}

/** So many bytes, with three digits. */
export function size(amount) {
  if (!isNumber(amount)) return "–";
  for (const unit of ["bytes", "kB", "MB"]) {
    if (amount < 999.5) return value(amount, 3) + THIN + unit;
    amount /= 1000;
  }
  return `${fixed(amount, 1) + THIN}GB`;
}

/** A text that begins with a capital letter. */
export function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** With so many digits behind the point, and commas. */
function fixed(number, digits) {
  const written = Math.abs(number).toFixed(digits);
  const [integer, rest] = written.split(".");
  const grouped = integer.replace(/\B(?=(\d{3})+$)/g, ",") + (rest ? `.${rest}` : "");
  return (number < 0 && Number(written) ? "−" : "") + grouped;
}

function minus(text) {
  return text.replaceAll("-", "−");
}

function whole(seconds) {
  if (seconds < 3600) return `${Math.floor(seconds / 60)}${THIN}min ${seconds % 60}${THIN}s`;
  const [days, hours] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600)];
  if (days >= 2) return `${days}${THIN}days ${hours % 24}${THIN}h`;
  return `${hours}${THIN}h ${Math.floor((seconds % 3600) / 60)}${THIN}min`;
}
