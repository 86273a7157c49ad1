/** A job of a service. */

import type { JobBody, Ticket } from "./bodies.js";
import { JobFailedError, UnexpectedAnswerError, isObject } from "./errors.js";
import type { Answer } from "./exchange.js";
import { JobHandle, type JobUrls, type Tools } from "./jobHandle.js";

/** A job of a service. `wait` resolves to its handler's return value. */
export class Job<Output = unknown> extends JobHandle<JobBody, Output> {
  /** @internal Use `client.submit`, or `client.job` for a known id. */
  constructor(tools: Tools, id: string, urls: JobUrls, answer: Answer | null) {
    super(tools.exchange, id, urls, answer);
  }

  /** @internal The job in a response, which may be complete or only a ticket. */
  static from<Output>(tools: Tools, answer: Answer): Job<Output> {
    const shown = answer.object<Partial<Ticket> & Partial<JobBody>>();
    if (shown.id !== undefined && shown.service_id !== undefined) {
      const poll = tools.addresses.job(shown.service_id, shown.id);
      const job = new Job<Output>(tools, shown.id, urlsBelow(poll), answer);
      job.learn(answer);
      return job;
    }
    const { job_id, poll_url, events_url, cancel_url } = shown;
    if (![job_id, poll_url, events_url, cancel_url].every((each) => typeof each === "string")) {
      throw new UnexpectedAnswerError("the answer is not a job");
    }
    const urls = {
      poll: tools.addresses.named(poll_url as string),
      events: tools.addresses.named(events_url as string),
      cancel: tools.addresses.named(cancel_url as string),
    };
    const job = new Job<Output>(tools, job_id as string, urls, answer);
    job.learnTicket(shown);
    return job;
  }

  /**
   * The handler's return value; null until the job has completed, or while only its ticket is known. Also null if a
   * list or stream omitted the result (`body.result_omitted`): `wait` and `status` fetch it.
   */
  get result(): Output | null {
    return (this.body?.result_summary ?? null) as Output | null;
  }

  protected override stateOf(body: JobBody): string {
    return body.status;
  }

  protected override isWhole(body: JobBody): boolean {
    return !body.result_omitted;
  }

  protected override outcome(body: JobBody): Output {
    if (body.status === "completed") return body.result_summary as Output;
    throw jobFailure(body);
  }
}

export function jobFailure(body: JobBody): JobFailedError<JobBody> {
  const error = isObject(body.last_error) ? body.last_error : null;
  const code = error?.code ?? (body.status === "cancelled" ? "cancelled" : "job_failed");
  return new JobFailedError(body.id, body.status, code, error?.message ?? "The server does not say why.", body);
}

/** The URLs of a job, derived from its poll URL. */
export function urlsBelow(poll: string): JobUrls {
  return { poll, events: `${poll}/events`, cancel: `${poll}/cancel` };
}
