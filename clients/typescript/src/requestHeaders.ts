/** The headers of submissions. */

const KEY_CHARACTERS_MAX = 255;
/** The longest time that the server holds a response. */
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
 * The headers of a submission; the caller's own headers (`given`) take precedence.
 *
 * Without the caller's idempotency key there is a fresh one, so that each attempt of this submission finds
 * the same job.
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
    if (!isPrintable(value)) throw new TypeError(`the header ${name} has characters that a header cannot contain`);
    headers[name] = onTheWire(value);
  }
  return headers;
}

/** A unique idempotency key. `crypto.randomUUID` is missing on pages without https. */
export function freshKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** An idempotency key as a header value: bare if possible, else a quoted string. */
export function keyHeader(key: string): string {
  const characters = Array.from(key).length;
  if (characters < 1 || characters > KEY_CHARACTERS_MAX) {
    throw new TypeError(`an idempotency key must have 1 to ${KEY_CHARACTERS_MAX} characters`);
  }
  if (!isPrintable(key)) throw new TypeError("an idempotency key must be printable text");
  if (!key.startsWith('"') && key === key.trim()) return key;
  return `"${key.replace(/\\/g, "\\\\").replace(/"/g, '\\"')}"`;
}

/** Seconds in the format of the `wait` preference. */
export function seconds(wait: number): string {
  if (!(wait >= 0 && wait <= WAIT_SECONDS_MAX)) {
    throw new TypeError(`wait must be 0 to ${WAIT_SECONDS_MAX} seconds`);
  }
  return plainSeconds(wait);
}

/** Seconds for a header: to the millisecond, without an exponent. */
function plainSeconds(number: number): string {
  return number.toFixed(3).replace(/\.?0+$/, "");
}

/** UTF-8 bytes as a string, one character per byte, as `fetch` expects headers. */
function onTheWire(value: string): string {
  return Array.from(new TextEncoder().encode(value), (byte) => String.fromCharCode(byte)).join("");
}

function isPrintable(text: string): boolean {
  return !/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(text);
}
