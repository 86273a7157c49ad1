/** The cases that every client of the API has to pass. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ApiError, CoatcheckError, verifyWebhook, type JobBody, type JobEvent } from "coatcheck";
import { Addresses } from "../dist/addresses.js";
import { keyHeader } from "../dist/requestHeaders.js";
import { ScriptedServer, type Step } from "./scriptedServer.js";
import { JOB_ID, JOB_URL, cases, errorNamed, noting } from "./vectors.js";

interface Failing {
  readonly error?: string;
  readonly code?: string;
}

/** What was thrown is exactly the class that the case names, with its code. */
function assertIs(thrown: unknown, expected: Failing): void {
  assert(expected.error !== undefined && thrown instanceof Error, String(thrown));
  assert.equal(thrown.constructor, errorNamed(expected.error), String(thrown));
  if (expected.code !== undefined) assert.equal((thrown as CoatcheckError).code, expected.code);
}

async function thrownBy(act: () => unknown): Promise<unknown> {
  try {
    await act();
  } catch (error) {
    return error;
  }
  return null;
}

describe("addresses are these", () => {
  interface Case extends Failing {
    readonly base_url: string;
    readonly org: string;
    readonly call: [string, ...unknown[]];
    readonly url?: string;
  }
  for (const { name, base_url, org, call, ...expected } of cases<Case>("addresses")) {
    test(name, async () => {
      const addresses = new Addresses(base_url, org);
      const [method, ...given] = call;
      const act = (): unknown => (addresses as unknown as Record<string, Function>)[method]?.(...given);
      if (expected.error !== undefined) assertIs(await thrownBy(act), expected);
      else assert.equal(act(), expected.url);
    });
  }
});

describe("a key is spelt so", () => {
  for (const { name, key, header, ...expected } of cases<{ key: string; header?: string } & Failing>("idempotency_keys")) {
    test(name, async () => {
      if (expected.error !== undefined) assertIs(await thrownBy(() => keyHeader(key)), expected);
      else assert.equal(keyHeader(key), header);
    });
  }
});

describe("a submission says this of itself", () => {
  interface Case {
    readonly options: Record<string, unknown>;
    readonly target: string;
    readonly headers: Readonly<Record<string, string | null>>;
    readonly body: string | null;
    readonly payload?: unknown;
  }
  const ticket = { job_id: JOB_ID, status: "queued", terminal: false, poll_url: JOB_URL };
  const answer = { ...ticket, events_url: `${JOB_URL}/events`, cancel_url: `${JOB_URL}/cancel` };
  for (const { name, options, target, headers, body, payload } of cases<Case>("submissions")) {
    test(name, () =>
      ScriptedServer.run([{ status: 202, json: answer }], async (server) => {
        const { client } = noting({ url: server.url });
        const { idempotency_key: idempotencyKey, ...others } = options as Record<string, string>;
        await client.submit("docs", "analyze", payload, { ...others, idempotencyKey });
        const [asked] = server.asked;
        assert.equal(asked?.target, target);
        assert.equal(asked?.body.toString() === "" ? null : asked?.body.toString(), body);
        for (const [header, value] of Object.entries(headers)) {
          assert.equal(asked?.headers[header] ?? null, value, header);
        }
      }),
    );
  }
});

describe("an answer stands for this error", () => {
  interface Case extends Failing {
    readonly answer: Step;
    readonly message: string;
    readonly request_id?: string;
    readonly retry_after?: number;
    readonly details?: [string, string, string][];
  }
  for (const { name, answer, ...expected } of cases<Case>("errors")) {
    test(name, () =>
      ScriptedServer.run([answer], async (server) => {
        const { client } = noting({ url: server.url, maxRetries: 0 });
        const error = await thrownBy(() => client.job("docs", JOB_ID).status());
        assertIs(error, expected);
        assert(error instanceof ApiError);
        assert.equal(error.status, answer.status);
        assert.equal(error.reason, expected.message);
        assert.equal(error.requestId, expected.request_id ?? null);
        assert.equal(error.retryAfter, expected.retry_after ?? null);
        const details = error.details.map(({ field, issue, location }) => [field, issue, location]);
        assert.deepEqual(details, expected.details ?? []);
        assert(!`${error.message}${JSON.stringify(error)}`.includes("10.0.0.7"));
      }),
    );
  }
});

