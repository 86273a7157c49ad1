/** Code graphs. The client long-polls the job; callers see only the graph. */

import { withQuery } from "./addresses.js";
import type { GraphEnvelope, GraphResult, Progress } from "./bodies.js";
import { Deadline } from "./deadline.js";
import { JobFailedError, NotFoundError, PollingTimeoutError, UnexpectedAnswerError } from "./errors.js";
import type { Answer } from "./exchange.js";
import type { Tools } from "./jobHandle.js";
import { freshKey, seconds, submissionHeaders } from "./requestHeaders.js";
import { POLL_SECONDS } from "./waiting.js";

const TIMEOUT_MS = 15 * 60 * 1000;
const ATTEMPTS_MAX = 90;
const RETRY_AFTER_SECONDS = 10;
/** How long the server may take to store an archive. */
const SILENCE_MS_MAX = 2 * 60 * 1000;

/** A zip of code, at most 500 MB. In Node, `fs.openAsBlob` opens a file without reading it into memory. */
export type GraphFile = Blob | Uint8Array<ArrayBuffer> | ArrayBuffer;
export type GraphOperation = "call" | "dependency" | "domain" | "parse" | "supermodel";

export interface GraphOptions {
  /** The same key finds the same job, also from another program. Default: a fresh key. */
  readonly idempotencyKey?: string | undefined;
  /** Throws PollingTimeoutError after this many milliseconds. Default: 15 minutes. */
  readonly timeoutMs?: number | undefined;
  /** Throws PollingTimeoutError after this many polls. Default: 90. */
  readonly maxAttempts?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called after every poll with the job's state. */
  readonly onProgress?: ((progress: GraphProgress) => void) | undefined;
  /** The URL to notify when the job finishes. */
  readonly webhookUrl?: string | undefined;
}

export interface GraphProgress {
  readonly jobId: string;
  readonly status: string;
  /** The number of this poll, starting at 1. */
  readonly attempt: number;
  readonly progress: Progress | null;
}

export class Graphs {
  constructor(private readonly tools: Tools) {}

  async generate(operation: GraphOperation, file: GraphFile, options: GraphOptions): Promise<GraphResult> {
    const idempotencyKey = options.idempotencyKey ?? freshKey();
    const deadline = new Deadline(options.timeoutMs ?? TIMEOUT_MS);
    const attemptsMax = options.maxAttempts ?? ATTEMPTS_MAX;
    if (!(attemptsMax >= 1)) throw new TypeError("maxAttempts must be at least 1");
    const archive = file instanceof Blob ? file : new Blob([file]);
    let envelope = await this.#post(operation, archive, idempotencyKey, deadline, options);
    for (let attempt = 1; ; attempt += 1) {
      const { jobId, status } = envelope;
      options.onProgress?.({ jobId, status, attempt, progress: envelope.progress ?? null });
      if (status === "completed") return envelope.result as GraphResult;
      if (status === "failed") throw failure(envelope);
      if (attempt >= attemptsMax || deadline.passed) {
        throw new PollingTimeoutError(jobId, status, deadline.timeoutMs, attempt, idempotencyKey);
      }
      try {
        envelope = await this.#poll(jobId, deadline, options);
      } catch (error) {
        if (!(error instanceof NotFoundError)) throw error;
        // The server has deleted the job: send the archive again.
        envelope = await this.#post(operation, archive, idempotencyKey, deadline, options);
      }
    }
  }

  /** The job once it has finished, or after a while. Pauses if the server does not hold its response. */
  async #poll(jobId: string, deadline: Deadline, options: GraphOptions): Promise<GraphEnvelope> {
    const held = Math.min(POLL_SECONDS, deadline.remainingMs() / 1000);
    const askedAt = performance.now();
    const url = withQuery(this.tools.addresses.graphJob(jobId), { wait: seconds(held) });
    const answer = await this.tools.exchange.send("GET", url, {
      heldMs: held * 1000,
      deadline,
      signal: options.signal,
    });
    const envelope = read(answer);
    const hasEnded = envelope.status === "completed" || envelope.status === "failed";
    if (!hasEnded && performance.now() - askedAt < (held * 1000) / 2) {
      const asked = envelope.retryAfter ?? RETRY_AFTER_SECONDS;
      await this.tools.exchange.pause(Math.min(asked, deadline.remainingMs() / 1000), options.signal);
    }
    return envelope;
  }

  async #post(
    operation: GraphOperation,
    archive: Blob,
    idempotencyKey: string,
    deadline: Deadline,
    options: GraphOptions,
  ): Promise<GraphEnvelope> {
    const form = new FormData();
    form.append("file", archive, "archive.zip");
    const answer = await this.tools.exchange.send("POST", this.tools.addresses.graphs(operation), {
      headers: submissionHeaders({ idempotencyKey, webhookUrl: options.webhookUrl }),
      body: form,
      silenceMs: SILENCE_MS_MAX,
      deadline,
      signal: options.signal,
    });
    return read(answer);
  }
}

function read(answer: Answer): GraphEnvelope {
  const envelope = answer.object<GraphEnvelope>();
  if (typeof envelope.jobId !== "string" || typeof envelope.status !== "string") {
    throw new UnexpectedAnswerError("the answer is not a graph job");
  }
  return envelope;
}

function failure(envelope: GraphEnvelope): JobFailedError<GraphEnvelope> {
  const code = envelope.errorCode ?? "job_failed";
  const reason = envelope.error ?? "The server does not say why.";
  return new JobFailedError(envelope.jobId, envelope.status, code, reason, envelope);
}
