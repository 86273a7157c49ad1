/**
 * Files that are fetched piece by piece.
 *
 * A URL that the server has signed may be of another server, and is all the permission it takes: no
 * credential goes there.
 */

import { ApiError, ConnectionFailedError, UnexpectedAnswerError } from "./errors.js";
import { joined, type Exchange } from "./exchange.js";

/** How long a store may take to put away, or to find, what it is asked for. */
export const STORE_SILENCE_MS_MAX = 120_000;

/** What a signed URL has, piece by piece, `size` bytes in all. A connection that breaks goes on where it broke. */
export async function* fetchPieces(
  exchange: Exchange,
  url: string,
  size: number,
  signal?: AbortSignal,
): AsyncGenerator<Uint8Array, void, void> {
  let received = 0;
  let failures = 0;
  while (received < size) {
    const before = received;
    const headers: Record<string, string> = received === 0 ? {} : { range: `bytes=${received}-` };
    try {
      const opened = await exchange.open("GET", url, {
        headers,
        isSigned: true,
        silenceMs: STORE_SILENCE_MS_MAX,
        signal,
      });
      // A server that starts over sends again what is here already.
      let known = received > 0 && opened.response.status !== 206 ? received : 0;
      for await (const piece of opened.pieces()) {
        const fresh = piece.subarray(Math.min(known, piece.length));
        known -= piece.length - fresh.length;
        if (fresh.length === 0) continue;
        received += fresh.length;
        yield fresh;
      }
    } catch (error) {
      if (!(error instanceof ApiError || error instanceof ConnectionFailedError)) throw error;
      failures = received > before ? 1 : failures + 1;
      await exchange.waitToRetry(error, failures, { signal });
      continue;
    }
    if (received !== size) throw new UnexpectedAnswerError(`${received} bytes came, and there should be ${size}`);
  }
}

/** The same, whole and compared with its checksum. */
export async function fetchWhole(
  exchange: Exchange,
  url: string,
  size: number,
  sha256: string,
  signal?: AbortSignal,
): Promise<Uint8Array<ArrayBuffer>> {
  const pieces: Uint8Array[] = [];
  for await (const piece of fetchPieces(exchange, url, size, signal)) pieces.push(piece);
  const bytes = joined(pieces);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  if (hex !== sha256) throw new UnexpectedAnswerError("what came is not the file: its checksum is another");
  return bytes;
}
