const DIGITS_MAX = 9;

/**
 * The Retry-After header in seconds; null if it is missing.
 *
 * A date is compared with the response's own Date, because this machine's clock may be wrong.
 */
export function retryAfterSeconds(headers: Headers): number | null {
  const given = (headers.get("retry-after") ?? "").trim();
  if (/^[0-9]+$/.test(given)) return given.length <= DIGITS_MAX ? Number(given) : null;
  const until = httpDate(given);
  if (until === null) return null;
  const saidAt = httpDate(headers.get("date") ?? "") ?? Date.now();
  return Math.max(0, (until - saidAt) / 1000);
}

/** Parses only dates with a day of the week, because `Date.parse` accepts nearly any text. */
function httpDate(text: string): number | null {
  if (!/^[A-Za-z]{3,9},? /.test(text)) return null;
  const moment = Date.parse(text);
  return Number.isNaN(moment) ? null : moment;
}
