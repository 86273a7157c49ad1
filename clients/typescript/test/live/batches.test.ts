import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { BatchFailedError, ConflictError, type BatchProgress } from "coatcheck";
import { collected, connect } from "./server.js";

const client = connect();
const desk = { service: "desk", endpoint: "/count" };

function* texts(count: number): Generator<unknown> {
  for (let number = 0; number < count; number += 1) {
    yield { custom_id: `text-${number}`, input: { text: "word ".repeat(number % 3) } };
  }
}

test("a few tasks run, those that failed run again, and all results are fetched", async () => {
  const told: BatchProgress[] = [];
  const tasks = [...texts(3), { custom_id: "odd", input: { text: 7 } }];
  const batch = await client.batches.create({ ...desk, tasks, retries: 0, metadata: { by: "the tests" } });
  const body = await batch.wait({ timeoutMs: 60_000, onProgress: (progress) => told.push(progress) });
  assert.deepEqual([body.counts.total, body.counts.succeeded, body.counts.failed], [4, 3, 1]);
  assert.equal(told.at(-1)?.progress, 1);
  const results = await collected(batch.tasks({ status: "succeeded" }));
  assert.deepEqual(results.map((task) => task.result), [{ words: 0 }, { words: 1 }, { words: 2 }]);
  const [failed] = await collected(batch.tasks({ status: "failed" }));
  assert.deepEqual([failed?.custom_id, failed?.error?.code], ["odd", "invalid_input"]);
  assert(failed !== undefined);
  assert.deepEqual((await client.batches.task(batch.id, failed.id)).input, { text: 7 });
  assert.deepEqual(await client.batches.taskResult(batch.id, results[2]?.id ?? ""), { words: 2 });

  await batch.rerun({ status: "failed" });
  assert.equal((await batch.wait({ timeoutMs: 60_000 })).runs.length, 2);

  const made = await batch.export({ run: batch.body.runs[0]?.id, timeoutMs: 60_000 });
  const zip = await client.download(made);
  assert.equal(new TextDecoder().decode(zip.slice(0, 2)), "PK");
  assert((await collected(client.batches.list())).some((each) => each.id === batch.id));
  await batch.delete();
});

test("a long list is staged, and a list of lines with a bad one is taken in", async () => {
  const long = await client.batches.create({ ...desk, tasks: texts(1_500) });
  assert.equal((await long.wait({ timeoutMs: 120_000 })).counts.succeeded, 1_500);

  const file = new Blob(['{"text": "a b"}\n', "nonsense\n", '{"text": "c"}\n']);
  const lines = await client.batches.create({ ...desk, file, idempotencyKey: randomUUID(), concurrency: 2 });
  assert.equal((await lines.wait({ timeoutMs: 60_000 })).counts.total, 2);
  assert.deepEqual((await collected(lines.badLines())).map(({ line }) => line), [2]);

  const uploadId = await client.uploads.create(new Blob(['{"text": "staged"}\n']));
  const staged = await client.batches.create({ ...desk, uploadId });
  assert.equal((await staged.wait({ timeoutMs: 60_000 })).counts.succeeded, 1);
});

test("lines can be sent as they are made", async () => {
  const encoder = new TextEncoder();
  let number = 0;
  const ndjson = new ReadableStream<Uint8Array>({
    pull(controller) {
      if (number === 20) controller.close();
      else controller.enqueue(encoder.encode(`{"text": "${"x ".repeat(number++)}"}\n`));
    },
  });
  const batch = await client.batches.create({ ...desk, ndjson });
  assert.equal((await batch.wait({ timeoutMs: 60_000 })).counts.succeeded, 20);
});

test("an open batch takes tasks until it is closed, and a cancelled one says so", async () => {
  const open = await client.batches.create({ ...desk, isOpen: true });
  assert.equal(open.state, "open");
  await open.add({ tasks: texts(2) });
  await open.close();
  assert.equal((await open.wait({ timeoutMs: 60_000 })).counts.succeeded, 2);
  await assert.rejects(open.add({ tasks: texts(1) }), ConflictError);

  const endless = await client.batches.create({ ...desk, endpoint: "/until-cancelled", tasks: [{}] });
  await endless.cancel();
  await assert.rejects(endless.wait({ timeoutMs: 60_000 }), (error) => {
    return error instanceof BatchFailedError && error.code === "cancelled";
  });
});
