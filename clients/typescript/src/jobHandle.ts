/** The operations on a job that all products share. */

import type { Addresses } from "./addresses.js";
import type { Explanation, JobArtifact, Progress } from "./bodies.js";
import { Deadline, after } from "./deadline.js";
import { ConflictError, UnexpectedAnswerError, WaitTimeoutError, isObject } from "./errors.js";
import { follow, type JobEvent, type StreamOptions } from "./events.js";
import type { Answer, Exchange } from "./exchange.js";
import { waitForEnd, type WaitOptions } from "./waiting.js";

/** The URLs of a job: to poll, stream and cancel it. */
export interface JobUrls {
  readonly poll: string;
  readonly events: string;
  readonly cancel: string;
}

export interface JobWaitOptions extends WaitOptions {
  /** Called whenever the job's progress changes. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

/** The dependencies of every handle. */
export interface Tools {
  readonly exchange: Exchange;
  readonly addresses: Addresses;
}

/**
 * A job. Its methods call the server and update `body`, `state` and `terminal`.
 *
 * `replayed` means that the idempotency key was known and this is its earlier job. `mismatch` means that
 * the earlier submission had another payload.
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

  /** The job in the server's last response; null while only its ticket or id is known. */
  get body(): Body | null {
    return this.#body;
  }

  /** The state in the server's last response. A newer server may know other states. */
  get state(): string {
    return this.#state;
  }

  /** Whether that state is final. */
  get terminal(): boolean {
    return this.#terminal;
  }

  /** The job's result; throws JobFailedError if it did not complete. */
  protected abstract outcome(body: Body): Output;
  protected abstract stateOf(body: Body): string;

  /** Whether the final event contains the whole job. It omits a long result. */
  protected isWhole(_body: Body): boolean {
    return true;
  }

  /** Fetch the current state of the job. */
  async status(options: CallOptions = {}): Promise<Body> {
    this.learn(await this.#exchange.send("GET", this.urls.poll, { signal: options.signal }));
    return this.#whole();
  }

  /**
   * Wait for the job to finish and return its result.
   *
   * It long-polls, so the result arrives milliseconds after the job has finished. Throws JobFailedError
   * if the job failed or was cancelled, and WaitTimeoutError after `timeoutMs`; the job then continues,
   * and you can wait again.
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
   * Stream the job's events until it finishes: states, progress, log lines and output.
   *
   * A broken connection is reopened, without lost or repeated events.
   */
  stream(options: StreamOptions = {}): AsyncGenerator<JobEvent<Body>, void, void> {
    return follow<Body>(this.#exchange, this.urls.events, options, (body) => this.#take(body));
  }

  /**
   * Cancel the job and return its state. A waiting job is cancelled at once; a running job when its
   * handler has stopped. Throws ConflictError if it has already failed or completed.
   */
  async cancel(options: CallOptions = {}): Promise<Body> {
    try {
      this.learn(await this.#exchange.send("POST", this.urls.cancel, { signal: options.signal }));
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      // A retry also gets this if the first attempt succeeded.
      await this.status(options);
      if (this.#state !== "cancelled") throw error;
    }
    return this.#whole();
  }

  /** List the job's files by name. `client.download` fetches one. */
  async artifacts(options: CallOptions = {}): Promise<JobArtifact[]> {
    const answer = await this.#exchange.send("GET", `${this.urls.poll}/artifacts`, { signal: options.signal });
    return answer.object<{ items: JobArtifact[] }>().items;
  }

  /** Explain why the job is waiting, its position in the queue, and when it should start and finish. */
  async explain(options: CallOptions = {}): Promise<Explanation> {
    const answer = await this.#exchange.send("GET", `${this.urls.poll}/explain`, { signal: options.signal });
    return answer.object<Explanation>();
  }

  /** @internal Updates the job from a response. */
  learn(answer: Answer): void {
    this.#take(answer.object<Body>());
  }

  /** Updates the job from a ticket, which has little more than its state. */
  protected learnTicket(ticket: Record<string, unknown>): void {
    const state = ticket["status"] ?? ticket["state"];
    if (typeof ticket["terminal"] !== "boolean" || typeof state !== "string") {
      throw new UnexpectedAnswerError("the answer is not a job");
    }
    this.#state = state;
    this.#terminal = ticket["terminal"];
  }

  #take(body: Body): void {
    if (!isObject(body)) throw new UnexpectedAnswerError("the answer is not a job");
    this.learnTicket(body);
    this.#body = body;
    this.#state = this.stateOf(body);
  }

  #whole(): Body {
    if (this.#body === null) throw new UnexpectedAnswerError("the answer is not a job");
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

/** A signal that aborts after a timeout, or with the caller's signal. */
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
