/** What can be done with a job, on whichever surface it is. */

import type { Addresses } from "./addresses.js";
import type { Explanation, JobArtifact, Progress } from "./bodies.js";
import { Deadline, after } from "./deadline.js";
import { ConflictError, UnexpectedAnswerError, WaitTimeoutError, isObject } from "./errors.js";
import { follow, type JobEvent, type StreamOptions } from "./events.js";
import type { Answer, Exchange } from "./exchange.js";
import { waitForEnd, type WaitOptions } from "./waiting.js";

/** Where a job is read, followed and cancelled. */
export interface JobUrls {
  readonly poll: string;
  readonly events: string;
  readonly cancel: string;
}

export interface JobWaitOptions extends WaitOptions {
  /** Is told how far the job says it is, whenever that changes. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

/** What every handle is made of. */
export interface Tools {
  readonly exchange: Exchange;
  readonly addresses: Addresses;
}

/**
 * A job. Its methods ask the server and bring `body`, `state` and `terminal` up to date.
 *
 * `replayed`: the idempotency key was known, and this is the job that it made. `mismatch`: the key came
 * with another payload then.
 */
export abstract class JobHandle<Body extends { terminal: boolean }, Output> {
  readonly id: string;
  readonly urls: JobUrls;
  readonly replayed: boolean;
  readonly mismatch: boolean;
  readonly #exchange: Exchange;
  #body: Body | null = null;
  #state = "unknown";
  #terminal = false;

  protected constructor(exchange: Exchange, id: string, urls: JobUrls, answer: Answer | null) {
    this.#exchange = exchange;
    this.id = id;
    this.urls = urls;
    this.replayed = answer?.headers.get("idempotent-replayed") === "true";
    this.mismatch = answer?.headers.get("idempotency-mismatch") === "true";
  }

  /** The job as the server last showed it; null if all there is so far is its ticket, or its id. */
  get body(): Body | null {
    return this.#body;
  }

  /** Where the job stood when the server was last asked. A newer server may know other words. */
  get state(): string {
    return this.#state;
  }

  /** Whether that is its end. */
  get terminal(): boolean {
    return this.#terminal;
  }

  /** What the job came to; throws JobFailedError if it did not complete. */
  protected abstract outcome(body: Body): Output;
  protected abstract stateOf(body: Body): string;

  /** Whether an event that shows the job's end shows all of it: a long result may have no room. */
  protected isWhole(_body: Body): boolean {
    return true;
  }

  /** Ask once how the job is now. */
  async status(options: CallOptions = {}): Promise<Body> {
    this.learn(await this.#exchange.send("GET", this.urls.poll, { signal: options.signal }));
    return this.#whole();
  }

  /**
   * What the job came to, once it has ended.
   *
   * The server holds each question until then, so the end is known milliseconds after it has come.
   * Throws JobFailedError if the job failed or was cancelled, and WaitTimeoutError after `timeoutMs`;
   * the job goes on, and can be waited for again.
   */
  async wait(options: JobWaitOptions = {}): Promise<Output> {
    const deadline = new Deadline(options.timeoutMs);
    if (options.onProgress !== undefined && !this.#terminal) {
      await this.#follow(options.onProgress, options.signal, deadline);
    }
    if (!this.#terminal || this.#body === null || !this.isWhole(this.#body)) {
      await waitForEnd(this.#exchange, this.urls.poll, this, options, deadline);
    }
    return this.outcome(this.#whole());
  }

  /**
   * The job's events as they come: states, progress, log lines, output. Ends with its end.
   *
   * A broken connection is made again, without loss or repetition.
   */
  stream(options: StreamOptions = {}): AsyncGenerator<JobEvent<Body>, void, void> {
    return follow<Body>(this.#exchange, this.urls.events, options, (body) => this.#take(body));
  }

  /**
   * Ask for the job's end, and return it as it is then. One that waits ends at once; one that runs
   * when its handler has stopped. Throws ConflictError if it has ended otherwise.
   */
  async cancel(options: CallOptions = {}): Promise<Body> {
    try {
      this.learn(await this.#exchange.send("POST", this.urls.cancel, { signal: options.signal }));
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      // Also the answer to a second try of what the first one did.
      await this.status(options);
      if (this.#state !== "cancelled") throw error;
    }
    return this.#whole();
  }

  /** The files that the job made, by name. `download` of the client fetches one. */
  async artifacts(options: CallOptions = {}): Promise<JobArtifact[]> {
    const answer = await this.#exchange.send("GET", `${this.urls.poll}/artifacts`, { signal: options.signal });
    return answer.object<{ items: JobArtifact[] }>().items;
  }

  /** What the job waits for, its place in the line, and when it should begin and end. */
  async explain(options: CallOptions = {}): Promise<Explanation> {
    const answer = await this.#exchange.send("GET", `${this.urls.poll}/explain`, { signal: options.signal });
    return answer.object<Explanation>();
  }

  /** @internal Takes over what the server says now. */
  learn(answer: Answer): void {
    this.#take(answer.object<Body>());
  }

  /** Takes over a ticket, which says little more than where the job stands. */
  protected learnTicket(ticket: Record<string, unknown>): void {
    const state = ticket["status"] ?? ticket["state"];
    if (typeof ticket["terminal"] !== "boolean" || typeof state !== "string") {
      throw new UnexpectedAnswerError("the answer does not show a job");
    }
    this.#state = state;
    this.#terminal = ticket["terminal"];
  }

  #take(body: Body): void {
    if (!isObject(body)) throw new UnexpectedAnswerError("the answer does not show a job");
    this.learnTicket(body);
    this.#body = body;
    this.#state = this.stateOf(body);
  }

  #whole(): Body {
    if (this.#body === null) throw new UnexpectedAnswerError("the answer does not show a job");
    return this.#body;
  }

  async #follow(
    tell: (progress: Progress) => void,
    signal: AbortSignal | undefined,
    deadline: Deadline,
  ): Promise<void> {
    const limit = new TimeLimit(deadline, signal);
    try {
      for await (const event of this.stream({ signal: limit.signal })) {
        if (event.name === "progress") tell(event.data);
      }
    } catch (error) {
      if (!limit.isOver) throw error;
      throw new WaitTimeoutError(this.id, this.#state, deadline.timeoutMs);
    } finally {
      limit.end();
    }
  }
}

/** A signal that is aborted when the time is up, or when the caller's is. */
export class TimeLimit {
  isOver = false;
  readonly #controller = new AbortController();
  readonly #onAbort = (): void => this.#controller.abort(this.caller?.reason);
  readonly #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    deadline: Deadline,
    private readonly caller: AbortSignal | undefined,
  ) {
    if (caller?.aborted === true) this.#onAbort();
    else caller?.addEventListener("abort", this.#onAbort, { once: true });
    this.#timer = after(deadline.remainingMs(), () => {
      this.isOver = true;
      this.#controller.abort();
    });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  end(): void {
    clearTimeout(this.#timer);
    this.caller?.removeEventListener("abort", this.#onAbort);
  }
}
