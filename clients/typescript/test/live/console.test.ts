import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { ConflictError, NotFoundError } from "coatcheck";
import { collected, connect } from "./server.js";

const client = connect();

test("a job of any surface is found, read and retried", async () => {
  const idempotencyKey = randomUUID();
  const job = await client.submit("desk", "fail", undefined, { idempotencyKey });
  await assert.rejects(job.wait({ timeoutMs: 60_000 }));
  const [found, ...others] = await collected(client.jobs.list({ q: idempotencyKey }));
  assert.deepEqual([found?.id, others.length], [job.id, 0]);
  const seen = await client.jobs.get(job.id);
  assert.deepEqual([seen.surface, seen.service, seen.state, seen.error?.code], ["gateway", "desk", "failed", "no_mailbox"]);
  const kinds = (await client.jobs.timeline(job.id)).map((item) => item.kind);
  assert.deepEqual([kinds[0], kinds.at(-1)], ["created", "finished"]);

  const again = await client.jobs.retry(job.id);
  assert.equal(again.retry_of, job.id);
  await assert.rejects(client.job("desk", again.id).wait({ timeoutMs: 60_000 }), /no_mailbox/);
  const { items } = await client.jobs.bulk("retry", { ids: [again.id] });
  assert.deepEqual([items[0]?.id, items[0]?.ok], [again.id, true]);
  await assert.rejects(client.jobs.get("01JAV8M2Q0XW3N5T7R9Y1B3D5F"), NotFoundError);
});

test("a job is listed by what it is, says what it has said, and is cancelled", async () => {
  const told = await client.submit("desk", "tell", undefined, { wait: 60 });
  const lines = await collected(client.jobs.log(told.id));
  assert.deepEqual(lines.map((line) => [line.kind, line.message]), [["log", "counted"]]);
  const filter = { service: "desk", state: "ended", surface: "gateway", createdAfter: new Date(Date.now() - 3_600_000) };
  assert((await collected(client.jobs.list(filter))).some((each) => each.id === told.id));
  await assert.rejects(client.jobs.cancel(told.id), ConflictError);
  const waiting = await client.submit("desk", "until-cancelled");
  await client.jobs.cancel(waiting.id);
  await assert.rejects(waiting.wait({ timeoutMs: 60_000 }), /cancelled/);
  assert.equal((await client.jobs.cancel(waiting.id)).state, "cancelled");
});

test("what a job waits for is explained on its own surface and on the console", async () => {
  const job = await client.submit("desk", "count", { text: "a" }, { wait: 60 });
  for (const explained of [await job.explain(), await client.jobs.explain(job.id)]) {
    assert.deepEqual([explained.job_id, explained.terminal], [job.id, true]);
    assert(explained.summary.length > 0);
  }
  const batch = await client.batches.create({ service: "desk", endpoint: "/until-cancelled", tasks: [{}] });
  assert.equal((await batch.explain()).terminal, false);
  await batch.cancel();
  const overview = await client.jobs.overview({ minutes: 5 });
  assert.equal(overview.org_id, "default");
  assert(overview.series.length > 0);
});
