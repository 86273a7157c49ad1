/** The client's batches: jobs of one task or a million. */

import { withQuery } from "./addresses.js";
import { Batch } from "./batch.js";
import { batchFields, batchQuery, given, type BatchOptions } from "./batchOptions.js";
import type { BatchBody, BatchExport, WholeBatchTask } from "./bodies.js";
import { Deadline } from "./deadline.js";
import { ConflictError, ExportFailedError, NotFoundError } from "./errors.js";
import type { Answer } from "./exchange.js";
import { STORE_SILENCE_MS_MAX } from "./files.js";
import type { CallOptions, Tools } from "./jobHandle.js";
import { everyItem } from "./pages.js";
import { submissionHeaders } from "./requestHeaders.js";
import { backoffSeconds } from "./retries.js";
import { BODY_BYTES_MAX, gather, type Tasks } from "./taskLines.js";
import type { Uploads } from "./uploads.js";

const PAGE_ITEMS = 200;
const LIST_MEDIA_TYPE = "application/x-ndjson";
/** How often the time between two looks at an export is doubled, at most. */
const LOOKS_APART_MAX = 4;

/** Where tasks come from: one of these. */
export interface TaskSource {
  /** Each anything that fits JSON, or `{ custom_id, input }`. A short list goes with the request, a long one is staged. */
  readonly tasks?: Tasks | undefined;
  /** NDJSON lines. In Node, `fs.openAsBlob` makes one of a file without reading it first. */
  readonly file?: Blob | undefined;
  /** NDJSON lines as they are made. They can be sent once: a connection that breaks is not made again. Node only. */
  readonly ndjson?: ReadableStream<Uint8Array> | undefined;
  /** What was staged before, by `client.uploads.create`. */
  readonly uploadId?: string | undefined;
}

export interface CreateBatchOptions extends BatchOptions, TaskSource {
  /** Without it a fresh one, so that a retry cannot make a second batch. */
  readonly idempotencyKey?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface RerunOptions extends CallOptions {
  /** Only tasks that ended so, such as `failed`. */
  readonly status?: string | readonly string[] | undefined;
  /** Only tasks that failed with this code. */
  readonly errorCode?: string | readonly string[] | undefined;
  /**
   * Only tasks of this run; `all` is each task of the batch with its latest result. Without it all tasks of the batch or,
   * of those that are chosen, the ones of the current run.
   */
  readonly run?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

export interface CreateExportOptions extends CallOptions {
  /** The run whose results are wanted, or `all`: the latest result of each task. Without it the current one. */
  readonly run?: string | undefined;
  /** How long to wait until it is written. */
  readonly timeoutMs?: number | undefined;
}

interface TaskRequest {
  readonly url: string;
  readonly fields: Record<string, unknown>;
  readonly idempotencyKey: string | undefined;
  readonly signal: AbortSignal | undefined;
}

export class Batches {
  constructor(
    private readonly tools: Tools,
    private readonly uploads: Uploads,
  ) {}

  /** Hand in a batch: a call of one endpoint for each task. When this resolves, it is durable. */
  async create(options: CreateBatchOptions): Promise<Batch> {
    const answer = await this.#handIn(options, {
      url: this.tools.addresses.batches(),
      fields: batchFields(options),
      idempotencyKey: options.idempotencyKey,
      signal: options.signal,
    });
    return this.#batch(answer.object<BatchBody>(), answer.headers);
  }

  /** The batch as it is now. Throws NotFoundError. */
  async get(id: string, options: CallOptions = {}): Promise<Batch> {
    const answer = await this.tools.exchange.send("GET", this.tools.addresses.batch(id), { signal: options.signal });
    return this.#batch(answer.object<BatchBody>(), answer.headers);
  }

  /** All your batches, newest first, asked for page by page. */
  async *list(options: CallOptions = {}): AsyncGenerator<Batch, void, void> {
    for await (const body of this.items<BatchBody>(this.tools.addresses.batches(), {}, options.signal)) {
      yield this.#batch(body, null);
    }
  }

  /** One task, with its input and its files. Throws NotFoundError. */
  async task(batchId: string, taskId: string, options: CallOptions = {}): Promise<WholeBatchTask> {
    const url = this.tools.addresses.below(batchId, "tasks", taskId);
    return (await this.tools.exchange.send("GET", url, { signal: options.signal })).object<WholeBatchTask>();
  }

  /** A task's result, however long. Throws NotFoundError. */
  async taskResult(batchId: string, taskId: string, options: CallOptions = {}): Promise<unknown> {
    const url = `${this.tools.addresses.below(batchId, "tasks", taskId)}/result`;
    const answer = await this.tools.exchange.send("GET", url, { signal: options.signal });
    return answer.mediaType === "application/json" ? answer.json() : answer.bytes;
  }

