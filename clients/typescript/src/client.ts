/** The client: submits and calls services. Its properties offer the other APIs. */

import { Addresses, withQuery } from "./addresses.js";
import { Batches } from "./batches.js";
import type { GraphResult, JobArtifact, UsageDay } from "./bodies.js";
import { Deadline } from "./deadline.js";
import { ApiError, PermissionDeniedError } from "./errors.js";
import { Answer, Exchange, type Credential, type Fetch } from "./exchange.js";
import { fetchPieces, fetchWhole } from "./files.js";
import { Graphs, type GraphFile, type GraphOptions } from "./graphs.js";
import { Job, jobFailure, urlsBelow } from "./job.js";
import type { CallOptions, Tools } from "./jobHandle.js";
import { Jobs } from "./jobs.js";
import { Llm } from "./llm.js";
import { submissionHeaders, WAIT_SECONDS_MAX } from "./requestHeaders.js";
import { Speech } from "./speech.js";
import { Uploads } from "./uploads.js";
import { Webhooks } from "./webhooks.js";

const DEFAULT_URL = "http://127.0.0.1:8080";
const TIMEOUT_MS = 30_000;
const RETRIES_MAX = 4;

export interface CoatcheckOptions {
  /** The server's URL. Default: COATCHECK_URL of the environment, else http://127.0.0.1:8080. */
  readonly url?: string | undefined;
  /** An API key. Default, without `token`: COATCHECK_API_KEY of the environment. An empty key means none. */
  readonly apiKey?: string | undefined;
  /** A JWT, or a function that returns one for each request. */
  readonly token?: Credential | undefined;
  /** The organisation. Default: COATCHECK_ORG of the environment, else `default`. */
  readonly org?: string | undefined;
  /** Your own `fetch`, for example for custom certificates or proxies. */
  readonly fetch?: Fetch | undefined;
  /** Maximum retries after a connection error or a 408, 429, 502, 503 or 504. Default: 4. */
  readonly maxRetries?: number | undefined;
  /** How long the server may be silent, beyond the time it was asked to wait. Default: 30,000. */
  readonly timeoutMs?: number | undefined;
}

export interface SubmitOptions {
  /** The version of the service. Default: the server chooses. */
  readonly version?: number | undefined;
  /** The endpoint's HTTP method, if it is not POST. */
  readonly method?: string | undefined;
  /** `urgent`, `standard` or `bulk`. Default: the endpoint's lane. */
  readonly lane?: string | undefined;
  /** 1 to 255 printable characters. Default: a fresh key, so that retries are safe. */
  readonly idempotencyKey?: string | undefined;
  /** Seconds after which the job may start; until then it is `staged`. */
  readonly delay?: number | undefined;
  /** How many seconds, at most 60, the server waits for the job to finish before it responds. */
  readonly wait?: number | undefined;
  /** The URL to notify when the job finishes. */
  readonly webhookUrl?: string | undefined;
  /** The URL to notify of every state change. */
  readonly stateWebhookUrl?: string | undefined;
  /** Further headers, such as `{ prefer: "handling=strict" }`. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface CallEndpointOptions extends Omit<SubmitOptions, "wait" | "delay"> {
  /** The maximum time of the whole call. */
  readonly timeoutMs?: number | undefined;
}

/** A file with a signed URL: an artifact of a job, or an export of a batch. */
export type Downloadable = Pick<JobArtifact, "bytes" | "sha256" | "signed_url"> | SignedFile;

interface SignedFile {
  readonly bytes: number | null;
  readonly sha256: string | null;
  readonly url: string | null;
}

/** Submits work to Coatcheck and collects the results. */
export class Coatcheck {
  readonly batches: Batches;
  readonly jobs: Jobs;
  readonly llm: Llm;
  readonly speech: Speech;
  readonly uploads: Uploads;
  readonly webhooks = new Webhooks();
  readonly #tools: Tools;
  readonly #graphs: Graphs;

