/** `client.batches`: jobs with one task or a million. */

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
/** The maximum number of doublings of the time between two polls of an export. */
const LOOKS_APART_MAX = 4;

/** The source of tasks: exactly one of these. */
export interface TaskSource {
  /** Each is any JSON value, or `{ custom_id, input }`. A short list goes with the request, a long one is uploaded first. */
  readonly tasks?: Tasks | undefined;
  /** NDJSON lines. In Node, `fs.openAsBlob` opens a file without reading it into memory. */
  readonly file?: Blob | undefined;
  /** NDJSON lines as a stream. It can be sent only once, so a broken connection is not retried. Node only. */
  readonly ndjson?: ReadableStream<Uint8Array> | undefined;
  /** The id of an earlier upload by `client.uploads.create`. */
  readonly uploadId?: string | undefined;
}

export interface CreateBatchOptions extends BatchOptions, TaskSource {
  /** Default: a fresh key, so that a retry cannot create a second batch. */
  readonly idempotencyKey?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface RerunOptions extends CallOptions {
  /** Only tasks with this status, such as `failed`. */
  readonly status?: string | readonly string[] | undefined;
  /** Only tasks that failed with this code. */
  readonly errorCode?: string | readonly string[] | undefined;
  /**
   * Only tasks of this run; `all` means each task of the batch with its latest result. Default: the current run if `status`
   * or `errorCode` selects tasks, else all tasks of the batch.
   */
  readonly run?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

export interface CreateExportOptions extends CallOptions {
  /** The run to export, or `all` for the latest result of each task. Default: the current run. */
  readonly run?: string | undefined;
  /** The maximum time to wait for the export. */
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

  /** Submit a batch: one call of an endpoint per task. When this resolves, the batch is durable. */
  async create(options: CreateBatchOptions): Promise<Batch> {
    const answer = await this.#handIn(options, {
      url: this.tools.addresses.batches(),
      fields: batchFields(options),
      idempotencyKey: options.idempotencyKey,
      signal: options.signal,
    });
    return this.#batch(answer.object<BatchBody>(), answer.headers);
  }

  /** Fetch a batch. Throws NotFoundError. */
  async get(id: string, options: CallOptions = {}): Promise<Batch> {
    const answer = await this.tools.exchange.send("GET", this.tools.addresses.batch(id), { signal: options.signal });
    return this.#batch(answer.object<BatchBody>(), answer.headers);
  }

  /** Iterate over all your batches, newest first. */
  async *list(options: CallOptions = {}): AsyncGenerator<Batch, void, void> {
    for await (const body of this.items<BatchBody>(this.tools.addresses.batches(), {}, options.signal)) {
      yield this.#batch(body, null);
    }
  }

  /** Fetch a task with its input and files. Throws NotFoundError. */
  async task(batchId: string, taskId: string, options: CallOptions = {}): Promise<WholeBatchTask> {
    const url = this.tools.addresses.below(batchId, "tasks", taskId);
    return (await this.tools.exchange.send("GET", url, { signal: options.signal })).object<WholeBatchTask>();
  }

  /** Fetch a task's result, however long. Throws NotFoundError. */
  async taskResult(batchId: string, taskId: string, options: CallOptions = {}): Promise<unknown> {
    const url = `${this.tools.addresses.below(batchId, "tasks", taskId)}/result`;
    const answer = await this.tools.exchange.send("GET", url, { signal: options.signal });
    return answer.mediaType === "application/json" ? answer.json() : answer.bytes;
  }

  /** Delete a batch with its tasks, results and exports. Throws NotFoundError. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.get(id, options);
    try {
      await this.tools.exchange.send("DELETE", this.tools.addresses.batch(id), { signal: options.signal });
    } catch (error) {
      // A retry gets this if the first attempt succeeded.
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  /** Export the results of a batch to a zip file and wait for it. Throws ExportFailedError. */
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

  /** @internal Close or cancel. A retry after a first attempt that succeeded is no conflict. */
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

  /** @internal All items of a listing, fetched page by page. */
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
      throw new TypeError("give only one of tasks, file, ndjson and uploadId");
    }
    if (source.uploadId !== undefined) return this.#staged(request, source.uploadId);
    if (source.ndjson !== undefined) return this.#list(request, source.ndjson);
    if (source.file !== undefined) return this.#stagedOrList(request, source.file);
    if (source.tasks === undefined) return this.#fields(request, JSON.stringify(request.fields));
    const { listed, list } = await gather(source.tasks);
    if (list !== null) return this.#stagedOrList(request, list);
    // The tasks are JSON already; this avoids parsing and writing them once more.
    const fields = JSON.stringify(request.fields).slice(1, -1);
    return this.#fields(request, listed === "[]" ? `{${fields}}` : `{${fields}${fields === "" ? "" : ","}"tasks":${listed}}`);
  }

  /**
   * An upload has a new id each time, so the server could not compare it with an earlier list under the
   * same idempotency key. A list under the caller's own key is therefore sent as the body.
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
