/** A graph is polled by sending its request again, and its caller sees none of that. */

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

test("it waits as long as it is told, else 10 seconds, under one key, and sends the archive once", () =>
  ScriptedServer.run(
    [answer("pending", { retryAfter: 3 }), answer("processing"), answer("completed", { result: { message: "done" } })],
    async (server) => {
      const { client, pauses } = noting({ url: server.url });
      const told: GraphProgress[] = [];
      const graph = await client.generateCallGraph(ZIP, { onProgress: (progress) => told.push(progress) });
      assert.equal(graph.message, "done");
      assert.deepEqual(pauses, [3, 10]);
      assert.deepEqual(
        told.map(({ status, attempt }) => [status, attempt]),
        [["pending", 1], ["processing", 2], ["completed", 3]],
      );
      assert.deepEqual([...new Set(server.asked.map((asked) => `${asked.method} ${asked.target}`))], ["POST /v1/graphs/call"]);
      assert.equal(new Set(server.asked.map((asked) => asked.headers["idempotency-key"])).size, 1);
      const sent = server.asked.map((asked) => asked.body.includes("PK, as far"));
      assert.deepEqual(sent, [true, false, false]);
    },
  ));

test("a server that has forgotten the key gets the archive again", () =>
  ScriptedServer.run(
    [
      answer("pending", { retryAfter: 1 }),
      { status: 422, problem: { code: "archive_rejected", message: "It is empty." } },
      answer("pending", { jobId: "01M8", retryAfter: 1 }),
      answer("completed", { jobId: "01M8", result: {} }),
    ],
    async (server) => {
      const { client } = noting({ url: server.url });
      assert.deepEqual(await client.generateDependencyGraph(ZIP, { idempotencyKey: "mine" }), {});
      assert.deepEqual(server.asked.map((asked) => asked.body.includes("PK, as far")), [true, false, true, false]);
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

test("it gives up after 90 polls of 10 seconds, of 15 minutes, or as many as are allowed", async () => {
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
  await ScriptedServer.run([answer("processing", { retryAfter: 901 })], async (server) => {
    await assert.rejects(noting({ url: server.url }).client.generateCallGraph(ZIP), PollingTimeoutError);
  });
});

test("a signal ends it between two polls", () =>
  ScriptedServer.run([answer("processing", { retryAfter: 600 })], async (server) => {
    const { client } = noting({ url: server.url });
    const leaving = new AbortController();
    client.exchange.pause = async (_, signal) => {
      leaving.abort(new Error("enough"));
      signal?.throwIfAborted();
    };
    await assert.rejects(client.generateCallGraph(ZIP, { signal: leaving.signal }), /enough/);
  }));