  constructor(options: CoatcheckOptions = {}) {
    const addresses = new Addresses(
      options.url ?? environment("COATCHECK_URL") ?? DEFAULT_URL,
      options.org ?? environment("COATCHECK_ORG") ?? "default",
    );
    if (options.apiKey !== undefined && options.token !== undefined) {
      throw new TypeError("give apiKey or token, not both");
    }
    const credential = options.apiKey ?? options.token ?? environment("COATCHECK_API_KEY") ?? "";
    const exchange = new Exchange(
      options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
      credential === "" ? null : credential,
      options.timeoutMs ?? TIMEOUT_MS,
      options.maxRetries ?? RETRIES_MAX,
    );
    this.#tools = { exchange, addresses };
    this.uploads = new Uploads(this.#tools);
    this.batches = new Batches(this.#tools, this.uploads);
    this.jobs = new Jobs(this.#tools);
    this.llm = new Llm(this.#tools);
    this.speech = new Speech(this.#tools);
    this.#graphs = new Graphs(this.#tools);
  }

  /** @internal For tests, which check what is sent and when. */
  get exchange(): Exchange {
    return this.#tools.exchange;
  }

  /**
   * Submit a job to an endpoint. When this resolves, the job is durable.
   *
   * `input` is any JSON value; without it the request has no body. `path` may have a query. Pass your
   * own `idempotencyKey` if your program may stop before it receives the response.
   */
  async submit<Output = unknown>(
    service: string,
    path: string,
    input?: unknown,
    options: SubmitOptions = {},
  ): Promise<Job<Output>> {
    const answer = await this.#tools.exchange.send(
      "POST",
      this.#tools.addresses.submit(service, options.version ?? null, path),
      {
        headers: headersOf(input, options, options.wait),
        body: content(input),
        heldMs: (options.wait ?? 0) * 1000,
        signal: options.signal,
      },
    );
    return Job.from<Output>(this.#tools, answer);
  }

  /**
   * Call an endpoint and return its result, however long it takes.
   *
   * The call runs as a job. If it takes longer than the server holds a request, the client keeps waiting
   * for the job, for at most `timeoutMs` in all. Throws the same errors as `job.wait`.
   */
  async call<Output = unknown>(
    service: string,
    path: string,
    input?: unknown,
    options: CallEndpointOptions = {},
  ): Promise<Output> {
    const deadline = new Deadline(options.timeoutMs);
    const held = Math.min(deadline.timeoutMs / 1000, WAIT_SECONDS_MAX);
    const waits = options.timeoutMs === undefined ? undefined : held;
    let answer: Answer;
    try {
      answer = await this.#tools.exchange.send(
        options.method ?? "POST",
        this.#tools.addresses.call(service, options.version ?? null, path),
        {
          headers: headersOf(input, { ...options, method: undefined }, waits), // the request's own method says it
          body: content(input),
          heldMs: held * 1000,
          deadline,
          signal: options.signal,
        },
      );
    } catch (error) {
      throw error instanceof ApiError && error.jobUrl !== null ? await this.#failure(error, error.jobUrl) : error;
    }
    if (!isTicket(answer)) return resultOf(answer) as Output;
    const job = Job.from<Output>(this.#tools, answer);
    const left = options.timeoutMs === undefined ? undefined : deadline.remainingMs();
    return job.wait({ timeoutMs: left, signal: options.signal });
  }

  /** The handle of a job with a known id. It sends no request yet. */
  job<Output = unknown>(service: string, id: string): Job<Output> {
    return new Job<Output>(this.#tools, id, urlsBelow(this.#tools.addresses.job(service, id)), null);
  }

  /** Download a job's file or a batch's export, and verify its checksum. */
  async download(file: Downloadable, options: CallOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    const { url, bytes, sha256 } = this.#signed(file);
    return fetchWhole(this.#tools.exchange, url, bytes, sha256, options.signal);
  }

  /** Download as a stream. It verifies the length but not the checksum. */
  downloadStream(file: Downloadable, options: CallOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    const { url, bytes } = this.#signed(file);
    return fetchPieces(this.#tools.exchange, url, bytes, options.signal);
  }

  /**
   * The organisation's usage by day and endpoint, by default of the last 30 days. Days look like `2026-01-31`. With
   * `granularity: "hour"`, the usage by hour and endpoint, by default of the last 2 days, and at most 31 days.
   */
  async usage(
    options: CallOptions & {
      readonly from?: string;
      readonly to?: string;
      readonly granularity?: "day" | "hour";
    } = {},
  ): Promise<UsageDay[]> {
    const url = withQuery(this.#tools.addresses.usage(), {
      from: options.from,
      to: options.to,
      granularity: options.granularity,
    });
    const answer = await this.#tools.exchange.send("GET", url, { signal: options.signal });
    return answer.object<{ items: UsageDay[] }>().items;
  }

  /** The call graph of a zip of code: which functions call which. */
  generateCallGraph(file: GraphFile, options: GraphOptions = {}): Promise<GraphResult> {
    return this.#graphs.generate("call", file, options);
  }

  /** The dependency graph: which files import which files and external modules. */
  generateDependencyGraph(file: GraphFile, options: GraphOptions = {}): Promise<GraphResult> {
    return this.#graphs.generate("dependency", file, options);
  }

  /** The domain graph: the parts that the code consists of. */
  generateDomainGraph(file: GraphFile, options: GraphOptions = {}): Promise<GraphResult> {
    return this.#graphs.generate("domain", file, options);
  }

  /** The parse graph: files, classes, functions and types. */
  generateParseGraph(file: GraphFile, options: GraphOptions = {}): Promise<GraphResult> {
    return this.#graphs.generate("parse", file, options);
  }

  /** All graphs in one. */
  generateSupermodelGraph(file: GraphFile, options: GraphOptions = {}): Promise<GraphResult> {
    return this.#graphs.generate("supermodel", file, options);
  }

  /** The failure of the job that an error response names, if this credential may read it. */
  async #failure(refused: ApiError, jobUrl: string): Promise<unknown> {
    try {
      const answer = await this.#tools.exchange.send("GET", this.#tools.addresses.named(jobUrl));
      return jobFailure(answer.object());
    } catch (error) {
      if (error instanceof PermissionDeniedError) return refused;
      throw error;
    }
  }

  #signed(file: Downloadable): { url: string; bytes: number; sha256: string } {
    const url = "signed_url" in file ? file.signed_url : file.url;
    if (url === null || file.bytes === null || file.sha256 === null) {
      throw new TypeError("this file has no URL, size or checksum yet");
    }
    return { url: this.#tools.addresses.signed(url), bytes: file.bytes, sha256: file.sha256 };
  }
}

function headersOf(
  input: unknown,
  options: SubmitOptions,
  waitSeconds: number | undefined,
): Record<string, string> {
  return submissionHeaders({
    method: options.method,
    lane: options.lane,
    idempotencyKey: options.idempotencyKey,
    webhookUrl: options.webhookUrl,
    stateWebhookUrl: options.stateWebhookUrl,
    waitSeconds,
    delaySeconds: options.delay,
    contentType: input === undefined ? undefined : "application/json",
    given: options.headers,
  });
}

function content(input: unknown): string | Uint8Array | Blob | undefined {
  if (input === undefined || input instanceof Uint8Array || input instanceof Blob) return input;
  return JSON.stringify(input);
}

/**
 * Whether the response to a slow call is Coatcheck's 202 with a job.
 *
 * An upstream may also respond with 202 and a job of its own. Coatcheck's response has the same URL in its
 * body and its Location.
 */
function isTicket(answer: Answer): boolean {
  if (answer.status !== 202) return false;
  try {
    const ticket = JSON.parse(answer.text()) as { poll_url?: unknown } | null;
    return typeof ticket?.poll_url === "string" && ticket.poll_url === answer.headers.get("location");
  } catch {
    return false;
  }
}

/** The result of a synchronous call: a JSON value, text as a string, everything else as bytes; null if empty. */
function resultOf(answer: Answer): unknown {
  if (answer.bytes.length === 0) return null;
  const mediaType = answer.mediaType;
  if (mediaType === "application/json" || mediaType.endsWith("+json")) return answer.json();
  return mediaType.startsWith("text/") ? answer.text() : answer.bytes;
}

function environment(name: string): string | undefined {
  const program = globalThis as { process?: { env?: Record<string, string | undefined> } };
  const value = program.process?.env?.[name];
  return value === "" ? undefined : value;
}