  /** Remove a batch, with its tasks, results and exports. Throws NotFoundError. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.get(id, options);
    try {
      await this.tools.exchange.send("DELETE", this.tools.addresses.batch(id), { signal: options.signal });
    } catch (error) {
      // The answer to a second try of what the first one did.
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  /** Have the results of a batch written as a zip, and wait for that. Throws ExportFailedError. */
  async export(id: string, options: CreateExportOptions = {}): Promise<BatchExport> {
    const { exchange, addresses } = this.tools;
    const deadline = new Deadline(options.timeoutMs);
    const signal = options.signal;
    const ordered = await exchange.send("POST", `${addresses.batch(id)}/exports`, {
      headers: submissionHeaders({ contentType: "application/json" }),
      body: JSON.stringify(given({ run: options.run })),
      signal,
    });
    let made = ordered.object<BatchExport>();
    for (let looks = 0; made.url === null; looks += 1) {
      const error = made.error ?? { code: "export_failed", message: "The server does not say why." };
      if (made.terminal) throw new ExportFailedError(made.id, made.status, error.code, error.message);
      if (deadline.passed) {
        const reason = `It was not written within ${deadline.timeoutMs / 1000} s.`;
        throw new ExportFailedError(made.id, made.status, "wait_timeout", reason);
      }
      const delay = backoffSeconds(Math.min(looks, LOOKS_APART_MAX), Math.random());
      await exchange.pause(Math.min(delay, deadline.remainingMs() / 1000), signal);
      const answer = await exchange.send("GET", addresses.below(id, "exports", made.id), { signal });
      made = answer.object<BatchExport>();
    }
    return made;
  }

  /** @internal */
  async handInMore(
    id: string,
    source: TaskSource,
    options: CallOptions & { readonly idempotencyKey?: string },
  ): Promise<Answer> {
    return this.#handIn(source, {
      url: `${this.tools.addresses.batch(id)}/tasks`,
      fields: {},
      idempotencyKey: options.idempotencyKey,
      signal: options.signal,
    });
  }

  /** @internal */
  async orderRerun(id: string, options: RerunOptions): Promise<Answer> {
    const filter = given({ status: options.status, error_code: options.errorCode });
    return this.tools.exchange.send("POST", `${this.tools.addresses.batch(id)}/rerun`, {
      headers: submissionHeaders({ idempotencyKey: options.idempotencyKey, contentType: "application/json" }),
      body: JSON.stringify(given({ filter: Object.keys(filter).length === 0 ? undefined : filter, run: options.run })),
      signal: options.signal,
    });
  }

  /** @internal Closing and cancelling: a second try of what the first one did is no conflict. */
  async tell(id: string, what: string, options: CallOptions): Promise<Answer> {
    const url = this.tools.addresses.batch(id);
    try {
      return await this.tools.exchange.send("POST", `${url}/${what}`, { signal: options.signal });
    } catch (error) {
      if (!(error instanceof ConflictError) || what !== "cancel") throw error;
      const now = await this.tools.exchange.send("GET", url, { signal: options.signal });
      if (now.object<BatchBody>().status !== "cancelled") throw error;
      return now;
    }
  }

  /** @internal Everything of a listing, asked for page by page. */
  async *items<Item>(
    url: string,
    query: Readonly<Record<string, unknown>>,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<Item, void, void> {
    yield* everyItem<Item>(this.tools.exchange, withQuery(url, { limit: PAGE_ITEMS, ...query }), signal);
  }

  async #handIn(source: TaskSource, request: TaskRequest): Promise<Answer> {
    const sources = [source.tasks, source.file, source.ndjson, source.uploadId];
    if (sources.filter((each) => each !== undefined).length > 1) {
      throw new TypeError("give tasks, file, ndjson or uploadId, not two of them");
    }
    if (source.uploadId !== undefined) return this.#staged(request, source.uploadId);
    if (source.ndjson !== undefined) return this.#list(request, source.ndjson);
    if (source.file !== undefined) return this.#stagedOrList(request, source.file);
    if (source.tasks === undefined) return this.#fields(request, JSON.stringify(request.fields));
    const { listed, list } = await gather(source.tasks);
    if (list !== null) return this.#stagedOrList(request, list);
    // The tasks are JSON already, and would be parsed and written once more otherwise.
    const fields = JSON.stringify(request.fields).slice(1, -1);
    return this.#fields(request, listed === "[]" ? `{${fields}}` : `{${fields}${fields === "" ? "" : ","}"tasks":${listed}}`);
  }

  /**
   * Of a list that was staged the server knows a name, which is another each time. So a list under a key
   * of the caller's is the body itself, which can be told from others.
   */
  async #stagedOrList(request: TaskRequest, list: Blob): Promise<Answer> {
    if (list.size <= BODY_BYTES_MAX || request.idempotencyKey !== undefined) return this.#list(request, list);
    return this.#staged(request, await this.uploads.create(list, { signal: request.signal }));
  }

  #staged(request: TaskRequest, uploadId: string): Promise<Answer> {
    return this.#fields(request, JSON.stringify({ ...request.fields, source: { upload_id: uploadId } }));
  }

  #fields(request: TaskRequest, body: string): Promise<Answer> {
    return this.tools.exchange.send("POST", request.url, {
      headers: submissionHeaders({ idempotencyKey: request.idempotencyKey, contentType: "application/json" }),
      body,
      signal: request.signal,
    });
  }

  #list(request: TaskRequest, body: Blob | ReadableStream<Uint8Array>): Promise<Answer> {
    return this.tools.exchange.send("POST", withQuery(request.url, batchQuery(request.fields)), {
      headers: submissionHeaders({ idempotencyKey: request.idempotencyKey, contentType: LIST_MEDIA_TYPE }),
      body,
      silenceMs: STORE_SILENCE_MS_MAX,
      isRepeatable: body instanceof Blob,
      signal: request.signal,
    });
  }

  #batch(body: BatchBody, headers: Headers | null): Batch {
    return new Batch(this.tools, this, body, headers);
  }
}
