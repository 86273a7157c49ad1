/** `client.jobs`: all jobs of an organisation, from every product. */

import { withQuery } from "./addresses.js";
import type {
  BulkAnswer,
  Explanation,
  JobLogItem,
  OrgJob,
  Overview,
  Timeline,
  TimelineItem,
  WholeOrgJob,
} from "./bodies.js";
import { given } from "./batchOptions.js";
import { ConflictError } from "./errors.js";
import { followChanges, type ChangeEvent, type StreamOptions } from "./events.js";
import type { CallOptions, Tools } from "./jobHandle.js";
import { everyItem } from "./pages.js";
import { submissionHeaders } from "./requestHeaders.js";

const PAGE_ITEMS = 200;

export interface ListJobsOptions extends CallOptions {
  /** States, separated by commas; or `live`, or `ended`. */
  readonly state?: string | undefined;
  readonly lane?: string | undefined;
  /** `gateway`, `graphs`, `batches`, `llm` or `speech`. */
  readonly surface?: string | undefined;
  readonly service?: string | undefined;
  readonly endpoint?: string | undefined;
  readonly owner?: string | undefined;
  readonly errorCode?: string | undefined;
  /** An exact job id, idempotency key or request id. */
  readonly q?: string | undefined;
  readonly createdAfter?: Date | string | undefined;
  readonly createdBefore?: Date | string | undefined;
}

export type BulkFilter = Pick<
  ListJobsOptions,
  "state" | "lane" | "surface" | "service" | "endpoint" | "errorCode" | "createdAfter" | "createdBefore"
>;

export interface BulkSelection {
  readonly ids?: readonly string[] | undefined;
  readonly filter?: BulkFilter | undefined;
  readonly limit?: number | undefined;
}

export class Jobs {
  constructor(private readonly tools: Tools) {}

  /**
   * Stream all jobs as they change, without an end, beginning with the unfinished ones. A broken connection is reopened,
   * without lost or repeated events. `after` is the id of the last received event.
   */
  changes(options: StreamOptions = {}): AsyncGenerator<ChangeEvent<OrgJob>, void, void> {
    return followChanges<OrgJob>(this.tools.exchange, `${this.tools.addresses.orgJobs()}/events`, options);
  }

  /** Iterate over the jobs that the credential may see, newest first, without their results. */
  async *list(options: ListJobsOptions = {}): AsyncGenerator<OrgJob, void, void> {
    const url = withQuery(this.tools.addresses.orgJobs(), {
      state: options.state,
      lane: options.lane,
      surface: options.surface,
      service: options.service,
      endpoint: options.endpoint,
      owner: options.owner,
      error_code: options.errorCode,
      q: options.q,
      created_after: moment(options.createdAfter),
      created_before: moment(options.createdBefore),
      limit: PAGE_ITEMS,
    });
    yield* everyItem<OrgJob>(this.tools.exchange, url, options.signal);
  }

  /** Fetch a job, with its result if that is short. Throws NotFoundError. */
  async get(id: string, options: CallOptions = {}): Promise<WholeOrgJob> {
    return this.#read<WholeOrgJob>(this.tools.addresses.orgJobs(id), options);
  }

  /** Cancel a job. Throws ConflictError if it has already failed or completed. */
  async cancel(id: string, options: CallOptions = {}): Promise<OrgJob> {
    const url = this.tools.addresses.orgJobs(id);
    try {
      return (await this.tools.exchange.send("POST", `${url}/cancel`, { signal: options.signal })).object<OrgJob>();
    } catch (error) {
      if (!(error instanceof ConflictError)) throw error;
      // A retry also gets this if the first attempt succeeded.
      const now = await this.get(id, options);
      if (now.state !== "cancelled") throw error;
      return now;
    }
  }

  /**
   * Retry a finished job: submit its input again as a new job. Throws ConflictError, whose code says why
   * that is impossible: `job_not_ended`, `input_not_kept` or `not_retryable`.
   */
  async retry(id: string, options: CallOptions & { readonly idempotencyKey?: string } = {}): Promise<OrgJob> {
    const answer = await this.tools.exchange.send("POST", `${this.tools.addresses.orgJobs(id)}/retry`, {
      headers: submissionHeaders({ idempotencyKey: options.idempotencyKey }),
      signal: options.signal,
    });
    return answer.object<OrgJob>();
  }

  /** Explain why a job is waiting, its position in the queue, and when it should start and finish. */
  async explain(id: string, options: CallOptions = {}): Promise<Explanation> {
    return this.#read<Explanation>(`${this.tools.addresses.orgJobs(id)}/explain`, options);
  }

  /** The job's history, attempt by attempt. */
  async timeline(id: string, options: CallOptions = {}): Promise<TimelineItem[]> {
    return (await this.#read<Timeline>(`${this.tools.addresses.orgJobs(id)}/timeline`, options)).items;
  }

  /** Statistics of the organisation's jobs in the last minutes (default 60, at most 43,200), and the current backlog. */
  async overview(options: CallOptions & { readonly minutes?: number } = {}): Promise<Overview> {
    return this.#read<Overview>(withQuery(this.tools.addresses.overview(), { minutes: options.minutes }), options);
  }

  /** Iterate over the job's log lines and the outcomes of failed attempts. */
  async *log(id: string, options: CallOptions & { readonly after?: number } = {}): AsyncGenerator<JobLogItem, void, void> {
    const url = withQuery(`${this.tools.addresses.orgJobs(id)}/log`, { after: options.after, limit: PAGE_ITEMS });
    yield* everyItem<JobLogItem>(this.tools.exchange, url, options.signal, "after");
  }

  /** The job's input, while it is kept. Throws ConflictError `input_not_kept` afterwards. */
  async input(id: string, options: CallOptions = {}): Promise<unknown> {
    const url = `${this.tools.addresses.orgJobs(id)}/input`;
    return (await this.tools.exchange.send("GET", url, { signal: options.signal })).json();
  }

  /**
   * Cancel or retry many jobs: those in `ids`, at most 200, or up to `limit` that match the filter. The
   * response has the outcome of each. A bulk retry is not sent again if its response was lost.
   */
  async bulk(action: "cancel" | "retry", which: BulkSelection, options: CallOptions = {}): Promise<BulkAnswer> {
    const { errorCode, createdAfter, createdBefore, ...others } = which.filter ?? {};
    const times = { created_after: moment(createdAfter), created_before: moment(createdBefore) };
    const filter = which.filter === undefined ? undefined : given({ ...others, error_code: errorCode, ...times });
    const answer = await this.tools.exchange.send("POST", `${this.tools.addresses.orgJobs()}/bulk`, {
      headers: { "content-type": "application/json" },
      body: JSON.stringify(given({ action, ids: which.ids, filter, limit: which.limit })),
      isRepeatable: action === "cancel",
      signal: options.signal,
    });
    return answer.object<BulkAnswer>();
  }

  async #read<Body>(url: string, options: CallOptions): Promise<Body> {
    return (await this.tools.exchange.send("GET", url, { signal: options.signal })).object<Body>();
  }
}

function moment(given: Date | string | undefined): string | undefined {
  return given instanceof Date ? given.toISOString() : given;
}
