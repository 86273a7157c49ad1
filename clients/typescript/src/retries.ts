/**
 * Which failures are worth another try, and when. No I/O; randomness is an input.
 *
 * Nearly everything the client sends may be sent twice: reads and cancellations change nothing when
 * they are repeated, and every submission carries an idempotency key.
 */

import { ApiError, type ConnectionFailedError } from "./errors.js";

const BASE_SECONDS = 0.25;
const CAP_SECONDS = 8;
const JITTER = 0.5;
/** Whoever is told to stay away for longer hears of it at once, as an error. */
const RETRY_AFTER_SECONDS_MAX = 60;

const STATUSES = new Set([408, 429, 502, 503, 504]);
const NOT_DONE = new Set(["rate_limited", "database_unavailable"]);

/** Whether the answer may be another one the next time; a job that has failed stays failed. */
export function worthRetrying(error: ApiError): boolean {
  return STATUSES.has(error.status) && error.jobUrl === null;
}

/** Whether a request that failed so has changed nothing. */
export function surelyNotDone(error: ApiError | ConnectionFailedError): boolean {
  return error instanceof ApiError && NOT_DONE.has(error.code);
}

/** Doubled for each earlier failure, up to a bound, plus up to half of it. `random` lies in [0, 1). */
export function backoffSeconds(failuresBefore: number, random: number): number {
  const plain = Math.min(BASE_SECONDS * 2 ** Math.min(failuresBefore, 63), CAP_SECONDS);
  return plain * (1 + JITTER * random);
}

/**
 * Seconds to wait after so many failures in a row; null to give up.
 *
 * `random` lies in [0, 1): clients that failed together do not come back together. `atLeast` is what a
 * stream asks of its readers.
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
