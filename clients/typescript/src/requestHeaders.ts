/** What a submission says of itself, as headers. */

const KEY_CHARACTERS_MAX = 255;
/** The longest that the server holds an answer. */
export const WAIT_SECONDS_MAX = 60;

export interface SubmissionHeaders {
  readonly method?: string | undefined;
  readonly lane?: string | undefined;
  readonly idempotencyKey?: string | undefined;
  readonly waitSeconds?: number | undefined;
  readonly delaySeconds?: number | undefined;
  readonly webhookUrl?: string | undefined;
  readonly stateWebhookUrl?: string | undefined;
  readonly contentType?: string | undefined;
  readonly given?: Readonly<Record<string, string>> | undefined;
}

/**
 * The headers of a submission; those the caller has `given` go first.
 *
 * Without a key of the caller's there is a fresh one, and so each try of this submission finds the
 * same job.
 */
export function submissionHeaders(wanted: SubmissionHeaders): Record<string, string> {
  const headers: Record<string, string> = {};
  if (wanted.contentType !== undefined) headers["content-type"] = wanted.contentType;
  for (const [name, value] of Object.entries(wanted.given ?? {})) headers[name.toLowerCase()] = value;
  if (wanted.lane !== undefined) headers["x-hsl-lane"] = wanted.lane;
  const method = wanted.method ?? "POST";
  if (method !== "POST") headers["x-hsl-target-method"] = method;
  if (wanted.webhookUrl !== undefined) headers["x-webhook-url"] = wanted.webhookUrl;
  if (wanted.stateWebhookUrl !== undefined) headers["x-state-webhook-url"] = wanted.stateWebhookUrl;
  if (wanted.delaySeconds !== undefined) headers["x-coatcheck-delay"] = plainSeconds(wanted.delaySeconds);
  if (wanted.waitSeconds !== undefined) {
    const held = `wait=${seconds(wanted.waitSeconds)}`;
    headers["prefer"] = headers["prefer"] === undefined ? held : `${held}, ${headers["prefer"]}`;
  }
  const hasKey = "idempotency-key" in headers || "x-idempotency-key" in headers;
  const key = wanted.idempotencyKey ?? (hasKey ? undefined : freshKey());
  if (key !== undefined) headers["idempotency-key"] = keyHeader(key);
  for (const [name, value] of Object.entries(headers)) {
    if (!isPrintable(value)) throw new TypeError(`the header ${name} has characters that no header can hold`);
    headers[name] = onTheWire(value);
  }
  return headers;
}

/** A key that no other submission has. `crypto.randomUUID` is only there where a page came by https. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** An idempotency key as its header's value: bare where it can be, else a quoted string. */
export function keyHeader(key: string): string {
  const characters = Array.from(key).length;
  if (characters < 1 || characters > KEY_CHARACTERS_MAX) {
    throw new TypeError(`an idempotency key has 1 to ${KEY_CHARACTERS_MAX} characters`);
  }
  if (!isPrintable(key)) throw new TypeError("an idempotency key is printable text");
  if (!key.startsWith('"') && key === key.trim()) return key;
  return `"${key.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;
}

/** A number of seconds, as `wait` takes it. */
export function seconds(wait: number): string {
  if (!(wait >= 0 && wait <= WAIT_SECONDS_MAX)) {
    throw new TypeError(`wait must be 0 to ${WAIT_SECONDS_MAX} seconds`);
  }
  return plainSeconds(wait);
}

/** A number of seconds as headers spell it: to the millisecond, without an exponent. */
function plainSeconds(number: number): string {
  return number.toFixed(3).replace(/\.?0+$/, "");
}

/** `fetch` takes the bytes of a header as the characters of a string. */
function onTheWire(value: string): string {
  return Array.from(new TextEncoder().encode(value), (byte) => String.fromCharCode(byte)).join("");
}

function isPrintable(text: string): boolean {
  return !/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(text);
}
