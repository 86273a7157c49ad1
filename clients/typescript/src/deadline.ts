/** Deadlines on a monotonic clock. */
export class Deadline {
  readonly timeoutMs: number;
  readonly #at: number;

  /** A deadline this many milliseconds from now; undefined means none. */
  constructor(timeoutMs: number | undefined) {
    if (timeoutMs !== undefined && !(timeoutMs >= 0)) throw new TypeError("a timeout must not be negative");
    this.timeoutMs = timeoutMs ?? Infinity;
    this.#at = performance.now() + this.timeoutMs;
  }

  remainingMs(): number {
    return Math.max(0, this.#at - performance.now());
  }

  get passed(): boolean {
    return this.remainingMs() === 0;
  }
}

/** The maximum delay of a timer, about 24 days. Longer waits get no timer. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Calls `act` after this many milliseconds, unless the timer is cleared. */
export function after(milliseconds: number, act: () => void): ReturnType<typeof setTimeout> | undefined {
  return milliseconds > TIMER_MS_MAX ? undefined : setTimeout(act, milliseconds);
}

/** Resolves after this many milliseconds; rejects with the signal's reason if it is aborted first. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) {
      reject(signal.reason);
      return;
    }
    const onAbort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}
