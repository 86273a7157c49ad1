/** URLs of the API: those that the client builds, and those that responses contain. */

import { UnexpectedAnswerError } from "./errors.js";

// Characters that need no escaping in a path (RFC 3986), and % so that nothing is escaped twice.
const PATH_SAFE = "/%:@!$&'()*+,;=~";
const UNRESERVED = /[A-Za-z0-9_.~-]/;

/** The URLs of one organisation on one server. The base URL may have a path, if a proxy serves the API below one. */
export class Addresses {
  readonly baseUrl: string;
  readonly org: string;
  readonly #origin: string;
  readonly #root: string;
  readonly #prefix: string;
  readonly #orgUrl: string;

  constructor(baseUrl: string, org: string) {
    this.baseUrl = baseUrl.replace(/\/+$/, "");
    const parts = /^(https?:\/\/[^/?#]+)([^?#]*)([?#].*)?$/i.exec(this.baseUrl);
    if (parts === null) throw new TypeError("url must begin with http:// or https:// and have a host");
    let parsed: URL;
    try {
      parsed = new URL(this.baseUrl);
    } catch {
      throw new TypeError("url must begin with http:// or https:// and have a valid host and port");
    }
    if (parsed.username !== "" || parsed.password !== "" || parts[1]?.includes("@") === true) {
      throw new TypeError("url must not contain a credential; pass it as apiKey or token");
    }
    if (parts[3] !== undefined) throw new TypeError("url must have neither a query nor a fragment");
    this.org = org;
    this.#origin = parsed.origin;
    this.#root = parts[1] ?? "";
    this.#prefix = parts[2] ?? "";
    this.#orgUrl = `${this.baseUrl}/api/v1/orgs/${segment("org", org)}`;
  }

  submit(service: string, version: number | null, path: string): string {
    return `${this.#service(service, version)}/async/${endpointPath(path)}`;
  }

  call(service: string, version: number | null, path: string): string {
    return `${this.#service(service, version)}/${endpointPath(path)}`;
  }

  job(service: string, jobId: string): string {
    return `${this.#service(service, null)}/jobs/${segment("job", jobId)}`;
  }

  jobs(service: string, workspace: string): string {
    const [where, what] = [segment("workspace", workspace), segment("service", service)];
    return `${this.#orgUrl}/workspaces/${where}/hosted-services/${what}/jobs`;
  }

  /** All jobs of the organisation, in every product, or one of them. */
  orgJobs(jobId?: string): string {
    return `${this.#orgUrl}/jobs${jobId === undefined ? "" : `/${segment("job", jobId)}`}`;
  }

  overview(): string {
    return `${this.#orgUrl}/overview`;
  }

  usage(): string {
    return `${this.#orgUrl}/usage`;
  }

  batches(): string {
    return `${this.baseUrl}/v1/jobs`;
  }

  batch(batchId: string): string {
    return `${this.batches()}/${segment("batch", batchId)}`;
  }

  /** A named part of a batch, such as one of its tasks. */
  below(batchId: string, kind: string, name: string): string {
    return `${this.batch(batchId)}/${kind}/${segment(kind, name)}`;
  }

  uploads(): string {
    return `${this.baseUrl}/v1/uploads`;
  }

  graphs(operation: string): string {
    return `${this.baseUrl}/v1/graphs/${operation}`;
  }

  graphJob(jobId: string): string {
    return `${this.graphs("jobs")}/${segment("job", jobId)}`;
  }

  chats(): string {
    return `${this.baseUrl}/jobs`;
  }

  chat(jobId: string): string {
    return `${this.chats()}/${segment("job", jobId)}`;
  }

  speech(kind: "voices" | "generate" | "tasks", ...names: string[]): string {
    return [`${this.baseUrl}/${kind}`, ...names.map((name) => segment(kind, name))].join("/");
  }

  /**
   * The URL in a response, checked to be one that the credential may be sent to.
   *
   * A server does not know a path that its proxy strips, so the path is added again.
   */
  named(url: string): string {
    if (isPath(url)) return this.#belowPrefix(url);
    if (originOf(url) !== this.#origin) {
      throw new UnexpectedAnswerError("the server names a URL that is not its own");
    }
    return url;
  }

  /** A signed URL in a response. It needs no credential and may point to any server. */
  signed(url: string): string {
    if (isPath(url)) return this.#belowPrefix(url);
    if (!/^https?:/.test(originOf(url))) {
      throw new UnexpectedAnswerError("the server names an invalid URL");
    }
    return url;
  }

  #belowPrefix(url: string): string {
    const isKnown = this.#prefix === "" || url.startsWith(`${this.#prefix}/`);
    return `${this.#root}${isKnown ? "" : this.#prefix}${url}`;
  }

  #service(service: string, version: number | null): string {
    const url = `${this.#orgUrl}/services/${segment("service", service)}`;
    return version === null ? url : `${url}/v${version}`;
  }
}

/** The URL with these query fields, except those that are null or undefined. */
export function withQuery(url: string, fields: Readonly<Record<string, unknown>>): string {
  const parsed = new URL(url);
  for (const [name, value] of Object.entries(fields)) {
    if (value !== null && value !== undefined) parsed.searchParams.set(name, String(value));
  }
  return parsed.href;
}

function isPath(url: string): boolean {
  return url.startsWith("/") && !url.startsWith("//") && !url.startsWith("/\\");
}

function segment(name: string, text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw new TypeError(`${name} must be a name, not ${JSON.stringify(text)}`);
  }
  return quote(text, "");
}

/** An endpoint's path, with or without a leading slash, and its query, if any. */
function endpointPath(given: string): string {
  const whole = given.startsWith("/") ? given.slice(1) : given;
  const at = whole.indexOf("?");
  const [path, query] = at < 0 ? [whole, null] : [whole.slice(0, at), whole.slice(at + 1)];
  const plain = path.replace(/%2e/gi, ".").replace(/%2f/gi, "/");
  if (plain.split("/").some((part) => part === "." || part === "..")) {
    throw new TypeError("a path must not contain . or .. segments");
  }
  return quote(path, PATH_SAFE) + (query === null ? "" : `?${quote(query, `${PATH_SAFE}?`)}`);
}

function quote(text: string, safe: string): string {
  let quoted = "";
  for (const byte of new TextEncoder().encode(text)) {
    const character = String.fromCharCode(byte);
    quoted +=
      byte < 128 && (UNRESERVED.test(character) || safe.includes(character))
        ? character
        : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return quoted;
}

function originOf(url: string): string {
  try {
    return new URL(url).origin;
  } catch (error) {
    throw new UnexpectedAnswerError("the server names an invalid URL", { cause: error });
  }
}
