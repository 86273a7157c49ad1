/** Encoding of tasks: a few as a JSON array, many as NDJSON lines. */

/** Up to this many tasks are sent as JSON in the request. */
export const LISTED_TASKS_MAX = 1_000;
/** Longer lists are uploaded first; the server accepts requests of up to 1 MiB. */
export const BODY_BYTES_MAX = 512 * 1024;
/** The size of text that is collected into one part of a Blob. */
const PIECE_CHARACTERS = 1024 * 1024;

export type Tasks = Iterable<unknown> | AsyncIterable<unknown>;

/** A short list is `listed` as a JSON array; a long one is a `list` of NDJSON lines. */
export type Gathered =
  | { readonly listed: string; readonly list: null }
  | { readonly listed: null; readonly list: Blob };

/** Encode all tasks of a list. */
export async function gather(tasks: Tasks): Promise<Gathered> {
  const pieces: Blob[] = [];
  let lines: string[] = [];
  let characters = 0;
  let count = 0;
  for await (const task of tasks) {
    const line = JSON.stringify(task);
    if (line === undefined) throw new TypeError(`task ${count} cannot be encoded as JSON`);
    lines.push(line);
    characters += line.length + 1;
    count += 1;
    if (characters >= PIECE_CHARACTERS) {
      pieces.push(new Blob([lines.join("\n"), "\n"]));
      lines = [];
      characters = 0;
    }
  }
  if (pieces.length === 0 && count < LISTED_TASKS_MAX) {
    const listed = `[${lines.join(",")}]`;
    if (new TextEncoder().encode(listed).length <= BODY_BYTES_MAX) return { listed, list: null };
  }
  if (lines.length > 0) pieces.push(new Blob([lines.join("\n"), "\n"]));
  return { listed: null, list: new Blob(pieces) };
}
