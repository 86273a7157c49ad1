/** HTTP requests with retries and timeouts. */

import { type Deadline, after, sleep } from "./deadline.js";
import {
  ApiError,
  ConnectionFailedError,
  UnexpectedAnswerError,
  apiError,
  isObject,
} from "./errors.js";
import { retryDelaySeconds, surelyNotDone, worthRetrying } from "./retries.js";

const SLOW_BYTES_PER_SECOND = 64 * 1024;

export type Fetch = (input: string, init: RequestInit) => Promise<Response>;
/** A credential, or a function that returns one for each request, such as a renewed JWT. */
export type Credential = string | (() => string | Promise<string>);
export type RequestBody = string | Blob | FormData | Uint8Array | ReadableStream<Uint8Array>;

export interface RequestOptions {
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** A stream can be sent only once; everything else is sent again at each attempt. */
  readonly body?: RequestBody | undefined;
  /** How long the server was asked to hold the response. */
  readonly heldMs?: number;
  /** How long the server may be silent, if it differs from the client's timeout. */
  readonly silenceMs?: number;
  /** No new attempt starts after this. */
  readonly deadline?: Deadline | undefined;
  /** A request that is not repeatable is sent again only if it certainly had no effect. */
  readonly isRepeatable?: boolean;
  /** A signed URL needs no credential and gets none. */
  readonly isSigned?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export class Exchange {
  readonly retriesMax: number;
  /** Waits this many seconds. Tests replace it to record the pauses. */
  pause = (seconds: number, signal?: AbortSignal): Promise<void> => sleep(seconds * 1000, signal);
  readonly #fetch: Fetch;
  readonly #credential: Credential | null;
  readonly #timeoutMs: number;

  constructor(fetch: Fetch, credential: Credential | null, timeoutMs: number, retriesMax: number) {
    if (!(timeoutMs > 0)) throw new TypeError("timeoutMs must be more than 0");
    if (!(retriesMax >= 0)) throw new TypeError("maxRetries must not be negative");
    if (typeof credential === "string") checkCredential(credential);
    this.#fetch = fetch;
    this.#credential = credential;
    this.#timeoutMs = timeoutMs;
    this.retriesMax = retriesMax;
  }

  /** The complete 2xx response. Throws ApiError, ConnectionFailedError. */
  async send(method: string, url: string, options: RequestOptions = {}): Promise<Answer> {
    for (let failures = 1; ; failures += 1) {
      try {
        const opened = await this.open(method, url, options);
        return new Answer(opened.response, await opened.whole());
      } catch (error) {
        if (!(error instanceof ApiError || error instanceof ConnectionFailedError)) throw error;
        if (options.body instanceof ReadableStream) throw error;
        if (options.isRepeatable === false && !surelyNotDone(error)) throw error;
        await this.waitToRetry(error, failures, options);
      }
    }
  }

  /** Waits before the next attempt after this many failures in a row; throws `error` to give up. */
  async waitToRetry(
    error: ApiError | ConnectionFailedError,
    failures: number,
    options: { deadline?: Deadline | undefined; signal?: AbortSignal | undefined; atLeast?: number } = {},
  ): Promise<void> {
    if (error instanceof ApiError && !worthRetrying(error)) throw error;
    const retryAfter = error instanceof ApiError ? error.retryAfter : null;
    const random = Math.random();
    const delay = retryDelaySeconds(this.retriesMax, failures, retryAfter, random, options.atLeast);
    if (delay === null || delay * 1000 >= (options.deadline?.remainingMs() ?? Infinity)) throw error;
    await this.pause(delay, options.signal);
  }

  /** One attempt. The response's body is still to be read. */
  async open(method: string, url: string, options: RequestOptions = {}): Promise<Opened> {
    const answering = options.silenceMs ?? this.#timeoutMs + (options.heldMs ?? 0);
    const silenceMs = answering + sendingMs(options.body);
    const headers: Record<string, string> = { ...options.headers };
    if (options.isSigned !== true) await this.#authorize(headers);
    const guard = new Guard(new URL(url).host, silenceMs, options.signal);
    const init: RequestInit & { duplex?: "half" } = {
      method,
      headers,
      signal: guard.signal,
      redirect: "manual",
      cache: "no-store",
      credentials: "omit",
    };
    if (options.body !== undefined) {
      init.body = options.body as BodyInit;
      if (options.body instanceof ReadableStream) init.duplex = "half";
    }
    const response = await guard.watch(() => this.#fetch(url, init));
    const opened = new Opened(response, guard);
    if (response.status >= 400) {
      const body = await opened.whole();
      throw apiError(response.status, response.headers, new TextDecoder().decode(body));
    }
    if (!response.ok) {
      opened.close();
      const status = response.type === "opaqueredirect" ? "a redirection" : String(response.status);
      throw new UnexpectedAnswerError(`the server answered ${status}`);
    }
    return opened;
  }

  async #authorize(headers: Record<string, string>): Promise<void> {
    if (this.#credential === null) return;
    let credential = this.#credential;
    if (typeof credential === "function") {
      credential = await credential();
      checkCredential(credential);
    }
    headers["authorization"] = `Bearer ${credential}`;
  }
}

/** A completely read response. */
export class Answer {
  readonly status: number;
  readonly headers: Headers;

  constructor(
    response: Response,
    readonly bytes: Uint8Array<ArrayBuffer>,
  ) {
    this.status = response.status;
    this.headers = response.headers;
  }

  text(): string {
    return new TextDecoder().decode(this.bytes);
  }

  json(): unknown {
    try {
      return JSON.parse(this.text());
    } catch (error) {
      throw new UnexpectedAnswerError(`the answer ${this.status} does not contain the expected JSON`, { cause: error });
    }
  }

  /** The JSON object in the body. The caller chooses its type; it is not checked. */
  object<Body>(): Body {
    const body = this.json();
    if (!isObject(body)) throw new UnexpectedAnswerError(`the answer ${this.status} does not contain the expected JSON`);
    return body as Body;
  }

  get mediaType(): string {
    return (this.headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
  }
}

/** A response whose body is still to be read. */
export class Opened {
  readonly response: Response;
  readonly #guard: Guard;

  constructor(response: Response, guard: Guard) {
    this.response = response;
    this.#guard = guard;
  }

  /** The body as it arrives. Throws ConnectionFailedError if the connection breaks. */
  async *pieces(): AsyncGenerator<Uint8Array, void, void> {
    const reader = this.response.body?.getReader();
    try {
      if (reader === undefined) return;
      for (;;) {
        const { done, value } = await this.#guard.watch(() => reader.read());
        if (done) return;
        yield value;
      }
    } finally {
      this.close();
    }
  }

  async whole(): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.pieces()) pieces.push(piece);
    return joined(pieces);
  }

  /** Closes the connection, unless the body was read completely. */
  close(): void {
    this.#guard.end();
  }
}

export function joined(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** Aborts a request if its caller wants that, or if the server is silent for too long. */
class Guard {
  readonly #controller = new AbortController();
  readonly #onAbort = (): void => this.#controller.abort(this.caller?.reason);
  #fellSilent = false;

  constructor(
    private readonly host: string,
    private readonly silenceMs: number,
    private readonly caller: AbortSignal | undefined,
  ) {
    if (caller?.aborted === true) this.#onAbort();
    else caller?.addEventListener("abort", this.#onAbort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  async watch<Value>(act: () => Promise<Value>): Promise<Value> {
    const timer = after(this.silenceMs, () => {
      this.#fellSilent = true;
      this.#controller.abort();
    });
    try {
      return await act();
    } catch (error) {
      this.end();
      throw this.#meaning(error);
    } finally {
      clearTimeout(timer);
    }
  }

  end(): void {
    this.caller?.removeEventListener("abort", this.#onAbort);
    this.#controller.abort();
  }

  #meaning(error: unknown): unknown {
    if (this.caller?.aborted === true) return this.caller.reason;
    const nothing = `no answer from ${this.host}`;
    if (this.#fellSilent) return new ConnectionFailedError(`${nothing} for ${this.silenceMs / 1000} s`);
    // fetch reports a network failure as a TypeError; its cause, if any, has the reason.
    if (!(error instanceof TypeError)) return error;
    const cause = error.cause instanceof Error ? error.cause.message : "";
    return new ConnectionFailedError(`${nothing}: ${cause === "" ? error.message : cause}`, { cause: error });
  }
}

/** The time allowed to send a body, whose progress is invisible: enough for a slow connection. */
function sendingMs(body: RequestBody | undefined): number {
  if (body instanceof ReadableStream) return Infinity;
  if (body instanceof Blob) return (body.size / SLOW_BYTES_PER_SECOND) * 1000;
  if (!(body instanceof FormData)) return 0;
  const sizes = Array.from(body.values(), (part) => (typeof part === "string" ? part.length : part.size));
  return (sizes.reduce((sum, size) => sum + size, 0) / SLOW_BYTES_PER_SECOND) * 1000;
}

function checkCredential(credential: string): void {
  if (!/^[\x21-\x7e]+$/.test(credential)) {
    throw new TypeError("the API key or token must be printable ASCII without spaces");
  }
}
