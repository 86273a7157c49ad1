/** `client.uploads`: task lists that are uploaded before their batch is submitted. */

import type { Upload } from "./bodies.js";
import { STORE_SILENCE_MS_MAX } from "./files.js";
import type { CallOptions, Tools } from "./jobHandle.js";

export class Uploads {
  constructor(private readonly tools: Tools) {}

  /**
   * Upload NDJSON lines, and return an `uploadId` to submit once within a day. The upload URL is signed and
   * may point to the server's blob store, so no credential is sent.
   */
  async create(list: Blob, options: CallOptions = {}): Promise<string> {
    const { exchange, addresses } = this.tools;
    const answer = await exchange.send("POST", addresses.uploads(), { signal: options.signal });
    const upload = answer.object<Upload>();
    await exchange.send(upload.method, addresses.signed(upload.url), {
      headers: upload.headers,
      body: list,
      isSigned: true,
      silenceMs: STORE_SILENCE_MS_MAX,
      signal: options.signal,
    });
    return upload.upload_id;
  }
}
