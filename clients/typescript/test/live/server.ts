/** The server that the live tests talk to. `tests/typescript` of the repository starts one, with the services that they use. */

import assert from "node:assert/strict";
import { Coatcheck, type CoatcheckOptions } from "coatcheck";

export function setting(name: string): string {
  const value = process.env[name];
  assert(value, `${name} is not set: these tests are started by pytest, tests/typescript`);
  return value;
}

export function connect(options: CoatcheckOptions = {}): Coatcheck {
  return new Coatcheck({ url: setting("COATCHECK_URL"), ...options });
}

export async function collected<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}