describe("a submission is sent again where that can help", () => {
  interface Case extends Failing {
    readonly answers: Step[];
    readonly pauses: number[];
    readonly requests: number;
  }
  for (const { name, answers, pauses, requests, ...expected } of cases<Case>("retries")) {
    test(name, () =>
      ScriptedServer.run(answers, async (server) => {
        const noted = noting({ url: server.url, maxRetries: 4 });
        const submit = () => noted.client.submit("docs", "analyze", { text: "x" });
        if (expected.error !== undefined) {
          assertIs(await thrownBy(submit), expected);
        } else {
          const job = await submit();
          assert.deepEqual([job.id, job.state, job.terminal], [JOB_ID, "queued", false]);
        }
        assert.deepEqual(noted.pauses, pauses);
        assert.equal(server.asked.length, requests);
        assert.equal(new Set(server.asked.map((asked) => asked.headers["idempotency-key"])).size, 1);
      }),
    );
  }
});

describe("a wait lasts until the end", () => {
  interface Case extends Failing {
    readonly answers: Step[];
    readonly pauses: number[];
    readonly result?: unknown;
    readonly reason?: string;
  }
  for (const { name, answers, pauses, result, ...expected } of cases<Case>("waits")) {
    test(name, () =>
      ScriptedServer.run(answers, async (server) => {
        const noted = noting({ url: server.url, maxRetries: 4 });
        const wait = () => noted.client.job("docs", JOB_ID).wait();
        if (expected.error !== undefined) assertIs(await thrownBy(wait), expected);
        else assert.deepEqual(await wait(), result);
        assert.deepEqual(noted.pauses, pauses);
        assert.deepEqual([...new Set(server.asked.map((asked) => asked.target))], [`${JOB_URL}?wait=30`]);
      }),
    );
  }
});

describe("a cancellation is done once", () => {
  interface Case extends Failing {
    readonly answers: Step[];
    readonly requests: string[];
    readonly status?: string;
  }
  for (const { name, answers, requests, status, ...expected } of cases<Case>("cancellations")) {
    test(name, () =>
      ScriptedServer.run(answers, async (server) => {
        const job = noting({ url: server.url }).client.job("docs", JOB_ID);
        if (expected.error !== undefined) assertIs(await thrownBy(() => job.cancel()), expected);
        else assert.equal((await job.cancel()).status, status);
        assert.deepEqual(
          server.asked.map((asked) => `${asked.method} ${asked.target.replace(JOB_URL, "")}`),
          requests,
        );
      }),
    );
  }
});

describe("a stream shows everything once", () => {
  interface Case extends Failing {
    readonly after?: string;
    readonly connections: { readonly last_event_id: string | null; readonly answer: Step }[];
    readonly events: unknown[][];
    readonly pauses: number[];
  }
  for (const { name, after, connections, events, pauses, ...expected } of cases<Case>("streams")) {
    test(name, () =>
      ScriptedServer.run(
        connections.map((connection) => connection.answer),
        async (server) => {
          const noted = noting({ url: server.url, maxRetries: 4 });
          const seen: unknown[][] = [];
          const error = await thrownBy(async () => {
            for await (const event of noted.client.job("docs", JOB_ID).stream({ after })) seen.push(shown(event));
          });
          assert.deepEqual(seen, events);
          if (expected.error === undefined) assert.equal(error, null);
          else assertIs(error, expected);
          assert.deepEqual(noted.pauses, pauses);
          assert.deepEqual(
            server.asked.map((asked) => asked.headers["last-event-id"] ?? null),
            connections.map((connection) => connection.last_event_id),
          );
          assert.deepEqual([...new Set(server.asked.map((asked) => asked.target))], [`${JOB_URL}/events`]);
        },
      ),
    );
  }
});

/** An event, as the cases spell it. */
function shown(event: JobEvent<JobBody>): unknown[] {
  if (event.name === "state" || event.name === "end") return [event.name, event.data.status, event.id];
  if (event.name === "log") return [event.name, event.data.message, event.id];
  if (event.data instanceof Uint8Array) {
    return [event.name, { bytes: Buffer.from(event.data).toString("base64") }, event.id];
  }
  return [event.name, event.data, event.id];
}

describe("a webhook is genuine or refused", () => {
  interface Case extends Failing {
    readonly secret: string | string[];
    readonly now: number;
    readonly headers: Readonly<Record<string, string>>;
    readonly body?: string;
    readonly body_base64?: string;
    readonly event?: Readonly<Record<string, unknown>>;
  }
  for (const { name, secret, now, headers, body, body_base64, event, ...expected } of cases<Case>("webhooks")) {
    test(name, async () => {
      const payload = body ?? Buffer.from(body_base64 ?? "", "base64");
      const verify = () => verifyWebhook(payload, headers, secret, { now: now * 1000 });
      if (expected.error !== undefined) {
        assertIs(await thrownBy(verify), expected);
        return;
      }
      const { previousState, ...shown } = await verify();
      assert.deepEqual({ ...shown, previous_state: previousState }, event);
      const bytes = typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
      assert.equal((await verifyWebhook(bytes, new Headers(headers), secret, { now: now * 1000 })).id, event?.["id"]);
    });
  }
});
