/** A time by which something is to be done, by a clock that nobody sets. */
export class Deadline {
  readonly timeoutMs: number;
  readonly #at: number;

  /** So many milliseconds from now; undefined is never. */
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

/** What timers can count to. Whoever waits for longer than these 24 days gets no timer at all. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/** Acts after so many milliseconds, unless the timer is cleared. */
export function after(milliseconds: number, act: () => void): ReturnType<typeof setTimeout> | undefined {
  return milliseconds > TIMER_MS_MAX ? undefined : setTimeout(act, milliseconds);
}

/** Resolves after so many milliseconds; rejects with the signal's reason if that is aborted before. */
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
