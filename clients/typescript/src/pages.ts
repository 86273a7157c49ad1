/** Listings, asked for page by page. */

import { withQuery } from "./addresses.js";
import { UnexpectedAnswerError } from "./errors.js";
import type { Exchange } from "./exchange.js";

interface Page<Item> {
  readonly items: readonly Item[];
  readonly next: string | number | null;
}

/** Everything of a listing. `cursor` is the field of the query that says where to go on. */
export async function* everyItem<Item>(
  exchange: Exchange,
  url: string,
  signal: AbortSignal | undefined,
  cursor = "cursor",
): AsyncGenerator<Item, void, void> {
  let last: unknown;
  for (let page = url; ; ) {
    const { items, next } = (await exchange.send("GET", page, { signal })).object<Partial<Page<Item>>>();
    // A page that leads nowhere, or to itself, would be asked for for ever.
    if (!Array.isArray(items) || next === undefined || (next !== null && next === last)) {
      throw new UnexpectedAnswerError("the server answered with something else than a page of a list");
    }
    yield* items as readonly Item[];
    if (next === null) return;
    last = next;
    page = withQuery(url, { [cursor]: next });
  }
}
