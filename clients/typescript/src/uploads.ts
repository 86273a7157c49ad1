/** Lists that are sent to the server's store before they are handed in. */

import type { Upload } from "./bodies.js";
import { STORE_SILENCE_MS_MAX } from "./files.js";
import type { CallOptions, Tools } from "./jobHandle.js";

export class Uploads {
  constructor(private readonly tools: Tools) {}

  /**
   * Stage NDJSON lines, to be handed in as `uploadId` within a day, once. The URL that they go to is
   * signed, and may be of the server's blob store: no credential goes there.
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
