/**
 * What the client throws.
 *
 * CoatcheckError
 * ├── ApiError                  the server refused; has its `status` and `code`
 * │   ├── InvalidRequestError   400 and every 4xx that is not named below: mend the request
 * │   ├── AuthenticationError   401: no credential, or none that counts
 * │   ├── PaymentRequiredError  402: the organisation's subscription is not active
 * │   ├── PermissionDeniedError 403: the credential lacks a scope
 * │   ├── NotFoundError         404: nothing of that name, or nothing that is yours
 * │   ├── ConflictError         409: such as cancelling what has ended
 * │   ├── RateLimitedError      429: too many requests, or too many jobs waiting
 * │   └── ServerError           5xx
 * ├── ConnectionFailedError     no answer, also after the retries
 * ├── UnexpectedAnswerError     an answer that is not Coatcheck's
 * ├── JobFailedError            the job was waited for, and did not complete
 * ├── BatchFailedError          the same of a batch: its list was refused, or it was cancelled
 * ├── ExportFailedError         a batch's results could not be written to be fetched
 * ├── InvalidWebhookError       a webhook that is not Coatcheck's, or was changed on its way
 * └── WaitTimeoutError          what was waited for had not ended in time; it goes on
 *     └── PollingTimeoutError   the same of a graph
 *
 * A signal that is aborted rejects with the signal's own `reason`.
 */

import { retryAfterSeconds } from "./retryAfter.js";

/** The root of what the client throws. `code` is stable and machine-readable. */
export class CoatcheckError extends Error {
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** One thing that is wrong with a request: which field, what, and where it stood. */
export interface ErrorDetail {
  readonly field: string;
  readonly issue: string;
  readonly location: string;
}

export interface ApiErrorFields {
  readonly status: number;
  readonly code: string;
  readonly reason: string;
  readonly details: readonly ErrorDetail[];
  readonly requestId: string | null;
  readonly retryAfter: number | null;
  readonly jobUrl: string | null;
}

/** The server refused. `code` is the server's; `requestId` finds it in the server's log. */
export class ApiError extends CoatcheckError {
  readonly status: number;
  /** What the server says of it. `message` has the status, the code and the request's id as well. */
  readonly reason: string;
  readonly details: readonly ErrorDetail[];
  readonly requestId: string | null;
  /** The number of seconds after which the server wants to be asked again, if it said so. */
  readonly retryAfter: number | null;
  /** Where the job is found, if it is a job's failure that was answered. */
  readonly jobUrl: string | null;

