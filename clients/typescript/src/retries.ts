/**
 * The retry policy: which failures to retry, and when. No I/O; randomness is an input.
 *
 * Nearly every request may be sent twice: reads and cancellations are idempotent, and every submission
 * carries an idempotency key.
 */

import { ApiError, type ConnectionFailedError } from "./errors.js";

const BASE_SECONDS = 0.25;
const CAP_SECONDS = 8;
const JITTER = 0.5;
/** A longer Retry-After is not waited for: the caller gets the error at once. */
const RETRY_AFTER_SECONDS_MAX = 60;

const STATUSES = new Set([408, 429, 502, 503, 504]);
const NOT_DONE = new Set(["rate_limited", "database_unavailable"]);

/** Whether a retry may succeed. The failure of a job is final. */
export function worthRetrying(error: ApiError): boolean {
  return STATUSES.has(error.status) && error.jobUrl === null;
}

/** Whether a request with this failure certainly had no effect. */
export function surelyNotDone(error: ApiError | ConnectionFailedError): boolean {
  return error instanceof ApiError && NOT_DONE.has(error.code);
}

/** Exponential backoff with a maximum, plus up to half as jitter. `random` lies in [0, 1). */
export function backoffSeconds(failuresBefore: number, random: number): number {
  const plain = Math.min(BASE_SECONDS * 2 ** Math.min(failuresBefore, 63), CAP_SECONDS);
  return plain * (1 + JITTER * random);
}

/**
 * Seconds to wait after this many failures in a row; null to give up.
 *
 * `random` lies in [0, 1) and spreads clients that failed at the same time. `atLeast` is the `retry` field
 * of an event stream.
 */
export function retryDelaySeconds(
  retriesMax: number,
  failures: number,
  retryAfter: number | null,
  random: number,
  atLeast = 0,
): number | null {
  if (failures > retriesMax) return null;
  if (retryAfter === null) {
    return Math.max(Math.min(atLeast, RETRY_AFTER_SECONDS_MAX), backoffSeconds(failures - 1, random));
  }
  return retryAfter > RETRY_AFTER_SECONDS_MAX ? null : retryAfter + BASE_SECONDS * random;
}
