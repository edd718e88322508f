/** Numbers as people read them; the same as in the report. */

const THIN = "\u202f";

/** A share of 0 to 1 in per cent, never rounded up to the whole. */
export function percent(share, digits = 1) {
  if (!isNumber(share)) return "–";
  let written = (100 * share).toFixed(digits);
  if (share < 1 && Number(written) >= 100) written = ">" + (100 - 10 ** -digits).toFixed(digits);
  return written + THIN + "%";
}

/** A whole number with commas. */
export function count(number) {
  return isNumber(number) ? Math.round(number).toLocaleString("en-GB") : "–";
}

/** A count with its noun. */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** A value with four significant digits. */
export function value(number, digits = 4) {
  if (!isNumber(number)) return "–";
  const size = Math.abs(number);
  if (size >= 1000 && size < 1e9) return minus(count(number));
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return minus(number.toExponential(digits - 1).replace(/\.?0+e/, "e"));
  return minus(String(Number(number.toPrecision(digits))));
}

/** A metric's value: accuracies in per cent. */
export function metric(number, share) {
  return share && isNumber(number) && number >= 0 && number <= 1 ? percent(number) : value(number);
}

/** How many a second, with three digits. */
export function rate(perSecond) {
  if (!isNumber(perSecond)) return "–";
  return perSecond >= 100 ? count(Number(perSecond.toPrecision(3))) : String(Number(perSecond.toPrecision(3)));
}

/** A time in the units that fit it. */
export function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds < 59.95) return seconds.toFixed(seconds < 9.995 ? 2 : 1) + THIN + "s";
  return whole(Math.round(seconds));
}

/** A time that nobody needs more exactly than to the second. */
export function roughly(seconds) {
  if (!isNumber(seconds)) return "–";
  return seconds < 60 ? Math.round(seconds) + THIN + "s" : whole(Math.round(seconds));
}

/** How long ago something was. */
export function ago(seconds) {
  return seconds < 1.5 ? "just now" : `${roughly(seconds)} ago`;
}

/** So many bytes, with three digits. */
export function size(amount) {
  if (!isNumber(amount)) return "–";
  for (const unit of ["bytes", "kB", "MB"]) {
    if (amount < 999.5) return Number(amount.toPrecision(3)) + THIN + unit;
    amount /= 1000;
  }
  return amount.toFixed(1) + THIN + "GB";
}

/** A text that begins with a capital letter. */
export function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
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
