/** Iteration over paginated listings. */

import { withQuery } from "./addresses.js";
import { UnexpectedAnswerError } from "./errors.js";
import type { Exchange } from "./exchange.js";

interface Page<Item> {
  readonly items: readonly Item[];
  readonly next: string | number | null;
}

/** All items of a listing. `cursor` is the name of the query field for the next page. */
export async function* everyItem<Item>(
  exchange: Exchange,
  url: string,
  signal: AbortSignal | undefined,
  cursor = "cursor",
): AsyncGenerator<Item, void, void> {
  let last: unknown;
  for (let page = url; ; ) {
    const { items, next } = (await exchange.send("GET", page, { signal })).object<Partial<Page<Item>>>();
    // A page without a valid next cursor, or with its own, would loop for ever.
    if (!Array.isArray(items) || next === undefined || (next !== null && next === last)) {
      throw new UnexpectedAnswerError("the answer is not a page of a list");
    }
    yield* items as readonly Item[];
    if (next === null) return;
    last = next;
    page = withQuery(url, { [cursor]: next });
  }
}
