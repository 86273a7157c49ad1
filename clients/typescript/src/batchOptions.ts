/** Options of a batch, as JSON fields or as the query of its request. */

export interface BatchOptions {
  readonly service: string;
  /** The endpoint's path (`/analyze`) or its key (`post__analyze`). */
  readonly endpoint: string;
  readonly version?: number | undefined;
  /** Keep the batch open for more tasks until it is closed. It may then begin with none. */
  readonly isOpen?: boolean | undefined;
  /** Let a worker ingest the list, however short it is. */
  readonly isAsync?: boolean | undefined;
  readonly lane?: string | undefined;
  /** The maximum number of tasks that run at the same time, over all workers. */
  readonly concurrency?: number | undefined;
  /** The maximum number of tasks that start per second: of all, and of those that share a key. */
  readonly rate?: {
    readonly perSecond?: number | undefined;
    readonly key?: string | undefined;
    readonly keyPerSecond?: number | undefined;
  };
  readonly retries?: number | undefined;
  /** How long the server keeps the batch after it has finished. */
  readonly keepSeconds?: number | undefined;
  readonly webhookUrl?: string | undefined;
  readonly webhookEvents?: readonly string[] | undefined;
  /** Your own data, returned with the batch. */
  readonly metadata?: Readonly<Record<string, unknown>> | undefined;
}

type Fields = Record<string, unknown>;

/** The fields of a JSON body. The server chooses missing ones. */
export function batchFields(options: BatchOptions): Fields {
  const rate = given({
    per_second: options.rate?.perSecond,
    key: options.rate?.key,
    key_per_second: options.rate?.keyPerSecond,
  });
  return given({
    service: options.service,
    endpoint: options.endpoint,
    type: options.isOpen === true ? "open" : undefined,
    async: options.isAsync === true ? true : undefined,
    version: options.version,
    lane: options.lane,
    concurrency: options.concurrency,
    rate: Object.keys(rate).length === 0 ? undefined : rate,
    retries: options.retries,
    keep_seconds: options.keepSeconds,
    webhook_url: options.webhookUrl,
    webhook_events: options.webhookEvents,
    metadata: options.metadata,
  });
}

/** The same as query fields, for a request whose body is the list itself. */
export function batchQuery(fields: Fields): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (name === "rate") {
      for (const [part, rate] of Object.entries(value as Fields)) query[`rate_${part}`] = String(rate);
    } else if (name === "webhook_events") {
      query[name] = (value as string[]).join(",");
    } else {
      query[name] = typeof value === "string" ? value : JSON.stringify(value);
    }
  }
  return query;
}

/** The fields without undefined ones. */
export function given(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
