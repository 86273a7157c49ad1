/** A job's event stream, with automatic reconnection. */

import type { Progress } from "./bodies.js";
import { ApiError, ConnectionFailedError, UnexpectedAnswerError, isObject } from "./errors.js";
import { EventParser, type SentEvent } from "./eventStream.js";
import type { Exchange } from "./exchange.js";

/** The server sends something every 15 seconds; after three times that, the connection is dead. */
const SILENCE_MS_MAX = 45_000;
/** A connection that lasted this long does not count as a failure: proxies end long connections. */
const STEADY_MS = 10_000;

export interface LogLine {
  readonly at: string;
  readonly level: string;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

export interface Alert {
  readonly at: string;
  readonly code: string;
  readonly message: string;
}

/**
 * One event. `state` and `end` contain the job; the data of a `chunk` is the handler's output: text,
 * bytes (a `Uint8Array`), or a JSON value. A newer server may send events with other names.
 *
 * Pass `id` to `stream({ after: id })` to resume after this event; it is null before the first stored
 * event.
 */
export type JobEvent<Body, Moved = Progress> =
  | { readonly name: "state"; readonly data: Body; readonly id: string | null }
  | { readonly name: "progress"; readonly data: Moved; readonly id: string | null }
  | { readonly name: "log"; readonly data: LogLine; readonly id: string | null }
  | { readonly name: "chunk"; readonly data: unknown; readonly id: string | null }
  | { readonly name: "alert"; readonly data: Alert; readonly id: string | null }
  | { readonly name: "end"; readonly data: Body; readonly id: string | null };

export interface StreamOptions {
  /** The id of the last received event, to resume after it. */
  readonly after?: string | null | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Every event after the one with the id `after`, until the job has finished.
 *
 * A broken connection is reopened, and the server resumes after the last received event. `learn` is
 * called with the job's state before the event with it is yielded.
 */
export async function* follow<Body, Moved = Progress>(
  exchange: Exchange,
  url: string,
  options: StreamOptions,
  learn: (body: Body) => void,
): AsyncGenerator<JobEvent<Body, Moved>, void, void> {
  const reader = new Reader<Body, Moved>(options.after ?? null);
  let failures = 0;
  for (;;) {
    const connectedAt = performance.now();
    let failure: ApiError | ConnectionFailedError;
    try {
      for await (const sent of connection(exchange, url, reader.lastId, options.signal)) {
        const event = reader.read(sent);
        if (event === null) continue;
        failures = 0;
        if (event.name === "state" || event.name === "end") learn(event.data);
        yield event;
        if (event.name === "end") return;
      }
      failure = new ConnectionFailedError("the server ended the stream before the job ended");
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof ConnectionFailedError)) throw error;
      failure = error;
    }
    if (performance.now() - connectedAt >= STEADY_MS) failures = 0;
    failures += 1;
    await exchange.waitToRetry(failure, failures, { signal: options.signal, atLeast: reader.retrySeconds });
  }
}

/** The state of one of many jobs. Pass `id` as `after` to resume after this event. */
export interface ChangeEvent<Body> {
  readonly name: string;
  readonly data: Body;
  readonly id: string | null;
}

/** All changes among many jobs after the event `after`, without an end. A broken connection is reopened. */
export async function* followChanges<Body>(
  exchange: Exchange,
  url: string,
  options: StreamOptions,
): AsyncGenerator<ChangeEvent<Body>, void, void> {
  const events = follow<Body>(exchange, url, options, () => undefined);
  for await (const event of events) yield event as unknown as ChangeEvent<Body>;
}

async function* connection(
  exchange: Exchange,
  url: string,
  lastId: string | null,
  signal: AbortSignal | undefined,
): AsyncGenerator<SentEvent, void, void> {
  const headers: Record<string, string> = { accept: "text/event-stream" };
  if (lastId !== null) headers["last-event-id"] = lastId;
  const opened = await exchange.open("GET", url, { headers, silenceMs: SILENCE_MS_MAX, signal });
  const mediaType = opened.response.headers.get("content-type") ?? "";
  if (!mediaType.toLowerCase().startsWith("text/event-stream")) {
    opened.close();
    throw new UnexpectedAnswerError("the answer is not an event stream");
  }
  const parser = new EventParser();
  for await (const piece of opened.pieces()) yield* parser.read(piece);
}

/** Turns received events into job events, across reconnections. */
class Reader<Body, Moved> {
  retrySeconds = 0;
  readonly #shown = new Map<string, string>();

  constructor(public lastId: string | null) {}

  /** The job event, or null if it is not new to the caller. */
  read(sent: SentEvent): JobEvent<Body, Moved> | null {
    if (sent.retryMs !== null) this.retrySeconds = sent.retryMs / 1000;
    if (sent.id !== null && sent.id !== "") this.lastId = sent.id;
    if (sent.data === "" || sent.name === "reconnect") return null;
    const data = decode(sent);
    if (this.#wasShown(sent.name, data)) return null;
    return { name: sent.name, data, id: this.lastId } as JobEvent<Body, Moved>;
  }

  /** Whether this repeats the job's last state, as the first event of a new connection does. */
  #wasShown(name: string, data: unknown): boolean {
    if (name !== "state" && name !== "progress") return false;
    const now = JSON.stringify(name === "state" && isObject(data) ? stateKey(data) : data);
    const before = this.#shown.get(name);
    this.#shown.set(name, now);
    return before === now;
  }
}

/** The values that distinguish two states of a job in any product: status, attempt and run. */
function stateKey(job: Record<string, unknown>): unknown[] {
  const runs = job["runs"];
  return [
    job["status"] ?? job["state"],
    job["attempt_count"] ?? job["attempt"] ?? job["attempts"] ?? null,
    Array.isArray(runs) ? runs.length : null,
  ];
}

function decode(sent: SentEvent): unknown {
  try {
    const data: unknown = JSON.parse(sent.data);
    if (!isObject(data)) throw new TypeError("not an object");
    return sent.name === "chunk" ? emitted(data) : data;
  } catch (error) {
    throw new UnexpectedAnswerError(`the event ${JSON.stringify(sent.name)} cannot be decoded`, { cause: error });
  }
}

function emitted(chunk: Record<string, unknown>): unknown {
  if (!("kind" in chunk && "data" in chunk)) throw new TypeError("not a chunk");
  if (chunk["kind"] !== "binary") return chunk["data"];
  return Uint8Array.from(atob(String(chunk["data"])), (character) => character.charCodeAt(0));
}
