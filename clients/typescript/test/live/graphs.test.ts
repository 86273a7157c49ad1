import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { openAsBlob } from "node:fs";
import { test } from "node:test";
import { InvalidRequestError, PollingTimeoutError, type GraphProgress } from "coatcheck";
import { connect, setting } from "./server.js";

const client = connect();

test("a graph comes of an archive, and the same key finds it again", async () => {
  const archive = await openAsBlob(setting("COATCHECK_ARCHIVE"));
  const idempotencyKey = randomUUID();
  const told: GraphProgress[] = [];
  const options = { idempotencyKey, onProgress: (progress: GraphProgress) => told.push(progress) };
  const graph = await client.generateCallGraph(archive, options);
  const names = graph.graph.nodes.map((node) => node.properties?.["name"]);
  assert(names.includes("ada") && names.includes("grace"), JSON.stringify(names));
  assert(graph.graph.relationships.some((each) => each.type === "calls"));
  assert.equal(told.at(-1)?.status, "completed");
  assert.deepEqual(await client.generateCallGraph(archive, { idempotencyKey }), graph);
  // The server answers a known key without reading what comes with it, however long that is.
  const long = new Blob([new Uint8Array(48 * 1024 * 1024)]);
  assert.deepEqual(await client.generateCallGraph(long, { idempotencyKey }), graph);
});

test("an archive that is none is refused, and patience has an end", async () => {
  await assert.rejects(client.generateParseGraph(new TextEncoder().encode("no zip")), (error) => {
    return error instanceof InvalidRequestError && error.code === "archive_rejected";
  });
  const archive = await openAsBlob(setting("COATCHECK_ARCHIVE"));
  await assert.rejects(client.generateDomainGraph(archive, { maxAttempts: 1 }), PollingTimeoutError);
});
