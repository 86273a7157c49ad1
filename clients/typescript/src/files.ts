/**
 * Downloads of files by signed URL.
 *
 * A signed URL may point to another server and grants access by itself, so no credential is sent.
 */

import { ApiError, ConnectionFailedError, UnexpectedAnswerError } from "./errors.js";
import { joined, type Exchange } from "./exchange.js";

/** How long a blob store may take to store or to find a file. */
export const STORE_SILENCE_MS_MAX = 120_000;

/** Download `size` bytes as a stream. A broken connection resumes where it broke. */
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
      // A server that ignores the range sends the first bytes again.
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
    if (received !== size) throw new UnexpectedAnswerError(`received ${received} bytes instead of ${size}`);
  }
}

/** Download a whole file and verify its checksum. */
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
  if (hex !== sha256) throw new UnexpectedAnswerError("the downloaded file does not match its checksum");
  return bytes;
}
