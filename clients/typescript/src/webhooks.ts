/** Verification of webhook signatures, by the rules of Standard Webhooks. */

import { InvalidWebhookError, isObject } from "./errors.js";
import { joined } from "./exchange.js";

const SECRET_PREFIX = "whsec_";
const TOLERANCE_SECONDS = 5 * 60;

/**
 * A verified webhook event: something of this `type` happened at `timestamp`.
 *
 * `id` is the same at every delivery attempt: store the ids that you have seen, and ignore repeated ones.
 * `data` is the job or batch at the time of sending; if the body has no `data`, as for the states of chats,
 * it is the whole body.
 */
export interface WebhookEvent<Data = Record<string, unknown>> {
  readonly id: string;
  readonly type: string;
  readonly timestamp: string;
  readonly data: Data;
  readonly state: string | null;
  readonly previousState: string | null;
}

/** A request's headers: `Headers`, Node's headers, or any object. */
export type GivenHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** The maximum difference between the timestamp and now. Default: 300. */
  readonly toleranceSeconds?: number | undefined;
  /** The current time in milliseconds since 1970. */
  readonly now?: number | undefined;
}

/** `client.webhooks`. */
export class Webhooks {
  /** Verify a webhook and return its event; the same as `verifyWebhook`. */
  verify<Data = Record<string, unknown>>(
    payload: string | Uint8Array,
    headers: GivenHeaders,
    secret: string | readonly string[],
    options: VerifyOptions = {},
  ): Promise<WebhookEvent<Data>> {
    return verifyWebhook<Data>(payload, headers, secret, options);
  }
}

/**
 * Verify a webhook against one or several secrets, and return its event.
 *
 * `payload` is the exact request body; do not parse and serialise it again. Throws InvalidWebhookError if
 * the webhook was signed with another secret, was modified, or is too old.
 */
export async function verifyWebhook<Data = Record<string, unknown>>(
  payload: string | Uint8Array,
  headers: GivenHeaders,
  secret: string | readonly string[],
  options: VerifyOptions = {},
): Promise<WebhookEvent<Data>> {
  const secrets = (typeof secret === "string" ? [secret] : secret).map(readSecret);
  const id = header(headers, "webhook-id");
  const timestamp = header(headers, "webhook-timestamp");
  const signatures = header(headers, "webhook-signature");
  if (!id || !timestamp || !signatures) throw new InvalidWebhookError("a signature header is missing");
  checkTime(timestamp, options);
  const body = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  const signed = joined([new TextEncoder().encode(`${id}.${timestamp}.`), body]);
  const given = signatures.split(" ").flatMap(readSignature);
  let isGenuine = false;
  // Try every secret with every signature; WebCrypto compares in constant time.
  for (const bytes of secrets) {
    const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const signature of given) {
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) isGenuine = true;
    }
  }
  if (!isGenuine) throw new InvalidWebhookError("no signature matches the secret");
  return readEvent<Data>(id, body);
}

function checkTime(timestamp: string, options: VerifyOptions): void {
  const tolerance = options.toleranceSeconds ?? TOLERANCE_SECONDS;
  const signedAt = /^[0-9]{1,12}$/.test(timestamp) ? Number(timestamp) : NaN;
  if (Number.isNaN(signedAt)) throw new InvalidWebhookError("the timestamp is invalid");
  const age = (options.now ?? Date.now()) / 1000 - signedAt;
  if (age > tolerance) throw new InvalidWebhookError("the timestamp is too old");
  if (age < -tolerance) throw new InvalidWebhookError("the timestamp is in the future");
}

function readSecret(secret: string): Uint8Array<ArrayBuffer> {
  const bytes = fromBase64(secret.startsWith(SECRET_PREFIX) ? secret.slice(SECRET_PREFIX.length) : secret);
  if (bytes === null || bytes.length === 0) {
    throw new TypeError("secret must be whsec_ and base64, as Coatcheck shows it");
  }
  return bytes;
}

function readSignature(text: string): Uint8Array<ArrayBuffer>[] {
  const bytes = text.startsWith("v1,") ? fromBase64(text.slice("v1,".length)) : null;
  return bytes === null ? [] : [bytes];
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
}

function readEvent<Data>(id: string, body: Uint8Array): WebhookEvent<Data> {
  const event = parsed(body);
  if (!isObject(event) || typeof event["type"] !== "string" || typeof event["timestamp"] !== "string") {
    throw new InvalidWebhookError("the signature is valid, but the body contains no event");
  }
  return {
    id,
    type: event["type"],
    timestamp: event["timestamp"],
    data: (isObject(event["data"]) ? event["data"] : event) as Data,
    state: typeof event["state"] === "string" ? event["state"] : null,
    previousState: typeof event["previous_state"] === "string" ? event["previous_state"] : null,
  };
}

function parsed(body: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return null;
  }
}

function header(headers: GivenHeaders, wanted: string): string | null {
  if (headers instanceof Headers) return headers.get(wanted);
  for (const [name, value] of Object.entries(headers)) {
    if (name.toLowerCase() === wanted && value !== undefined) return String(value);
  }
  return null;
}
