import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import {
  AuthenticationError,
  ConflictError,
  Coatcheck,
  InvalidRequestError,
  JobFailedError,
  NotFoundError,
  WaitTimeoutError,
  type Progress,
} from "coatcheck";
import { collected, connect, setting } from "./server.js";

const CHUNKS = ["one", { two: [2] }, Uint8Array.of(0, 255), "four", "five", 6];
const client = connect();

test("work goes in and its result comes out", async () => {
  const job = await client.submit<{ words: number }>("desk", "count", { text: "to be or not" }, { lane: "urgent" });
  assert.equal(job.terminal, false);
  assert.deepEqual(await job.wait({ timeoutMs: 60_000 }), { words: 4 });
  assert.deepEqual([job.state, job.terminal, job.result?.words], ["completed", true, 4]);
  assert.deepEqual([job.body?.lane, job.body?.endpoint_key, job.body?.last_error], ["urgent", "post__count", null]);
  const again = client.job<{ words: number }>("desk", job.id);
  assert.deepEqual(await again.wait(), { words: 4 });
  assert.deepEqual(again.urls, job.urls);
});

test("a submission can wait for the end", async () => {
  const job = await client.submit("desk", "count", { text: "a b" }, { wait: 60 });
  assert.deepEqual([job.terminal, job.result], [true, { words: 2 }]);
});

test("a call is answered by the endpoint", async () => {
  assert.deepEqual(await client.call("desk", "count", { text: "a b c" }), { words: 3 });
  assert.equal(await client.call("desk", "items/7?colour=dark%20red", undefined, { method: "PUT" }), "7 is dark red");
  const put = await client.submit("desk", "/items/8", { colour: "blue" }, { method: "PUT", version: 1 });
  assert.equal(await put.wait(), "8 is blue");
});

test("a call that takes longer than the server holds it is waited for", async () => {
  const name = randomUUID();
  const calling = client.call("desk", `hold/${name}`);
  await client.call("desk", `seen/${name}`);
  await client.call("desk", `release/${name}`);
  assert.equal(await calling, "at last");
});

test("a wait can be given up and taken up again", async () => {
  const name = randomUUID();
  const job = await client.submit("desk", `hold/${name}`);
  await assert.rejects(job.wait({ timeoutMs: 50 }), WaitTimeoutError);
  await assert.rejects(job.wait({ timeoutMs: 50, onProgress: () => undefined }), WaitTimeoutError);
  const leaving = new AbortController();
  const waiting = job.wait({ signal: leaving.signal });
  leaving.abort(new Error("seen enough"));
  await assert.rejects(waiting, /seen enough/);
  await client.call("desk", `release/${name}`);
  assert.equal(await job.wait(), "at last");
});

test("failures have the server's code", async () => {
  const job = await client.submit("desk", "fail");
  for (const failing of [() => job.wait(), () => client.call("desk", "fail")]) {
    await assert.rejects(failing, (error) => {
      assert(error instanceof JobFailedError);
      assert.deepEqual([error.code, error.reason, error.status], ["no_mailbox", "there is no such mailbox", "failed"]);
      return true;
    });
  }
});

test("a stream tells the whole story, and can be taken up behind any event", async () => {
  const job = await client.submit("desk", "tell");
  const events = await collected(job.stream());
  const chunks = events.filter((event) => event.name === "chunk");
  assert.deepEqual(chunks.map((event) => event.data), CHUNKS);
  const [line] = events.filter((event) => event.name === "log");
  assert.deepEqual([line?.data.message, line?.data.fields], ["counted", { words: 3 }]);
  assert.equal(events.at(-1)?.name, "end");
  assert.deepEqual([job.state, job.result], ["completed", CHUNKS.length]);
  const rest = await collected(client.job("desk", job.id).stream({ after: chunks[3]?.id }));
  assert.deepEqual(rest.filter((event) => event.name === "chunk").map((event) => event.data), CHUNKS.slice(4));
});

