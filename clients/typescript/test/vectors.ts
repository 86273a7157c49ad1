/** The repository's tests/client/vectors: what every client of the API has to do, in whatever language. */

import { readFileSync } from "node:fs";
import { Coatcheck, type CoatcheckOptions } from "coatcheck";
import * as coatcheck from "coatcheck";

const FOLDER = new URL("../../../tests/client/vectors/", import.meta.url);

export const JOB_ID = "01JAV8M2Q0XW3N5T7R9Y1B3D5F";
export const JOB_URL = `/api/v1/orgs/default/services/docs/jobs/${JOB_ID}`;

export function cases<Case>(name: string): (Case & { name: string })[] {
  return JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), "utf-8")) as (Case & { name: string })[];
}

/** The class that a case names: here all end with "Error", and wrong arguments are a TypeError. */
export function errorNamed(name: string): new (...given: never[]) => Error {
  if (name === "ValueError") return TypeError;
  const found = (coatcheck as Record<string, unknown>)[name.endsWith("Error") ? name : `${name}Error`];
  if (typeof found !== "function") throw new Error(`there is no ${name}`);
  return found as new (...given: never[]) => Error;
}

/** A client whose pauses are noted and not taken, and to which every random number is 0.5. */
export function noting(options: CoatcheckOptions): { client: Coatcheck; pauses: number[] } {
  const client = new Coatcheck({ apiKey: "cck_test_sesame", org: "default", ...options });
  const pauses: number[] = [];
  Math.random = () => 0.5;
  client.exchange.pause = async (seconds) => {
    pauses.push(seconds);
  };
  return { client, pauses };
}
