/** Says whether a webhook is Coatcheck's, by the rules of Standard Webhooks. */

import { InvalidWebhookError, isObject } from "./errors.js";
import { joined } from "./exchange.js";

const SECRET_PREFIX = "whsec_";
const TOLERANCE_SECONDS = 5 * 60;

/**
 * What a webhook tells: that something of this `type` happened at `timestamp`.
 *
 * `id` is the same at every try: keep those that you have seen, and pass over what you know. `data` is
 * what it happened to, as its surface shows it when the webhook is sent; where the body has no `data`,
 * as for the states of chats, it is the whole body.
 */
export interface WebhookEvent<Data = Record<string, unknown>> {
  readonly id: string;
  readonly type: string;
  readonly timestamp: string;
  readonly data: Data;
  readonly state: string | null;
  readonly previousState: string | null;
}

/** A request's headers, however they are kept: `Headers`, Node's, or any object. */
export type GivenHeaders = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** How far the time of signing may lie from now: 300. */
  readonly toleranceSeconds?: number | undefined;
  /** What counts as now, in milliseconds since 1970. */
  readonly now?: number | undefined;
}

/** `client.webhooks`. */
export class Webhooks {
  /** What a webhook tells, if it is genuine; the same as `verifyWebhook`. */
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
 * What a webhook tells, if it was signed with this secret, or one of several.
 *
 * `payload` is the request's body, to the byte: what was parsed and written again is another. Throws
 * InvalidWebhookError if it was signed otherwise, was changed on its way, or was signed too long ago.
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
  if (!id || !timestamp || !signatures) throw new InvalidWebhookError("a header of the signature is missing");
  checkTime(timestamp, options);
  const body = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
  const signed = joined([new TextEncoder().encode(`${id}.${timestamp}.`), body]);
  const given = signatures.split(" ").flatMap(readSignature);
  let isGenuine = false;
  // Every secret is tried with every signature, and WebCrypto compares in constant time.
  for (const bytes of secrets) {
    const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const signature of given) {
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) isGenuine = true;
    }
  }
  if (!isGenuine) throw new InvalidWebhookError("no signature is that of the secret");
  return readEvent<Data>(id, body);
}

function checkTime(timestamp: string, options: VerifyOptions): void {
  const tolerance = options.toleranceSeconds ?? TOLERANCE_SECONDS;
  const signedAt = /^[0-9]{1,12}$/.test(timestamp) ? Number(timestamp) : NaN;
  if (Number.isNaN(signedAt)) throw new InvalidWebhookError("the time of signing cannot be read");
  const age = (options.now ?? Date.now()) / 1000 - signedAt;
  if (age > tolerance) throw new InvalidWebhookError("it was signed too long ago");
  if (age < -tolerance) throw new InvalidWebhookError("it was signed in the future");
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
    throw new InvalidWebhookError("the signature is right, and the body shows no event");
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
