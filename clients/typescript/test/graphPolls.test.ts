/** A graph is waited for by long-polls, and its caller sees none of that. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JobFailedError, PollingTimeoutError, type GraphProgress } from "coatcheck";
import { ScriptedServer, type Step } from "./scriptedServer.js";
import { noting } from "./vectors.js";

const ZIP = new TextEncoder().encode("PK, as far as a script can tell");

function answer(status: string, fields: Record<string, unknown> = {}): Step {
  const terminal = status === "completed" || status === "failed";
  const envelope = { status, jobId: "01M7", terminal, operation: "call", progress: null, retryAfter: null };
  return { status: terminal ? 200 : 202, json: { ...envelope, ...fields } };
}

test("it sends the archive once and then asks to be told of the end; a server that does not hold is given time", () =>
  ScriptedServer.run(
    [
      answer("pending", { retryAfter: 3 }),
      answer("processing", { retryAfter: 4 }),
      answer("processing"),
      answer("completed", { result: { message: "done" } }),
    ],
    async (server) => {
      const { client, pauses } = noting({ url: server.url });
      const told: GraphProgress[] = [];
      const graph = await client.generateCallGraph(ZIP, { onProgress: (progress) => told.push(progress) });
      assert.equal(graph.message, "done");
      assert.deepEqual(pauses, [4, 10]);
      assert.deepEqual(
        told.map(({ status, attempt }) => [status, attempt]),
        [["pending", 1], ["processing", 2], ["processing", 3], ["completed", 4]],
      );
      assert.deepEqual(
        server.asked.map((asked) => `${asked.method} ${asked.target}`),
        ["POST /v1/graphs/call", ...Array.from({ length: 3 }, () => "GET /v1/graphs/jobs/01M7?wait=30")],
      );
      assert.equal(server.asked[0]?.body.includes("PK, as far"), true);
    },
  ));

test("a server that has forgotten the job gets the archive again, under the same key", () =>
  ScriptedServer.run(
    [
      answer("pending", { retryAfter: 1 }),
      { status: 404, problem: { code: "job_not_found", message: "There is no such job." } },
      answer("pending", { jobId: "01M8", retryAfter: 1 }),
      answer("completed", { jobId: "01M8", result: {} }),
    ],
    async (server) => {
      const { client } = noting({ url: server.url });
      assert.deepEqual(await client.generateDependencyGraph(ZIP, { idempotencyKey: "mine" }), {});
      assert.deepEqual(server.asked.map((asked) => asked.body.includes("PK, as far")), [true, false, true, false]);
      assert.deepEqual(server.asked.map((asked) => asked.headers["idempotency-key"]), ["mine", undefined, "mine", undefined]);
    },
  ));

test("a job that fails says why", () =>
  ScriptedServer.run([answer("failed", { error: "It cannot be read.", errorCode: "archive_rejected" })], async (server) => {
    const { client } = noting({ url: server.url });
    await assert.rejects(client.generateParseGraph(ZIP), (error) => {
      assert(error instanceof JobFailedError);
      assert.deepEqual([error.code, error.reason, error.jobId], ["archive_rejected", "It cannot be read.", "01M7"]);
      return true;
    });
  }));

test("it gives up after 90 polls, or as many as are allowed, or when its time is up", async () => {
  await ScriptedServer.run([answer("processing"), answer("processing")], async (server) => {
    const { client, pauses } = noting({ url: server.url });
    const options = { maxAttempts: 2, idempotencyKey: "mine" };
    await assert.rejects(client.generateDomainGraph(ZIP, options), (error) => {
      assert(error instanceof PollingTimeoutError);
      assert.deepEqual([error.attempts, error.idempotencyKey, error.status], [2, "mine", "processing"]);
      return true;
    });
    assert.deepEqual(pauses, [10]);
  });
  await ScriptedServer.run(Array.from({ length: 90 }, () => answer("processing")), async (server) => {
    const { client, pauses } = noting({ url: server.url });
    await assert.rejects(client.generateSupermodelGraph(ZIP), PollingTimeoutError);
    assert.deepEqual(pauses, Array.from({ length: 89 }, () => 10));
  });
  await ScriptedServer.run([answer("processing"), answer("processing", { retryAfter: 901 })], async (server) => {
    const { client } = noting({ url: server.url });
    // A little longer: timers may fire a moment early.
    client.exchange.pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000 + 50));
    await assert.rejects(client.generateCallGraph(ZIP, { timeoutMs: 200 }), PollingTimeoutError);
  });
});

test("a signal ends it between two polls", () =>
  ScriptedServer.run([answer("processing"), answer("processing", { retryAfter: 600 })], async (server) => {
    const { client } = noting({ url: server.url });
    const leaving = new AbortController();
    client.exchange.pause = async (_, signal) => {
      leaving.abort(new Error("enough"));
      signal?.throwIfAborted();
    };
    await assert.rejects(client.generateCallGraph(ZIP, { signal: leaving.signal }), /enough/);
  }));