test("a stream that is cut again and again loses nothing and repeats nothing", async () => {
  const cut = connect({ url: setting("COATCHECK_CUTTING_URL") });
  const job = await cut.submit("desk", "tell");
  const chunks = (await collected(job.stream())).filter((event) => event.name === "chunk");
  assert.deepEqual(chunks.map((event) => event.data), CHUNKS);
  assert.equal(new Set(chunks.map((event) => event.id)).size, CHUNKS.length);
});

test("progress is told while a job is waited for", async () => {
  const told: Progress[] = [];
  const job = await client.submit("desk", "tell");
  assert.equal(await job.wait({ onProgress: (progress) => told.push(progress) }), CHUNKS.length);
  assert.deepEqual(told, [{ fraction: 0.5, note: "half way" }]);
});

test("a job that waits for its end is cancelled, and one that has ended is not", async () => {
  const job = await client.submit("desk", "until-cancelled");
  for await (const event of job.stream()) {
    if (event.name === "state" && event.data.status === "processing") await job.cancel();
  }
  assert.equal(job.state, "cancelled");
  await assert.rejects(job.wait(), (error) => error instanceof JobFailedError && error.code === "cancelled");
  assert.equal((await job.cancel()).status, "cancelled");
  const done = await client.submit("desk", "count", { text: "" }, { wait: 60 });
  await assert.rejects(done.cancel(), ConflictError);
});

test("the files of a job are listed and downloaded", async () => {
  const job = await client.submit("desk", "draw", undefined, { wait: 60 });
  const [empty, plan] = await job.artifacts();
  assert(empty !== undefined && plan !== undefined);
  assert.deepEqual([plan.name, plan.media_type, plan.bytes], ["plan.svg", "image/svg+xml", 600_000]);
  const bytes = await client.download(plan);
  assert.equal(new TextDecoder().decode(bytes), "<svg/>".repeat(100_000));
  let received = 0;
  for await (const piece of client.downloadStream(plan)) received += piece.length;
  assert.equal(received, plan.bytes);
  assert.equal((await client.download(empty)).length, 0);
  await assert.rejects(client.download({ ...plan, sha256: empty.sha256 }), /checksum/);
});

test("the same key finds the same job", async () => {
  const idempotencyKey = `Größe-${randomUUID()}`;
  const first = await client.submit("desk", "count", { text: "a" }, { idempotencyKey });
  const second = await client.submit("desk", "count", { text: "b" }, { idempotencyKey });
  assert.deepEqual([first.replayed, first.mismatch], [false, false]);
  assert.deepEqual([second.id, second.replayed, second.mismatch], [first.id, true, true]);
  const strict = { idempotencyKey, headers: { prefer: "handling=strict" } };
  await assert.rejects(client.submit("desk", "count", { text: "b" }, strict), (error) => {
    return error instanceof InvalidRequestError && error.code === "idempotency_mismatch";
  });
});

test("refusals say what is wrong", async () => {
  await assert.rejects(client.submit("desk", "count", { text: "a" }, { lane: "fast" }), (error) => {
    assert(error instanceof InvalidRequestError);
    assert.deepEqual([error.status, error.code], [400, "unknown_lane"]);
    assert(error.requestId);
    return true;
  });
  await assert.rejects(client.job("desk", "01JAV8M2Q0XW3N5T7R9Y1B3D5F").status(), NotFoundError);
  const stranger = connect({ apiKey: "cck_nobody_sesame" });
  await assert.rejects(stranger.submit("desk", "count"), (error) => {
    assert(error instanceof AuthenticationError);
    assert(!error.message.includes("sesame"));
    return true;
  });
});

test("a token may come from a function", async () => {
  let asked = 0;
  const token = async (): Promise<string> => {
    asked += 1;
    return setting("COATCHECK_API_KEY");
  };
  const bearer = new Coatcheck({ url: setting("COATCHECK_URL"), token });
  assert.deepEqual(await bearer.call("desk", "count", { text: "a" }), { words: 1 });
  assert.equal(asked, 1);
});
