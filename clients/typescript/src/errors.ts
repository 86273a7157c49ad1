/**
 * Errors that the client throws.
 *
 * CoatcheckError
 * ├── ApiError                  the server refused; has its `status` and `code`
 * │   ├── InvalidRequestError   400 and every 4xx not named below: fix the request
 * │   ├── AuthenticationError   401: missing or invalid credential
 * │   ├── PaymentRequiredError  402: the organisation's subscription is not active
 * │   ├── PermissionDeniedError 403: the credential lacks a scope
 * │   ├── NotFoundError         404: it does not exist, or is not yours
 * │   ├── ConflictError         409: for example, cancelling a finished job
 * │   ├── RateLimitedError      429: too many requests, or too many jobs waiting
 * │   └── ServerError           5xx
 * ├── ConnectionFailedError     no response, even after retries
 * ├── UnexpectedAnswerError     a response that is not Coatcheck's
 * ├── JobFailedError            the job failed or was cancelled
 * ├── BatchFailedError          the batch's list was refused, or it was cancelled
 * ├── ExportFailedError         a batch's export failed
 * ├── InvalidWebhookError       a forged or modified webhook
 * └── WaitTimeoutError          a wait timed out; the job continues
 *     └── PollingTimeoutError   a wait for a graph timed out
 *
 * An aborted signal rejects with the signal's own `reason`.
 */

import { retryAfterSeconds } from "./retryAfter.js";

/** The base class of all errors of the client. `code` is stable and machine-readable. */
export class CoatcheckError extends Error {
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** One problem of a request: the field, the issue, and its location. */
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

/** An error response of the server. `code` comes from the server; find `requestId` in its log. */
export class ApiError extends CoatcheckError {
  readonly status: number;
  /** The server's description. `message` also contains the status, the code and the request id. */
  readonly reason: string;
  readonly details: readonly ErrorDetail[];
  readonly requestId: string | null;
  /** The server's Retry-After in seconds, if any. */
  readonly retryAfter: number | null;
  /** The job's URL, if the response reports the failure of a job. */
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

/** The request is invalid. `details` names the fields, if the server knows them. */
export class InvalidRequestError extends ApiError {}

/** 401: the credential is missing, unknown, revoked or expired. */
export class AuthenticationError extends ApiError {}

/** 402: the organisation's subscription is not active. Results can still be read. */
export class PaymentRequiredError extends ApiError {}

/** 403: the credential lacks the required scope. */
export class PermissionDeniedError extends ApiError {}

/** 404: it does not exist, or this credential may not see it. */
export class NotFoundError extends ApiError {}

/** 409: the current state does not allow it; for example, cancelling a finished job. */
export class ConflictError extends ApiError {}

/** 429, even after retries. `retryAfter` says when to try again. */
export class RateLimitedError extends ApiError {}

/** 5xx, even after retries where those make sense. */
export class ServerError extends ApiError {}

/**
 * The server could not be reached or did not respond, even after retries.
 *
 * The last request may or may not have taken effect. Submit again with the same
 * `idempotencyKey` to find out.
 */
export class ConnectionFailedError extends CoatcheckError {
  constructor(message: string, options?: ErrorOptions) {
    super("connection_failed", message, options);
  }
}

/** The response is not Coatcheck's. Check `url`, and whether there is a proxy. */
export class UnexpectedAnswerError extends CoatcheckError {
  constructor(message: string, options?: ErrorOptions) {
    super("unexpected_answer", message, options);
  }
}

/**
 * The job failed or was cancelled. `code` and `reason` come from the job's error; a cancelled job's code
 * is `cancelled`. `body` is the job.
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
 * The batch ended without running all its tasks: its list could not be ingested, or it was cancelled.
 * Failed tasks do not make their batch fail.
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

/** The server could not export a batch's results, or not in time (`wait_timeout`). */
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

/** The webhook was not signed with this secret, was modified, or is too old. */
export class InvalidWebhookError extends CoatcheckError {
  constructor(message: string) {
    super("invalid_webhook", message);
  }
}

/** A wait timed out. The job continues, and you can wait for it again. */
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
 * A graph was not ready in time, or within the allowed number of polls. Its job continues: repeat the
 * call with the same `idempotencyKey` to keep waiting for it.
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
 * The error for a 4xx or 5xx response.
 *
 * A proxy may have responded instead of Coatcheck. Then there is no problem document, and the error does
 * not repeat the body.
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
/** The type of errors on the routes for other APIs' clients, and on unknown routes. Proxies use it as well. */
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
    return null; // truncated in transit
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