  constructor(fields: ApiErrorFields) {
    const where = fields.requestId === null ? "" : ` (request ${fields.requestId})`;
    super(fields.code, `${fields.status} ${fields.code}: ${fields.reason}${where}`);
    this.status = fields.status;
    this.reason = fields.reason;
    this.details = fields.details;
    this.requestId = fields.requestId;
    this.retryAfter = fields.retryAfter;
    this.jobUrl = fields.jobUrl;
  }
}

/** The request is wrong: `details` names the fields, where the server can tell them. */
export class InvalidRequestError extends ApiError {}

/** 401: there was no credential, or an unknown, revoked or expired one. */
export class AuthenticationError extends ApiError {}

/** 402: the organisation's subscription is not active. Results can still be read. */
export class PaymentRequiredError extends ApiError {}

/** 403: the credential lacks the scope that this needs. */
export class PermissionDeniedError extends ApiError {}

/** 404: there is nothing of that name, or nothing that this credential may see. */
export class NotFoundError extends ApiError {}

/** 409: the state of things does not allow it, such as cancelling a job that has ended. */
export class ConflictError extends ApiError {}

/** 429, also after the retries. `retryAfter` says when to come back. */
export class RateLimitedError extends ApiError {}

/** 5xx, also after the retries of those that are worth it. */
export class ServerError extends ApiError {}

/**
 * The server could not be reached, or did not answer, also after the retries.
 *
 * Whether the last request took effect is not known. Submitting again under the same
 * `idempotencyKey` finds out.
 */
export class ConnectionFailedError extends CoatcheckError {
  constructor(message: string, options?: ErrorOptions) {
    super("connection_failed", message, options);
  }
}

/** The answer is not one that Coatcheck gives: is `url` right, is there a proxy? */
export class UnexpectedAnswerError extends CoatcheckError {
  constructor(message: string, options?: ErrorOptions) {
    super("unexpected_answer", message, options);
  }
}

/**
 * The job ended, and did not complete. `code` and `reason` are those of the job's error; a cancelled
 * job's code is `cancelled`. `body` is the job as its surface shows it.
 */
export class JobFailedError<Body = unknown> extends CoatcheckError {
  constructor(
    readonly jobId: string,
    readonly status: string,
    code: string,
    readonly reason: string,
    readonly body: Body,
  ) {
    super(code, `job ${jobId} is ${status}: ${code}: ${reason}`);
  }
}

/**
 * The batch ended without having run all its tasks: its list could not be taken in, or it was
 * cancelled. Tasks that failed are no failure of their batch.
 */
export class BatchFailedError<Body = unknown> extends CoatcheckError {
  constructor(
    readonly batchId: string,
    readonly status: string,
    code: string,
    readonly reason: string,
    readonly body: Body,
  ) {
    super(code, `batch ${batchId} is ${status}: ${code}: ${reason}`);
  }
}

/** A batch's results could not be written by the server, or not in time (`wait_timeout`). */
export class ExportFailedError extends CoatcheckError {
  constructor(
    readonly exportId: string,
    readonly status: string,
    code: string,
    readonly reason: string,
  ) {
    super(code, `export ${exportId} is ${status}: ${code}: ${reason}`);
  }
}

/** The webhook was not signed with that secret, was changed on its way, or is too old. */
export class InvalidWebhookError extends CoatcheckError {
  constructor(message: string) {
    super("invalid_webhook", message);
  }
}

/** What was waited for had not ended when the time was up. It goes on, and can be waited for again. */
export class WaitTimeoutError extends CoatcheckError {
  constructor(
    readonly jobId: string,
    readonly status: string,
    readonly timeoutMs: number,
  ) {
    super("wait_timeout", `job ${jobId} is still ${status} after ${timeoutMs / 1000} s`);
  }
}

/**
 * A graph was not there in time, or after as many polls as were allowed. Its job goes on: the same
 * call with the same `idempotencyKey` goes on waiting for it.
 */
export class PollingTimeoutError extends WaitTimeoutError {
  constructor(
    jobId: string,
    status: string,
    timeoutMs: number,
    readonly attempts: number,
    readonly idempotencyKey: string,
  ) {
    super(jobId, status, timeoutMs);
    this.message = `job ${jobId} is still ${status} after ${attempts} polls`;
  }
}

const KINDS: Readonly<Record<number, new (fields: ApiErrorFields) => ApiError>> = {
  401: AuthenticationError,
  402: PaymentRequiredError,
  403: PermissionDeniedError,
  404: NotFoundError,
  409: ConflictError,
  429: RateLimitedError,
};

/**
 * The error that an answer of 4xx or 5xx stands for.
 *
 * Something between here and Coatcheck may have answered instead: then there is no problem document,
 * and what the body says is not repeated.
 */
export function apiError(status: number, headers: Headers, body: string): ApiError {
  const Kind = KINDS[status] ?? (status >= 500 ? ServerError : InvalidRequestError);
  const problem = readProblem(headers, body);
  return new Kind({
    status,
    code: text(problem?.["code"]) ?? `http_${status}`,
    reason: text(problem?.["message"]) ?? text(problem?.["detail"]) ?? phrase(status),
    details: readDetails(problem?.["details"]),
    requestId: text(problem?.["requestId"]) ?? headers.get("x-request-id"),
    retryAfter: retryAfterSeconds(headers),
    jobUrl: problem === null ? null : headers.get("location"),
  });
}

const PROBLEM = "application/problem+json";
/** Where clients of other APIs are served, and where nothing is. Others answer with it as well. */
const JSON_TYPE = "application/json";
const OUR_TYPES = "urn:coatcheck:problem:";

function readProblem(headers: Headers, body: string): Record<string, unknown> | null {
  const mediaType = (headers.get("content-type") ?? "").split(";")[0]?.trim().toLowerCase();
  if (mediaType !== PROBLEM && mediaType !== JSON_TYPE) return null;
  try {
    const problem: unknown = JSON.parse(body);
    if (!isObject(problem)) return null;
    const isOurs = mediaType === PROBLEM || text(problem["type"])?.startsWith(OUR_TYPES);
    return isOurs ? problem : null;
  } catch {
    return null; // cut off on its way
  }
}

function readDetails(given: unknown): ErrorDetail[] {
  if (!Array.isArray(given)) return [];
  return given.filter(isObject).map((detail) => ({
    field: String(detail["field"] ?? ""),
    issue: String(detail["issue"] ?? ""),
    location: String(detail["location"] ?? ""),
  }));
}

export function isObject(given: unknown): given is Record<string, unknown> {
  return typeof given === "object" && given !== null && !Array.isArray(given);
}

function text(given: unknown): string | null {
  return typeof given === "string" && given !== "" ? given : null;
}

function phrase(status: number): string {
  return PHRASES[status] ?? "an answer without a reason";
}

const PHRASES: Readonly<Record<number, string>> = {
  400: "Bad Request",
  401: "Unauthorized",
  402: "Payment Required",
  403: "Forbidden",
  404: "Not Found",
  405: "Method Not Allowed",
  408: "Request Timeout",
  409: "Conflict",
  410: "Gone",
  411: "Length Required",
  413: "Request Entity Too Large",
  414: "Request-URI Too Long",
  415: "Unsupported Media Type",
  422: "Unprocessable Entity",
  429: "Too Many Requests",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  501: "Not Implemented",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
};
