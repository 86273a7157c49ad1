const DIGITS_MAX = 9;

/**
 * How many seconds the server wants to be left alone; null if it does not say.
 *
 * A date is compared with the answer's own Date: this machine's clock may be off.
 */
export function retryAfterSeconds(headers: Headers): number | null {
  const given = (headers.get("retry-after") ?? "").trim();
  if (/^[0-9]+$/.test(given)) return given.length <= DIGITS_MAX ? Number(given) : null;
  const until = httpDate(given);
  if (until === null) return null;
  const saidAt = httpDate(headers.get("date") ?? "") ?? Date.now();
  return Math.max(0, (until - saidAt) / 1000);
}

/** Only what names a day of the week: `Date.parse` makes something of nearly every text. */
function httpDate(text: string): number | null {
  if (!/^[A-Za-z]{3,9},? /.test(text)) return null;
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? null : moment;
}
