/** A batch: its last known state, and the operations on it. */

import type { Batches, CreateExportOptions, RerunOptions, TaskSource } from "./batches.js";
import type { BatchBadLine, BatchBody, BatchExport, BatchTask, Explanation, TaskCounts } from "./bodies.js";
import { Deadline } from "./deadline.js";
import { BatchFailedError, UnexpectedAnswerError, WaitTimeoutError } from "./errors.js";
import { follow, type JobEvent, type StreamOptions } from "./events.js";
import type { Answer } from "./exchange.js";
import { TimeLimit, type CallOptions, type Tools } from "./jobHandle.js";
import { waitForEnd, type WaitOptions } from "./waiting.js";

/** The progress of a batch. `progress` goes from 0 to 1 of the ingested tasks. */
export interface BatchProgress {
  readonly run_id: string;
  readonly status: string;
  readonly counts: TaskCounts;
  readonly job_counts: TaskCounts;
  readonly progress: number;
  readonly ingest: BatchBody["ingest"];
}

export interface BatchWaitOptions extends WaitOptions {
  /** Called whenever a count changes. */
  readonly onProgress?: ((progress: BatchProgress) => void) | undefined;
}

/** A batch. Its methods call the server and update `body`. */
export class Batch {
  readonly id: string;
  readonly replayed: boolean;
  readonly mismatch: boolean;
  readonly #tools: Tools;
  readonly #batches: Batches;
  #body: BatchBody;

  /** @internal Use `client.batches.create`, or `client.batches.get`. */
  constructor(tools: Tools, batches: Batches, body: BatchBody, headers: Headers | null) {
    this.#tools = tools;
    this.#batches = batches;
    this.#body = checked(body);
    this.id = body.id;
    this.replayed = headers?.get("idempotent-replayed") === "true";
    this.mismatch = headers?.get("idempotency-mismatch") === "true";
  }

  /** The batch in the server's last response. */
  get body(): BatchBody {
    return this.#body;
  }

  /** `ingesting`, `open`, `running`, `completed`, `failed_ingest` or `cancelled`. */
  get state(): string {
    return this.#body.status;
  }

  get terminal(): boolean {
    return this.#body.terminal;
  }

  /** The numbers of tasks of the current run, by status. */
  get counts(): TaskCounts {
    return this.#body.counts;
  }

  /** The numbers of tasks of the whole batch, each counted once by its latest result over all runs. */
  get jobCounts(): TaskCounts {
    return this.#body.job_counts;
  }

  /** Fetch the current state of the batch. */
  async status(options: CallOptions = {}): Promise<BatchBody> {
    this.learn(await this.#tools.exchange.send("GET", this.#url(), { signal: options.signal }));
    return this.#body;
  }

  /**
   * Wait until every task has finished. Failed tasks do not throw: check `counts`.
   *
   * Throws BatchFailedError if the list could not be ingested or the batch was cancelled, and
   * WaitTimeoutError after `timeoutMs`; the batch continues.
   */
  async wait(options: BatchWaitOptions = {}): Promise<BatchBody> {
    const deadline = new Deadline(options.timeoutMs);
    if (!this.terminal && options.onProgress !== undefined) {
      await this.#follow(options.onProgress, options.signal, deadline);
    }
    if (!this.terminal) await waitForEnd(this.#tools.exchange, this.#url(), this, options, deadline);
    if (this.#body.status === "completed") return this.#body;
    const error = this.#body.ingest.error;
    const reason = error?.message ?? "Not all of its tasks were run.";
    throw new BatchFailedError(this.id, this.state, error?.code ?? this.state, reason, this.#body);
  }

  /** Stream states and counts as they change, until the batch finishes. */
  stream(options: StreamOptions = {}): AsyncGenerator<JobEvent<BatchBody, BatchProgress>, void, void> {
    const learn = (body: BatchBody): void => {
      this.#body = checked(body);
    };
    return follow<BatchBody, BatchProgress>(this.#tools.exchange, `${this.#url()}/events`, options, learn);
  }

  /** Add tasks to an open batch. Throws ConflictError if it is closed. */
  async add(source: TaskSource, options: CallOptions & { readonly idempotencyKey?: string } = {}): Promise<BatchBody> {
    this.learn(await this.#batches.handInMore(this.id, source, options));
    return this.#body;
  }

  /** Close the batch to new tasks. It completes when all its tasks have finished. */
  close(options: CallOptions = {}): Promise<BatchBody> {
    return this.#told("close", options);
  }

  /** Rerun all or the selected tasks in a new run. */
  async rerun(options: RerunOptions = {}): Promise<BatchBody> {
    this.learn(await this.#batches.orderRerun(this.id, options));
    return this.#body;
  }

  /** Cancel waiting tasks and ask running tasks to stop. Throws ConflictError if the batch has finished. */
  cancel(options: CallOptions = {}): Promise<BatchBody> {
    return this.#told("cancel", options);
  }

  /** Explain why the batch is waiting, and when it should finish. */
  async explain(options: CallOptions = {}): Promise<Explanation> {
    const answer = await this.#tools.exchange.send("GET", `${this.#url()}/explain`, { signal: options.signal });
    return answer.object<Explanation>();
  }

  /** Iterate over the tasks of the current run, or of `run`, in order. With `all`, each task once with its latest result. */
  tasks(
    options: CallOptions & { readonly status?: string; readonly run?: string } = {},
  ): AsyncGenerator<BatchTask, void, void> {
    const { signal, ...query } = options;
    return this.#batches.items<BatchTask>(`${this.#url()}/tasks`, query, signal);
  }

  /** Iterate over the invalid lines of its lists, with their line numbers. If there are very many, only the first. */
  badLines(options: CallOptions & { readonly run?: string } = {}): AsyncGenerator<BatchBadLine, void, void> {
    const { signal, ...query } = options;
    return this.#batches.items<BatchBadLine>(`${this.#url()}/bad-lines`, query, signal);
  }

  /**
   * Export all results to a zip file and wait for it. `client.download` fetches it whole,
   * `client.downloadStream` as a stream. Throws ExportFailedError.
   */
  export(options: CreateExportOptions = {}): Promise<BatchExport> {
    return this.#batches.export(this.id, options);
  }

  /** Delete the batch with all its tasks and results. */
  delete(options: CallOptions = {}): Promise<void> {
    return this.#batches.delete(this.id, options);
  }

  /** @internal */
  learn(answer: Answer): void {
    this.#body = checked(answer.object<BatchBody>());
  }

  async #told(what: string, options: CallOptions): Promise<BatchBody> {
    this.learn(await this.#batches.tell(this.id, what, options));
    return this.#body;
  }

  async #follow(
    tell: (progress: BatchProgress) => void,
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
      throw new WaitTimeoutError(this.id, this.state, deadline.timeoutMs);
    } finally {
      limit.end();
    }
  }

  #url(): string {
    return this.#tools.addresses.batch(this.id);
  }
}

function checked(body: BatchBody): BatchBody {
  if (typeof body.terminal !== "boolean" || typeof body.id !== "string" || typeof body.status !== "string") {
    throw new UnexpectedAnswerError("the answer is not a batch");
  }
  return body;
}
