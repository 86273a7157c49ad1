/** Waiting for an end by long-polls, which the server answers when it has come. */

import { withQuery } from "./addresses.js";
import { Deadline } from "./deadline.js";
import { WaitTimeoutError } from "./errors.js";
import type { Answer, Exchange } from "./exchange.js";
import { seconds } from "./requestHeaders.js";
import { backoffSeconds } from "./retries.js";

/** How long the server is asked to hold one long-poll: less than most proxies allow. */
export const POLL_SECONDS = 30;

export interface WaitOptions {
  /** Throws WaitTimeoutError after so many milliseconds. Without it, waits for as long as it takes. */
  readonly timeoutMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** What is waited for: it takes over each answer, and says how it is by then. */
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
    // A server that is about to stop does not hold; nor must this become a busy loop.
    fruitless += 1;
    const delay = backoffSeconds(fruitless - 1, Math.random());
    await exchange.pause(Math.min(delay, deadline.remainingMs() / 1000), options.signal);
  }
}
