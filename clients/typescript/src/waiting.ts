/** Waiting for a job or batch to finish, by long-polling. */

import { withQuery } from "./addresses.js";
import { Deadline } from "./deadline.js";
import { WaitTimeoutError } from "./errors.js";
import type { Answer, Exchange } from "./exchange.js";
import { seconds } from "./requestHeaders.js";
import { backoffSeconds } from "./retries.js";

/** How long the server is asked to hold one long-poll: shorter than most proxies' timeouts. */
export const POLL_SECONDS = 30;

export interface WaitOptions {
  /** Throws WaitTimeoutError after this many milliseconds. Default: waits without limit. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Something to wait for: it updates itself from each response and knows its state. */
export interface Waited {
  readonly id: string;
  readonly state: string;
  readonly terminal: boolean;
  learn(answer: Answer): void;
}

export async function waitForEnd(
  exchange: Exchange,
  url: string,
  waited: Waited,
  options: WaitOptions,
  deadline = new Deadline(options.timeoutMs),
): Promise<void> {
  let fruitless = 0;
  for (;;) {
    const held = Math.min(POLL_SECONDS, deadline.remainingMs() / 1000);
    const askedAt = performance.now();
    const answer = await exchange.send("GET", withQuery(url, { wait: seconds(held) }), {
      heldMs: held * 1000,
      deadline,
      signal: options.signal,
    });
    waited.learn(answer);
    if (waited.terminal) return;
    if (deadline.passed) throw new WaitTimeoutError(waited.id, waited.state, deadline.timeoutMs);
    if (performance.now() - askedAt >= (held * 1000) / 2) {
      fruitless = 0;
      continue;
    }
    // A server that shuts down does not hold polls; avoid a busy loop.
    fruitless += 1;
    const delay = backoffSeconds(fruitless - 1, Math.random());
    await exchange.pause(Math.min(delay, deadline.remainingMs() / 1000), options.signal);
  }
}
